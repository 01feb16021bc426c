//! Floods, deletions and crashes that would spoil the ledger.
