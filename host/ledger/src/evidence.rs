//! Evidence for people who do not trust this machine: signed checkpoints of chains, and proofs that a record stands in
//! one.
//!
//! A checkpoint is kept elsewhere. Later it shows whether the records that it covers are still as they were, even if
//! somebody recomputed every hash. It covers a chain from its first record, and through the chain's seals the chains
//! that ended before it.

mod checkpoint;
mod key;
mod merkle;
mod note;
mod proof;
mod verified_chain;
mod writer;

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
