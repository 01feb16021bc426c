//! A chain that a verification found good, with its tree at the end of each segment. Roots of subtrees follow from
//! these trees and from the hashes of one segment, so that a proof does not read the whole chain.

use std::ops::Range;

use super::merkle::MerkleTree;
use crate::LedgerError;
use crate::chain::ChainTip;
use crate::record::RecordHash;
use crate::storage::{ChainPosition, Storage};

/// The state of a chain at a place between two records.
#[derive(Debug, Clone)]
pub(crate) struct VerifiedChainState {
    pub(crate) place: ChainPosition,
    /// The last record before the place.
    pub(crate) tip: ChainTip,
    /// The tree over all records up to that one.
    pub(crate) tree: MerkleTree,
}

/// The records of a chain up to the last of its states.
pub(crate) struct VerifiedChain<'a> {
    storage: &'a dyn Storage,
    chain: &'a str,
    /// The states at the ends of segments, in order. The last one is the end of the proved part.
    states: Vec<VerifiedChainState>,
}

/// The text of a record, and the hash of the one before it.
pub(crate) type FoundRecord = (String, RecordHash);

impl<'a> VerifiedChain<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, chain: &'a str, states: Vec<VerifiedChainState>) -> Self {
        Self { storage, chain, states }
    }

    pub(super) fn name(&self) -> &str {
        self.chain
    }

    /// Returns the tree over all records.
    pub(super) fn tree(&self) -> MerkleTree {
        self.states.last().map(|state| state.tree.clone()).unwrap_or_default()
    }

    /// Returns the place before a record, with the last record before that place.
    fn before(&self, seq: u64) -> (ChainPosition, ChainTip) {
        let state = self.states.iter().rfind(|state| state.tip.seq < seq);
        state.map(|state| (state.place, state.tip)).unwrap_or_default()
    }

    /// Reads a record; `None` if it is not there any more.
    pub(super) fn record(&self, seq: u64) -> Result<Option<FoundRecord>, LedgerError> {
        let (place, tip) = self.before(seq);
        let (mut reader, mut before) = (self.storage.read(self.chain, place)?, tip.hash);
        while let Some(batch) = reader.skip()? {
            if batch.tip.seq >= seq {
                let stored = self.storage.read(self.chain, batch.place)?.next()?;
                for record in stored.into_iter().flat_map(|batch| batch.records) {
                    if record.seq == seq {
                        return Ok(Some((record.text, before)));
                    }
                    before = record.hash;
                }
                return Ok(None);
            }
            before = batch.tip.hash;
        }
        Ok(None)
    }

    /// Returns the root of the subtree over the records of a range, counted from 0, which a proof names; `None` if they
    /// were removed, or are not there any more.
    pub(super) fn root(&self, range: &Range<u64>) -> Result<Option<RecordHash>, LedgerError> {
        let known = self.states.iter().filter_map(|state| state.tree.part(range));
        let known = known.filter(|part| part.size() <= range.end - range.start).max_by_key(MerkleTree::size);
        let mut tree = known.unwrap_or_default();
        let mut next = range.start + tree.size();
        if next < range.end {
            let (place, tip) = self.before(next + 1);
            let (mut reader, mut index) = (self.storage.read(self.chain, place)?, tip.seq);
            while let Some(batch) = reader.skip()?.filter(|_| next < range.end) {
                for (at, hash) in (index..).zip(&batch.hashes).filter(|(at, _)| (next..range.end).contains(at)) {
                    // A record that is missing here leaves the tree too small.
                    if at == range.start + tree.size() {
                        tree.push(hash);
                    }
                }
                index += batch.hashes.len() as u64;
                next = next.max(index);
            }
        }
        Ok((tree.size() == range.end - range.start).then(|| tree.root()))
    }
}
