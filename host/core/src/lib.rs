//! The foundation of every crate of Portcullis: names, calls, the protocol, locks, files that only their owner reads.
//!
//! This crate is internal to the library `portcullis` and promises no stability; use the types that the library
//! exports.

pub mod age;
pub mod agent;
pub mod call;
pub mod digest;
pub mod escape;
pub mod file_stamp;
pub mod flow;
pub mod item;
pub mod limits;
pub mod lockfile;
pub mod metrics;
pub mod name;
pub mod principal;
pub mod private;
pub mod protocol;
pub mod sealing_key;
pub mod secret;
pub mod sync;
pub mod trust;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
