//! The domain: what a call is, who makes it, what it could do, how it ended.

use std::fmt;
use std::sync::Arc;

use crate::catalog::Tool;
use crate::message::{Answer, Json};
use crate::name::{ProfileName, SourceName};

/// The broker's identifier of one call: a ULID, so that identifiers sort by time.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct CallId(Arc<str>);

/// The identifier of one session (a *run* in the ledger): a ULID.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

macro_rules! ulid_id {
    ($name:ident) => {
        impl $name {
            /// A new, unique identifier.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a new identifier is an act, not a default")]
            pub fn new() -> Self {
                Self(ulid::Ulid::generate().to_string().into())
            }

            /// The 26 characters.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
ulid_id!(CallId);
ulid_id!(SessionId);

/// How far a profile is trusted (product.md R2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Sees no source at all.
    Sandbox,
    /// Sees only what an `allow` list names.
    Low,
    /// Sees everything that is not narrowed.
    Medium,
    /// Like medium; policies may tell them apart.
    High,
}

impl Trust {
    /// The word that configuration, plugins and the ledger use.
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

/// What a call could do: derived from the cell, raised by annotations, lowered only by a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Risk {
    /// The cell can neither write nor reach the network, and no hint says otherwise.
    Harmless,
    /// Anything else.
    Risky,
}

impl Risk {
    /// The word that plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::Risky => "risky",
        }
    }
}

/// Who is asking.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Established by the front: `local` for stdio, the token's name for HTTP, `cli` for the command line.
    pub principal: Arc<str>,
    /// Under which profile.
    pub profile: ProfileName,
    /// The profile's trust level.
    pub trust: Trust,
    /// In which session.
    pub session: SessionId,
    /// `name/version` of the client program as it says itself; may be empty.
    pub client: Arc<str>,
}

/// One request on its way to a source.
#[derive(Debug, Clone)]
pub struct Call {
    /// In the ledger and in every message about this call.
    pub id: CallId,
    /// Milliseconds since the Unix epoch.
    pub received_at: u64,
    /// The MCP method, such as `tools/call`.
    pub method: Arc<str>,
    /// Who calls.
    pub caller: Arc<Caller>,
    /// What is called, as the caller was shown it.
    pub tool: Arc<Tool>,
    /// What it could do.
    pub risk: Risk,
    /// The arguments: a JSON object, in placeholder form.
    pub arguments: Json,
    /// The whole `params` as received, with the exposed name and the caller's arguments.
    pub params: Json,
}

impl Call {
    /// The configured name of the source that this call is for.
    #[must_use]
    pub fn source(&self) -> &SourceName {
        &self.tool.source
    }
}

/// At which point of its way a call is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before the source is reached.
    Call,
    /// When the source has answered.
    Result,
    /// When a tool is about to be shown.
    List,
}

impl Phase {
    /// The word that configuration, plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Result => "result",
            Self::List => "list",
        }
    }
}

/// A call at one point of its way: what a plugin is shown. Cheap to clone.
#[derive(Debug, Clone)]
pub struct View {
    /// The call, its arguments as they are at this point.
    pub call: Arc<Call>,
    /// Which point.
    pub phase: Phase,
    /// What the source answered, in the result phase: a result, or a JSON-RPC error object.
    pub outcome: Option<Json>,
    /// Whether `outcome` is a JSON-RPC error object.
    pub failed: bool,
}

impl View {
    /// A call that has no outcome yet.
    #[must_use]
    pub fn before(call: &Arc<Call>, phase: Phase) -> Self {
        Self { call: call.clone(), phase, outcome: None, failed: false }
    }

    /// Whether the source says that the outcome is an error.
    #[must_use]
    pub fn outcome_is_error(&self) -> bool {
        self.failed
            || self.outcome.as_ref().and_then(|json| json.get("isError")).is_some_and(|json| json.as_str() == "true")
    }
}

/// How a call ended at its source.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The source answered, well or with an error of its own.
    Answered(Answer),
    /// No answer; the source may or may not have acted.
    Unknown(String),
    /// No answer, and the source cannot have acted: the call was never sent.
    NotSent(String),
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
