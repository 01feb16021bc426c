//! The progress of a call on its way to its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of a call on its way to its source: whether the source may have seen anything of it. The gate, the
/// source and the agent's front share it, so that the record of a call that is cut off and the answer to the agent say
/// the same.
#[derive(Debug)]
pub struct CallProgress {
    unsent: AtomicBool,
}

impl CallProgress {
    /// Returns the progress of a call whose intent is being written.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { unsent: AtomicBool::new(true) })
    }

    /// Notes that nothing of the call was sent: it waits for something that comes before, or has failed there.
    pub fn set_unsent(&self) {
        self.unsent.store(true, Ordering::Relaxed);
    }

    /// Notes that the source may see the call from now on.
    pub fn set_open(&self) {
        self.unsent.store(false, Ordering::Relaxed);
    }

    /// Reports whether the source cannot have seen anything of the call.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed)
    }
}
