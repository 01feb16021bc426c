//! The checkpoints that a broker signs of its own chain while it writes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::private;

use super::checkpoint::{Checkpoint, SignedCheckpoint};
use super::key::CheckpointKey;
use super::merkle::MerkleTree;
use crate::record::ChainedRecord;

/// The extension of the files' names.
pub(super) const EXTENSION: &str = "checkpoint";

/// A checkpoint is signed after this many records.
const EVERY: u64 = 1000;

/// A checkpoint is signed this long after the first record that the last one does not cover.
const AFTER: Duration = Duration::from_secs(60);

/// The writer of checkpoints of one chain. A checkpoint that cannot be written stops nothing: it is evidence about
/// records, not a record.
pub(crate) struct CheckpointWriter {
    key: Option<Arc<CheckpointKey>>,
    chain: String,
    path: PathBuf,
    tree: MerkleTree,
    /// The number of records that the last checkpoint covers.
    covered: u64,
    /// The time of the first record that it does not cover.
    uncovered_since: Option<Instant>,
    has_failed: bool,
}

impl CheckpointWriter {
    pub(crate) fn new(data_dir: &Path, chain: &str, key: Option<Arc<CheckpointKey>>) -> Self {
        Self {
            key,
            chain: chain.to_owned(),
            path: path(data_dir, chain),
            tree: MerkleTree::default(),
            covered: 0,
            uncovered_since: None,
            has_failed: false,
        }
    }

    /// Takes in records that are durable.
    pub(crate) fn add(&mut self, records: &[ChainedRecord]) {
        if self.key.is_none() {
            return;
        }
        records.iter().for_each(|record| self.tree.push(&record.hash));
        self.uncovered_since.get_or_insert_with(Instant::now);
    }

    /// Signs a checkpoint if there are enough records, or enough time has passed.
    pub(crate) fn sign_if_due(&mut self) {
        if self.tree.size() - self.covered >= EVERY || self.due_in() == Some(Duration::ZERO) {
            self.sign();
        }
    }

    /// Returns the time until a checkpoint is due; `None` if the last one covers everything.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.uncovered_since.map(|since| AFTER.saturating_sub(since.elapsed()))
    }

    /// Signs a checkpoint of everything so far.
    pub(crate) fn sign(&mut self) {
        let Some(key) = self.key.as_ref().filter(|_| self.covered < self.tree.size()) else { return };
        let checkpoint = Checkpoint { chain: self.chain.clone(), size: self.tree.size(), root: self.tree.root() };
        self.covered = self.tree.size();
        self.uncovered_since = None;
        let signed = SignedCheckpoint::sign(checkpoint, key);
        if let Err(error) = private::replace(&self.path, signed.note().as_bytes()) {
            if !self.has_failed {
                tracing::warn!(%error, "checkpoints of the ledger cannot be written");
            }
            self.has_failed = true;
        }
    }
}

/// Returns the folder of the last checkpoint of each chain.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("checkpoints")
}

/// Returns the file of a chain's last checkpoint.
pub(super) fn path(data_dir: &Path, chain: &str) -> PathBuf {
    folder(data_dir).join(format!("{chain}.{EXTENSION}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn writer(dir: &Path) -> CheckpointWriter {
        let key = CheckpointKey::open(&dir.join("state")).unwrap();
        std::fs::create_dir(folder(dir)).unwrap();
        CheckpointWriter::new(dir, "C", Some(Arc::new(key)))
    }

    fn add(writer: &mut CheckpointWriter, records: u64) {
        let record = ChainedRecord { seq: 1, text: String::new(), hash: [1; 32] };
        (0..records).for_each(|_| writer.add(std::slice::from_ref(&record)));
        writer.sign_if_due();
    }

    #[test]
    fn a_checkpoint_is_signed_after_a_thousand_records_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        add(&mut writer, EVERY - 1);
        assert!(!path(dir.path(), "C").exists());
        assert!(writer.due_in().is_some());
        add(&mut writer, 1);
        assert!(path(dir.path(), "C").exists());
        assert_eq!(writer.due_in(), None, "an idle broker signs nothing more");
    }

    #[test]
    fn a_checkpoint_is_signed_a_minute_after_the_first_record_that_none_covers() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        add(&mut writer, 1);
        assert!(writer.due_in().unwrap() <= AFTER);
        writer.uncovered_since = Instant::now().checked_sub(AFTER);
        writer.sign_if_due();
        assert!(path(dir.path(), "C").exists());
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        std::fs::remove_dir(folder(dir.path())).unwrap();
        add(&mut writer, EVERY);
        std::fs::create_dir(folder(dir.path())).unwrap();
        add(&mut writer, EVERY);
        assert!(path(dir.path(), "C").exists(), "the next one is written again");
    }
}
