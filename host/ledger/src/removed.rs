//! Removed records: the data kept about those that were too old, which is all that the verification of the others
//! needs. The chain that recorded the removal has the digest of it, so it cannot be changed or added later.

use portcullis_core::digest::{Digest, hex};
use serde_json::json;

use super::LedgerError;
use super::chain::{ChainTip, hash_of};
use super::evidence::MerkleTree;
use super::record::{ChainedRecord, Event, EventKind, Record, RecordHash, hash};

/// The first records of a chain, which were removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemovedRecords {
    pub(super) chain: String,
    /// The last of them.
    pub(super) tip: ChainTip,
    /// The last segment, or what else a storage divides a chain into, that was removed with all before it.
    pub(super) segment: u32,
    /// The time of the newest, in milliseconds since the Unix epoch.
    pub(super) until: u64,
    /// True if the last of them is the end of the chain.
    pub(super) is_stopped: bool,
    /// The Merkle tree over them.
    pub(super) tree: MerkleTree,
    /// The records among them about other chains: seals and removals.
    pub(super) kept: Vec<ChainedText>,
}

/// A record that was kept, by its number.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainedText {
    pub(super) seq: u64,
    pub(super) text: String,
}

/// The form in which it is stored.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    chain: String,
    seq: u64,
    hash: String,
    segment: u32,
    until: u64,
    stopped: bool,
    /// The roots of the tree's largest whole subtrees, largest first, in hexadecimal digits.
    tree: Vec<String>,
    kept: Vec<ChainedText>,
}

impl RemovedRecords {
    /// Returns the state of a chain from which nothing was removed yet.
    pub(super) fn none(chain: &str) -> Self {
        let (chain, tip, tree) = (chain.to_owned(), ChainTip::default(), MerkleTree::default());
        Self { chain, tip, segment: 0, until: 0, is_stopped: false, tree, kept: Vec::new() }
    }

    /// Takes in the next record.
    ///
    /// # Errors
    /// The fault in the record, in words. Evidence of tampering is not removed.
    pub(super) fn push(&mut self, record: &ChainedRecord, parsed: &Record) -> Result<(), String> {
        let ChainedRecord { seq, text, hash: found } = record;
        if *seq != self.tip.seq + 1 || *found != hash(&self.tip.hash, text.as_bytes()) {
            return Err(format!("record {} is not as it was written", self.tip.seq + 1));
        }
        self.tip = ChainTip { seq: *seq, hash: *found };
        self.tree.push(found);
        self.until = self.until.max(parsed.at);
        self.is_stopped = parsed.kind == EventKind::BrokerStopped.as_str();
        if [EventKind::ChainSealed, EventKind::RecordsRemoved].iter().any(|kind| parsed.kind == kind.as_str()) {
            self.kept.push(ChainedText { seq: *seq, text: text.clone() });
        }
        Ok(())
    }

    /// Returns the event that is recorded before anything is removed.
    pub(super) fn event(&self) -> Event {
        let body = json!({
            "chain": self.chain,
            "seq": self.tip.seq,
            "hash": hex(&self.tip.hash),
            "root": hex(&self.tree.root()),
            "until": self.until,
            "digest": self.digest(),
        });
        Event::new(EventKind::RecordsRemoved, body)
    }

    /// Returns the digest of its stored form.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.to_text().as_bytes())
    }

    /// Returns its stored form, a JSON object on one line.
    pub(super) fn to_text(&self) -> String {
        let stored = Stored {
            chain: self.chain.clone(),
            seq: self.tip.seq,
            hash: hex(&self.tip.hash),
            segment: self.segment,
            until: self.until,
            stopped: self.is_stopped,
            tree: self.tree.roots().iter().map(|root| hex(root)).collect(),
            kept: self.kept.clone(),
        };
        serde_json::to_string(&stored).map(|text| text + "\n").unwrap_or_default()
    }

    /// Reads its stored form. There is one for each content.
    pub(super) fn parse(text: &str, chain: &str) -> Option<Self> {
        let Stored { chain: named, seq, hash, segment, until, stopped, tree, kept } =
            serde_json::from_str(text.strip_suffix('\n')?).ok()?;
        let roots: Option<Vec<RecordHash>> = tree.iter().map(|root| hash_of(root)).collect();
        let (tip, tree) = (ChainTip { seq, hash: hash_of(&hash)? }, MerkleTree::of(seq, roots?)?);
        let removed = Self { chain: named, tip, segment, until, is_stopped: stopped, tree, kept };
        (removed.chain == chain && removed.to_text() == text).then_some(removed)
    }

    /// Returns the error about a changed one.
    pub(super) fn damaged(path: &std::path::Path) -> LedgerError {
        let cause = "it does not say what is left of removed records".to_owned();
        LedgerError::Damaged { path: path.to_owned(), cause }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_left_is_read_as_it_was_written_and_in_no_other_way() {
        let mut removed = RemovedRecords { segment: 3, ..RemovedRecords::none("01A") };
        for (seq, kind) in [(1, EventKind::BrokerStarted), (2, EventKind::ChainSealed), (3, EventKind::CallIntent)] {
            let text = Event::new(kind, json!({ "chain": "0" })).draft(None).unwrap().text("01A", seq, 1);
            let record = ChainedRecord { seq, hash: hash(&removed.tip.hash, text.as_bytes()), text };
            removed.push(&record, &serde_json::from_str(&record.text).unwrap()).unwrap();
            assert!(removed.push(&record, &serde_json::from_str(&record.text).unwrap()).is_err(), "the same again");
        }
        assert_eq!(removed.kept.iter().map(|kept| kept.seq).collect::<Vec<_>>(), [2]);
        let text = removed.to_text();
        assert_eq!(RemovedRecords::parse(&text, "01A"), Some(removed));
        assert_eq!(RemovedRecords::parse(&text, "01B"), None);
        for (from, to) in [("\"seq\":3", "\"seq\":4"), ("{", "{ "), ("\"seq\":3", "\"seq\":3,\"x\":1"), ("\n", "")] {
            assert_eq!(RemovedRecords::parse(&text.replacen(from, to, 1), "01A"), None, "{to}");
        }
    }
}
