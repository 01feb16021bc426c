//! Where the bytes of plugins come from, and what they must be.
//!
//! A pin is checked on the bytes in memory, and those are what is compiled or, if they are compiled code, run: no file is opened
//! again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::compiled::{self, Precompiled, Unfit};
use super::load::Wasm;
use super::{PluginError, blocking, builtin, limits};
use crate::config::PluginRef;
use crate::digest::Digest;
use crate::lockfile::Lock;
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
            PluginRef::Path(path) => {
                let path = path.clone();
                blocking(move || Ok(Some(Digest::of(&file(&path)?)))).await
            }
            PluginRef::Oci(reference) if reference.digest().is_some() => Ok(None),
            PluginRef::Oci(reference) => match oci::resolve(&self.store, reference).await {
                Ok(digest) => Ok(Some(digest)),
                Err(error) => Err(PluginError::Fetch { plugin: plugin.to_string(), error }),
            },
        }
    }

    /// A plugin, which is what it must be.
    pub(super) async fn read(&self, plugin: &PluginRef) -> Result<Wasm, PluginError> {
        let name = plugin.to_string();
        let (path, pin) = match plugin {
            PluginRef::Builtin(builtin) => return Ok(Wasm::new(name, builtin::find(builtin)?.to_vec())),
            PluginRef::Oci(reference) => {
                let fetched = match reference.digest().or_else(|| self.pins.get(&name).copied()) {
                    Some(digest) => oci::fetch(&self.store, reference, digest).await,
                    None => Err(OciError::Unpinned),
                };
                return match fetched {
                    Ok(bytes) => Ok(Wasm::new(name, bytes)),
                    Err(error) => Err(PluginError::Fetch { plugin: name, error }),
                };
            }
            PluginRef::Pinned(path, digest) => {
                let (by, way_out) = ("the configuration says", "if that is wanted, write what it is now");
                (path, Some(Pin { digest: *digest, by, way_out }))
            }
            PluginRef::Path(path) => {
                let way_out = "if that is wanted, run `portcullis lock accept --components`";
                let pin =
                    self.pins.get(&name).map(|digest| Pin { digest: *digest, by: "portcullis.lock says", way_out });
                (path, pin)
            }
        };
        let path = path.clone();
        blocking(move || match pin {
            Some(pin) => pin.open(&path),
            None if is_compiled(&path) => Err(PluginError::Unpinned { plugin: name }),
            None => Ok(Wasm::new(name, file(&path)?)),
        })
        .await
    }
}

/// What a file must be.
struct Pin {
    digest: Digest,
    /// Who says so.
    by: &'static str,
    way_out: &'static str,
}

impl Pin {
    fn open(self, path: &Path) -> Result<Wasm, PluginError> {
        let Self { digest: pinned, by, way_out } = self;
        let (plugin, bytes) = (path.display().to_string(), file(path)?);
        let found = if is_compiled(path) {
            match Precompiled::open(bytes, pinned) {
                Ok(code) => return Ok(Wasm::precompiled(plugin, code)),
                Err(Unfit::Foreign) => {
                    let reason = "it is not what `portcullis plugin compile` makes".to_owned();
                    return Err(PluginError::OtherEngine { plugin, reason });
                }
                Err(Unfit::Changed(found)) => found,
            }
        } else {
            let wasm = Wasm::new(plugin.clone(), bytes);
            if wasm.digest == pinned {
                return Ok(wasm);
            }
            wasm.digest
        };
        Err(PluginError::Changed { plugin, found, pinned, by, way_out })
    }
}

fn is_compiled(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == compiled::EXTENSION)
}

fn file(path: &Path) -> Result<Vec<u8>, PluginError> {
    let plugin = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte more than may be, to tell a large file from a cut one.
    let read = File::open(path).and_then(|file| file.take(limits::COMPONENT_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| PluginError::Read { plugin: plugin.clone(), reason: error.to_string() })?;
    if bytes.len() as u64 > limits::COMPONENT_BYTES {
        let (needs, limit) = ("a larger file".into(), format!("{} MiB", limits::COMPONENT_BYTES >> 20));
        return Err(PluginError::TooLarge { plugin, needs, limit });
    }
    Ok(bytes)
}
