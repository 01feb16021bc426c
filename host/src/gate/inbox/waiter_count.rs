//! Counts the calls that wait for an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A guard that counts a waiter for as long as it lives, so that a cancelled call counts no more.
#[derive(Debug)]
pub(in crate::gate) struct WaiterCount(Arc<AtomicUsize>);

impl WaiterCount {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for WaiterCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
