//! The record of which configurations the user trusts.
//!
//! A configuration starts programs. One that was merely found in a folder is used only if the user has reviewed it: its
//! path and the digest of its bytes are kept in the user's state folder, which no source may be granted, together with
//! its effects at that time, so that a change can be shown as a difference. The data folder holds what the user has
//! accepted, so the identity of that folder is recorded too.

mod data;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::data::{DataFolder, keep_out_of_git};
use crate::digest::Digest;
use crate::private;
pub use crate::private::NotPrivate;

/// The file name of a configuration that is found in a folder.
pub const CONFIG_FILE: &str = "portcullis.toml";

/// The name of the data folder next to a configuration that names no other.
pub const DATA_FOLDER: &str = ".portcullis";

/// The names under which brokers find files that they trust.
pub const KEPT_NAMES: [&str; 2] = [CONFIG_FILE, DATA_FOLDER];

/// The name of the file in the state folder.
const FILE: &str = "trusted.json";

/// The name of a lock file that is held while the file is replaced, so that concurrent commands do not lose each
/// other's changes.
const LOCK: &str = "trusted.lock";

/// The name of a lock file that is held while a command changes a configuration.
const EDIT_LOCK: &str = "edits.lock";

/// The largest file, in bytes: a thousand configurations of some hundred lines.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// An error that says why the records of trust cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The state folder, or the file in it, is not private to this user.
    #[error(transparent)]
    Private(#[from] NotPrivate),
    /// The file was not written by this version.
    #[error("{0} is damaged: remove it with `rm {word}`, and trust again what you use", word = crate::escape::shell_word(.0))]
    Damaged(String),
    /// The file would become too large to be read.
    #[error("{0} is full: run `portcullis trust --list`, and `portcullis trust --revoke FILE` for what you do not use")]
    Full(String),
}

/// A configuration as the user trusted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustRecord {
    /// The path of the file, for people: bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The time at which the user trusted the configuration, in RFC 3339.
    pub at: String,
    /// The effects that the configuration had then: the programs it started and the places it reached, read and wrote,
    /// as `Config::effects` lists them.
    pub effects: Vec<String>,
    /// Its data folder. `None` once the folder was no longer in its place: it may have been replaced, or its content
    /// changed.
    #[serde(default)]
    pub data: Option<DataFolder>,
    /// True if no person has reviewed the configuration yet: a command made it, and added more than it trusts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

/// The trusted configurations by the digest of their path, which may not be valid UTF-8.
type All = BTreeMap<String, TrustRecord>;

/// The records of what one user trusts.
#[derive(Debug, Clone)]
pub struct TrustStore {
    state_dir: PathBuf,
}

impl TrustStore {
    /// Returns the records in a state folder, which need not exist yet. Opens nothing.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned() }
    }

    /// Returns the path of the file that holds the records. Each change puts a new file in its place.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.state_dir.join(FILE)
    }

    /// Returns the user's record of trust in a file. `file` is absolute, with the real name of its folder.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn get(&self, file: &Path) -> Result<Option<TrustRecord>, TrustError> {
        Ok(self.read()?.remove(&key(file)))
    }

    /// Returns all records, ordered by path.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn list(&self) -> Result<Vec<TrustRecord>, TrustError> {
        let mut all: Vec<_> = self.read()?.into_values().collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    /// Trusts a file with these bytes and this data folder from now on, and with no others.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn record(
        &self,
        file: &Path,
        digest: Digest,
        effects: Vec<String>,
        data: DataFolder,
    ) -> Result<(), TrustError> {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let path = file.to_string_lossy().into_owned();
        let trusted = TrustRecord { path, digest, at, effects, data: Some(data), unseen: false };
        self.change(|all| Ok(all.insert(key(file), trusted))).map(drop)
    }

    /// Notes that no person has reviewed a trusted file, until it is trusted again.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn mark_unseen(&self, file: &Path) -> Result<(), TrustError> {
        self.change(|all| {
            if let Some(trusted) = all.get_mut(&key(file)) {
                trusted.unseen = true;
            }
            Ok(())
        })
    }

    /// Creates and records the data folder of a trusted file, if it does not exist. Returns whether the folder that
    /// then exists is the one on record.
    ///
    /// # Errors
    /// If the state folder cannot be used, or the data folder cannot be created.
    pub fn ensure_data_folder(&self, file: &Path, data_dir: &Path) -> Result<bool, TrustError> {
        self.change(|all| {
            let Some(trusted) = all.get_mut(&key(file)) else { return Ok(false) };
            match DataFolder::at(data_dir) {
                Some(there) => Ok(trusted.data.as_ref() == Some(&there)),
                None => {
                    trusted.data = Some(DataFolder::make(data_dir)?);
                    Ok(true)
                }
            }
        })
    }

    /// Returns the trusted configurations and their data folders that are inside `folders` or contain one of them:
    /// absolute paths without links. `folders` are those that a source may write. A data folder that is no longer in
    /// its place is removed from its record: it may be elsewhere in these folders, unprotected, and come back with
    /// other content.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn overlapping(&self, folders: &[PathBuf]) -> Result<Vec<PathBuf>, TrustError> {
        let overlaps = |path: &Path| folders.iter().any(|folder| path.starts_with(folder) || folder.starts_with(path));
        let mut known = Vec::new();
        let mut gone = Vec::new();
        for (key, TrustRecord { path, data, .. }) in if folders.is_empty() { All::new() } else { self.read()? } {
            let file = PathBuf::from(path);
            let beside = KEPT_NAMES.map(|name| file.with_file_name(name));
            let there = |path: &PathBuf| overlaps(path) && path.canonicalize().is_ok_and(|real| real == *path);
            known.extend(beside.into_iter().chain([file]).filter(there));
            match data {
                Some(data) if !overlaps(Path::new(&data.path)) => {}
                Some(data) if data.is_in_place() => known.push(data.path.into()),
                Some(data) => gone.push((key, data)),
                None => {}
            }
        }
        if !gone.is_empty() {
            self.change(|all| {
                for (key, data) in gone {
                    let trusted = all.get_mut(&key).filter(|trusted| trusted.data.as_ref() == Some(&data));
                    trusted.into_iter().for_each(|trusted| trusted.data = None);
                }
                Ok(())
            })?;
        }
        known.sort();
        known.dedup();
        Ok(known)
    }

    /// Returns the data folders of trusted configurations that are inside one of `folders`: absolute paths without
    /// links. No record changes, whatever replaces a folder: a source that may only read there has put nothing there.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn data_folders_in(&self, folders: &[PathBuf]) -> Result<Vec<PathBuf>, TrustError> {
        let records = if folders.is_empty() { All::new() } else { self.read()? };
        let is_inside = |path: &PathBuf| folders.iter().any(|folder| path != folder && path.starts_with(folder));
        let is_there = |path: &PathBuf| path.is_dir() && path.canonicalize().is_ok_and(|real| real == *path);
        let named = records.into_values().flat_map(|TrustRecord { path, data, .. }| {
            let beside = Path::new(&path).with_file_name(DATA_FOLDER);
            std::iter::once(beside).chain(data.map(|data| PathBuf::from(data.path)))
        });
        let mut found: Vec<PathBuf> = named.filter(|path| is_inside(path) && is_there(path)).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Trusts a file no longer. Returns whether it was trusted.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn revoke(&self, file: &Path) -> Result<bool, TrustError> {
        Ok(self.change(|all| Ok(all.remove(&key(file))))?.is_some())
    }

    /// Waits until no other command of this user changes a configuration. Others wait until the returned file is
    /// dropped.
    ///
    /// # Errors
    /// If the state folder cannot be used.
    pub fn lock_edits(&self) -> Result<std::fs::File, TrustError> {
        private::folder(&self.state_dir)?;
        Ok(private::lock(&self.state_dir.join(EDIT_LOCK))?)
    }

    fn change<T>(&self, change: impl FnOnce(&mut All) -> Result<T, TrustError>) -> Result<T, TrustError> {
        private::folder(&self.state_dir)?;
        let _lock = private::lock(&self.state_dir.join(LOCK))?;
        let mut all = self.read()?;
        let changed = change(&mut all)?;
        let path = self.path();
        let bytes = serde_json::to_vec(&all).map_err(|_| TrustError::Damaged(shown(&path)))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(TrustError::Full(shown(&path)));
        }
        private::replace(&path, &bytes)?;
        Ok(changed)
    }

    fn read(&self) -> Result<All, TrustError> {
        if !private::check_folder(&self.state_dir)? {
            return Ok(All::new());
        }
        let path = self.path();
        let Some(file) = private::open(&path)? else { return Ok(All::new()) };
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| NotPrivate::Io { path: shown(&path), error })?;
        serde_json::from_slice(&bytes).map_err(|_| TrustError::Damaged(shown(&path)))
    }
}

fn key(file: &Path) -> String {
    Digest::of(file.as_os_str().as_bytes()).to_string()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_trusted_by_path_and_bytes_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(&dir.path().join("state"));
        let (file, one, other) = (Path::new("/p/portcullis.toml"), Digest::of(b"one"), Digest::of(b"other"));
        assert!(trust.get(file).unwrap().is_none() && !dir.path().join("state").exists(), "reading creates nothing");
        let data = DataFolder::make(&dir.path().join("data")).unwrap();
        trust.record(file, one, vec!["source a: starts b".to_owned()], data.clone()).unwrap();
        assert_eq!(trust.get(file).unwrap().unwrap().digest, one);
        assert!(trust.get(Path::new("/q/portcullis.toml")).unwrap().is_none(), "another file with the same bytes");
        trust.mark_unseen(file).unwrap();
        assert!(trust.get(file).unwrap().unwrap().unseen);
        trust.record(file, other, Vec::new(), data).unwrap();
        assert!(!trust.get(file).unwrap().unwrap().unseen, "who trusts it has seen it");
        let [kept] = trust.list().unwrap().try_into().unwrap();
        assert_eq!((kept.digest, kept.path.as_str()), (other, "/p/portcullis.toml"));
        assert!(trust.revoke(file).unwrap() && !trust.revoke(file).unwrap());
        assert!(trust.list().unwrap().is_empty());
    }

    #[test]
    fn a_state_folder_that_others_could_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let trust = TrustStore::new(&state);
        let data = DataFolder::make(&dir.path().join("data")).unwrap();
        trust.record(Path::new("/p/portcullis.toml"), Digest::of(b""), Vec::new(), data).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o770)).unwrap();
        let error = trust.list().unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 700 '{}'", state.display())), "{error}");
        fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
        fs::write(state.join(FILE), "{").unwrap();
        let error = trust.list().unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("rm "), "{error}");
    }

    #[test]
    fn data_folders_are_found_in_a_folder_and_no_record_changes() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(&dir.path().join("state"));
        let at = |name: &str| dir.path().join(name);
        let (file, other) = (at("code/repo/portcullis.toml"), at("code/other/portcullis.toml"));
        let data = DataFolder::make(&at("code/repo/.portcullis")).unwrap();
        trust.record(&file, Digest::of(b""), Vec::new(), data).unwrap();
        trust.record(&other, Digest::of(b""), Vec::new(), DataFolder::make(&at("code/kept")).unwrap()).unwrap();
        fs::create_dir(at("code/other")).unwrap();
        fs::create_dir(at("code/other/.portcullis")).unwrap();
        let found = |folder: &str| trust.data_folders_in(&[at(folder)]).unwrap();
        let beside = at("code/other/.portcullis");
        assert_eq!(
            found("code"),
            [at("code/kept"), beside.clone(), at("code/repo/.portcullis")],
            "also an earlier one"
        );
        assert_eq!(found("code/repo"), [at("code/repo/.portcullis")]);
        assert!(found("code/kept").is_empty() && found("elsewhere").is_empty(), "a data folder that is granted itself");
        fs::rename(at("code/kept"), at("code/moved")).unwrap();
        assert_eq!(found("code"), [beside, at("code/repo/.portcullis")]);
        assert!(trust.get(&other).unwrap().unwrap().data.is_some(), "only a writable folder makes a record doubtful");
    }

    #[test]
    fn a_data_folder_that_was_moved_while_others_could_write_there_is_no_longer_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(&dir.path().join("state"));
        let at = |name: &str| dir.path().join(name);
        let (file, data_dir) = (at("open/sub/portcullis.toml"), at("open/sub/.portcullis"));
        let data = DataFolder::make(&data_dir).unwrap();
        fs::write(&file, "").unwrap();
        trust.record(&file, Digest::of(b""), Vec::new(), data.clone()).unwrap();
        let overlapping = |folder: &str| trust.overlapping(&[at(folder)]).unwrap();
        let remembered = || trust.get(&file).unwrap().unwrap().data;
        assert_eq!(overlapping("open"), [data_dir.clone(), file.clone()]);
        assert_eq!(
            overlapping("open/sub/.portcullis/run"),
            std::slice::from_ref(&data_dir),
            "a writable folder inside a data folder counts too"
        );
        assert!(trust.overlapping(&[]).unwrap().is_empty());
        assert!(trust.ensure_data_folder(&file, &data_dir).unwrap());

        fs::rename(at("open/sub"), at("open/moved")).unwrap();
        assert!(overlapping("elsewhere").is_empty() && remembered() == Some(data), "none of the folders contains it");
        assert!(overlapping("open").is_empty() && remembered().is_none());
        fs::rename(at("open/moved"), at("open/sub")).unwrap();
        assert!(
            !trust.ensure_data_folder(&file, &data_dir).unwrap(),
            "the same folder, but its content may have changed"
        );
        fs::remove_dir_all(&data_dir).unwrap();
        assert!(trust.ensure_data_folder(&file, &data_dir).unwrap() && remembered().is_some(), "a new folder is empty");
    }
}
