//! The checkpoints that a broker signs of its own chain while it writes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::private;
use tokio::sync::watch;

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
    folder: PathBuf,
    tree: MerkleTree,
    /// The number of records when a checkpoint was last signed, or tried to be.
    tried: u64,
    /// The time of the first record that no checkpoint covers, or of the last attempt that failed.
    uncovered_since: Option<Instant>,
    has_failed: bool,
    /// The last checkpoint that was signed, for tasks that send it elsewhere.
    signed: watch::Sender<Option<SignedCheckpoint>>,
}

impl CheckpointWriter {
    pub(crate) fn new(data_dir: &Path, chain: &str, key: Option<Arc<CheckpointKey>>) -> Self {
        Self {
            signed: watch::Sender::new(None),
            key,
            chain: chain.to_owned(),
            folder: folder(data_dir),
            tree: MerkleTree::default(),
            tried: 0,
            uncovered_since: None,
            has_failed: false,
        }
    }

    /// Returns a receiver of each checkpoint that is signed. It ends with the writer.
    pub(crate) fn signed(&self) -> watch::Receiver<Option<SignedCheckpoint>> {
        self.signed.subscribe()
    }

    /// Takes in records that are durable.
    pub(crate) fn add(&mut self, records: &[ChainedRecord]) {
        if self.key.is_none() || records.is_empty() {
            return;
        }
        records.iter().for_each(|record| self.tree.push(&record.hash));
        self.uncovered_since.get_or_insert_with(Instant::now);
    }

    /// Signs a checkpoint if there are enough records, or enough time has passed.
    pub(crate) fn sign_if_due(&mut self) {
        if self.due_in() == Some(Duration::ZERO) {
            self.sign();
        }
    }

    /// Returns the time until a checkpoint is due; `None` if the last one covers everything.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let after = if self.tree.size() - self.tried >= EVERY { Duration::ZERO } else { AFTER };
        self.uncovered_since.map(|since| after.saturating_sub(since.elapsed()))
    }

    /// Signs a checkpoint of everything so far. If it cannot be written, it is tried again later.
    pub(crate) fn sign(&mut self) {
        let Some(key) = self.key.as_ref().filter(|_| self.uncovered_since.is_some()) else { return };
        let checkpoint = Checkpoint { chain: self.chain.clone(), size: self.tree.size(), root: self.tree.root() };
        self.tried = self.tree.size();
        let signed = SignedCheckpoint::sign(checkpoint, key);
        let written = private::folder(&self.folder)
            .and_then(|()| private::replace(&self.folder.join(file_name(&self.chain)), signed.note().as_bytes()));
        self.signed.send_replace(Some(signed));
        if let (Err(error), false) = (&written, self.has_failed) {
            tracing::warn!(%error, "checkpoints of the ledger cannot be written");
        }
        self.has_failed = written.is_err();
        self.uncovered_since = written.is_err().then(Instant::now);
    }
}

/// Returns the folder of the last checkpoint of each chain.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("checkpoints")
}

/// Returns the name of the file of a chain's last checkpoint.
fn file_name(chain: &str) -> String {
    format!("{chain}.{EXTENSION}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn writer(dir: &Path) -> CheckpointWriter {
        let key = CheckpointKey::open(&dir.join("state")).unwrap();
        CheckpointWriter::new(dir, "C", Some(Arc::new(key)))
    }

    fn path(dir: &Path) -> PathBuf {
        folder(dir).join(file_name("C"))
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
        assert!(!path(dir.path()).exists());
        assert!(writer.due_in().is_some());
        add(&mut writer, 1);
        assert!(path(dir.path()).exists());
        writer.add(&[]);
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
        assert!(path(dir.path()).exists());
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path());
        std::fs::write(folder(dir.path()), "").unwrap();
        add(&mut writer, EVERY);
        assert!(writer.due_in().is_some(), "it is tried again");
        std::fs::remove_file(folder(dir.path())).unwrap();
        writer.sign();
        assert!(path(dir.path()).exists(), "in a folder that is made again");
    }
}
