//! The host's promises about plugins, tested with real components, both well-behaved and hostile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod hostile;
mod loading;
mod precompiled;
mod worlds;
