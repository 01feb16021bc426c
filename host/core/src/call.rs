//! The domain: a call, its caller, its possible effects and its outcome.

mod budget;
mod cause;
mod counts;
mod id;
mod params;
mod progress;
mod view;

use std::collections::HashSet;
use std::sync::Arc;

use crate::item::{Item, ItemKind};
use crate::metrics::{Series, SourceMetrics};
use crate::name::{ProfileName, SourceName};
use crate::principal::Principal;
use crate::protocol::{Answer, Json, Method};

pub use budget::BudgetLimit;
pub use cause::{Cause, SourceWords};
pub use counts::{EarlierCalls, SessionCalls};
pub use id::{CallId, SessionId};
pub use params::Params;
pub use progress::CallProgress;
pub use view::{CallView, CallViewBuilder};

/// The trust level of a profile, which decides how much of the catalog it sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TrustLevel {
    /// Sees no source at all.
    Sandbox,
    /// Sees only what an `allow` list names.
    Low,
    /// Sees everything that is not narrowed.
    Medium,
    /// Like medium; policies may tell them apart.
    High,
}

impl TrustLevel {
    /// All levels, the lowest first.
    #[doc(hidden)]
    pub const ALL: [Self; 4] = [Self::Sandbox, Self::Low, Self::Medium, Self::High];

    /// Returns the word that configuration, plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The risk of a call: derived from the cell, raised by annotations, lowered only by a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Risk {
    /// The cell can neither write nor reach the network, and no hint contradicts this.
    Harmless,
    /// Anything else.
    Risky,
}

impl Risk {
    /// Returns the risk that a record names. A word that this version does not know means a risky call.
    #[doc(hidden)]
    #[must_use]
    pub fn recorded(word: &str) -> Self {
        if word == Self::Harmless.as_str() { Self::Harmless } else { Self::Risky }
    }

    /// Returns the word that plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::Risky => "risky",
        }
    }
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The principal: `local` for stdio; `token`, `token:NAME` or `jwt:SUBJECT` for HTTP; `cli` for the command line. A
    /// program that opens a session chooses its own.
    pub principal: Principal,
    /// The profile under which the call is made.
    pub profile: ProfileName,
    /// The profile's trust level.
    pub trust: TrustLevel,
    /// The session that the call belongs to.
    pub session: SessionId,
    /// `name/version` of the client program as it reports them; may be empty.
    pub client: Arc<str>,
}

/// The number of an attempt at a tool of a group. Each attempt is a separate call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupAttempt {
    /// The number, from one on.
    pub number: u32,
    /// True if another member can be called when this one cannot be reached, so that the call does not wait for it to
    /// come back.
    pub others: bool,
}

/// One request on its way to a source.
#[derive(Debug, Clone)]
pub struct Call {
    /// The identifier in the ledger and in every message about this call.
    pub id: CallId,
    /// Milliseconds since the Unix epoch.
    pub received_at: u64,
    /// The MCP method, such as `tools/call`.
    pub method: Method,
    /// The caller.
    pub caller: Arc<Caller>,
    /// The item that the call is about, as the caller was shown it.
    pub item: Arc<Item>,
    /// The risk of the call.
    pub risk: Risk,
    /// The attempt, if the call is about a tool of a group.
    pub attempt: Option<GroupAttempt>,
    /// The caller's arguments, a JSON object in placeholder form: see [`Params::arguments`].
    pub arguments: Json,
    /// The whole `params`, with the exposed name and the caller's arguments.
    pub params: Params,
    /// The calls that the agent made before this one.
    pub earlier: EarlierCalls,
    /// The limits of the profile's budget; none if it has no budget.
    pub budget: Vec<BudgetLimit>,
    /// True if the caller was shown a repaired schema, and its arguments were brought into the form of the source's
    /// own.
    pub arguments_repaired: bool,
    /// The members that were removed from `params`, because the protocol has no member of that name there.
    pub dropped: Vec<String>,
}

/// The members of `task`, by which a call becomes a task (2025-11-25, "Tasks").
pub const TASK_MEMBERS: [&str; 1] = ["ttl"];

/// Members of a method's parameters that the protocol does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownMembers {
    /// Members of `params`.
    pub of_params: Vec<String>,
    /// Members of `params.task`.
    pub of_task: Vec<String>,
    /// Members of `params.ref` that do not identify the completed item.
    pub of_ref: Vec<String>,
}

impl UnknownMembers {
    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.of_params.is_empty() && self.of_task.is_empty() && self.of_ref.is_empty()
    }
}

impl Call {
    /// Makes a call that begins now, about this item.
    #[must_use]
    pub fn new(method: &Method, params: Params, caller: &Arc<Caller>, item: Arc<Item>, risk: Risk) -> Self {
        let arguments = params.arguments().clone();
        // One reading of the clock, so that the identifier tells when a recorded call was received.
        let ((id, received_at), caller) = (CallId::now(), Arc::clone(caller));
        let (attempt, dropped, arguments_repaired, method) = (None, Vec::new(), false, method.clone());
        let (earlier, budget) = (EarlierCalls::default(), Vec::new());
        Self {
            id,
            received_at,
            method,
            caller,
            item,
            risk,
            attempt,
            arguments,
            params,
            earlier,
            budget,
            arguments_repaired,
            dropped,
        }
    }

    /// Returns the configured name of the source that this call is for.
    #[must_use]
    pub fn source(&self) -> &SourceName {
        &self.item.source
    }

    /// Reports whether the caller gave any arguments.
    #[must_use]
    pub fn has_arguments(&self) -> bool {
        self.arguments.members().is_some_and(|members| !members.is_empty())
    }

    /// Returns the series in which the call is counted in the traffic of its source.
    pub fn series(&self, metrics: &SourceMetrics) -> Arc<Series> {
        match self.item.kind {
            ItemKind::Tool => metrics.of_tool(&self.item.exposed, &self.item.series_link),
            _ => metrics.of_method(&self.method),
        }
    }

    /// Returns the call without these members of `params`, `params.task` and `params.ref`.
    #[must_use]
    pub fn without(&self, members: &UnknownMembers) -> Self {
        let mut params = self.params.as_json().without_all(&as_strs(&members.of_params));
        let mut dropped = members.of_params.clone();
        for (member, strange) in [("task", &members.of_task), ("ref", &members.of_ref)] {
            if let Some(value) = params.get(member).filter(|_| !strange.is_empty()) {
                params = params.with(member, &value.without_all(&as_strs(strange))).unwrap_or(params);
                dropped.extend(strange.iter().map(|key| format!("{member}.{key}")));
            }
        }
        Self { params: Params::parse(&self.method, params), dropped, ..self.clone() }
    }

    /// Returns the parameters with other arguments and everything else byte for byte. `None` if the parameters have no
    /// place for these arguments.
    #[must_use]
    pub fn params_with(&self, arguments: &Json) -> Option<Json> {
        let params = self.params.as_json();
        if self.method.has_arguments() {
            return params.with("arguments", arguments);
        }
        if params.as_bytes().starts_with(b"[") {
            return arguments.get("params");
        }
        let (old, new) = (self.arguments.members()?, arguments.members()?);
        let stay: HashSet<_> = new.iter().map(|(key, _)| key).collect();
        let gone = old.iter().filter(|(key, _)| !stay.contains(key));
        let edits = gone.map(|(key, _)| (key.as_str(), None)).chain(new.iter().map(|(key, v)| (key.as_str(), Some(v))));
        let own = self.method.protocol_members();
        let edits: Vec<_> = edits.filter(|(key, _)| !own.contains(key)).collect();
        params.edited(&edits)
    }

    /// Returns the parameters for the source: under the source's own name for the item, with these arguments.
    #[must_use]
    pub fn params_for_source(&self, arguments: Option<&Json>) -> Option<Json> {
        let params = match arguments {
            Some(arguments) => self.params_with(arguments)?,
            None => self.params.as_json().clone(),
        };
        let name = Json::of(&&*self.item.name);
        match (&self.method, self.item.kind) {
            (_, ItemKind::Source) => Some(params),
            (Method::CompletionComplete, kind) => {
                let key = if kind == ItemKind::Prompt { "name" } else { "uri" };
                params.with("ref", &params.get("ref")?.with(key, &name)?)
            }
            (_, ItemKind::Tool | ItemKind::Prompt) => params.with("name", &name),
            (_, ItemKind::Resource | ItemKind::Template) => params.with("uri", &name),
        }
    }
}

fn as_strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// The phase in which plugins judge a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// Before the source is reached.
    Call,
    /// After the source has answered.
    Result,
    /// Before an item is shown.
    List,
}

impl Phase {
    /// Returns the word that configuration, plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Result => "result",
            Self::List => "list",
        }
    }
}

/// The outcome of a call at its source.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The source answered, well or with an error of its own.
    Answered(Answer),
    /// No answer; the source may or may not have acted.
    Unknown(Cause),
    /// No answer, and the source cannot have acted: the call was never sent.
    NotSent(Cause),
}

/// The delivery of a notification to its source, which gives no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It was handed to the source.
    Sent,
    /// The source may or may not have got it.
    Unknown(Cause),
    /// The source cannot have got it.
    NotSent(Cause),
}

/// Returns the current time in milliseconds since the Unix epoch.
#[must_use]
pub fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::testing::view;

    use super::*;

    fn call(method: &str, kind: ItemKind, params: &'static str) -> Call {
        let call = Call::clone(&view("{}").call);
        let item = Arc::new(Item { kind, name: "own".into(), ..Item::clone(&call.item) });
        let params = Json::parse(params).unwrap();
        let method = Method::from(method);
        let params = Params::parse(&method, params);
        Call { item, arguments: params.arguments().clone(), method, params, ..call }
    }

    #[test]
    fn each_method_has_its_arguments_and_the_sources_own_name_is_put_in() {
        let cases = [
            ("tools/call", ItemKind::Tool, r#"{ "name":"x", "arguments":{"a":1.0}, "v":2}"#, r#"{"a":1.0}"#),
            ("prompts/get", ItemKind::Prompt, r#"{"name":"x" }"#, "{}"),
            ("resources/read", ItemKind::Resource, r#"{"uri":"x","_meta":{"p":1}}"#, "{}"),
            (
                "completion/complete",
                ItemKind::Template,
                r#"{"ref":{"type":"ref/resource", "uri":"x"},"argument":{"name":"n","value":"v"}}"#,
                r#"{"argument":{"name":"n","value":"v"}}"#,
            ),
            ("vendor/do", ItemKind::Source, r#"{"name":"kept","x":[1]}"#, r#"{"name":"kept","x":[1]}"#),
            ("vendor/do", ItemKind::Source, "[1, 2]", r#"{"params":[1, 2]}"#),
        ];
        for (method, kind, params, arguments) in cases {
            let call = call(method, kind, params);
            assert_eq!(call.arguments.as_str(), arguments, "{method}");
            let sent = call.params_for_source(None).unwrap();
            let expected =
                if kind == ItemKind::Source { params.to_owned() } else { params.replace("\"x\"", "\"own\"") };
            assert_eq!(sent.as_str(), expected, "{method}");
        }
    }

    #[test]
    fn rewritten_arguments_go_where_the_old_ones_stood() {
        let other = Json::parse(r#"{"argument":{"name":"n","value":"w"},"_meta":{"evil":1}}"#).unwrap();
        let call = call("completion/complete", ItemKind::Prompt, r#"{"argument":1,"context":{}, "_meta":{"k":1}}"#);
        let rewritten = call.params_with(&other).unwrap();
        assert_eq!(rewritten.as_str(), r#"{"argument":{"name":"n","value":"w"},"_meta":{"k":1}}"#);
    }

    /// Work that grew with the square of the number of members would take minutes.
    #[test]
    fn a_hundred_thousand_members_are_dropped_or_rewritten_in_one_pass() {
        let names: Vec<_> = (0..100_000).map(|number| number.to_string()).collect();
        let members = |value: u8| {
            let members: Vec<_> = names.iter().map(|name| format!(r#""{name}":{value}"#)).collect();
            Json::parse(format!("{{{}}}", members.join(","))).unwrap()
        };
        let method = Method::from("vendor/do");
        let params = Params::parse(&method, members(1).with("name", &Json::of(&"x")).unwrap());
        let call = Call { arguments: params.arguments().clone(), method, params, ..call("x", ItemKind::Source, "{}") };
        let unknown = UnknownMembers { of_params: names.clone(), ..UnknownMembers::default() };
        let without = call.without(&unknown);
        assert_eq!((without.params.as_json().as_str(), without.dropped.len()), (r#"{"name":"x"}"#, 100_000));
        let rewritten = call.params_with(&members(2)).unwrap();
        assert_eq!(rewritten, members(2), "all members but the name have other values, and the name is gone");
        let emptied = call.params_with(&Json::empty_object()).unwrap();
        assert_eq!(emptied.as_str(), "{}");
    }
}
