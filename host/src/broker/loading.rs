//! What a broker loads code from, and what it writes: none of it is where a source could change it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{BuildError, default_sink_file};
use crate::config::{Config, Endpoint, PluginRef, real_file};
use crate::ledger::LedgerError;
use crate::lockfile::Lock;
use crate::plugin::{Origin, Plugins};
use crate::private::{self, NotPrivate};

/// Where compiled code is kept in the state folder.
const COMPILED: &str = "compiled";

/// Makes the data folder, checks what stands in it and beside it, and starts the plugin host.
pub(super) fn plugins(config: &Config, lock: &Lock) -> Result<Plugins, BuildError> {
    let made = DirBuilder::new().recursive(true).mode(private::FOLDER_MODE).create(&config.data_dir);
    made.map_err(|error| LedgerError::File { act: "create", path: config.data_dir.clone(), cause: error.to_string() })?;
    private::narrow_folder(&config.data_dir.join("logs"))?;
    apart_from_grants(config, lock)?;
    // What compiles nothing keeps nothing.
    let state_dir = config.state_dir.as_deref().filter(|_| cfg!(feature = "compiler"));
    let compiled = state_dir.map(compiled_in).transpose()?.flatten();
    Ok(Plugins::with_origin(compiled.as_deref(), Origin::new(&config.data_dir, lock))?)
}

/// The folder of compiled code. None where the system lets nobody keep any, which costs time and nothing else; one that others
/// could have written into is an error.
fn compiled_in(state_dir: &Path) -> Result<Option<PathBuf>, NotPrivate> {
    match private::folder(state_dir) {
        Ok(()) => Ok(Some(state_dir.join(COMPILED))),
        Err(NotPrivate::Io { path, error }) => {
            let way_out = "set XDG_STATE_HOME to a folder that this user may write";
            tracing::warn!(folder = path, %error, "compiled plugins are not kept, and each start compiles them; {way_out}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whoever may write a file that is loaded as it is decides what is loaded; and whoever may write a sink's file decides what was
/// recorded. What is pinned is checked by its bytes.
fn apart_from_grants(config: &Config, lock: &Lock) -> Result<(), BuildError> {
    let sinks = config.sinks.iter().enumerate().map(|(index, sink)| {
        let file = sink.file.clone().unwrap_or_else(|| default_sink_file(&config.data_dir, index));
        ("the sink's file", file, "write its lines elsewhere, with `file` of the sink")
    });
    let pinned = |name: &str| lock.components().iter().any(|entry| entry.component == name);
    let plugins = config.plugins().into_iter().filter_map(|plugin| match plugin {
        PluginRef::Path(path) if !pinned(&plugin.to_string()) => {
            let way_out = "move it away, or pin it with `portcullis lock accept --components`";
            Some(("the plugin", path.clone(), way_out))
        }
        _ => None,
    });
    for (what, file, way_out) in sinks.chain(plugins) {
        let names = [real_file(&file), file.canonicalize().unwrap_or_else(|_| file.clone()), file.clone()];
        for source in config.sources.values().filter(|source| !matches!(source.endpoint, Endpoint::Url { .. })) {
            let holds = |folder: &Path| names.iter().any(|name| name.starts_with(folder));
            let real = |folder: &PathBuf| folder.canonicalize().is_ok_and(|folder| holds(&folder));
            if let Some(folder) = source.cell.write.iter().find(|folder| holds(folder) || real(folder)) {
                let (source_name, folder) = (source.name.clone(), folder.clone());
                return Err(BuildError::Writable { what, file, source_name, folder, way_out });
            }
        }
    }
    Ok(())
}
