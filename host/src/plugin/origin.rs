//! Where the bytes of plugins come from, and what they must be.
//!
//! A pin is checked on the bytes in memory, and those are what is compiled: no file is opened again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::load::Wasm;
use super::{PluginError, blocking, builtin, limits};
use crate::catalog::Lock;
use crate::config::PluginRef;
use crate::digest::Digest;
use crate::oci::{self, OciError, Store};

/// Where the bytes of plugins come from. The default knows no pins, and keeps nothing that it fetches.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// By how the configuration names the plugin.
    pins: BTreeMap<String, Digest>,
    /// What registries gave.
    store: Store,
}

impl Origin {
    /// With the pins of the lock of a data folder, where what is fetched is kept, too.
    #[must_use]
    pub fn new(data_dir: &Path, lock: &Lock) -> Self {
        let pins = lock.components().iter().map(|entry| (entry.component.clone(), entry.digest));
        Self { pins: pins.collect(), store: Store::new(data_dir) }
    }

    /// The digest of a plugin as it is now, whatever it was pinned to in the lock: of a file, or of the manifest that a registry
    /// has for a tag now. None for what nothing can change: it comes with the broker, or the configuration itself says its
    /// digest. Cancellation safe.
    ///
    /// # Errors
    /// If it cannot be read or fetched, or is too large.
    pub async fn resolve(&self, plugin: &PluginRef) -> Result<Option<Digest>, PluginError> {
        match plugin {
            PluginRef::Builtin(_) | PluginRef::Pinned(..) => Ok(None),
            PluginRef::Path(path) => Ok(Some(file(path).await?.digest)),
            PluginRef::Oci(reference) if reference.digest().is_some() => Ok(None),
            PluginRef::Oci(reference) => match oci::resolve(&self.store, reference).await {
                Ok(digest) => Ok(Some(digest)),
                Err(error) => Err(PluginError::Fetch { plugin: plugin.to_string(), error }),
            },
        }
    }

    /// The bytes of a plugin, which are what they must be.
    pub(super) async fn read(&self, plugin: &PluginRef) -> Result<Wasm, PluginError> {
        let name = plugin.to_string();
        match plugin {
            PluginRef::Builtin(builtin) => Ok(Wasm::new(name, builtin::find(builtin)?.to_vec())),
            PluginRef::Pinned(path, pinned) => {
                let way_out = "if that is wanted, write what it is now";
                unchanged(file(path).await?, *pinned, "the configuration says", way_out)
            }
            PluginRef::Path(path) => match self.pins.get(&name) {
                None => file(path).await,
                Some(pinned) => {
                    let way_out = "if that is wanted, run `portcullis lock accept --components`";
                    unchanged(file(path).await?, *pinned, "portcullis.lock says", way_out)
                }
            },
            PluginRef::Oci(reference) => {
                let fetched = match reference.digest().or_else(|| self.pins.get(&name).copied()) {
                    Some(digest) => oci::fetch(&self.store, reference, digest).await,
                    None => Err(OciError::Unpinned),
                };
                match fetched {
                    Ok(bytes) => Ok(Wasm::new(name, bytes)),
                    Err(error) => Err(PluginError::Fetch { plugin: name, error }),
                }
            }
        }
    }
}

async fn file(path: &Path) -> Result<Wasm, PluginError> {
    let path = path.to_owned();
    let read = move || {
        let plugin = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than may be, to tell a large file from a cut one.
        let read = File::open(path).and_then(|file| file.take(limits::COMPONENT_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| PluginError::Read { plugin: plugin.clone(), reason: error.to_string() })?;
        if bytes.len() as u64 > limits::COMPONENT_BYTES {
            let (needs, limit) = ("a larger file".into(), format!("{} MiB", limits::COMPONENT_BYTES >> 20));
            return Err(PluginError::TooLarge { plugin, needs, limit });
        }
        Ok(Wasm::new(plugin, bytes))
    };
    blocking(read).await
}

fn unchanged(wasm: Wasm, pinned: Digest, by: &'static str, way_out: &'static str) -> Result<Wasm, PluginError> {
    match wasm.digest {
        found if found == pinned => Ok(wasm),
        found => Err(PluginError::Changed { plugin: wasm.plugin, found, pinned, by, way_out }),
    }
}
