//! Checkpoints: the number of records of a chain and the root of their Merkle tree, signed. The format is that of
//! C2SP's `tlog-checkpoint`.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::CheckpointKey;
use super::merkle::MerkleTree;
use super::note::{self, NoteProblem, PublicKey};
use super::writer;
use crate::LedgerError;
use crate::files::names_in;
use crate::record::Hash;
use crate::segment::Segments;
use crate::storage::{Place, Storage, StorageLimits};

/// What stands before the name of the chain in the first line.
const ORIGIN: &str = "portcullis/";

/// The state of a chain at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) chain: String,
    /// The number of records.
    pub(crate) size: u64,
    /// The root of the Merkle tree over them.
    pub(crate) root: Hash,
}

impl Checkpoint {
    fn text(&self) -> String {
        format!("{ORIGIN}{}\n{}\n{}\n", self.chain, self.size, STANDARD.encode(self.root))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let chain = lines.next()?.strip_prefix(ORIGIN)?.to_owned();
        let size = lines.next()?.parse().ok()?;
        let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        let checkpoint = Self { chain, size, root };
        // Lines that follow are not ours, and a number may be written in one way alone.
        text.starts_with(&checkpoint.text()).then_some(checkpoint)
    }
}

/// A checkpoint with its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    pub(crate) checkpoint: Checkpoint,
    note: String,
}

/// The reason why a file is no checkpoint that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It is not in the format of checkpoints.
    #[error(
        "checkpoint {0} is not a signed checkpoint of a ledger: expected the text that `portcullis audit checkpoint` prints"
    )]
    Malformed(usize),
    /// None of the keys signed it.
    #[error("checkpoint {0} is not signed by a key that is known here: name the right one with `--pubkey KEY`")]
    UnknownKey(usize),
    /// The signature is not that of the text.
    #[error("checkpoint {0} was changed after it was signed: its signature does not fit")]
    WrongSignature(usize),
    /// The file has none.
    #[error("there is no checkpoint in it")]
    Empty,
}

impl SignedCheckpoint {
    pub(super) fn sign(checkpoint: Checkpoint, key: &CheckpointKey) -> Self {
        let note = key.sign(&checkpoint.text());
        Self { checkpoint, note }
    }

    /// Reads one checkpoint that one of these keys signed. `number` is its place in its file.
    pub(super) fn open(note: String, keys: &[PublicKey], number: usize) -> Result<Self, CheckpointError> {
        let text = note::open(&note, keys).map_err(|problem| match problem {
            NoteProblem::Malformed => CheckpointError::Malformed(number),
            NoteProblem::UnknownKey => CheckpointError::UnknownKey(number),
            NoteProblem::WrongSignature => CheckpointError::WrongSignature(number),
        })?;
        let checkpoint = Checkpoint::parse(text).ok_or(CheckpointError::Malformed(number))?;
        Ok(Self { checkpoint, note })
    }

    /// Returns the chain that it covers.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.checkpoint.chain
    }

    /// Returns the number of records that it covers, from the first.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.checkpoint.size
    }

    /// Returns the text with its signatures.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }
}

/// Reads checkpoints from a text that has one or several of them, one after the other.
///
/// # Errors
/// [`CheckpointError`] about the first that does not count: one that nobody checked would give false certainty.
pub fn read_checkpoints(text: &str, keys: &[PublicKey]) -> Result<Vec<SignedCheckpoint>, CheckpointError> {
    let notes = note::split(text).into_iter().enumerate();
    let opened: Result<Vec<_>, _> = notes.map(|(at, note)| SignedCheckpoint::open(note, keys, at + 1)).collect();
    opened.and_then(|found| if found.is_empty() { Err(CheckpointError::Empty) } else { Ok(found) })
}

/// Signs checkpoints that cover the whole ledger of a data folder: one for each chain that no other chain has sealed.
/// Brokers may go on writing. Blocks for a time in proportion to the number of records in these chains.
///
/// # Errors
/// [`LedgerError`] if there is no ledger, or it cannot be read.
pub fn checkpoints(data_dir: &Path, key: &CheckpointKey) -> Result<Vec<SignedCheckpoint>, LedgerError> {
    let storage = Segments::new(data_dir, StorageLimits::default());
    let sealed = crate::chain::sealed(data_dir)?;
    let chains: BTreeSet<String> = storage.chains()?.into_iter().filter(|chain| !sealed.contains(chain)).collect();
    if chains.is_empty() {
        return Err(LedgerError::Missing(data_dir.to_owned()));
    }
    let signed = chains.into_iter().map(|chain| {
        let tree = tree(&storage, &chain)?;
        let checkpoint = Checkpoint { chain, size: tree.size(), root: tree.root() };
        Ok(SignedCheckpoint::sign(checkpoint, key))
    });
    signed.collect()
}

/// Returns the checkpoints in a data folder that one of these keys signed, and what is wrong with the first that one of
/// them should have signed. Those of other keys say nothing here.
pub(crate) fn kept(
    data_dir: &Path,
    keys: &[PublicKey],
) -> Result<(Vec<SignedCheckpoint>, Option<String>), LedgerError> {
    let (mut kept, mut problem) = (Vec::new(), None);
    let folder = writer::folder(data_dir);
    for name in names_in(&folder)? {
        let Some(chain) = name.strip_suffix(writer::EXTENSION).and_then(|name| name.strip_suffix('.')) else {
            continue;
        };
        let path = folder.join(&name);
        let note = std::fs::read_to_string(&path).map_err(|error| LedgerError::file("read", &path, error))?;
        match SignedCheckpoint::open(note, keys, 1) {
            Ok(signed) if signed.chain() == chain => kept.push(signed),
            Err(CheckpointError::UnknownKey(_)) => {}
            _ => problem = problem.or(Some(format!("the checkpoint in {path:?} is not as it was signed"))),
        }
    }
    Ok((kept, problem))
}

/// Builds the tree over all records of a chain.
fn tree(storage: &dyn Storage, chain: &str) -> Result<MerkleTree, LedgerError> {
    let mut tree = MerkleTree::default();
    let mut reader = storage.read(chain, Place::default())?;
    while let Some(batch) = reader.skip()? {
        batch.hashes.iter().for_each(|hash| tree.push(hash));
    }
    Ok(tree)
}
