//! The counts of a session and its budget, which a test sets for its thread.

use std::cell::{Cell, RefCell};

/// A limit of the budget of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetLimit {
    /// The limited quantity: `calls`, `bytes` or `time`.
    pub name: String,
    /// The most that can be left.
    pub amount: u64,
    /// The remainder when the call came.
    pub left: i64,
}

thread_local! {
    /// The number of earlier calls of the session, and of those of the same item.
    static CALLS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// The limits of the budget.
    static BUDGET: RefCell<Vec<BudgetLimit>> = const { RefCell::new(Vec::new()) };
}

/// Sets the numbers that [`crate::session`] gives on this thread: calls of the session, and those of the same item.
pub fn set_session_calls(of_session: u32, of_item: u32) {
    CALLS.set((of_session, of_item));
}

/// Sets the limits that [`crate::session::budget`] gives on this thread.
pub fn set_budget(limits: Vec<BudgetLimit>) {
    BUDGET.set(limits);
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn budget() -> Vec<BudgetLimit> {
    BUDGET.with_borrow(Clone::clone)
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn calls() -> u32 {
    CALLS.get().0
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn calls_of_item() -> u32 {
    CALLS.get().1
}
