//! The state that an agent comes back to after its request was answered: placeholders, requests that wait for answers,
//! tasks, results that it reads in parts.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::kept_results::{KeptResults, MAX_BYTES_OF_ALL};
use super::pending_rounds::{MAX_ROUND_BYTES, PendingRounds};
use super::tasks::{MAX_QUESTION_BYTES, Tasks};
use crate::agent::Agent;
use crate::call::{Caller, SessionCalls};
use crate::gate::SessionVault;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::Era;
use crate::provenance::{MAX_FLOW_BYTES, SessionFlow};
use crate::shared_limit::{PrincipalRoom, SharedLimit};
use crate::sync::Mutex;

/// The time for which it is known what a modern caller without sessions has seen. A client that pauses for the night goes
/// on with the same conversation, and cannot tell that its session has ended.
const ABSENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest number of modern callers of whom is known what they have seen: those that have sessions now, which are
/// 10,000 at most, and as many that have none.
const MAX_CALLERS: usize = 20_000;

/// The continuations of one caller. A legacy session has its own.
pub(crate) struct Continuations {
    pub(super) vault: Arc<SessionVault>,
    pub(super) flow: Arc<SessionFlow>,
    pub(super) counts: SessionCalls,
    pub(super) rounds: PendingRounds,
    pub(super) tasks: Tasks,
    pub(super) results: KeptResults,
    /// The time at which the last session of a modern caller ended.
    left: Arc<OnceLock<Instant>>,
}

impl Continuations {
    /// Forgets what the caller has seen, and the results with parts that it has not read yet: such a part would come
    /// without labels. Returns the labels that the caller had.
    pub(super) fn clear_flow(&self) -> Vec<String> {
        let labels = self.flow.clear();
        self.results.clear();
        labels
    }
}

impl Drop for Continuations {
    fn drop(&mut self) {
        // The flow of a modern caller is still known.
        self.flow.forget_values();
        // It is dropped once.
        let _ = self.left.set(Instant::now());
    }
}

/// The memory for what callers come back to. The sessions of all principals share it.
pub(crate) struct ContinuationLimits {
    rounds: Arc<SharedLimit>,
    pub(crate) questions: Arc<SharedLimit>,
    results: Arc<SharedLimit>,
    flow: Arc<SharedLimit>,
}

impl Default for ContinuationLimits {
    fn default() -> Self {
        Self {
            rounds: SharedLimit::new(MAX_ROUND_BYTES),
            questions: SharedLimit::new(MAX_QUESTION_BYTES),
            results: SharedLimit::new(MAX_BYTES_OF_ALL),
            flow: SharedLimit::new(MAX_FLOW_BYTES),
        }
    }
}

impl ContinuationLimits {
    /// Returns what a principal has seen who has seen nothing.
    fn flow(&self, principal: &Principal) -> Arc<SessionFlow> {
        Arc::new(SessionFlow::within(PrincipalRoom::new(&self.flow, principal)))
    }

    /// Returns continuations of a principal who has seen this, and nothing else in them.
    fn continuations(&self, principal: &Principal, flow: Arc<SessionFlow>) -> Arc<Continuations> {
        let room = |limit| PrincipalRoom::new(limit, principal);
        Arc::new(Continuations {
            vault: Arc::default(),
            flow,
            counts: SessionCalls::default(),
            rounds: PendingRounds::new(room(&self.rounds)),
            tasks: Tasks::new(room(&self.questions)),
            results: KeptResults::new(&room(&self.results)),
            left: Arc::default(),
        })
    }
}

/// A modern caller: its continuations as long as it has a session, and what it has seen.
struct ModernCaller {
    continuations: Weak<Continuations>,
    flow: Arc<SessionFlow>,
    left: Arc<OnceLock<Instant>>,
}

impl ModernCaller {
    /// Reports whether the caller has no session, and nothing has to be known of it any more.
    fn is_forgotten(&self) -> bool {
        let is_long_ago = |left: &Instant| left.elapsed() >= ABSENCE;
        self.is_absent() && (!self.flow.has_seen() || self.left.get().is_some_and(is_long_ago))
    }

    fn is_absent(&self) -> bool {
        self.continuations.strong_count() == 0
    }
}

/// Modern callers by principal and profile.
#[derive(Default)]
struct ModernCallers {
    known: HashMap<(Principal, ProfileName), ModernCaller>,
    /// The time until which one that is not known may be one for whom there was no room.
    incomplete_until: Option<Instant>,
}

impl ModernCallers {
    /// Forgets the callers of whom nothing has to be known, and those without sessions for whom there is no room.
    fn tidy(&mut self) {
        self.known.retain(|_, caller| !caller.is_forgotten());
        if self.known.len() < MAX_CALLERS {
            return;
        }
        let absent = self.known.iter().filter(|(_, caller)| caller.is_absent());
        let mut absent: Vec<_> = absent.map(|(key, caller)| (caller.left.get().copied(), key.clone())).collect();
        absent.sort_unstable_by_key(|(left, _)| *left);
        // Several at once, as it takes long to find the oldest.
        for (_, key) in absent.iter().take(MAX_CALLERS / 10) {
            self.known.remove(key);
        }
        self.incomplete_until = Some(Instant::now() + ABSENCE);
    }
}

/// The continuations of modern callers, who are identified only by principal and profile: a client's description of
/// itself may differ from request to request, and leads to different sessions. They are dropped with the last of those
/// sessions, which end unnoticed by the client; what the caller has seen is known for longer, without its values.
#[derive(Default)]
pub(crate) struct ContinuationStore {
    modern: Mutex<ModernCallers>,
    limits: ContinuationLimits,
}

impl ContinuationStore {
    #[cfg(test)]
    pub(crate) fn limits(&self) -> &ContinuationLimits {
        &self.limits
    }

    /// Returns the continuations of a caller whose session begins.
    pub(crate) fn of(&self, caller: &Caller, agent: &Agent) -> Arc<Continuations> {
        if agent.era == Era::Legacy {
            return self.limits.continuations(&caller.principal, self.limits.flow(&caller.principal));
        }
        let mut callers = self.modern.lock();
        callers.tidy();
        let key = (caller.principal.clone(), caller.profile.clone());
        let known = callers.known.get(&key);
        if let Some(continuations) = known.and_then(|known| known.continuations.upgrade()) {
            return continuations;
        }
        let flow = known.map(|known| Arc::clone(&known.flow)).unwrap_or_else(|| {
            let flow = self.limits.flow(&caller.principal);
            if callers.incomplete_until.is_some_and(|until| Instant::now() < until) {
                flow.miss();
            }
            flow
        });
        let continuations = self.limits.continuations(&caller.principal, Arc::clone(&flow));
        let left = Arc::clone(&continuations.left);
        let caller = ModernCaller { continuations: Arc::downgrade(&continuations), flow, left };
        callers.known.insert(key, caller);
        continuations
    }
}

impl std::fmt::Debug for ContinuationStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContinuationStore")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::agent::TransportKind;
    use crate::flow::UNTRUSTED;

    fn caller(principal: &str) -> Caller {
        let view = portcullis_core::testing::view("{}");
        Caller { principal: principal.parse().unwrap(), ..Caller::clone(&view.call.caller) }
    }

    fn agent(era: Era) -> Agent {
        Agent { era, transport: Some(TransportKind::Tcp), ..Agent::named("test") }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_modern_caller_has_seen_outlives_its_sessions_and_no_value_of_it_does() {
        let (store, ann) = (ContinuationStore::default(), caller("ann"));
        let modern = || store.of(&ann, &agent(Era::Modern));
        modern().flow.label(UNTRUSTED);
        assert_eq!(modern().flow.known(), (vec![UNTRUSTED.to_owned()], false));
        modern().flow.refuse();
        tokio::time::advance(ABSENCE / 2).await;
        // A session that sees nothing more does not shorten the time.
        drop(modern());
        tokio::time::advance(ABSENCE / 2).await;
        assert_eq!(modern().flow.known(), (vec![UNTRUSTED.to_owned()], false));
        for (other, era) in [(caller("ben"), Era::Modern), (ann.clone(), Era::Legacy)] {
            assert_eq!(store.of(&other, &agent(era)).flow.known(), (vec![], true));
        }
        tokio::time::advance(ABSENCE).await;
        assert_eq!(modern().flow.known(), (vec![], true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_known_to_the_next_session_of_a_modern_caller_until_a_person_clears_it() {
        let (store, ann) = (ContinuationStore::default(), caller("ann"));
        let modern = || store.of(&ann, &agent(Era::Modern));
        modern().flow.refuse();
        let next = modern();
        assert_eq!(next.flow.known(), (vec![], false));
        next.clear_flow();
        drop(next);
        assert_eq!(modern().flow.known(), (vec![], true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_for_whom_there_was_no_room_counts_as_one_that_has_seen_everything() {
        let store = ContinuationStore::default();
        let of = |name: &str| store.of(&caller(name), &agent(Era::Modern)).flow.known();
        for number in 0..MAX_CALLERS {
            tokio::time::advance(Duration::from_millis(1)).await;
            let caller = caller(&format!("caller-{number}"));
            let (flow, left) = (store.limits.flow(&caller.principal), Arc::new(OnceLock::from(Instant::now())));
            flow.refuse();
            let absent = ModernCaller { continuations: Weak::new(), flow, left };
            store.modern.lock().known.insert((caller.principal, caller.profile), absent);
        }
        let (labels, traced) = of("caller-0");
        assert!(labels.contains(&UNTRUSTED.to_owned()) && !traced, "{labels:?}");
        let last = format!("caller-{}", MAX_CALLERS - 1);
        assert_eq!(of(&last), (vec![], false), "there is room for those that came last");
        tokio::time::advance(ABSENCE).await;
        assert_eq!(of("nobody"), (vec![], true));
    }
}
