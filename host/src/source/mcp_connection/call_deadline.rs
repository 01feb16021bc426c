//! The time that a call may take, and how much of it is left.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Cause;

/// The time limit of one call, including everything that happens before it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallDeadline {
    /// The whole time, as configured.
    pub(super) whole: Duration,
    /// The deadline.
    pub(crate) until: Instant,
}

impl CallDeadline {
    /// Returns the time of a call that begins now.
    pub(crate) fn of(whole: Duration) -> Self {
        Self { whole, until: Instant::now() + whole }
    }

    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the message for a call that could not be sent in time.
    pub(crate) fn is_over(&self) -> Cause {
        let seconds = self.whole.as_secs_f32();
        Cause::own(format!("the source was not ready for the call within {seconds} s; nothing was sent"))
    }
}
