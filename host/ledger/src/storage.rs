//! The place where chains are kept, as the rest of the ledger sees it. Grants and cursors are not kept here: they are
//! state, and change.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::LedgerError;
use super::chain::ChainTip;
use super::record::{ChainedRecord, RecordHash};
use super::removed::RemovedRecords;

/// A place where chains are kept.
pub(super) trait Storage: fmt::Debug + Send + Sync {
    /// Returns the writer of a new chain. Nothing is created before the first append.
    fn create(&self, chain: &str) -> Box<dyn ChainWriter>;

    /// Returns all chains that have records, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn chains(&self) -> Result<BTreeSet<String>, LedgerError>;

    /// Returns a place that is not far before the end of a chain, so that the end is found without reading everything.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn last_place(&self, chain: &str) -> Result<ChainPosition, LedgerError>;

    /// Returns a reader of a chain from a place onwards. A chain that does not exist has no records.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn read(&self, chain: &str, from: ChainPosition) -> Result<Box<dyn ChainReader>, LedgerError>;

    /// Returns the remaining data of the first records of a chain, if they were removed. A reader begins after them.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read, or was changed.
    fn removed(&self, chain: &str) -> Result<Option<RemovedRecords>, LedgerError>;

    /// Returns the chains from which records were removed.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn removed_chains(&self) -> Result<BTreeSet<String>, LedgerError>;

    /// Removes the first records of a chain, and keeps their remaining data in their place.
    ///
    /// # Errors
    /// [`LedgerError`]; either nothing is removed, or the remaining data is durable.
    fn remove(&self, removed: &RemovedRecords) -> Result<(), LedgerError>;

    /// Completes removals that a crash interrupted, except where the remaining part is unreadable.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read or written.
    fn complete_removals(&self) -> Result<(), LedgerError>;

    /// Keeps others from removing records, and from verifying them, until the returned lock is dropped; `None` if
    /// somebody does either at the moment.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be locked.
    fn lock_for_removal(&self) -> Result<Option<StorageLock>, LedgerError>;

    /// Waits until nobody removes records, and keeps others from it until the returned lock is dropped; `None` where
    /// nothing is stored.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be locked.
    fn lock_for_reading(&self) -> Result<Option<StorageLock>, LedgerError>;

    /// Keeps others from a chain until the returned lock is dropped; `None` if its broker lives, or that cannot be
    /// determined.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn lock_dead(&self, _chain: &str) -> Result<Option<StorageLock>, LedgerError> {
        Ok(None)
    }

    /// Returns the digest of the beginning of a segment, up to a place, with whether anything is stored after it;
    /// `None` if less is stored, or the storage has no digests, so that a chain is verified from its beginning each
    /// time.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be read.
    fn digest(&self, _chain: &str, _upto: ChainPosition) -> Result<Option<(SegmentDigest, bool)>, LedgerError> {
        Ok(None)
    }

    /// Makes durable what a dead broker appended to its chain, of which `tail` says what follows this end. If nothing
    /// does, the space that the broker had reserved there is released.
    ///
    /// # Errors
    /// [`LedgerError`] if the place cannot be written.
    fn finish(&self, chain: &str, end: ChainPosition, tail: &ChainEnd) -> Result<(), LedgerError>;
}

/// A lock on a storage, which is released when it is dropped.
pub(super) type StorageLock = Box<dyn fmt::Debug + Send>;

/// The writer of one chain.
pub(super) trait ChainWriter: Send {
    /// Appends records, and waits until all of them are durable. After an error none of them counts, even if they may
    /// be on disk: the next append takes their place.
    ///
    /// # Errors
    /// [`LedgerError`].
    fn append(&mut self, records: &[ChainedRecord]) -> Result<(), LedgerError>;

    /// Returns a check of whether the chain can still be found where it is written. It is cheap, and can be called from
    /// every thread.
    fn probe(&self) -> StorageProbe;

    /// Ends the writing. Nothing is appended afterwards.
    ///
    /// # Errors
    /// [`LedgerError`]; all records are durable nevertheless.
    fn finish(&mut self) -> Result<(), LedgerError>;

    /// Removes a chain that never got a record.
    fn abandon(&mut self);
}

/// A check of whether a chain can be found where it is written.
pub(super) type StorageProbe = Arc<dyn Fn() -> Result<(), LedgerError> + Send + Sync>;

/// A reader of one chain, in order.
pub(super) trait ChainReader: Send {
    /// Returns the next records, which were appended together; `None` at the end. More may follow later.
    ///
    /// # Errors
    /// [`LedgerError`] if they cannot be read. Data that is not readable as records is not an error but the end.
    fn next(&mut self) -> Result<Option<StoredBatch>, LedgerError>;

    /// Moves over the next records without reading their text; `None` at the end.
    ///
    /// # Errors
    /// As for [`ChainReader::next`].
    fn skip(&mut self) -> Result<Option<SkippedBatch>, LedgerError>;

    /// Returns how the chain ended, once `next` or `skip` returned `None`. Looks at everything that is stored after it.
    ///
    /// # Errors
    /// As for [`ChainReader::next`].
    fn end(&mut self) -> Result<ChainEnd, LedgerError>;

    /// Returns the place of the next records, from which another reader can continue.
    fn place(&self) -> ChainPosition;

    /// Digests everything that is read from now on. The digest is that of the data before the reader's place.
    fn keep_digest(&mut self, _before: SegmentDigest) {}

    /// Returns the digest of the present segment up to the reader's place, if it is kept.
    fn digest(&self) -> Option<SegmentDigest> {
        None
    }

    /// Returns the digests of the segments that the reader left since this was last called, in order.
    fn ended_segments(&mut self) -> Vec<SegmentDigest> {
        Vec::new()
    }
}

/// The digest of a segment from its beginning to a place. It can continue from there.
#[derive(Debug, Clone)]
pub(super) struct SegmentDigest {
    pub(super) place: ChainPosition,
    sha: Sha256,
}

impl SegmentDigest {
    /// Begins the digest of a segment that has not been read yet.
    pub(super) fn of(segment: u32) -> Self {
        Self { place: ChainPosition { segment, offset: 0 }, sha: Sha256::new() }
    }

    /// Takes in the next bytes of the segment.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.place.offset += bytes.len() as u64;
    }

    /// Returns the SHA-256 of the data taken in.
    pub(super) fn value(&self) -> RecordHash {
        self.sha.clone().finalize().into()
    }
}

/// A place in a chain between two batches; the default is its beginning. A place among removed records means the first
/// remaining one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct ChainPosition {
    /// The segment, or another unit into which a storage divides a chain; 0 means the first.
    pub(super) segment: u32,
    /// The offset in it, in bytes.
    pub(super) offset: u64,
}

/// Records that were appended together, and the place where they begin.
#[derive(Debug)]
pub(super) struct StoredBatch {
    pub(super) place: ChainPosition,
    pub(super) records: Vec<ChainedRecord>,
}

/// Records that were appended together, without their texts.
#[derive(Debug)]
pub(super) struct SkippedBatch {
    /// The place where they begin.
    pub(super) place: ChainPosition,
    /// The last of them.
    pub(super) tip: ChainTip,
    /// The hash of each.
    pub(super) hashes: Vec<RecordHash>,
}

/// The state of the end of a chain's stored records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChainEnd {
    /// Nothing follows.
    Clean,
    /// Something follows that is not a whole batch: the last append may have been cut by a crash.
    Torn,
    /// Something is wrong that no crash explains.
    Damaged(String),
}

/// Limits that tests make smaller.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StorageLimits {
    /// The maximum size of a segment's file in bytes, as if the disk were full then; `None` if only the disk limits it.
    pub(super) bytes: Option<u64>,
    /// The size at which the next segment begins, in bytes; `None` for the one that is used in production.
    pub(super) segment: Option<u64>,
    /// The age at which the next segment begins; `None` for the one that is used in production.
    pub(super) age: Option<Duration>,
}
