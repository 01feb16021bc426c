//! Stand-ins for the broker, to test a plugin's decisions natively.
//!
//! ```
//! use portcullis_plugin::{Call, Phase, fake::FakeCall};
//!
//! let call = FakeCall::new("files", "write_file").with_arguments(r#"{"path":"/srv/a"}"#);
//! assert_eq!(call.exposed_name(), "files__write_file");
//! assert_eq!(call.phase(), Phase::Call);
//! ```

pub(crate) mod session;

use std::cell::RefCell;

use crate::{Ask, Call, Concern, Flow, Grant, Lines, Origin, Phase, Risk, Scope, Trust, Vault};

pub use session::{set_budget, set_session_calls};

/// A call whose facts the test sets. A new one is in the call phase, risky, of medium trust, and has no arguments.
#[derive(Debug, Clone)]
pub struct FakeCall {
    source: String,
    tool: String,
    exposed_name: String,
    method: String,
    phase: Phase,
    arguments: String,
    outcome: Option<String>,
    definition: Option<String>,
    annotations: String,
    principal: String,
    profile: String,
    trust: Trust,
    risk: Risk,
    tags: Vec<String>,
}

impl FakeCall {
    /// Creates a call of the given tool and source, exposed as `source__tool`.
    #[must_use]
    pub fn new(source: &str, tool: &str) -> Self {
        Self {
            source: source.into(),
            tool: tool.into(),
            exposed_name: format!("{source}__{tool}"),
            method: "tools/call".into(),
            phase: Phase::Call,
            arguments: "{}".into(),
            outcome: None,
            definition: None,
            annotations: "{}".into(),
            principal: "local".into(),
            profile: "default".into(),
            trust: Trust::Medium,
            risk: Risk::Risky,
            tags: vec![],
        }
    }

    /// Sets the arguments, a JSON object.
    #[must_use]
    pub fn with_arguments(mut self, json: &str) -> Self {
        self.arguments = json.into();
        self
    }

    /// Moves the call to the result phase with the given outcome, a `CallToolResult`.
    #[must_use]
    pub fn with_outcome(mut self, json: &str) -> Self {
        self.phase = Phase::Result;
        self.outcome = Some(json.into());
        self
    }

    /// Moves the call to the given phase.
    #[must_use]
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// Sets the name under which the agent sees the tool.
    #[must_use]
    pub fn exposed_as(mut self, name: &str) -> Self {
        self.exposed_name = name.into();
        self
    }

    /// Sets the MCP method.
    #[must_use]
    pub fn with_method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    /// Sets the tool's definition, an MCP `Tool`.
    #[must_use]
    pub fn with_definition(mut self, json: &str) -> Self {
        self.definition = Some(json.into());
        self
    }

    /// Sets the source's hints, a `ToolAnnotations` object.
    #[must_use]
    pub fn with_annotations(mut self, json: &str) -> Self {
        self.annotations = json.into();
        self
    }

    /// Sets the caller, the profile and its trust.
    #[must_use]
    pub fn called_by(mut self, principal: &str, profile: &str, trust: Trust) -> Self {
        self.principal = principal.into();
        self.profile = profile.into();
        self.trust = trust;
        self
    }

    /// Sets what the call could do.
    #[must_use]
    pub fn with_risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    /// Sets the tags of the source.
    #[must_use]
    pub fn with_tags(mut self, tags: &[&str]) -> Self {
        self.tags = tags.iter().map(ToString::to_string).collect();
        self
    }
}

impl Call for FakeCall {
    fn id(&self) -> String {
        "01JD0000000000000000000000".into()
    }

    fn received_at(&self) -> u64 {
        1_763_600_000_000
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn method(&self) -> String {
        self.method.clone()
    }

    fn source(&self) -> String {
        self.source.clone()
    }

    fn tool(&self) -> String {
        self.tool.clone()
    }

    fn exposed_name(&self) -> String {
        self.exposed_name.clone()
    }

    fn arguments(&self) -> String {
        self.arguments.clone()
    }

    fn outcome(&self) -> Option<String> {
        self.outcome.clone()
    }

    fn outcome_is_error(&self) -> bool {
        let is_error = |json: String| serde_json::from_str::<serde_json::Value>(&json).ok()?.get("isError")?.as_bool();
        self.outcome().and_then(is_error).unwrap_or(false)
    }

    fn definition(&self) -> String {
        let default = || format!(r#"{{"name":{},"inputSchema":{{"type":"object"}}}}"#, crate::json::quote(&self.tool));
        self.definition.clone().unwrap_or_else(default)
    }

    fn definition_digest(&self) -> String {
        format!("sha256:{}", "0".repeat(64))
    }

    fn annotations(&self) -> String {
        self.annotations.clone()
    }

    fn principal(&self) -> String {
        self.principal.clone()
    }

    fn profile(&self) -> String {
        self.profile.clone()
    }

    fn session(&self) -> String {
        "01JD0000000000000000000001".into()
    }

    fn client(&self) -> String {
        "fake/1".into()
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn tags(&self) -> Vec<String> {
        self.tags.clone()
    }
}

/// The information flow of a call, whose facts the test sets. In a new one the call can have no effect, and the session
/// has seen nothing.
#[derive(Debug, Clone)]
pub struct FakeFlow {
    /// The labels of the source.
    pub source_labels: Vec<String>,
    /// The ways in which the call can have an effect.
    pub effects: Vec<String>,
    /// The labels of what the session saw before.
    pub labels: Vec<String>,
    /// True if results can be found in the arguments.
    pub traced: bool,
    /// The results that values of the arguments came from.
    pub origins: Vec<Origin>,
}

impl Default for FakeFlow {
    fn default() -> Self {
        Self { source_labels: vec![], effects: vec![], labels: vec![], traced: true, origins: vec![] }
    }
}

impl FakeFlow {
    /// Sets the ways in which the call can have an effect: `network`, `write`.
    #[must_use]
    pub fn with_effects(mut self, effects: &[&str]) -> Self {
        self.effects = effects.iter().map(ToString::to_string).collect();
        self
    }

    /// Sets the labels of what the session saw before.
    #[must_use]
    pub fn after(mut self, labels: &[&str]) -> Self {
        self.labels = labels.iter().map(ToString::to_string).collect();
        self
    }

    /// Adds a result of `source__tool` with these labels, from which the value at `pointer` in the arguments came.
    #[must_use]
    pub fn with_origin(mut self, source: &str, tool: &str, calls_ago: u32, labels: &[&str], pointer: &str) -> Self {
        self.origins.push(Origin {
            source: source.into(),
            exposed_name: format!("{source}__{tool}"),
            call_id: "01JD0000000000000000000002".into(),
            calls_ago,
            labels: labels.iter().map(ToString::to_string).collect(),
            pointer: pointer.into(),
        });
        self
    }

    /// Makes the session one that has seen more than can be found in arguments.
    #[must_use]
    pub fn untraced(mut self) -> Self {
        self.traced = false;
        self
    }
}

impl Flow for FakeFlow {
    fn source_labels(&self) -> Vec<String> {
        self.source_labels.clone()
    }

    fn effects(&self) -> Vec<String> {
        self.effects.clone()
    }

    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    fn traced(&self) -> bool {
        self.traced
    }

    fn origins(&self) -> Vec<Origin> {
        self.origins.clone()
    }
}

/// An ask whose facts the test sets.
#[derive(Debug, Clone, Default)]
pub struct FakeAsk {
    /// The reasons to ask.
    pub reasons: Vec<Concern>,
    /// The earlier answers that would cover the call.
    pub grants: Vec<Grant>,
    /// True if the tool may be destructive or may reach an open world.
    pub grave: bool,
}

impl FakeAsk {
    /// Adds an earlier answer.
    #[must_use]
    pub fn grant(mut self, id: &str, scope: Scope, age: u32) -> Self {
        self.grants.push(Grant { id: id.into(), scope, age });
        self
    }
}

impl Ask for FakeAsk {
    fn reasons(&self) -> Vec<Concern> {
        self.reasons.clone()
    }

    fn grants(&self) -> Vec<Grant> {
        self.grants.clone()
    }

    fn grave(&self) -> bool {
        self.grave
    }
}

/// A vault whose placeholders are `[kind:n]`, with one count for all kinds.
#[derive(Debug, Default)]
pub struct FakeVault(RefCell<Vec<(String, String, Vec<String>)>>);

impl FakeVault {
    /// Returns what the vault keeps: for each value its kind, the value, and the globs of the tools
    /// that may get it back.
    #[must_use]
    pub fn kept(&self) -> Vec<(String, String, Vec<String>)> {
        self.0.borrow().clone()
    }
}

impl Vault for FakeVault {
    fn protect(&self, kind: &str, value: &str, restore_to: &[String]) -> String {
        let mut kept = self.0.borrow_mut();
        let known = kept.iter().position(|(k, v, _)| k == kind && v == value);
        let place = known.unwrap_or_else(|| {
            kept.push((kind.into(), value.into(), restore_to.to_vec()));
            kept.len() - 1
        });
        format!("[{kind}:{}]", place + 1)
    }
}

/// A file that keeps the appended lines in memory.
#[derive(Debug, Default)]
pub struct FakeLines {
    lines: RefCell<Vec<String>>,
    broken: Option<String>,
}

impl FakeLines {
    /// Creates a file on which every append fails with the given text.
    #[must_use]
    pub fn broken(why: &str) -> Self {
        Self { lines: RefCell::default(), broken: Some(why.into()) }
    }

    /// Returns the lines that were appended.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }
}

impl Lines for FakeLines {
    fn append(&self, line: &str) -> Result<(), String> {
        match &self.broken {
            Some(why) => return Err(why.clone()),
            None if line.contains('\n') => return Err("a line with a line feed".into()),
            None => self.lines.borrow_mut().push(line.into()),
        }
        Ok(())
    }
}
