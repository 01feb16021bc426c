//! The agent's earlier activity in the session of the call that a policy judges.
//!
//! A policy that calls these functions imports `session`, which needs no grant. `portcullis replay` cannot judge by it.
//! Outside a component both numbers are those of [`fake::set_session_calls`](crate::fake::set_session_calls), and 0 without it; the
//! budget is that of [`fake::set_budget`](crate::fake::set_budget).
//!
//! ```
//! use portcullis_plugin::{Verdict, fake::set_session_calls, session};
//!
//! fn at_most_five() -> Verdict {
//!     if session::calls_of_item() < 5 { Verdict::Pass } else { Verdict::deny("too-many", "five are enough for one session") }
//! }
//!
//! set_session_calls(9, 5);
//! assert_ne!(at_most_five(), Verdict::Pass);
//! ```

/// Returns the number of calls of the session until now, without this one, whatever their outcome.
#[must_use]
pub fn calls() -> u32 {
    host::calls()
}

/// Returns the number of those calls that were of the same item. After 10,000 different names, calls of further items count
/// as calls of the same one.
#[must_use]
pub fn calls_of_item() -> u32 {
    host::calls_of_item()
}

/// A limit of the budget of a profile: `name` is `calls`, `bytes` or `time` (in milliseconds), `amount` the most that
/// can be left, and `left` the remainder when the call came.
pub use host::BudgetLimit;

/// Returns the limits of the budget of the caller's profile, which all of its callers share; none if the profile has no budget.
///
/// ```
/// use portcullis_plugin::fake::set_budget;
/// use portcullis_plugin::session::{BudgetLimit, budget};
///
/// set_budget(vec![BudgetLimit { name: "calls".to_owned(), amount: 100, left: 3 }]);
/// assert!(budget().iter().any(|limit| limit.left < 10), "the last ten are for what a person asks for");
/// ```
#[must_use]
pub fn budget() -> Vec<BudgetLimit> {
    host::budget()
}

#[cfg(target_arch = "wasm32")]
use crate::bindings::portcullis::plugin::session as host;

#[cfg(not(target_arch = "wasm32"))]
use crate::fake::session as host;
