//! Checkpoints: the number of records of a chain and the root of their Merkle tree, signed. The format is that of
//! C2SP's `tlog-checkpoint`.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::private;

use super::key::CheckpointKey;
use super::note::{self, NoteProblem, PublicKey};
use super::writer;
use crate::LedgerError;
use crate::chain;
use crate::files::names_in;
use crate::record::RecordHash;
use crate::segment::Segments;
use crate::storage::{Storage as _, StorageLimits};
use crate::verify::{ChainStatus, Verification, VerifiedSegments, verify_after};

/// The largest checkpoint that is read, in bytes; each signature of a witness has about 150.
const MAX_NOTE_BYTES: u64 = 64 * 1024;

/// The beginning of the first line, before the name of the chain.
const ORIGIN: &str = "portcullis/";

/// The state of a chain at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) chain: String,
    /// The number of records.
    pub(crate) size: u64,
    /// The root of the Merkle tree over them.
    pub(crate) root: RecordHash,
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
        // Further lines are not ours, and a number may be written in only one way.
        (chain::is_name(&checkpoint.chain) && text == checkpoint.text()).then_some(checkpoint)
    }
}

/// A checkpoint with its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    pub(crate) checkpoint: Checkpoint,
    note: String,
}

/// The reason why a file is not a valid checkpoint.
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
    #[error("checkpoint {0} was changed after it was signed: its signature does not match")]
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
/// [`CheckpointError`] about the first that is not valid: an unchecked one would give false certainty.
pub fn read_checkpoints(text: &str, keys: &[PublicKey]) -> Result<Vec<SignedCheckpoint>, CheckpointError> {
    let notes = note::split(text).into_iter().enumerate();
    let opened: Result<Vec<_>, _> = notes.map(|(at, note)| SignedCheckpoint::open(note, keys, at + 1)).collect();
    opened.and_then(|found| if found.is_empty() { Err(CheckpointError::Empty) } else { Ok(found) })
}

/// Verifies the ledger of a data folder and signs checkpoints that cover it: one for each chain that no other chain has
/// sealed. The signed tree is the one that the verification made of certainly confirmed records: any later ones may
/// belong to an append that fails and be replaced. `keys` are those with which the checkpoints in the data folder are
/// checked. The verification resumes from the state in `verified`, as [`verify_after`](crate::verify_after) does;
/// otherwise this blocks for a time in proportion to the size of the ledger. Brokers may continue to write.
///
/// # Errors
/// [`LedgerError::Damaged`] if the ledger was tampered with, so that nothing false is signed; otherwise the
/// [`LedgerError`] that occurred.
pub fn checkpoints(
    data_dir: &Path,
    key: &CheckpointKey,
    keys: &[PublicKey],
    verified: &mut VerifiedSegments,
) -> Result<Vec<SignedCheckpoint>, LedgerError> {
    let found = untampered(data_dir, &[], keys, verified)?;
    let stored = Segments::new(data_dir, StorageLimits::default()).chains()?;
    let mut signed = Vec::new();
    for report in found.chains.iter().filter(|report| report.sealed.is_none() && stored.contains(&report.chain)) {
        let tree = verified.states(&report.chain).pop().map(|state| state.tree).unwrap_or_default();
        if tree.size() > 0 {
            let checkpoint = Checkpoint { chain: report.chain.clone(), size: tree.size(), root: tree.root() };
            signed.push(SignedCheckpoint::sign(checkpoint, key));
        }
    }
    if signed.is_empty() {
        let cause = "it has only records that an earlier version wrote; a checkpoint covers them after the next start of a broker";
        return Err(LedgerError::file("sign the ledger in", data_dir, cause));
    }
    Ok(signed)
}

/// Verifies the ledger before any part of it is signed, also against a checkpoint that was kept elsewhere.
pub(super) fn untampered(
    data_dir: &Path,
    kept: &[SignedCheckpoint],
    keys: &[PublicKey],
    verified: &mut VerifiedSegments,
) -> Result<Verification, LedgerError> {
    let found = verify_after(data_dir, kept, keys, verified)?;
    if let ChainStatus::Tampered { chain, seq, reason } = found.verdict {
        let place = chain.zip(seq).map(|(chain, seq)| format!("record {seq} of chain {chain}: ")).unwrap_or_default();
        return Err(LedgerError::Damaged { path: data_dir.to_owned(), cause: format!("{place}{reason}") });
    }
    Ok(found)
}

/// Returns the checkpoints in a data folder that one of these keys signed, and the fault in the first that one of them
/// should have signed. Checkpoints of other keys are ignored.
pub(crate) fn kept(data_dir: &Path, keys: &[PublicKey]) -> (Vec<SignedCheckpoint>, Option<String>) {
    let (mut kept, mut problem) = (Vec::new(), None);
    let folder = writer::folder(data_dir);
    // An unreadable folder tells nothing about the records.
    for name in names_in(&folder).unwrap_or_default() {
        let Some(chain) = name.strip_suffix(writer::EXTENSION).and_then(|name| name.strip_suffix('.')) else {
            continue;
        };
        let path = folder.join(&name);
        match read_note(&path).map(|note| SignedCheckpoint::open(note, keys, 1)) {
            Ok(Ok(signed)) if signed.chain() == chain => kept.push(signed),
            Ok(Err(CheckpointError::UnknownKey(_))) => {}
            Err(error) => problem = problem.or(Some(format!("the checkpoint in {path:?} cannot be read: {error}"))),
            Ok(_) => problem = problem.or(Some(format!("the checkpoint in {path:?} is not as it was signed"))),
        }
    }
    (kept, problem)
}

/// Reads a file of the data folder, whatever else has its name.
fn read_note(path: &Path) -> Result<String, String> {
    let file = private::open(path).map_err(|error| error.to_string())?.ok_or("it was removed")?;
    let mut note = String::new();
    file.take(MAX_NOTE_BYTES).read_to_string(&mut note).map_err(|error| error.to_string())?;
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_read_as_it_is_written_and_in_no_other_way() {
        let checkpoint = Checkpoint { chain: "01A".to_owned(), size: 12, root: [7; 32] };
        let text = checkpoint.text();
        assert_eq!(Checkpoint::parse(&text), Some(checkpoint));
        for (from, to) in [("01A", "01/A"), ("01A", ""), ("12", "012"), ("12", "+12"), ("portcullis", "other")] {
            assert_eq!(Checkpoint::parse(&text.replacen(from, to, 1)), None, "{to}");
        }
        assert_eq!(Checkpoint::parse(&format!("{text}more\n")), None, "a line that nobody here writes");
    }
}
