//! The configuration of `portcullis wrap`: one command, without a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::{ConfigError, Fault};
use super::raw::{
    At, RawApproval, RawBroker, RawCell, RawCommand, RawConfig, RawNames, RawProfile, RawSource, RawValue,
};
use super::{Approve, Config, Naming, build, search, value};

/// The arguments of `portcullis wrap`.
#[derive(Debug, Clone, Default)]
pub struct Wrap {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Files and folders that the program may read.
    pub read: Vec<String>,
    /// Files and folders that the program may read and write.
    pub write: Vec<String>,
    /// Hosts that the program may reach, as `host:port`.
    pub network: Vec<String>,
    /// Environment variables that the program sees.
    pub env: Vec<(String, String)>,
    /// The style in which tools are named. `None` means plain names, so that the agent sees no difference.
    pub names: Option<Naming>,
    /// True if the program may use the agent's model.
    pub sampling: bool,
    /// The calls before which a person is asked, or `None` for risky ones.
    pub approve: Option<Approve>,
    /// The data folder, or `None` for the user's.
    pub data_dir: Option<PathBuf>,
    /// The absolute folder to which relative paths are relative.
    pub base: PathBuf,
}

/// Builds the configuration from the command line, with the same checks as for a file.
pub(super) fn config(wrap: &Wrap) -> Result<Config, ConfigError> {
    let data_dir = wrap.data_dir.clone().or_else(search::user_data_dir).ok_or_else(|| {
        ConfigError::without_place("there is no home folder to keep the ledger in", "set HOME or XDG_DATA_HOME")
    })?;
    let texts = |list: &[String]| list.iter().cloned().map(At::nowhere).collect::<Vec<_>>();
    let name = source_name(&wrap.argv);
    let cell = RawCell {
        read: texts(&wrap.read),
        write: texts(&wrap.write),
        network: texts(&wrap.network),
        ..RawCell::default()
    };
    let env =
        wrap.env.iter().map(|(name, value)| (At::nowhere(name.clone()), At::nowhere(RawValue::Plain(value.clone()))));
    let source = RawSource {
        command: Some(At::nowhere(RawCommand::Argv(texts(&wrap.argv)))),
        env: Some(At::nowhere(env.collect::<BTreeMap<_, _>>())),
        // The folder where the client would have started it, as its arguments may be relative.
        cwd: Some(At::nowhere(wrap.base.to_string_lossy().into_owned())),
        cell: Some(At::nowhere(cell)),
        names: Some(At::nowhere(RawNames::Style("plain".to_owned()))),
        // The broker stands for this one server, so that it fails as the server would.
        required: Some(true),
        ..RawSource::default()
    };
    let raw = RawConfig {
        broker: RawBroker {
            data_dir: Some(At::nowhere(data_dir.to_string_lossy().into_owned())),
            ..RawBroker::default()
        },
        sources: BTreeMap::from([(At::nowhere(name), source)]),
        approvals: vec![RawApproval {
            plugin: At::nowhere("builtin:approval-memory".to_owned()),
            settings: None,
            grant: Vec::new(),
        }],
        profiles: BTreeMap::from([(
            At::nowhere("default".to_owned()),
            RawProfile { approve: wrap.approve, sampling: Some(wrap.sampling), ..RawProfile::default() },
        )]),
        ..RawConfig::default()
    };
    let refuse = |faults: Vec<Fault>| ConfigError::of(faults, None, "");
    let mut config = build::build(&raw, None, &wrap.base).map_err(refuse)?;
    if let Some(names) = &wrap.names {
        config.sources.values_mut().for_each(|source| source.names = names.clone());
    }
    Ok(config)
}

/// Derives a source name from the command: the program, or what a launcher such as `npx` runs. The name appears in the
/// ledger, and the same command always has the same name.
fn source_name(argv: &[String]) -> String {
    const LAUNCHERS: [&str; 12] =
        ["npx", "bunx", "pnpm", "dlx", "uvx", "uv", "pipx", "run", "node", "python", "python3", "docker"];
    let last = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let mut words = argv.iter().map(|word| last(word)).filter(|word| !word.starts_with('-'));
    let first = words.next().unwrap_or_default();
    let word = match LAUNCHERS.contains(&first.as_str()) {
        true => words.find(|word| !LAUNCHERS.contains(&word.as_str())).unwrap_or(first),
        false => first,
    };
    let word = word.split_once('@').map_or(word.as_str(), |(name, _)| name);
    value::sanitised_name(word, "wrapped")
}
