//! Requests that the agent has to come back with (2026-07-28, "Multi Round-Trip Requests"): what is kept between two rounds,
//! and the sealed handle that the agent carries.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::carry::Carrying;
use crate::digest::Digest;
use crate::gate::{Permit, Ticket};
use crate::message::{Answer, Json};
use crate::seal::Seal;

/// How many requests of one session may wait for the agent to come back. Each may hold a call open at its source.
const MAX_ROUNDS: usize = 64;

/// How long the agent has to come back. A person who has not answered by then has left.
const ROUND_PATIENCE: Duration = Duration::from_secs(10 * 60);

/// The open rounds of one session.
pub(super) struct Rounds {
    seal: Seal,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    rounds: HashMap<u64, (Instant, Round)>,
}

/// What waits for the agent.
pub(super) struct Round {
    /// Of the request that the agent must repeat.
    pub(super) about: Digest,
    /// What was asked.
    pub(super) questions: Vec<Question>,
    /// How the call goes on.
    pub(super) then: Then,
}

/// How a call goes on when the agent has answered.
pub(super) enum Then {
    /// The request is sent again, with the source's own state.
    Again(Option<Json>),
    /// The call is open at the source.
    Open(Carrying),
    /// A legacy source refused the request with this error until a person has opened pages; then it is sent once more as it
    /// was.
    Afresh(Json),
}

/// One thing that the agent is asked, which has passed the gate.
pub(super) struct Question {
    /// Its name in `inputRequests`.
    pub(super) key: String,
    pub(super) permit: Permit,
    pub(super) ticket: Ticket,
    /// Where the answer goes, if the call is open.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { seal: Seal::new("round"), open: Mutex::default() }
    }
}

/// Why a `requestState` leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// This session did not give it out; somebody else may have.
    Foreign,
    /// It was used, or it is too old.
    Gone,
}

impl Rounds {
    /// Keeps a round and gives its handle. None if too many are open.
    pub(super) fn keep(&self, round: Round) -> Option<String> {
        let now = Instant::now();
        let mut open = self.lock();
        open.rounds.retain(|_, (since, _)| now - *since < ROUND_PATIENCE);
        if open.rounds.len() >= MAX_ROUNDS {
            return None;
        }
        open.last += 1;
        let number = open.last;
        open.rounds.insert(number, (now, round));
        Some(self.seal.close(number.to_string().as_bytes()))
    }

    /// The round that a handle is for. Each handle counts once.
    pub(super) fn take(&self, handle: &str) -> Result<Round, Lost> {
        let number = self.seal.open(handle).and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok());
        let number: u64 = number.ok_or(Lost::Foreign)?;
        let (since, round) = self.lock().rounds.remove(&number).ok_or(Lost::Gone)?;
        if since.elapsed() < ROUND_PATIENCE { Ok(round) } else { Err(Lost::Gone) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // The map is whole at every point at which a holder could panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn round() -> Round {
        Round { about: Digest::of(b"x"), questions: Vec::new(), then: Then::Again(None) }
    }

    #[test]
    fn a_handle_counts_once_and_only_in_its_session() {
        let rounds = Rounds::default();
        let handle = rounds.keep(round()).unwrap();
        assert_eq!(Rounds::default().take(&handle).err(), Some(Lost::Foreign));
        assert_eq!(rounds.take("forged").err(), Some(Lost::Foreign));
        assert!(rounds.take(&handle).is_ok());
        assert_eq!(rounds.take(&handle).err(), Some(Lost::Gone));
    }

    #[test]
    fn so_many_rounds_are_open_and_no_more() {
        let rounds = Rounds::default();
        assert!((0..MAX_ROUNDS).all(|_| rounds.keep(round()).is_some()));
        assert!(rounds.keep(round()).is_none());
    }
}
