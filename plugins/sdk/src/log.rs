//! The operator's log.

use std::fmt;

pub use crate::bindings::portcullis::plugin::log::Level;

/// Writes one line to the operator's log. The broker cuts a line over 4 KiB, and drops further lines after 100 in one
/// call. A component that calls this imports `log` and needs `grant = ["log"]`. Outside a component it writes to
/// standard error.
pub fn log(level: Level, line: impl fmt::Display) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::portcullis::plugin::log::write(level, &line.to_string());
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {line}");
}
