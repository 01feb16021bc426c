//! The input of the gate other than the call itself.

use std::sync::Arc;

use super::{Budget, ConfigInForce, SessionVault};
use crate::agent::AgentPeer;
use crate::call::SessionCalls;
use crate::config::{Approve, Detail, Durability};
use crate::digest::Digest;
use crate::lockfile::Acceptance;
use crate::metrics::SourceMetrics;
use crate::provenance::{SessionFlow, SourceFlow};

/// The facts that the gate needs about a call besides the call itself.
pub struct GateInput<'a> {
    /// The session's placeholders.
    pub vault: &'a Arc<SessionVault>,
    /// The calls before which the profile wants a person to be asked.
    pub approve: Approve,
    /// The amount of detail of payloads that the ledger keeps.
    pub record: Detail,
    /// The acceptance of the item by the lock file.
    pub acceptance: &'a Acceptance,
    /// The digest of what the source is.
    pub identity: Digest,
    /// The budget of the profile, if it has one. A call pays from its intent on; a resumed call pays nothing. Requests
    /// that continue a call or a task are not separate calls and are never refused, but their bytes are charged.
    pub budget: Option<&'a Arc<Budget>>,
    /// The counters of the source's calls.
    pub(crate) metrics: &'a SourceMetrics,
    /// The calls that wait until their intent is on disk.
    pub durability: Durability,
    /// True if the source can neither change nor disclose anything, as its cell enforces.
    pub harmless_cell: bool,
    /// The results that the session has seen.
    pub(crate) flow: &'a Arc<SessionFlow>,
    /// The labels and effects of the call's source, if the gate [reads them](Gate::reads_flow).
    pub(crate) source_flow: Option<SourceFlow>,
    /// The way back to the agent.
    pub peer: &'a Arc<dyn AgentPeer>,
    /// The calls that the agent has made, if the call is one of them.
    pub counts: Option<&'a SessionCalls>,
    /// True if the call was let through before, and comes again with answers to its source's questions. No person is
    /// asked twice; a denied call stays denied.
    pub resumed: bool,
    /// True if the source asks the agent. The question to the agent keeps its placeholders, and the agent's answer,
    /// which goes to the source, gets the values.
    pub to_agent: bool,
    /// The configuration in force, for a call that waits for a person. `None` if it does not change meanwhile.
    pub(crate) in_force: Option<&'a dyn ConfigInForce>,
}
