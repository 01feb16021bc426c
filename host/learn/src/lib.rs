//! Proposes the smallest cell in which a source works, from what the source attempted in a smaller one.
//!
//! [`Proposal::of`] turns recorded attempts into lines of a cell, each with its evidence: files and folders that exist
//! outside and were hidden, or that must not be changed and were; hosts that were refused. Files that every program
//! looks for are left out (module `noise`), and those that hold credentials are named and never proposed.
//! [`variables_read`] finds the variables that its code names. [`calls`] makes the calls by which an otherwise idle
//! server shows its needs. [`KnownServer`] has the measured needs of widely used ones.

pub mod calls;
mod known_servers;
mod noise;
mod proposal;
mod variables;

pub use known_servers::KnownServer;
pub use portcullis_cell::variables_in;
pub use proposal::{CellKey, CellLine, Proposal, SourceFacts};
pub use variables::{VariableUse, variables_read};
