//! The facts of a call that an author writes down, for `plugin run` and the cases of `plugin test`.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use portcullis::call::{BudgetLimit, Call, CallView, Caller, EarlierCalls, Params, Phase, Risk, SessionId, TrustLevel};
use portcullis::digest::Digest;
use portcullis::flow::{Effect, Origin, StatedFlow};
use portcullis::item::{Item, ItemKind, ToolAnnotations};
use portcullis::principal::Principal;
use portcullis::protocol::{Json, Method};
use serde::Deserialize;
use serde_json::{Value, json};

/// The time at which a call without `received-at` is received, so that a decision about it is always the same:
/// 2026-01-01T00:00:00Z, in milliseconds since the Unix epoch.
const RECEIVED_AT: u64 = 1_767_225_600_000;

/// A call as its author describes it. Only `tool` is required.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct CallFacts {
    /// The name of the tool or prompt, or the URI of the resource, as its source knows it.
    tool: String,
    #[serde(default = "source")]
    source: String,
    /// The name that the agent sees; `source__tool` by default.
    exposed_name: Option<String>,
    #[serde(default = "method")]
    method: String,
    /// The phase; `result` if there is an outcome, and `call` otherwise.
    phase: Option<Phase>,
    /// An object, or a string with exact JSON text.
    #[serde(default)]
    arguments: Option<Value>,
    /// The source's answer: an object, or a string with exact JSON text.
    outcome: Option<Value>,
    /// True if the outcome is a JSON-RPC error object instead of a result.
    #[serde(default)]
    failed: bool,
    /// The definition, such as an MCP `Tool`.
    definition: Option<Value>,
    #[serde(default = "principal")]
    principal: String,
    #[serde(default = "profile")]
    profile: String,
    #[serde(default = "trust")]
    trust: TrustLevel,
    #[serde(default)]
    risk: WrittenRisk,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    client: String,
    received_at: Option<u64>,
    #[serde(default)]
    source_labels: Vec<String>,
    /// The effects; all of them if the call is risky, and none if it is harmless.
    effects: Option<Vec<Effect>>,
    #[serde(default)]
    labels: Vec<String>,
    traced: Option<bool>,
    #[serde(default)]
    origins: Vec<WrittenOrigin>,
    /// The number of calls that the agent made before in the session.
    #[serde(default)]
    session_calls: u32,
    /// The number of those that were of the same item.
    #[serde(default)]
    item_calls: u32,
    /// The limits of the profile's budget.
    #[serde(default)]
    budget: Vec<WrittenLimit>,
}

/// A limit of a budget, as a fixture writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenLimit {
    name: String,
    amount: u64,
    left: i64,
}

/// An origin of a value in the arguments, as a fixture writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenOrigin {
    source: String,
    tool: String,
    #[serde(default = "last_call")]
    calls_ago: u32,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    pointer: String,
}

/// The risk of a call, as a fixture writes it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenRisk {
    Harmless,
    #[default]
    Risky,
}

fn last_call() -> u32 {
    1
}

fn source() -> String {
    "source".to_owned()
}

fn method() -> String {
    Method::ToolsCall.as_str().to_owned()
}

fn principal() -> String {
    "local".to_owned()
}

fn profile() -> String {
    "default".to_owned()
}

fn trust() -> TrustLevel {
    TrustLevel::Medium
}

impl CallFacts {
    /// Describes a call of one tool with these arguments, and nothing unusual.
    pub(super) fn of_tool(tool: String, arguments: Value) -> Self {
        let (source, tool) = match tool.split_once("__") {
            Some((source, tool)) => (source.to_owned(), tool.to_owned()),
            None => (source(), tool),
        };
        Self {
            tool,
            source,
            exposed_name: None,
            method: method(),
            phase: None,
            arguments: Some(arguments),
            outcome: None,
            failed: false,
            definition: None,
            principal: principal(),
            profile: profile(),
            trust: trust(),
            risk: WrittenRisk::default(),
            tags: Vec::new(),
            client: String::new(),
            received_at: None,
            source_labels: Vec::new(),
            effects: None,
            labels: Vec::new(),
            traced: None,
            origins: Vec::new(),
            session_calls: 0,
            item_calls: 0,
            budget: Vec::new(),
        }
    }

    /// Returns the call as plugins see it.
    ///
    /// # Errors
    /// A value is not one that a call can have.
    pub(super) fn view(&self) -> anyhow::Result<CallView> {
        let phase = self.phase.unwrap_or(if self.outcome.is_some() { Phase::Result } else { Phase::Call });
        if self.outcome.is_some() != (phase == Phase::Result) {
            bail!("a call has an `outcome` in the phase `result`, and in no other");
        }
        let arguments = match &self.arguments {
            Some(written) => object("arguments", written)?,
            None => Json::empty_object(),
        };
        let outcome = self.outcome.as_ref().map(|written| object("outcome", written)).transpose()?;
        let mut call = Call::new(
            &Method::from(self.method.as_str()),
            Params::parse(&Method::ToolsCall, Json::of(&json!({ "name": self.exposed_name() }))),
            &Arc::new(self.caller()?),
            Arc::new(self.item()?),
            match self.risk {
                WrittenRisk::Harmless => Risk::Harmless,
                WrittenRisk::Risky => Risk::Risky,
            },
        );
        (call.arguments, call.received_at) = (arguments, self.received_at.unwrap_or(RECEIVED_AT));
        call.earlier = EarlierCalls::stated(self.session_calls, self.item_calls);
        let limit = |limit: &WrittenLimit| BudgetLimit::stated(&limit.name, limit.amount, limit.left);
        call.budget = self.budget.iter().map(limit).collect();
        let view = CallView::before(&Arc::new(call), phase).with_flow(Some(Arc::new(self.flow())));
        Ok(match outcome {
            Some(outcome) => view.with_outcome(outcome, self.failed),
            None => view,
        })
    }

    fn flow(&self) -> StatedFlow {
        let effects = match self.risk {
            WrittenRisk::Harmless => Vec::new(),
            WrittenRisk::Risky => Effect::ALL.to_vec(),
        };
        let origin = |written: &WrittenOrigin| Origin {
            source: written.source.as_str().into(),
            exposed: format!("{}__{}", written.source, written.tool).into(),
            call: "".into(),
            calls_ago: written.calls_ago,
            labels: written.labels.as_slice().into(),
            pointer: written.pointer.clone(),
        };
        StatedFlow {
            source_labels: self.source_labels.clone(),
            effects: self.effects.clone().unwrap_or(effects),
            labels: self.labels.clone(),
            traced: self.traced.unwrap_or(true),
            origins: self.origins.iter().map(origin).collect(),
        }
    }

    fn exposed_name(&self) -> String {
        self.exposed_name.clone().unwrap_or_else(|| format!("{}__{}", self.source, self.tool))
    }

    fn caller(&self) -> anyhow::Result<Caller> {
        Ok(Caller {
            principal: Principal::established(self.principal.as_str()),
            profile: self.profile.parse().context("profile")?,
            trust: self.trust,
            session: SessionId::new(),
            client: self.client.as_str().into(),
        })
    }

    fn item(&self) -> anyhow::Result<Item> {
        let kind = match Method::from(self.method.as_str()) {
            Method::PromptsGet => ItemKind::Prompt,
            Method::ResourcesRead => ItemKind::Resource,
            _ => ItemKind::Tool,
        };
        let definition = match &self.definition {
            Some(written) => object("definition", written)?,
            None => Json::of(&json!({ "name": self.tool, "inputSchema": { "type": "object" } })),
        };
        Ok(Item {
            kind,
            source: self.source.parse().context("source")?,
            group: None,
            name: self.tool.as_str().into(),
            exposed: self.exposed_name().into(),
            digest: Digest::of_json(&definition).context("definition")?,
            hints: ToolAnnotations::of(&definition),
            definition,
            tags: self.tags.as_slice().into(),
            series_link: Default::default(),
            exposed_definition: Default::default(),
        })
    }
}

/// Reads an object that is written as a table, or as a string with its JSON text.
fn object(what: &str, written: &Value) -> anyhow::Result<Json> {
    let json = match written {
        Value::String(text) => Json::parse(text.clone()).with_context(|| format!("`{what}` is not JSON"))?,
        other => Json::of(other),
    };
    if !json.is_object() {
        bail!("`{what}` is not an object");
    }
    Ok(json)
}
