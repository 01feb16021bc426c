//! How long a call may take, and what is left of it.

use std::time::Duration;

use tokio::time::Instant;

/// The time of one call, with all that comes before it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTime {
    /// All of it, as configured.
    pub(super) whole: Duration,
    /// When it is over.
    pub(crate) until: Instant,
}

impl CallTime {
    /// That of a call which begins now.
    pub(crate) fn of(whole: Duration) -> Self {
        Self { whole, until: Instant::now() + whole }
    }

    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// What whoever called is told of a call that did not get away in time.
    pub(crate) fn is_over(&self) -> String {
        format!("the source was not ready for the call within {} s; nothing was sent", self.whole.as_secs_f32())
    }
}
