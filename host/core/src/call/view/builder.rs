//! A call that a test of a policy makes up.

use std::sync::Arc;

use super::super::{BudgetLimit, Call, Caller, EarlierCalls, Params, Phase, Risk, SessionId, TrustLevel};
use super::CallView;
use crate::flow::{CallFlow, StatedFlow};
use crate::item::Item;
use crate::name::{ProfileName, SourceName};
use crate::principal::Principal;
use crate::protocol::{Json, Method};

/// A builder of a call that no agent has made, for the test of a policy. Unset properties are as strict as possible:
/// the call is risky, and nothing is known about the results that its session has seen.
#[derive(Debug)]
#[must_use = "only `build` makes the call"]
pub struct CallViewBuilder {
    source: SourceName,
    tool: String,
    exposed: String,
    definition: Json,
    arguments: Json,
    principal: Principal,
    profile: ProfileName,
    trust: TrustLevel,
    client: String,
    risk: Risk,
    outcome: Option<Json>,
    labels: Option<Vec<String>>,
    earlier: EarlierCalls,
    budget: Vec<BudgetLimit>,
}

impl CallView {
    /// Returns a builder of a call (`tools/call`) for the test of a policy. `tool` is the name of the tool at its source,
    /// such as `read`; the caller calls it `SOURCE__read`. `arguments` are an object. The principal is `test`, and the
    /// profile is `default`, of medium trust.
    pub fn builder(source: SourceName, tool: &str, arguments: &impl serde::Serialize) -> CallViewBuilder {
        CallViewBuilder {
            exposed: format!("{source}__{tool}"),
            definition: Json::of(&serde_json::json!({ "name": tool })),
            source,
            tool: tool.to_owned(),
            arguments: Json::of(arguments),
            principal: Principal::established("test"),
            profile: ProfileName::default(),
            trust: TrustLevel::Medium,
            client: String::new(),
            risk: Risk::Risky,
            outcome: None,
            labels: None,
            earlier: EarlierCalls::default(),
            budget: Vec::new(),
        }
    }
}

impl CallViewBuilder {
    /// Sets the name by which the caller calls the tool.
    pub fn exposed_name(self, name: impl Into<String>) -> Self {
        Self { exposed: name.into(), ..self }
    }

    /// Sets the definition that the source gives, an MCP `Tool`.
    pub fn definition(self, definition: &impl serde::Serialize) -> Self {
        Self { definition: Json::of(definition), ..self }
    }

    /// Sets the caller.
    pub fn principal(self, principal: Principal) -> Self {
        Self { principal, ..self }
    }

    /// Sets the profile under which the call is made.
    pub fn profile(self, profile: ProfileName) -> Self {
        Self { profile, ..self }
    }

    /// Sets how far the profile trusts its callers.
    pub fn trust(self, trust: TrustLevel) -> Self {
        Self { trust, ..self }
    }

    /// Sets `name/version` of the client program.
    pub fn client(self, client: impl Into<String>) -> Self {
        Self { client: client.into(), ..self }
    }

    /// Sets the risk of the call.
    pub fn risk(self, risk: Risk) -> Self {
        Self { risk, ..self }
    }

    /// Sets the labels of all results that the session saw before the call, such as `untrusted` and `private`.
    pub fn labels<T: Into<String>>(self, labels: impl IntoIterator<Item = T>) -> Self {
        Self { labels: Some(labels.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the numbers of calls that the session made before.
    pub fn earlier_calls(self, earlier: EarlierCalls) -> Self {
        Self { earlier, ..self }
    }

    /// Sets the limits of the profile's budget.
    pub fn budget(self, limits: impl IntoIterator<Item = BudgetLimit>) -> Self {
        Self { budget: limits.into_iter().collect(), ..self }
    }

    /// Sets the source's answer, an MCP result. The phase is then [`Phase::Result`], and otherwise [`Phase::Call`].
    pub fn outcome(self, outcome: &impl serde::Serialize) -> Self {
        Self { outcome: Some(Json::of(outcome)), ..self }
    }

    /// Makes the call.
    #[must_use]
    pub fn build(self) -> CallView {
        let Self { source, tool, exposed, definition, arguments, .. } = self;
        let Self { principal, profile, trust, client, risk, outcome, labels, earlier, budget, .. } = self;
        let caller = Arc::new(Caller { principal, profile, trust, session: SessionId::new(), client: client.into() });
        let params = Json::of(&serde_json::json!({ "name": &exposed, "arguments": arguments }));
        let params = Params::parse(&Method::ToolsCall, params);
        let item = Item { definition, ..Item::unlisted_tool(&source, &tool, &exposed) };
        let item = Arc::new(item);
        let call = Call { earlier, budget, ..Call::new(&Method::ToolsCall, params, &caller, item, risk) };
        let call = Arc::new(call);
        let phase = if outcome.is_some() { Phase::Result } else { Phase::Call };
        let flow = labels.map(|labels| StatedFlow { labels, ..StatedFlow::unknown() });
        let flow = flow.map(|flow| Arc::new(flow) as Arc<dyn CallFlow>);
        CallView { outcome, ..CallView::before(&call, phase) }.with_flow(flow)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_call_is_made_up_of_what_a_test_says_and_is_otherwise_as_strict_as_it_can_be() {
        let source: SourceName = "files".parse().unwrap();
        let call = CallView::builder(source.clone(), "read", &serde_json::json!({ "path": "/a" })).build();
        assert_eq!((call.exposed_name(), call.source(), call.method()), ("files__read", &source, "tools/call"));
        assert_eq!(call.tool(), "read");
        assert_eq!(call.arguments().as_str(), r#"{"path":"/a"}"#);
        assert_eq!((call.principal().as_str(), call.profile().as_str(), call.client()), ("test", "default", ""));
        assert_eq!((call.trust(), call.risk(), call.phase()), (TrustLevel::Medium, Risk::Risky, Phase::Call));
        assert_eq!((call.outcome(), call.labels()), (None, None));

        let call = CallView::builder(source, "read", &serde_json::json!({}))
            .exposed_name("read_file")
            .definition(&serde_json::json!({ "name": "read", "title": "Read" }))
            .principal("ada".parse().unwrap())
            .profile("guest".parse().unwrap())
            .trust(TrustLevel::Low)
            .client("agent/1")
            .risk(Risk::Harmless)
            .labels(["untrusted"])
            .outcome(&serde_json::json!({ "content": [], "isError": true }))
            .build();
        assert_eq!((call.principal().as_str(), call.profile().as_str(), call.client()), ("ada", "guest", "agent/1"));
        assert_eq!((call.trust(), call.risk(), call.phase()), (TrustLevel::Low, Risk::Harmless, Phase::Result));
        assert_eq!(call.labels(), Some(["untrusted".to_owned()].as_slice()));
        assert!(call.outcome_is_error());
        assert_eq!((call.exposed_name(), call.tool()), ("read_file", "read"));
        assert_eq!(call.definition().get_str("title").as_deref(), Some("Read"));
    }
}
