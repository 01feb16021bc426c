//! The state that an agent comes back to after its request was answered: placeholders, requests that wait for answers,
//! tasks, results that it reads in parts.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::kept_results::KeptResults;
use super::pending_rounds::PendingRounds;
use super::tasks::Tasks;
use crate::agent::Agent;
use crate::call::{Caller, SessionCalls};
use crate::gate::SessionVault;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::Era;
use crate::provenance::SessionFlow;
use crate::sync::Mutex;

/// The continuations of one caller. A legacy session has its own.
#[derive(Default)]
pub(crate) struct Continuations {
    pub(super) vault: Arc<SessionVault>,
    pub(super) flow: Arc<SessionFlow>,
    pub(super) counts: SessionCalls,
    pub(super) rounds: PendingRounds,
    pub(super) tasks: Tasks,
    pub(super) results: KeptResults,
}

/// The continuations by principal and profile.
type Callers = HashMap<(Principal, ProfileName), Weak<Continuations>>;

/// The continuations of modern callers, who are known by principal and profile alone: what a client says of itself may
/// differ from request to request, and leads to different sessions. They are dropped with the last of those sessions.
#[derive(Default)]
pub(crate) struct ContinuationStore(Mutex<Callers>);

impl ContinuationStore {
    /// Returns the continuations of a caller whose session begins.
    pub(crate) fn of(&self, caller: &Caller, agent: &Agent) -> Arc<Continuations> {
        if agent.era == Era::Legacy {
            return Arc::default();
        }
        let mut all = self.0.lock();
        all.retain(|_, continuations| continuations.strong_count() > 0);
        let key = (caller.principal.clone(), caller.profile.clone());
        let known = all.get(&key).and_then(Weak::upgrade).unwrap_or_default();
        all.insert(key, Arc::downgrade(&known));
        known
    }
}

impl std::fmt::Debug for ContinuationStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContinuationStore")
    }
}
