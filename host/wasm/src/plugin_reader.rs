//! The origin of plugins: where their bytes come from, and which digests they must have.
//!
//! A pin is checked against the bytes in memory, and the same bytes are then compiled or, if they are compiled code,
//! run. No file is opened twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_config::PluginRef;
use portcullis_core::digest::Digest;
use portcullis_core::lockfile::Lockfile;
use portcullis_core::private::regular_file::{self, Symlinks};
use portcullis_net::oci::{self, ComponentReference, ComponentStore, OciError};
use portcullis_net::signature::TrustedKey;

use super::compiled::{self, Precompiled, PrecompiledMismatch};
use super::load::PluginBytes;
use super::{PluginError, blocking, builtin, limits};

/// The reader of plugins, which checks them against their pins. The default has no pins and keeps nothing that it
/// fetches.
#[derive(Debug, Clone, Default)]
pub struct PluginReader {
    /// The pinned digests, by the name of the plugin in the configuration.
    pins: BTreeMap<String, Digest>,
    /// The folder of the configuration, from which names of pinned files may begin.
    folder: Option<PathBuf>,
    /// The components that were fetched from registries.
    store: ComponentStore,
    /// The keys that sign plugins, with their files. If there are any, each plugin needs a signature of one of them.
    keys: Vec<(PathBuf, TrustedKey)>,
}

impl PluginReader {
    /// Uses the pins of the lock file of a data folder, in which fetched components are kept as well. `folder` is that
    /// of the configuration.
    #[must_use]
    pub fn new(data_dir: &Path, folder: Option<&Path>, lock: &Lockfile) -> Self {
        let pins = lock.components().iter().map(|entry| (entry.component.clone(), entry.digest));
        let (store, folder) = (ComponentStore::new(data_dir), folder.map(Path::to_owned));
        Self { pins: pins.collect(), folder, store, keys: Vec::new() }
    }

    /// Returns the digest to which the lock file pins a plugin, relative to the configuration's folder or by its
    /// absolute path.
    fn pin_of(&self, plugin: &PluginRef) -> Option<Digest> {
        let names = plugin.locked_names(self.folder.as_deref());
        names.iter().find_map(|name| self.pins.get(name)).copied()
    }

    /// Loads only plugins that a key in these files has signed, besides those that come with the broker or its program.
    ///
    /// # Errors
    /// [`PluginError::Key`] if a file has no public key.
    pub fn trusting(self, files: &[PathBuf]) -> Result<Self, PluginError> {
        let read = |file: &PathBuf| {
            let refuse = |reason: String| PluginError::Key { file: file.display().to_string(), reason };
            let text = regular_file::read_text(file, Symlinks::Follow, MAX_KEY_BYTES)
                .map_err(|error| refuse(error.to_string()))?;
            Ok((file.clone(), TrustedKey::from_pem(&text).map_err(|error| refuse(error.to_string()))?))
        };
        Ok(Self { keys: files.iter().map(read).collect::<Result<_, _>>()?, ..self })
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
                Err(error) => Err(PluginError::Fetch { plugin: plugin.to_string(), reason: error.to_string() }),
            },
        }
    }

    /// Returns a digest that changes with the content of a plugin, and with the keys that must have signed it. See
    /// [`PluginHost::content_digest`](super::PluginHost::content_digest).
    pub(super) async fn content(&self, plugin: &PluginRef) -> Option<Digest> {
        let content = match plugin {
            PluginRef::Path(path) | PluginRef::Pinned(path, _) => {
                let path = path.clone();
                blocking(move || Ok(Digest::of(&file(&path)?))).await.ok()
            }
            PluginRef::Oci(reference) => reference.digest().or_else(|| self.pin_of(plugin)),
            PluginRef::Builtin(_) | PluginRef::Native(_) => None,
        };
        if self.keys.is_empty() {
            return content;
        }
        let keys: Vec<_> = self.keys.iter().map(|(_, key)| Digest::of(key.as_der())).collect();
        content.map(|content| Digest::of_serialized(&(content, keys)))
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
                let fetched = match reference.digest().or_else(|| self.pin_of(plugin)) {
                    Some(digest) => self.fetch_signed(&name, reference, digest).await?,
                    None => Err(OciError::Unpinned),
                };
                return match fetched {
                    Ok(bytes) => Ok(PluginBytes::new(name, bytes)),
                    Err(error) => Err(PluginError::Fetch { plugin: name, reason: error.to_string() }),
                };
            }
            PluginRef::Pinned(path, digest) => {
                let (by, hint) = ("the configuration says", "if that is wanted, write what it is now");
                (path, Some(Pin { digest: *digest, by, hint }))
            }
            PluginRef::Path(path) => {
                let hint = "if that is wanted, run `portcullis lock accept --components`";
                let pin = self.pin_of(plugin).map(|digest| Pin { digest, by: "portcullis.lock says", hint });
                (path, pin)
            }
        };
        let (path, keys) = (path.clone(), self.keys.clone());
        blocking(move || {
            if pin.is_none() && is_compiled(&path) {
                return Err(PluginError::Unpinned { plugin: name });
            }
            let bytes = file(&path)?;
            signed(&path, &bytes, &keys)?;
            match pin {
                Some(pin) => pin.open(&path, bytes),
                None => Ok(PluginBytes::new(name, bytes)),
            }
        })
        .await
    }

    /// Fetches a component from a registry. The outer error says that it has no signature that counts.
    async fn fetch_signed(
        &self,
        name: &str,
        reference: &ComponentReference,
        digest: Digest,
    ) -> Result<Result<Vec<u8>, OciError>, PluginError> {
        if !self.keys.is_empty() {
            let keys: Vec<_> = self.keys.iter().map(|(_, key)| key.clone()).collect();
            match oci::is_signed(&self.store, reference, digest, &keys).await {
                Ok(true) => {}
                Ok(false) => return Err(unsigned(name, "the registry has no signature of it by them", &self.keys)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(oci::fetch(&self.store, reference, digest).await)
    }
}

/// The largest file with a public key, in bytes; a key has about 100.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// The largest file with a signature, in bytes; a signature has about 100.
const MAX_SIGNATURE_BYTES: u64 = 4 << 10;

/// Checks that one of the keys, if there are any, signed a plugin: next to `FILE` there is `FILE.sig`, with the
/// signature of the file's bytes in base64.
fn signed(path: &Path, bytes: &[u8], keys: &[(PathBuf, TrustedKey)]) -> Result<(), PluginError> {
    if keys.is_empty() {
        return Ok(());
    }
    let refuse = |reason: &str| unsigned(&path.display().to_string(), reason, keys);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sig");
    let beside = PathBuf::from(beside);
    let mut text = String::new();
    let read = opened(&beside).and_then(|file| file.take(MAX_SIGNATURE_BYTES).read_to_string(&mut text));
    read.map_err(|error| refuse(&format!("{}: {error}", beside.display())))?;
    let signature = STANDARD.decode(text.trim()).map_err(|_| refuse(&format!("{} is not base64", beside.display())))?;
    match keys.iter().any(|(_, key)| key.made(&signature, bytes)) {
        true => Ok(()),
        false => Err(refuse(&format!("{} is not a signature of these bytes by them", beside.display()))),
    }
}

fn unsigned(plugin: &str, reason: &str, keys: &[(PathBuf, TrustedKey)]) -> PluginError {
    let keys: Vec<_> = keys.iter().map(|(file, _)| file.display().to_string()).collect();
    PluginError::Unsigned { plugin: plugin.to_owned(), reason: reason.to_owned(), keys: keys.join(", ") }
}

/// The digest that a file must have.
struct Pin {
    digest: Digest,
    /// The origin of the pin, as an error names it.
    by: &'static str,
    hint: &'static str,
}

impl Pin {
    fn open(self, path: &Path, bytes: Vec<u8>) -> Result<PluginBytes, PluginError> {
        let Self { digest: pinned, by, hint } = self;
        let plugin = path.display().to_string();
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
        Err(PluginError::Changed { plugin, found: found.to_string(), pinned: pinned.to_string(), by, hint })
    }
}

fn is_compiled(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == compiled::EXTENSION)
}

/// Opens a file that a configuration names: a repository may have put a device or a named pipe in its place.
fn opened(path: &Path) -> io::Result<File> {
    Ok(regular_file::open_with(File::options().read(true), path, Symlinks::Follow)?)
}

fn file(path: &Path) -> Result<Vec<u8>, PluginError> {
    let plugin = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte more than the limit, to tell a file that is too large from one that just fits.
    let read = opened(path).and_then(|file| file.take(limits::COMPONENT_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| PluginError::Read { plugin: plugin.clone(), error })?;
    if bytes.len() as u64 > limits::COMPONENT_BYTES {
        let (needs, limit) = ("a larger file".into(), format!("{} MiB", limits::COMPONENT_BYTES >> 20));
        return Err(PluginError::TooLarge { plugin, needs, limit });
    }
    Ok(bytes)
}
