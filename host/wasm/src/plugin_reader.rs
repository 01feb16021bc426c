//! The origin of plugins: where their bytes come from, and which digests they must have.
//!
//! A pin is checked against the bytes in memory, and the same bytes are then compiled or, if they are compiled code,
//! run. No file is opened twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use portcullis_config::PluginRef;
use portcullis_core::digest::Digest;
use portcullis_core::lockfile::Lockfile;
use portcullis_net::oci::{self, ComponentStore, OciError};

use super::compiled::{self, Precompiled, PrecompiledMismatch};
use super::load::PluginBytes;
use super::{PluginError, blocking, builtin, limits};

/// The reader of plugins, which checks them against their pins. The default has no pins and keeps nothing that it
/// fetches.
#[derive(Debug, Clone, Default)]
pub struct PluginReader {
    /// The pinned digests, by the name of the plugin in the configuration.
    pins: BTreeMap<String, Digest>,
    /// The components that were fetched from registries.
    store: ComponentStore,
}

impl PluginReader {
    /// Uses the pins of the lock file of a data folder, in which fetched components are kept as well.
    #[must_use]
    pub fn new(data_dir: &Path, lock: &Lockfile) -> Self {
        let pins = lock.components().iter().map(|entry| (entry.component.clone(), entry.digest));
        Self { pins: pins.collect(), store: ComponentStore::new(data_dir) }
    }

    /// Returns a plugin's current digest, whatever the lock file pins: that of a file, or of the manifest that a
    /// registry currently has for a tag. `None` for a plugin that cannot change: it comes with the broker, or the
    /// configuration itself contains its digest. Cancellation safe.
    ///
    /// # Errors
    /// The plugin cannot be read or fetched, or is too large.
    pub async fn resolve(&self, plugin: &PluginRef) -> Result<Option<Digest>, PluginError> {
        match plugin {
            PluginRef::Builtin(_) | PluginRef::Native(_) | PluginRef::Pinned(..) => Ok(None),
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

    /// Returns a digest that changes with the content of a plugin. See [`PluginHost::content`](super::PluginHost::content).
    pub(super) async fn content(&self, plugin: &PluginRef) -> Option<Digest> {
        match plugin {
            PluginRef::Path(path) | PluginRef::Pinned(path, _) => {
                let path = path.clone();
                blocking(move || Ok(Digest::of(&file(&path)?))).await.ok()
            }
            PluginRef::Oci(reference) => reference.digest().or_else(|| self.pins.get(&plugin.to_string()).copied()),
            PluginRef::Builtin(_) | PluginRef::Native(_) => None,
        }
    }

    /// Reads a plugin and checks it against its pin.
    pub(super) async fn read(&self, plugin: &PluginRef) -> Result<PluginBytes, PluginError> {
        let name = plugin.to_string();
        let (path, pin) = match plugin {
            PluginRef::Builtin(builtin) => return Ok(PluginBytes::new(name, builtin::find(builtin)?.to_vec())),
            PluginRef::Native(_) => {
                let why = "it can be a policy or a sink, or a source with `native = \"NAME\"`, and is no component";
                return Err(PluginError::Native { plugin: name, why });
            }
            PluginRef::Oci(reference) => {
                let fetched = match reference.digest().or_else(|| self.pins.get(&name).copied()) {
                    Some(digest) => oci::fetch(&self.store, reference, digest).await,
                    None => Err(OciError::Unpinned),
                };
                return match fetched {
                    Ok(bytes) => Ok(PluginBytes::new(name, bytes)),
                    Err(error) => Err(PluginError::Fetch { plugin: name, error }),
                };
            }
            PluginRef::Pinned(path, digest) => {
                let (by, hint) = ("the configuration says", "if that is wanted, write what it is now");
                (path, Some(Pin { digest: *digest, by, hint }))
            }
            PluginRef::Path(path) => {
                let hint = "if that is wanted, run `portcullis lock accept --components`";
                let pin = self.pins.get(&name).map(|digest| Pin { digest: *digest, by: "portcullis.lock says", hint });
                (path, pin)
            }
        };
        let path = path.clone();
        blocking(move || match pin {
            Some(pin) => pin.open(&path),
            None if is_compiled(&path) => Err(PluginError::Unpinned { plugin: name }),
            None => Ok(PluginBytes::new(name, file(&path)?)),
        })
        .await
    }
}

/// The digest that a file must have.
struct Pin {
    digest: Digest,
    /// The origin of the pin, as an error names it.
    by: &'static str,
    hint: &'static str,
}

impl Pin {
    fn open(self, path: &Path) -> Result<PluginBytes, PluginError> {
        let Self { digest: pinned, by, hint } = self;
        let (plugin, bytes) = (path.display().to_string(), file(path)?);
        let found = if is_compiled(path) {
            match Precompiled::open(bytes, pinned) {
                Ok(code) => return Ok(PluginBytes::precompiled(plugin, code)),
                Err(PrecompiledMismatch::Foreign) => {
                    let reason = "it is not what `portcullis plugin compile` makes".to_owned();
                    return Err(PluginError::OtherEngine { plugin, reason });
                }
                Err(PrecompiledMismatch::Changed(found)) => found,
            }
        } else {
            let wasm = PluginBytes::new(plugin.clone(), bytes);
            if wasm.digest == pinned {
                return Ok(wasm);
            }
            wasm.digest
        };
        Err(PluginError::Changed { plugin, found, pinned, by, hint })
    }
}

fn is_compiled(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == compiled::EXTENSION)
}

fn file(path: &Path) -> Result<Vec<u8>, PluginError> {
    let plugin = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte more than the limit, to tell a file that is too large from one that just fits.
    let read = File::open(path).and_then(|file| file.take(limits::COMPONENT_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| PluginError::Read { plugin: plugin.clone(), reason: error.to_string() })?;
    if bytes.len() as u64 > limits::COMPONENT_BYTES {
        let (needs, limit) = ("a larger file".into(), format!("{} MiB", limits::COMPONENT_BYTES >> 20));
        return Err(PluginError::TooLarge { plugin, needs, limit });
    }
    Ok(bytes)
}
