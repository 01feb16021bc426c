//! Integration tests over the real `portcullis` binary, with real sources and plugins, over stdio and HTTP.
//!
//! Cases that can be written as data are in `tests/cases`; `UPDATE_GOLDEN=1` writes the observed results as the
//! expected ones. Tests wait for events rather than for a time, and every wait has a deadline.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests, which start programs and read their environment"
)]

mod added;
mod agent;
mod approvals;
mod attacks;
mod audit;
mod authors;
mod bad_input;
mod book;
mod builtins;
mod cases;
mod cedar;
mod cell_network;
mod cells;
mod changed_lists;
mod compiled_plugins;
mod completions;
mod components;
mod concurrent_agents;
mod connect;
mod conventions;
mod crash;
mod custom_methods;
mod deferred;
mod destructive;
mod disarmed;
mod edits;
mod endurance;
mod eras;
mod evaluate;
mod evidence;
mod fairness;
mod fidelity;
mod flow;
mod forwarding;
mod groups;
mod handshake;
mod ill_sources;
mod import;
mod install_script;
mod installing;
mod learn;
mod logins;
mod memory;
mod observed;
mod odd_names;
mod osv;
mod packages;
mod placeholders;
mod plugins;
mod protocol;
mod prove;
mod quarantine;
mod questions;
mod recovery;
mod reload;
mod remembered;
mod replay;
mod results;
mod running;
mod scan;
mod schemas;
mod sealed;
mod secrets;
mod soak;
mod sources;
mod storage;
mod terminal;
mod test_dir;
mod trust;
mod url_elicitation;
mod verifiers;
mod watching;
mod web;
mod withdrawn;
mod wrapped;
