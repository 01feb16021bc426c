//! The state that an agent comes back to after its request was answered: placeholders, requests that wait for answers,
//! tasks, results that it reads in parts.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

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

/// The continuations of one caller. A legacy session has its own.
pub(crate) struct Continuations {
    pub(super) vault: Arc<SessionVault>,
    pub(super) flow: Arc<SessionFlow>,
    pub(super) counts: SessionCalls,
    pub(super) rounds: PendingRounds,
    pub(super) tasks: Tasks,
    pub(super) results: KeptResults,
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
    /// Returns continuations of a principal, without anything in them.
    fn continuations(&self, principal: &Principal) -> Arc<Continuations> {
        let room = |limit| PrincipalRoom::new(limit, principal);
        Arc::new(Continuations {
            vault: Arc::default(),
            flow: Arc::new(SessionFlow::within(room(&self.flow))),
            counts: SessionCalls::default(),
            rounds: PendingRounds::new(room(&self.rounds)),
            tasks: Tasks::new(room(&self.questions)),
            results: KeptResults::new(&room(&self.results)),
        })
    }
}

/// The continuations by principal and profile.
type Callers = HashMap<(Principal, ProfileName), Weak<Continuations>>;

/// The continuations of modern callers, who are identified only by principal and profile: a client's description of
/// itself may differ from request to request, and leads to different sessions. They are dropped with the last of those
/// sessions.
#[derive(Default)]
pub(crate) struct ContinuationStore {
    modern: Mutex<Callers>,
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
            return self.limits.continuations(&caller.principal);
        }
        let mut all = self.modern.lock();
        all.retain(|_, continuations| continuations.strong_count() > 0);
        let key = (caller.principal.clone(), caller.profile.clone());
        let known = all.get(&key).and_then(Weak::upgrade);
        let known = known.unwrap_or_else(|| self.limits.continuations(&caller.principal));
        all.insert(key, Arc::downgrade(&known));
        known
    }
}

impl std::fmt::Debug for ContinuationStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContinuationStore")
    }
}
