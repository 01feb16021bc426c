//! What the host promises about plugins, shown with real components: plain ones and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod hostile;
mod loading;
mod precompiled;
mod worlds;
