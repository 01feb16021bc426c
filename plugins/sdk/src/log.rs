//! The operator's log.

use std::fmt;

pub use crate::bindings::portcullis::plugin::log::Level;

/// Writes one line to the operator's log. The broker cuts a line over 4 KiB, and drops further lines after 100 in one
/// call. Outside a component it writes to standard error.
pub fn log(level: Level, line: impl fmt::Display) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::portcullis::plugin::log::write(level, &line.to_string());
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {line}");
}

/// Makes a panic write its text and place to the operator's log before the instance traps. The export macros use it.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, panic.to_string().replace('\n', " "))));
}
