//! The broker as its users meet it: the real `portcullis`, real sources, real plugins, over its own front doors.
//!
//! What can be written as data stands in `tests/cases`; `UPDATE_GOLDEN=1` writes what was seen as what is expected. Everything
//! waits for an event, and every wait has a deadline.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests, which start programs and read their environment"
)]

mod agent;
mod approvals;
mod attacks;
mod bad_input;
mod builtins;
mod cases;
mod cells;
mod components;
mod crash;
mod deferred;
mod endurance;
mod eras;
mod fairness;
mod fidelity;
mod groups;
mod healing;
mod logins;
mod memory;
mod observed;
mod odd_names;
mod pages;
mod place;
mod plugins;
mod protocol;
mod reach;
mod soak;
mod sources;
mod storage;
mod together;
mod trust;
mod vendor;
mod web;
