//! The counts of a session, which a test sets for its thread.

use std::cell::Cell;

thread_local! {
    /// The number of earlier calls of the session, and of those of the same item.
    static CALLS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Sets the numbers that [`crate::session`] gives on this thread: calls of the session, and those of the same item.
pub fn set_session_calls(of_session: u32, of_item: u32) {
    CALLS.set((of_session, of_item));
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn calls() -> u32 {
    CALLS.get().0
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn calls_of_item() -> u32 {
    CALLS.get().1
}
