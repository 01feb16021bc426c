//! Real servers behind the real program, driven by real clients: software of others, which cannot be adapted to the
//! broker.
//!
//! `tests/interop/setup.sh` installs them; `cargo test -p portcullis-tests --features interop --test interop` runs
//! this.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod agentdojo;
mod broker;
mod caged;
mod conformance;
mod edge;
mod evaluated;
mod fidelity;
mod foreign;
mod inspector;
mod installed;
mod languages;
mod learned;
mod lines;
mod lock;
mod official;
mod registry;
mod rmcp_clients;
mod sealed;
mod transparent;
