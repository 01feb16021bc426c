//! The broker with sources that never answer, agents that never disconnect, and floods that never end: other callers
//! are not affected.
//!
//! Each test takes a few seconds. `PORTCULLIS_SOAK=600` makes them as large as the promise that they test: thousands of
//! abandoned sessions, and floods of 100,000 requests.

mod front;
mod ledger;
mod sources;

/// Returns the small size, or the large one where `PORTCULLIS_SOAK` is set.
pub(crate) fn sized(small: usize, large: usize) -> usize {
    if std::env::var_os("PORTCULLIS_SOAK").is_some() { large } else { small }
}
