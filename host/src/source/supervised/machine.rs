//! The life of one place where a connection is kept, as a machine: events in, state out.
//!
//! It reads no clock, throws no dice and does nothing; what time it is and what chance says are handed in. So every rule about
//! when a source is tried again stands here, and can be tested without waiting.

use std::time::Duration;

use tokio::time::Instant;

use crate::source::Status;

/// Reconnections that may be tried in a row, which take a quarter of a minute: a source that restarts is back by then.
pub(super) const ATTEMPTS: u32 = 5;

/// The pause before the first of them; each further one is twice as long, up to 8 s.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How long a connection must stand for the attempts to count anew. A source that dies sooner each time is in a crash loop.
pub(super) const STABLE: Duration = Duration::from_secs(60);

/// How long a connection must stand for its session to expire in good order. A source that forgets it sooner, time and again,
/// would have us reconnect without pause.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// How long a source is left alone once all attempts are spent, and again after each single one from then on.
pub(super) const COOL_DOWN: Duration = Duration::from_secs(60);

/// Requests in a row without an answer in time after which a source is asked whether it lives. One or two are slow calls.
pub(super) const TIMEOUTS: u32 = 3;

/// By how much of itself chance may shorten a pause, so that sources that fell together do not rise together.
pub(super) const JITTER: f64 = 0.25;

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// One is being made.
    Begun,
    /// It stands.
    Opened,
    /// It could not be made.
    Refused,
    /// It was made, and belongs elsewhere.
    HandedOver,
    /// It has ended, and nobody wanted it to.
    Lost,
    /// The source forgot the session, as it may at any time; a new one is had for the asking, unless it does so all the time.
    Expired,
    /// Nobody needed it, and it was ended.
    Rested,
    /// The source does not answer when it is asked whether it lives.
    Silent,
    /// It answers again.
    Answered,
    /// So many requests in a row had no answer in time.
    TimedOut(u32),
    /// The operator wants it to be made anew.
    Restarted,
    /// No more of it, ever.
    Stopped,
}

/// Where a connection is in its life, and when another may be made.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    status: Status,
    /// Of `BackingOff` and `Failed`.
    not_before: Option<Instant>,
    /// Attempts to reconnect, since a connection was last stable.
    spent: u32,
    /// Since when the connection stands.
    since: Option<Instant>,
    /// Whether one ever stood.
    met: bool,
    /// Whether so many requests had no answer that the source may be dead. Ends with an answer, or with the connection.
    doubted: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self { status: Status::Idle, not_before: None, spent: 0, since: None, met: false, doubted: false }
    }
}

impl Machine {
    pub(super) fn status(&self) -> Status {
        self.status
    }

    /// Before when no connection may be begun; None for at once.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether a connection has ever stood.
    pub(super) fn met(&self) -> bool {
        self.met
    }

    /// Whether the source has to be asked whether it lives, as it answers nothing.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Whether the attempts are spent: what is begun now is one try, with nothing taken for granted.
    pub(super) fn is_last_try(&self) -> bool {
        self.spent >= ATTEMPTS
    }

    /// Takes an event, and says which state was left if that changed it. An event that does not fit is none: connections end
    /// while others are told to stop. `chance` is from 0 to below 1.
    pub(super) fn on(&mut self, event: Event, now: Instant, chance: f64) -> Option<Status> {
        use Status::{BackingOff, Degraded, Failed, Idle, Ready, Starting, Stopped};
        let before = self.status;
        let stood = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if stood >= STABLE {
            self.spent = 0;
        }
        let after = match (before, event) {
            (Stopped, _) => return None,
            (_, Event::Stopped) => Stopped,
            (Idle | BackingOff | Failed, Event::Begun) => {
                if self.not_before.is_some_and(|at| now < at) {
                    return None;
                }
                self.spent += u32::from(before == BackingOff);
                Starting
            }
            (Starting, Event::Opened) => {
                (self.since, self.met) = (Some(now), true);
                Ready
            }
            (Starting, Event::Refused) => self.pause(now, chance),
            (Starting, Event::HandedOver) => Idle,
            (Ready | Degraded, Event::Expired) if stood >= SETTLED => Idle,
            // Once is chance.
            (Ready | Degraded, Event::Expired) if self.spent == 0 => {
                self.spent = 1;
                Idle
            }
            (Ready | Degraded, Event::Lost | Event::Expired) => self.pause(now, chance),
            (Ready | Degraded | BackingOff | Failed, Event::Rested) => Idle,
            (Starting | Ready | Degraded | BackingOff | Failed, Event::Restarted) => {
                self.spent = 0;
                Idle
            }
            (Ready | Degraded, Event::TimedOut(requests)) if requests >= TIMEOUTS => {
                self.doubted = true;
                Degraded
            }
            (Ready, Event::Silent) => Degraded,
            (Degraded, Event::Answered) => {
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

    /// Until the next attempt.
    fn pause(&mut self, now: Instant, chance: f64) -> Status {
        let (status, pause) = match ATTEMPTS.checked_sub(self.spent) {
            None | Some(0) => (Status::Failed, COOL_DOWN),
            Some(_) => (Status::BackingOff, FIRST_PAUSE * 2_u32.saturating_pow(self.spent)),
        };
        self.not_before = Some(now + pause.mul_f64(1.0 - JITTER * chance));
        status
    }
}

#[cfg(test)]
mod tests;
