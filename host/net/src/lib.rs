//! The ways out of the machine: [`egress`] is the only way to the network, and [`oci`] fetches components from
//! registries by it.
//!
//! This crate is internal to Portcullis and promises no stability; use the types that the library `portcullis` exports.

pub mod egress;
pub mod oci;
pub mod signature;
