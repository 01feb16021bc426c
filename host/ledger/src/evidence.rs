//! Evidence for people who do not trust this machine: signed checkpoints of chains, and proofs that a record stands in
//! one.
//!
//! A checkpoint is kept elsewhere. Later it shows whether the records that it covers are unchanged, even if somebody
//! recomputed every hash. It covers a chain from its first record, and through the chain's seals the chains that ended
//! before it.

mod checkpoint;
mod key;
mod merkle;
mod note;
mod proof;
mod verified_chain;
mod writer;

use tokio::sync::watch;

use super::Ledger;

pub use checkpoint::{CheckpointError, SignedCheckpoint, checkpoints, read_checkpoints};
pub use key::CheckpointKey;
pub use note::{NotAPublicKey, PublicKey};
pub use proof::{ProofError, RecordProof, prove};

pub(super) use checkpoint::kept;
pub(super) use merkle::MerkleTree;
#[cfg(test)]
pub(super) use proof::proofs;
#[cfg(test)]
pub(super) use verified_chain::VerifiedChain;
pub(super) use verified_chain::VerifiedChainState;
pub(super) use writer::{CheckpointWriter, folder};

impl Ledger {
    /// Returns a receiver of the checkpoints of this chain, as they are signed: after a thousand records, a minute
    /// after the first record that no checkpoint covers, and at the end of the chain. It ends when the ledger is
    /// closed.
    #[must_use]
    pub fn signed_checkpoints(&self) -> watch::Receiver<Option<SignedCheckpoint>> {
        self.inner.signed.clone()
    }
}
