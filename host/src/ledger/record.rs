//! One record: its text, and the hash that chains it to the one before.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::LedgerError;
use crate::call::{CallId, SessionId, now_millis};
use crate::protocol::canonical_value;

/// The version of the record's form, `v`.
pub(super) const VERSION: u32 = 1;

/// The largest record, in bytes of text. The longest honest ones list every tool of a source with its digest; 10,000 tools
/// take 1.5 MB.
pub const MAX_RECORD_BYTES: usize = 4 * 1024 * 1024;

/// Keeps a ledger hash from ever being the hash of something else.
const DOMAIN: &[u8] = b"portcullis ledger v1\0";

/// A record's hash. Of 32 zero bytes before the first.
pub(super) type Hash = [u8; 32];

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// In which session, if in one.
    pub run: Option<SessionId>,
    /// To which call, if to one.
    pub call: Option<CallId>,
    /// The facts, an object; payloads only as shapes and fingerprints. Three members are understood by readers: `error`, the
    /// text of a `run.error`; `profile` and `principal` of a `run.started`; and `outcome`, which is `"unknown"` in a
    /// `tool.completed` where nobody knows what the source did.
    pub body: serde_json::Value,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What an event is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the record.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// The first record of a chain.
    BrokerStarted = "broker.started",
    /// The last record of a chain.
    BrokerStopped = "broker.stopped",
    /// The chain of a broker that died ends at this record, with this hash.
    ChainSealed = "chain.sealed",
    /// Records were lost before this one: how many, and why.
    LedgerGap = "ledger.gap",
    /// A profile runs risky calls without asking.
    ProfileUnguarded = "profile.unguarded",
    /// A session begins.
    RunStarted = "run.started",
    /// A session ends well.
    RunCompleted = "run.completed",
    /// A session ends with an error.
    RunError = "run.error",
    /// A source was discovered.
    McpConnected = "mcp.connected",
    /// A source listed its prompts, resources or templates.
    McpListed = "mcp.listed",
    /// A source could not be discovered, or does not list.
    McpError = "mcp.error",
    /// A member of a group offers a tool that takes other arguments than the one that is shown, and is not called for it.
    GroupDiffers = "group.differs",
    /// A call is about to reach its source.
    CallIntent = "call.intent",
    /// How a call ended.
    ToolCompleted = "tool.completed",
    /// The gate refused a call.
    CallDenied = "call.denied",
    /// A person is asked.
    CallAsked = "call.asked",
    /// A person answered, or time ran out.
    CallAnswered = "call.answered",
    /// An answer is remembered.
    GrantAdded = "grant.added",
    /// A session follows a change of its tools.
    ListChanged = "list.changed",
    /// Tools were left out of a listing.
    ListFiltered = "list.filtered",
    /// A front turned a request away.
    FrontRejected = "front.rejected",
    /// A plugin failed.
    PluginFailed = "plugin.failed",
    /// Somebody accepted a definition into the lock.
    LockAccepted = "lock.accepted",
    /// A package was resolved, and pinned by version and integrity.
    PackagePinned = "package.pinned",
    /// A source started: what it may touch, and what is enforced by what.
    SourceStarted = "source.started",
    /// A connection to a source came into another state, and why.
    SourceState = "source.state",
    /// A line that a source wrote to its log.
    SourceLog = "source.log",
    /// A caged source connected to a declared destination, or would have.
    EgressAllowed = "egress.allowed",
    /// A caged source tried to reach something else.
    EgressRefused = "egress.refused",
}

impl Event {
    /// An event of the broker itself.
    #[must_use]
    pub fn new(kind: EventKind, body: serde_json::Value) -> Self {
        Self { kind, run: None, call: None, body }
    }

    /// In this session.
    #[must_use]
    pub fn in_run(mut self, run: &SessionId) -> Self {
        self.run = Some(run.clone());
        self
    }

    /// To this call.
    #[must_use]
    pub fn to_call(mut self, call: &CallId) -> Self {
        self.call = Some(call.clone());
        self
    }

    /// Everything but the place in the chain, so that the writer's thread only has to glue and hash.
    pub(super) fn draft(self) -> Result<Draft, LedgerError> {
        let body = canonical_value(&self.body).map_err(|error| LedgerError::Body(error.to_string()))?;
        if body.len() > MAX_RECORD_BYTES {
            return Err(LedgerError::TooLarge { size: body.len() });
        }
        Ok(Draft { at: now_millis(), kind: self.kind, run: self.run, call: self.call, body })
    }
}

/// A record without its place.
#[derive(Debug)]
pub(super) struct Draft {
    at: u64,
    kind: EventKind,
    run: Option<SessionId>,
    call: Option<CallId>,
    body: String,
}

impl Draft {
    /// The canonical text at this place. The members stand in canonical order, and no value but the body needs escapes.
    pub(super) fn text(&self, chain: &str, seq: u64) -> String {
        let mut out = String::with_capacity(self.body.len() + 192);
        // Writing to a String does not fail.
        let _ = write!(out, r#"{{"at":{},"body":{}"#, self.at, self.body);
        if let Some(call) = &self.call {
            let _ = write!(out, r#","call":"{call}""#);
        }
        let _ = write!(out, r#","chain":"{chain}","kind":"{}""#, self.kind.as_str());
        if let Some(run) = &self.run {
            let _ = write!(out, r#","run":"{run}""#);
        }
        let _ = write!(out, r#","seq":{seq},"v":{VERSION}}}"#);
        out
    }
}

/// The hash of a record with this text that follows one with hash `before`.
pub(super) fn hash(before: &Hash, text: &[u8]) -> Hash {
    let mut sha = Sha256::new();
    sha.update(DOMAIN);
    sha.update(before);
    sha.update(text);
    sha.finalize().into()
}

/// A record as it stands in the ledger; serialises to the same members in the same order.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// The facts.
    pub body: serde_json::Value,
    /// The call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The chain it stands in.
    pub chain: String,
    /// What happened: [`EventKind::as_str`], or a kind of a later version.
    pub kind: String,
    /// The session it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Its number in the chain, from 1.
    pub seq: u64,
    /// The version of this form: 1.
    pub v: u32,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::protocol::Json;
    use crate::protocol::canonical;

    #[test]
    fn the_text_is_canonical_and_reads_back() {
        let (run, call) = (SessionId::new(), CallId::new());
        let body = json!({"z": 1, "a": {"€\n": [1.50, "x"]}, "B": null});
        for event in [
            Event::new(EventKind::CallIntent, body.clone()),
            Event::new(EventKind::CallIntent, body.clone()).in_run(&run),
            Event::new(EventKind::CallIntent, body.clone()).in_run(&run).to_call(&call),
        ] {
            let (had_run, had_call) = (event.run.is_some(), event.call.is_some());
            let text = event.draft().unwrap().text("01ABC", 7);
            assert_eq!(canonical(&Json::parse(text.clone()).unwrap()).unwrap(), text);
            let record: Record = serde_json::from_str(&text).unwrap();
            assert_eq!((record.chain.as_str(), record.seq, record.v), ("01ABC", 7, VERSION));
            assert_eq!((record.run.is_some(), record.call.is_some()), (had_run, had_call));
            assert_eq!(record.body, body);
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_written_says_so() {
        let large = Event::new(EventKind::SourceLog, json!("x".repeat(MAX_RECORD_BYTES)));
        assert!(matches!(large.draft(), Err(LedgerError::TooLarge { size }) if size == MAX_RECORD_BYTES + 2));
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        assert!(matches!(Event::new(EventKind::SourceLog, deep).draft(), Err(LedgerError::Body(_))));
    }

    #[test]
    fn the_hash_covers_the_one_before() {
        assert_ne!(hash(&[0; 32], b"x"), hash(&[1; 32], b"x"));
        // Computed once with `printf 'portcullis ledger v1\0…' | sha256sum`, so that the formula cannot change unseen.
        let hex: String = hash(&[0; 32], b"{}").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "e8edbca1a89e57476f789d1c349e09a92ac31a8c7798131fa052f538abb0aeb6");
    }
}
