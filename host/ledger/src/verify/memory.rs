//! The parts that earlier verifications found good, so that a later one reads only newer records.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portcullis_core::digest::{Digest, hex};
use portcullis_core::private;

use crate::LedgerError;
use crate::chain::{ChainTip, hash_of};
use crate::evidence::{MerkleTree, VerifiedChainState};
use crate::record::RecordHash;
use crate::removed::{ChainedText, RemovedRecords};
use crate::storage::ChainPosition;

/// The folder of these files, in the user's state folder: one for each data folder.
const FOLDER: &str = "verified";

/// The version of the program that verified: another one may find what this one does not.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The largest file that is read, in bytes. Each segment takes some 2 KiB of it.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The segments of a data folder's chains that earlier verifications found good. They are kept in the user's state
/// folder: write access to the data folder is not enough to change them.
#[derive(Debug, Default)]
pub struct VerifiedSegments {
    /// The file; `None` if nothing is remembered.
    path: Option<PathBuf>,
    /// The segments of each chain, in order. Where the first records were removed, the first of these represents them.
    chains: BTreeMap<String, Vec<VerifiedSegment>>,
    /// True if all records are read again.
    reads_all: bool,
}

/// A segment that was found good up to a place, and the state of its chain there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifiedSegment {
    pub(super) place: ChainPosition,
    /// The SHA-256 of the segment up to the place.
    pub(super) digest: RecordHash,
    /// The last record.
    pub(super) tip: ChainTip,
    /// The Merkle tree over the chain's records up to that one.
    pub(super) tree: MerkleTree,
    /// True if that record is the end of the chain.
    pub(super) is_stopped: bool,
    /// True if the chain has intents that their calls did not wait for.
    pub(super) has_queued_intents: bool,
    /// The records of the segment about other chains.
    pub(super) kept: Vec<ChainedText>,
}

/// The form in which it is stored.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMemory {
    version: String,
    chains: BTreeMap<String, Vec<StoredSegment>>,
}

/// The form in which a segment is stored.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSegment {
    segment: u32,
    bytes: u64,
    digest: String,
    seq: u64,
    hash: String,
    tree: Vec<String>,
    stopped: bool,
    queued: bool,
    kept: Vec<ChainedText>,
}

impl VerifiedSegments {
    /// Reads the remembered segments of a data folder. Findings of another version of this program, or in a damaged
    /// file, are ignored.
    ///
    /// # Errors
    /// [`LedgerError::File`] if the file is open to other users or cannot be read.
    pub fn load(state_dir: &Path, data_dir: &Path) -> Result<Self, LedgerError> {
        let folder = state_dir.join(FOLDER);
        private::folder(state_dir).map_err(|error| LedgerError::file("use", state_dir, error))?;
        private::folder(&folder).map_err(|error| LedgerError::file("use", &folder, error))?;
        // A folder that does not exist has nothing to verify.
        let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
        let name = hex(&Digest::of(data_dir.as_os_str().as_encoded_bytes()).0);
        let path = folder.join(format!("{}.json", name.get(..32).unwrap_or_default()));
        let file = private::open(&path).map_err(|error| LedgerError::file("use", &path, error))?;
        let mut text = String::new();
        if let Some(file) = file {
            let read = file.take(MAX_BYTES).read_to_string(&mut text);
            read.map_err(|error| LedgerError::file("read", &path, error))?;
        }
        // A bit that a disk lost would be signed as if it had been verified.
        let whole = text.split_once('\n').filter(|(sum, json)| Digest::of(json.as_bytes()).to_string() == *sum);
        let stored = whole.and_then(|(_, json)| serde_json::from_str::<StoredMemory>(json).ok());
        let stored = stored.filter(|stored| stored.version == VERSION);
        let chains = stored.map(|stored| stored.chains).unwrap_or_default().into_iter();
        // A chain with an unreadable entry is verified from its beginning.
        let read = |(chain, segments): (String, Vec<StoredSegment>)| {
            Some((chain, segments.into_iter().map(VerifiedSegment::read).collect::<Option<Vec<_>>>()?))
        };
        Ok(Self { path: Some(path), chains: chains.filter_map(read).collect(), reads_all: false })
    }

    /// Makes the next verification read all records again. The ledger must still have everything that was found before.
    #[must_use]
    pub fn reading_all(self) -> Self {
        Self { reads_all: true, ..self }
    }

    /// Returns the file in which it is kept.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reports whether records of a chain were found before.
    #[must_use]
    pub fn has(&self, chain: &str) -> bool {
        self.chains.contains_key(chain)
    }

    /// Writes the remembered segments.
    ///
    /// # Errors
    /// [`LedgerError::File`]; the earlier file stays.
    pub fn save(&self) -> Result<(), LedgerError> {
        let Some(path) = &self.path else { return Ok(()) };
        let chains = self
            .chains
            .iter()
            .map(|(chain, segments)| (chain.clone(), segments.iter().map(VerifiedSegment::stored).collect()));
        let stored = StoredMemory { version: VERSION.to_owned(), chains: chains.collect() };
        let json = serde_json::to_string(&stored).map_err(|error| LedgerError::file("write", path, error))?;
        let text = format!("{}\n{json}", Digest::of(json.as_bytes()));
        private::replace(path, text.as_bytes()).map_err(|error| LedgerError::file("write", path, error))
    }

    /// Returns the last state of each chain that is remembered.
    pub(super) fn last(&self) -> impl Iterator<Item = (&String, &VerifiedSegment)> {
        self.chains.iter().filter_map(|(chain, segments)| Some((chain, segments.last()?)))
    }

    /// Returns the states of a chain at the ends of its segments that are known to be good, in order.
    pub(crate) fn states(&self, chain: &str) -> Vec<VerifiedChainState> {
        let segments = self.chains.get(chain).map(Vec::as_slice).unwrap_or_default().iter();
        segments.map(|of| VerifiedChainState { place: of.place, tip: of.tip, tree: of.tree.clone() }).collect()
    }

    /// Returns the segments of a chain that need not be read again if they are unchanged: those after the removed
    /// records, if the remaining data of these is the one that was found.
    pub(super) fn after(&self, chain: &str, removed: Option<&RemovedRecords>) -> &[VerifiedSegment] {
        let known = self.chains.get(chain).filter(|_| !self.reads_all).map(Vec::as_slice).unwrap_or_default();
        let Some(removed) = removed else { return known };
        let at = known.iter().position(|segment| {
            segment.place.segment == removed.segment && (segment.tip, &segment.tree) == (removed.tip, &removed.tree)
        });
        at.and_then(|at| known.get(at + 1..)).unwrap_or_default()
    }

    /// Remembers other segments of a chain instead of those so far.
    pub(super) fn replace(&mut self, chain: String, segments: Vec<VerifiedSegment>) {
        self.chains.insert(chain, segments);
    }
}

impl VerifiedSegment {
    /// Returns the stand-in for the removed records of a chain.
    pub(super) fn of_removed(removed: &RemovedRecords) -> Self {
        Self {
            place: ChainPosition { segment: removed.segment, offset: 0 },
            digest: RecordHash::default(),
            tip: removed.tip,
            tree: removed.tree.clone(),
            is_stopped: removed.is_stopped,
            has_queued_intents: false,
            kept: Vec::new(),
        }
    }

    fn read(stored: StoredSegment) -> Option<Self> {
        let StoredSegment { segment, bytes, digest, seq, hash, tree, stopped, queued, kept } = stored;
        let roots: Option<Vec<RecordHash>> = tree.iter().map(|root| hash_of(root)).collect();
        Some(Self {
            place: ChainPosition { segment, offset: bytes },
            digest: hash_of(&digest)?,
            tip: ChainTip { seq, hash: hash_of(&hash)? },
            tree: MerkleTree::of(seq, roots?)?,
            is_stopped: stopped,
            has_queued_intents: queued,
            kept,
        })
    }

    fn stored(&self) -> StoredSegment {
        StoredSegment {
            segment: self.place.segment,
            bytes: self.place.offset,
            digest: hex(&self.digest),
            seq: self.tip.seq,
            hash: hex(&self.tip.hash),
            tree: self.tree.roots().iter().map(|root| hex(root)).collect(),
            stopped: self.is_stopped,
            queued: self.has_queued_intents,
            kept: self.kept.clone(),
        }
    }
}
