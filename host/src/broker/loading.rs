//! The files that a broker loads code from or writes. None of them may be where a source could change it.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{BuildError, default_sink_file};
use crate::config::{
    Config, Endpoint, PluginConfig, PluginRef, RemoteSinkConfig, SyslogAddress, WitnessConfig, real_file,
    user_state_dir,
};
use crate::escape::escape_hidden;
use crate::ledger::LedgerError;
use crate::lockfile::Lockfile;
use crate::plugin::{PluginHost, PluginReader};
use crate::private::{self, NotPrivate};

/// The folder of compiled code within the state folder.
const COMPILED: &str = "compiled";

/// The folders within a data folder that brokers make. If they were links, the broker would write to a folder that has
/// nothing to do with brokers.
const OWN_FOLDERS: [&str; 12] = [
    "announcements",
    "chains",
    "checkpoints",
    "components",
    "key-value",
    "keys",
    "logins",
    "logs",
    "records",
    "run",
    "scans",
    "sources",
];

/// Creates the data folder, checks its contents and what lies next to it, and starts the plugin host, unless `host`
/// already runs.
pub(super) fn plugins(config: &Config, lock: &Lockfile, host: Option<&PluginHost>) -> Result<PluginHost, BuildError> {
    let made = DirBuilder::new().recursive(true).mode(private::FOLDER_MODE).create(&config.data_dir);
    made.map_err(|error| LedgerError::File {
        act: "create",
        path: config.data_dir.clone(),
        cause: format!("{error}; name another folder with `data-dir` under `[broker]`"),
    })?;
    OWN_FOLDERS.iter().try_for_each(|name| private::refuse_link(&config.data_dir.join(name)))?;
    private::narrow_folder(&config.data_dir.join("logs"))?;
    apart_from_grants(config, lock)?;
    report_unused_pins(config, lock);
    let reader = PluginReader::new(&config.data_dir, config.folder(), lock).trusting(&config.plugin_keys)?;
    if let Some(host) = host {
        return Ok(host.with_other_pins(reader));
    }
    // A build without a compiler keeps no compiled code.
    let state_dir = state_dir(config).filter(|_| cfg!(feature = "compiler"));
    let compiled = state_dir.as_deref().map(compiled_in).transpose()?.flatten();
    Ok(PluginHost::with_reader(compiled.as_deref(), reader)?)
}

/// Starts a plugin host outside of a broker, such as for an author's tests. It keeps compiled code where this user's
/// brokers keep it.
///
/// # Errors
/// [`BuildError`] if the engine cannot start, or if others could have written to the folder of compiled code.
pub fn user_plugin_host() -> Result<PluginHost, BuildError> {
    let state_dir = user_state_dir().filter(|_| cfg!(feature = "compiler"));
    let compiled = state_dir.as_deref().map(compiled_in).transpose()?.flatten();
    Ok(PluginHost::new(compiled.as_deref())?)
}

/// Returns the errors of those plugins that come with the program and refuse their settings. No other plugin is run, so
/// this can be asked of a configuration that nobody trusts yet. Such a configuration may have any number of policies that
/// take long to compile, so the caller must set a time limit. Cancellation safe.
///
/// # Errors
/// As for [`user_plugin_host`].
#[doc(hidden)]
pub async fn refused_settings(config: &Config) -> Result<Vec<BuildError>, BuildError> {
    let host = user_plugin_host()?;
    let mut refused = Vec::new();
    let mut note = |list, position, error| refused.push(BuildError::of_listed(config, list, position, error));
    for (position, plugin) in builtins(&config.policies) {
        host.policy(plugin).await.map_or_else(|error| note("`[[policies]]`", position, error), drop);
    }
    for (position, plugin) in builtins(&config.transforms) {
        host.transform(plugin).await.map_or_else(|error| note("`[[transforms]]`", position, error), drop);
    }
    for (position, plugin) in builtins(&config.approvals) {
        host.approval(plugin).await.map_or_else(|error| note("`[[approvals]]`", position, error), drop);
    }
    Ok(refused)
}

/// Returns those plugins of a list that come with the program, with their positions.
fn builtins(plugins: &[PluginConfig]) -> impl Iterator<Item = (usize, &PluginConfig)> {
    plugins.iter().enumerate().filter(|(_, plugin)| matches!(plugin.plugin, PluginRef::Builtin(_)))
}

/// Returns the state folder of a broker, if it has one. Brokers of unit tests share one unless they name it: compiling
/// the same plugins for each took most of the tests' time.
fn state_dir(config: &Config) -> Option<PathBuf> {
    let shared = cfg!(test).then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests/state"));
    config.state_dir.clone().or(shared)
}

/// Returns the folder of compiled code. `None` where none can be kept, which only costs time. A folder that other users
/// could have written to is an error.
fn compiled_in(state_dir: &Path) -> Result<Option<PathBuf>, NotPrivate> {
    match private::folder(state_dir) {
        Ok(()) => Ok(Some(state_dir.join(COMPILED))),
        Err(NotPrivate::Io { path, error }) => {
            let hint = "set XDG_STATE_HOME to a folder that this user may write";
            tracing::warn!(folder = path, %error, "compiled plugins are not kept, and each start compiles them; {hint}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Logs the pins that apply to nothing. Their target may be loaded under another name, without a pin.
fn report_unused_pins(config: &Config, lock: &Lockfile) {
    let disabled = config.disabled.values().filter_map(|source| match &source.endpoint {
        Endpoint::Component { component, .. } => Some(component),
        _ => None,
    });
    let plugins = config.plugins().into_iter().chain(disabled);
    let names: BTreeSet<String> = plugins.flat_map(|plugin| plugin.locked_names(config.folder())).collect();
    for entry in lock.components().iter().filter(|entry| !names.contains(&entry.component)) {
        let component = escape_hidden(&entry.component);
        tracing::warn!(%component, "portcullis.lock pins what the configuration does not name, so that the pin holds for nothing; if it \
             has another name now, run `portcullis lock accept --components`, and remove this entry");
    }
}

/// Refuses a source that may write a file which the broker loads or writes: such a source could replace a loaded file,
/// or the records of a sink. Pinned files are checked by their bytes instead.
fn apart_from_grants(config: &Config, lock: &Lockfile) -> Result<(), BuildError> {
    let sinks = config.sinks.iter().enumerate().map(|(index, sink)| {
        let file = sink.file.clone().unwrap_or_else(|| default_sink_file(&config.data_dir, index));
        ("the sink's file", file, "write its lines elsewhere, with `file` of the sink")
    });
    let pinned = |plugin: &PluginRef| {
        let names = plugin.locked_names(config.folder());
        lock.components().iter().any(|entry| names.contains(&entry.component))
    };
    let plugins = config.plugins().into_iter().filter_map(|plugin| match plugin {
        PluginRef::Path(path) if !pinned(plugin) => {
            let hint = "move it away, or pin it with `portcullis lock accept --components`";
            Some(("the plugin", path.clone(), hint))
        }
        _ => None,
    });
    let witnesses = config.ledger.witnesses.iter().filter_map(|witness| match witness {
        WitnessConfig::File(file) | WitnessConfig::Git(file) | WitnessConfig::Syslog(SyslogAddress::Local(file)) => {
            Some(("the witness", file.clone(), "name another one in `witnesses` of [ledger]"))
        }
        WitnessConfig::Server(_) | WitnessConfig::Syslog(_) => None,
    });
    let sockets = config.remote_sinks.iter().filter_map(|sink| match sink {
        RemoteSinkConfig::Syslog(SyslogAddress::Local(socket)) => {
            Some(("the sink's socket", socket.clone(), "name another `syslog` of the sink"))
        }
        RemoteSinkConfig::Syslog(_) | RemoteSinkConfig::Otlp(_) => None,
    });
    let keys = config.plugin_keys.iter().map(|file| ("the key", file.clone(), "move the file of `plugin-keys` away"));
    for (what, file, hint) in keys.chain(sinks).chain(plugins).chain(witnesses).chain(sockets) {
        let names = [real_file(&file), file.canonicalize().unwrap_or_else(|_| file.clone()), file.clone()];
        for source in config.sources.values().filter(|source| !matches!(source.endpoint, Endpoint::Url { .. })) {
            // Of a repository, no part may be written either.
            let holds = |folder: &Path| {
                names.iter().any(|name| name.starts_with(folder) || (name.is_dir() && folder.starts_with(name)))
            };
            let real = |folder: &PathBuf| folder.canonicalize().is_ok_and(|folder| holds(&folder));
            if let Some(folder) = source.cell.write.iter().find(|folder| holds(folder) || real(folder)) {
                let (source_name, folder) = (source.name.clone(), folder.clone());
                return Err(BuildError::Writable { what, file, source_name, folder, hint });
            }
        }
    }
    Ok(())
}
