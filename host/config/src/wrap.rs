//! The configuration of `portcullis wrap`: one command, without a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portcullis_core::digest::Digest;
use portcullis_core::protocol::Era;

use super::error::{ConfigError, UnlocatedProblem};
use super::raw::{
    Located, RawApproval, RawBroker, RawCell, RawCommand, RawConfig, RawDiscovery, RawEra, RawNames, RawProfile,
    RawSource, RawValue,
};
use super::{Approve, Config, Destructive, Naming, build, search, value};

/// The arguments of `portcullis wrap`.
#[derive(Debug, Clone, Default)]
pub struct WrapOptions {
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
    /// The only era of MCP that is spoken with the program, or `None` for the era of the agent.
    pub era: Option<Era>,
    /// The parts of an agent's `_meta` that are passed to the program, as in
    /// [`SourceConfig::context`](super::SourceConfig::context).
    pub context: Vec<String>,
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
pub(super) fn config(wrap: &WrapOptions) -> Result<Config, ConfigError> {
    let data_dir = wrap.data_dir.clone().or_else(search::user_data_dir).ok_or_else(|| {
        let message = format!("{}, so there is no place for the ledger", search::no_home());
        ConfigError::without_place(message, "set HOME or XDG_DATA_HOME, or name a folder with `--data-dir`")
    })?;
    let texts = |list: &[String]| list.iter().cloned().map(Located::nowhere).collect::<Vec<_>>();
    let name = source_name(&wrap.argv, &wrap.base);
    let cell = RawCell {
        read: texts(&wrap.read),
        write: texts(&wrap.write),
        network: texts(&wrap.network),
        ..RawCell::default()
    };
    let env = wrap
        .env
        .iter()
        .map(|(name, value)| (Located::nowhere(name.clone()), Located::nowhere(RawValue::Plain(value.clone()))));
    let source = RawSource {
        command: Some(Located::nowhere(RawCommand::Argv(texts(&wrap.argv)))),
        env: Some(Located::nowhere(env.collect::<BTreeMap<_, _>>())),
        // The folder where the client would have started it, as its arguments may be relative.
        cwd: Some(Located::nowhere(wrap.base.to_string_lossy().into_owned())),
        cell: Some(Located::nowhere(cell)),
        names: Some(Located::nowhere(RawNames::Style("plain".to_owned()))),
        // The broker represents this one server, so it fails as the server would, and changes as it does.
        required: Some(true),
        discovery: Some(RawDiscovery::Live),
        // A person who names a private address means exactly that one.
        dangerous_allow_private: wrap.network.iter().any(|host| is_private(host)).then(|| Located::nowhere(true)),
        era: wrap.era.map(|era| match era {
            Era::Legacy => RawEra::Legacy,
            Era::Modern => RawEra::Modern,
        }),
        context: texts(&wrap.context),
        ..RawSource::default()
    };
    let raw = RawConfig {
        broker: RawBroker {
            data_dir: Some(Located::nowhere(data_dir.to_string_lossy().into_owned())),
            ..RawBroker::default()
        },
        sources: BTreeMap::from([(Located::nowhere(name), source)]),
        approvals: vec![RawApproval {
            plugin: Located::nowhere("builtin:approval-memory".to_owned()),
            settings: None,
            grant: Vec::new(),
        }],
        profiles: BTreeMap::from([(
            Located::nowhere("default".to_owned()),
            RawProfile {
                approve: wrap.approve,
                // The agent finds the tools that it has without the broker.
                destructive: Some(Destructive::Ask),
                sampling: Some(wrap.sampling),
                ..RawProfile::default()
            },
        )]),
        ..RawConfig::default()
    };
    let refuse = |problems: Vec<UnlocatedProblem>| ConfigError::of(problems, None, "");
    let mut config = build::build(&raw, None, &wrap.base).map_err(refuse)?;
    for source in config.sources.values_mut() {
        source.cell.public = source.cell.network.iter().filter(|host| !is_private(host)).cloned().collect();
    }
    if let Some(names) = &wrap.names {
        config.sources.values_mut().for_each(|source| source.names = names.clone());
    }
    Ok(config)
}

/// Reports whether a host and port themselves name a private address or this machine.
fn is_private(host: &str) -> bool {
    url::Url::parse(&format!("http://{host}/")).is_ok_and(|url| portcullis_net::egress::is_private(&url))
}

/// The programs that fetch the package that they run, each with the ecosystem of its packages.
const PACKAGE_RUNNERS: [(&str, &str); 6] =
    [("npx", "npm"), ("bunx", "npm"), ("pnpm", "npm"), ("uvx", "pypi"), ("uv", "pypi"), ("pipx", "pypi")];

/// Other words before the one that names the program.
const OTHER_RUNNERS: [&str; 6] = ["dlx", "run", "node", "python", "python3", "docker"];

/// The hexadecimal digits that tell sources apart whose names are otherwise equal: one in 16 million.
const DIGITS: usize = 6;

/// Derives a source name from the command, for use in the ledger: the ecosystem and the package with its scope, or the
/// program, and some digits of a digest. The same package or program always has the same name, and no other has it, so
/// that none replaces another that is installed.
fn source_name(argv: &[String], base: &Path) -> String {
    let file_name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let mut words = argv.iter().filter(|word| !word.starts_with('-'));
    let first = words.next().map(String::as_str).unwrap_or_default();
    let runner = |word: &str| PACKAGE_RUNNERS.into_iter().find(|(runner, _)| *runner == file_name(word));
    let is_runner = |word: &str| runner(word).is_some() || OTHER_RUNNERS.contains(&file_name(word).as_str());
    let run = if is_runner(first) { words.find(|word| !is_runner(word)).map_or(first, String::as_str) } else { first };
    let (telling, identity) = match runner(first).filter(|_| run != first) {
        Some((_, ecosystem)) => {
            // `@scope/name@1.2.3` is the package `@scope/name`.
            let version =
                run.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '<' | '>' | '~')).map(|(at, _)| at);
            let package = run.get(..version.unwrap_or(run.len())).unwrap_or(run);
            (format!("{ecosystem}-{}", package.trim_start_matches('@')), format!("{ecosystem}:{run}"))
        }
        None => (file_name(run), base.join(run).to_string_lossy().into_owned()),
    };
    let digest = Digest::of(identity.as_bytes()).to_string();
    let digits = digest.rsplit(':').next().and_then(|digits| digits.get(..DIGITS)).unwrap_or_default();
    let telling = value::sanitised_name(&telling, "wrapped");
    let room = portcullis_core::name::MAX_NAME_BYTES - DIGITS - 1;
    let telling = telling.get(..room.min(telling.len())).unwrap_or_default().trim_end_matches(['-', '_']);
    format!("{telling}-{digits}")
}
