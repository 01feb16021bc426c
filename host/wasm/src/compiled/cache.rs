//! The cache of what this broker compiled.
//!
//! Each entry is one file: a tag, then the code. The tag is an HMAC over the entry's name and the code, under a key
//! that is stored next to the entries and that only this user can read. The folder belongs to the user, never to a
//! project. The entry's name is derived from the digest of the `.wasm` file and the engine's compatibility hash.

use std::fs;
use std::hash::{Hash as _, Hasher};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use portcullis_core::digest::Digest;
use portcullis_core::private::{self, NotPrivate};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::Authentic;

/// The bytes of entries that are kept; the oldest are removed first. A compiled tool takes half a megabyte if it is in
/// Rust and 40 if in Python, so there is room for thousands of the first or dozens of the second.
const MAX_BYTES: u64 = 2 << 30;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
const EXTENSION: &str = "cwasm";

/// A folder of compiled components.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
}

impl Cache {
    /// Opens the folder, and creates it and its key if they are missing.
    ///
    /// # Errors
    /// [`NotPrivate`], also if the folder or the key is accessible to anyone but this user.
    pub(crate) fn open(folder: &Path) -> Result<Self, NotPrivate> {
        private::folder(folder)?;
        Ok(Self { folder: folder.to_owned(), key: key(folder)? })
    }

    /// Returns the component compiled from the bytes with this digest by a compatible engine; `None` if there is none,
    /// or if this broker did not write the entry.
    pub(crate) fn load(&self, engine: &Engine, wasm: &Digest) -> Option<Component> {
        let name = name(engine, wasm);
        let path = self.path(&name);
        let bytes = fs::read(&path).ok()?;
        let tagged = bytes.split_at_checked(TAG_BYTES);
        let Some(authentic) = tagged.and_then(|(tag, code)| Authentic::tagged(self.mac(&name, code)?, tag, code))
        else {
            tracing::warn!(file = %path.display(), "compiled plugin was altered; compiling it again");
            return None;
        };
        let loaded = authentic.load(engine);
        loaded.inspect_err(|error| tracing::warn!(file = %path.display(), %error, "compiled plugin does not load")).ok()
    }

    /// Stores a compiled component. The entry is replaced atomically.
    pub(crate) fn store(&self, engine: &Engine, wasm: &Digest, component: &Component) -> io::Result<()> {
        let name = name(engine, wasm);
        let code = component.serialize().map_err(|error| io::Error::other(format!("{error:#}")))?;
        let mac = self.mac(&name, &code).ok_or_else(|| io::Error::other("no tag for the entry"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&mac.finalize().into_bytes())?;
        file.write_all(&code)?;
        file.as_file().sync_data()?;
        file.persist(self.path(&name))?;
        self.drop_oldest(MAX_BYTES)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension(EXTENSION)
    }

    fn mac(&self, name: &str, code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        // The name has a fixed length, so no other pair of name and code yields the same message.
        mac.update(name.as_bytes());
        mac.update(code);
        Some(mac)
    }

    /// Removes the oldest entries until the rest takes at most this many bytes.
    fn drop_oldest(&self, most: u64) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(&self.folder)?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
            .filter_map(|path| fs::metadata(&path).ok().map(|entry| (entry.modified().ok(), path, entry.len())))
            .collect();
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(.., bytes)| bytes).sum();
        for (_, path, size) in entries {
            if bytes <= most {
                break;
            }
            fs::remove_file(path)?;
            bytes -= size;
        }
        Ok(())
    }
}

/// Reads the key, or creates it. If several brokers start at once, one of them wins and all use its key.
fn key(folder: &Path) -> Result<[u8; KEY_BYTES], NotPrivate> {
    let path = folder.join("key");
    let failed = |error: io::Error| NotPrivate::Io { path: path.display().to_string(), error };
    let file = match private::open(&path)? {
        Some(file) => file,
        None => {
            make_key(folder, &path).map_err(failed)?;
            private::open(&path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?
        }
    };
    let mut key = Vec::with_capacity(KEY_BYTES);
    file.take(2 * KEY_BYTES as u64).read_to_end(&mut key).map_err(failed)?;
    key.try_into().map_err(|_| failed(io::Error::other("it is damaged: remove it, and a new one is made")))
}

fn make_key(folder: &Path, path: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    // tempfile creates the file with mode 0600, and it is complete before it gets its name.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&key)?;
    file.as_file().sync_data()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Returns the name of an entry: 64 hexadecimal digits.
fn name(engine: &Engine, wasm: &Digest) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0 // Never called: the whole digest is used.
        }
    }
    let mut sha = Sha(Sha256::new_with_prefix(wasm.0));
    engine.precompile_compatibility_hash().hash(&mut sha);
    let digest = Digest(sha.0.finalize().into()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_oldest_entries_are_removed_until_the_rest_fits() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("compiled")).unwrap();
        for (age, name) in ["newest", "middle", "oldest"].into_iter().enumerate() {
            let file = File::create(cache.path(name)).unwrap();
            file.set_len(1000).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age as u64)).unwrap();
        }
        let left = || ["newest", "middle", "oldest"].map(|name| cache.path(name).exists());
        cache.drop_oldest(3000).unwrap();
        assert_eq!(left(), [true; 3]);
        cache.drop_oldest(2999).unwrap();
        assert_eq!(left(), [true, true, false]);
        cache.drop_oldest(0).unwrap();
        assert_eq!((left(), folder.path().join("compiled/key").exists()), ([false; 3], true));
    }
}
