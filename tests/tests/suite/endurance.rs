//! The broker under what never answers, never leaves and never ends: nobody else is hurt by it.
//!
//! Each test is a few seconds long. `PORTCULLIS_SOAK=600` makes them as large as the promise they hold: thousands of
//! abandoned sessions, a flood without a pause.

mod front;
mod ledger;
mod sources;

/// Returns the small size, or the large one where `PORTCULLIS_SOAK` is set.
pub(crate) fn sized(small: usize, large: usize) -> usize {
    if std::env::var_os("PORTCULLIS_SOAK").is_some() { large } else { small }
}
