//! A call as plugins are shown it.

mod builder;

use std::sync::Arc;

use super::{BudgetLimit, Call, EarlierCalls, Phase, Risk, TrustLevel};
use crate::flow::CallFlow;
use crate::name::{ProfileName, SourceName};
use crate::principal::Principal;
use crate::protocol::Json;

pub use builder::CallViewBuilder;

/// A call in one phase, as a plugin is shown it. Cheap to clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallView {
    /// The call, with its arguments in this phase.
    #[doc(hidden)]
    pub call: Arc<Call>,
    /// The phase.
    #[doc(hidden)]
    pub phase: Phase,
    /// The source's answer, in the result phase: a result, or a JSON-RPC error object.
    #[doc(hidden)]
    pub outcome: Option<Json>,
    /// True if `outcome` is a JSON-RPC error object.
    #[doc(hidden)]
    pub failed: bool,
    /// The information flow of the call, or `None` if it is unknown.
    #[doc(hidden)]
    pub flow: Option<Arc<dyn CallFlow>>,
}

impl CallView {
    /// Makes the view of a call that has no outcome yet.
    #[doc(hidden)]
    #[must_use]
    pub fn before(call: &Arc<Call>, phase: Phase) -> Self {
        Self { call: call.clone(), phase, outcome: None, failed: false, flow: None }
    }

    /// Returns the view in the result phase, with the source's answer. `failed` is true for a JSON-RPC error object.
    #[doc(hidden)]
    #[must_use]
    pub fn with_outcome(self, outcome: Json, failed: bool) -> Self {
        Self { phase: Phase::Result, outcome: Some(outcome), failed, ..self }
    }

    /// Returns the view with the information flow of the call.
    #[doc(hidden)]
    #[must_use]
    pub fn with_flow(self, flow: Option<Arc<dyn CallFlow>>) -> Self {
        Self { flow, ..self }
    }

    /// Returns the identifier of the call in the ledger.
    #[must_use]
    pub fn id(&self) -> &str {
        self.call.id.as_str()
    }

    /// Returns the phase in which the call is judged.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the MCP method, such as `tools/call`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.call.method.as_str()
    }

    /// Returns the source that the call is for.
    #[must_use]
    pub fn source(&self) -> &SourceName {
        self.call.source()
    }

    /// Returns the name of the item at its source, such as `read`: a tool or a prompt, or the URI of a resource. It is
    /// empty for a request about no item.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.call.item.name
    }

    /// Returns the name of the item by which the caller calls it, such as `files__read`. For a request about no item it
    /// is the name of the source.
    #[must_use]
    pub fn exposed_name(&self) -> &str {
        &self.call.item.exposed
    }

    /// Returns the definition of the item as its source wrote it: of a tool an MCP `Tool`. The source can write anything
    /// into it.
    #[must_use]
    pub fn definition(&self) -> &Json {
        &self.call.item.definition
    }

    /// Returns the tags that the configuration gives the source.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.call.item.tags
    }

    /// Returns the arguments, an object. Values that a transform hid appear as placeholders.
    #[must_use]
    pub fn arguments(&self) -> &Json {
        &self.call.arguments
    }

    /// Returns the caller.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.call.caller.principal
    }

    /// Returns the identifier of the session, which the ledger has for each call as `run`.
    #[must_use]
    pub fn session(&self) -> &str {
        self.call.caller.session.as_str()
    }

    /// Returns the profile under which the call is made.
    #[must_use]
    pub fn profile(&self) -> &ProfileName {
        &self.call.caller.profile
    }

    /// Returns how far the profile trusts its callers.
    #[must_use]
    pub fn trust(&self) -> TrustLevel {
        self.call.caller.trust
    }

    /// Returns `name/version` of the client program, as it reports them; may be empty.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.call.caller.client
    }

    /// Returns the risk of the call.
    #[must_use]
    pub fn risk(&self) -> Risk {
        self.call.risk
    }

    /// Returns the same view for another form of the call.
    #[doc(hidden)]
    #[must_use]
    pub fn of_form(&self, call: &Arc<Call>) -> Self {
        Self { call: Arc::clone(call), ..self.clone() }
    }

    /// Returns the source's answer in the phase [`Phase::Result`]: a result, or a JSON-RPC error object.
    #[must_use]
    pub fn outcome(&self) -> Option<&Json> {
        self.outcome.as_ref()
    }

    /// Reports whether the source says that the outcome is an error.
    #[must_use]
    pub fn outcome_is_error(&self) -> bool {
        self.failed || self.outcome.as_ref().and_then(|json| json.get("isError")).is_some_and(|json| json.is_true())
    }

    /// Returns the labels of all results that the session saw before this call, such as `untrusted` and `private`.
    /// `None` if they are unknown: then the call must be treated as one that saw everything.
    #[must_use]
    pub fn labels(&self) -> Option<&[String]> {
        self.flow.as_deref().map(CallFlow::labels)
    }

    /// Returns the numbers of calls that the agent made in its session before this one, whatever their outcome. They
    /// are 0 in the phase `list`.
    #[must_use]
    pub fn earlier_calls(&self) -> EarlierCalls {
        self.call.earlier
    }

    /// Returns the limits of the budget of the caller's profile, with the remainder of each. Empty if the profile has
    /// no budget, and in the phase `list`.
    #[must_use]
    pub fn budget(&self) -> &[BudgetLimit] {
        &self.call.budget
    }
}
