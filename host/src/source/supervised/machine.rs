//! The life of a connection slot as a state machine: events in, state out.
//!
//! The machine reads no clock, draws no random numbers and does no I/O; the time and the chance are passed in. So all
//! rules about when a source is tried again are here, and can be tested without waiting.

use std::time::Duration;

use tokio::time::Instant;

use crate::source::SourceStatus;

/// The number of attempts to reconnect in a row, which take a quarter of a minute: a source that restarts is back by
/// then.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// The pause before the first attempt to reconnect; each further pause is twice as long, up to 8 s.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The least time that a connection must last for the attempts to be counted from zero again. A source that ends sooner
/// each time is in a crash loop.
pub(super) const STABLE: Duration = Duration::from_secs(60);

/// The least time that a connection must last for the expiry of its session to be normal. A source that forgets the
/// session sooner each time would make the broker reconnect without pause.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// The time for which a source is left alone once all attempts are spent, and again after each further attempt.
pub(super) const COOL_DOWN: Duration = Duration::from_secs(60);

/// The number of consecutive requests that time out before a source is sent a ping. One or two may be slow calls.
pub(super) const MAX_TIMEOUTS: u32 = 3;

/// The fraction by which chance may shorten a pause, so that sources that failed together are not retried together.
pub(super) const JITTER: f64 = 0.25;

/// An event in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    /// A connection is being made.
    Begun,
    /// The connection is open.
    Opened,
    /// The connection could not be made.
    Refused,
    /// The connection was made, but belongs to another slot.
    HandedOver,
    /// The connection has ended unexpectedly.
    Lost,
    /// The source forgot the session, as it may at any time. A new one is opened at once, unless this happens again and
    /// again.
    Expired,
    /// The connection was idle, or its place was needed, and it was closed.
    Closed,
    /// The source did not answer a ping.
    Silent,
    /// The source answers pings again.
    Answered,
    /// This many requests in a row have timed out.
    TimedOut(u32),
    /// The operator asked for a new connection.
    Restarted,
    /// The slot was stopped permanently.
    Stopped,
}

/// The state of a connection, and the time when the next may be made.
#[derive(Debug, Clone)]
pub(super) struct ConnectionState {
    status: SourceStatus,
    /// The time at which the next attempt is due, in `BackingOff` and `Failed`.
    not_before: Option<Instant>,
    /// The attempts to reconnect since a connection was last stable.
    spent: u32,
    /// The time at which the connection was opened.
    since: Option<Instant>,
    /// True if there has ever been an open connection.
    was_connected: bool,
    /// True if so many requests timed out that the source may be dead. Reset by an answer to a ping, or by the end of
    /// the connection.
    doubted: bool,
}

impl Default for ConnectionState {
    fn default() -> Self {
        Self {
            status: SourceStatus::Idle,
            not_before: None,
            spent: 0,
            since: None,
            was_connected: false,
            doubted: false,
        }
    }
}

impl ConnectionState {
    pub(super) fn status(&self) -> SourceStatus {
        self.status
    }

    /// Returns the time before which no connection may be begun, or `None` if one may be begun at once.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Reports whether there has ever been an open connection.
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Reports whether so many requests timed out that the source must be sent a ping.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Reports whether the attempts are spent: the next attempt is the only one, and relies on nothing that was learned
    /// before.
    pub(super) fn is_last_attempt(&self) -> bool {
        self.spent >= MAX_ATTEMPTS
    }

    /// Applies an event, and returns the previous status if the status has changed. An event that does not fit the
    /// status is ignored: a connection may end while it is being stopped. `chance` is from 0 to below 1.
    pub(super) fn on(&mut self, event: ConnectionEvent, now: Instant, chance: f64) -> Option<SourceStatus> {
        use SourceStatus::{BackingOff, Degraded, Failed, Idle, Ready, Starting, Stopped};
        let before = self.status;
        let elapsed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if elapsed >= STABLE {
            self.spent = 0;
        }
        let after = match (before, event) {
            (Stopped, _) => return None,
            (_, ConnectionEvent::Stopped) => Stopped,
            (Idle | BackingOff | Failed, ConnectionEvent::Begun) => {
                if self.not_before.is_some_and(|at| now < at) {
                    return None;
                }
                self.spent += u32::from(before == BackingOff);
                Starting
            }
            (Starting, ConnectionEvent::Opened) => {
                (self.since, self.was_connected) = (Some(now), true);
                Ready
            }
            (Starting, ConnectionEvent::Refused) => self.pause(now, chance),
            (Starting, ConnectionEvent::HandedOver) => Idle,
            (Ready | Degraded, ConnectionEvent::Expired) if elapsed >= SETTLED => Idle,
            // Once may be chance.
            (Ready | Degraded, ConnectionEvent::Expired) if self.spent == 0 => {
                self.spent = 1;
                Idle
            }
            (Ready | Degraded, ConnectionEvent::Lost | ConnectionEvent::Expired) => self.pause(now, chance),
            (Starting | Ready | Degraded | BackingOff | Failed, ConnectionEvent::Closed) => Idle,
            (Starting | Ready | Degraded | BackingOff | Failed, ConnectionEvent::Restarted) => {
                self.spent = 0;
                Idle
            }
            (Ready | Degraded, ConnectionEvent::TimedOut(requests)) if requests >= MAX_TIMEOUTS => {
                self.doubted = true;
                Degraded
            }
            (Ready, ConnectionEvent::Silent) => Degraded,
            (Degraded, ConnectionEvent::Answered) => {
                self.doubted = false;
                Ready
            }
            _ => return None,
        };
        if after == before {
            return None;
        }
        self.status = after;
        if !matches!(after, BackingOff | Failed) {
            self.not_before = None;
        }
        if !matches!(after, Ready | Degraded) {
            (self.since, self.doubted) = (None, false);
        }
        Some(before)
    }

    /// Sets when the next attempt is due, and returns the new status.
    fn pause(&mut self, now: Instant, chance: f64) -> SourceStatus {
        let (status, pause) = match MAX_ATTEMPTS.checked_sub(self.spent) {
            None | Some(0) => (SourceStatus::Failed, COOL_DOWN),
            Some(_) => (SourceStatus::BackingOff, FIRST_PAUSE * 2_u32.saturating_pow(self.spent)),
        };
        self.not_before = Some(now + pause.mul_f64(1.0 - JITTER * chance));
        status
    }
}

/// Returns a random number of at least 0 and below 1. Without randomness from the system it is 0: every pause is then
/// as long as possible.
pub(super) fn random_fraction() -> f64 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0.0, |()| f64::from(byte[0]) / 256.0)
}

#[cfg(test)]
mod tests;
