//! One record: its text, and the hash that links it to the record before it.

use std::fmt::Write as _;
use std::sync::Arc;

use portcullis_core::call::{CallId, SessionId, now_millis};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::LedgerError;
use super::body::EventBody;

/// The version of the record format, `v`.
pub(super) const VERSION: u32 = 1;

/// The size limit of a record, in bytes of text. The longest legitimate records list every tool of a source with its
/// digest; 10,000 tools take 1.5 MB.
pub const MAX_RECORD_BYTES: usize = 4 * 1024 * 1024;

/// The domain separator: the hash of a ledger record never equals a hash that was made for another purpose.
const DOMAIN: &[u8] = b"portcullis ledger v1\0";

/// The hash of a record: 32 bytes. The first record of a chain follows a hash of zeros.
pub(super) type RecordHash = [u8; 32];

/// An event to be recorded.
#[derive(Debug, Clone)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The session in which it happened, if any.
    pub run: Option<SessionId>,
    /// The call that it concerns, if any.
    pub call: Option<CallId>,
    /// The facts, as an object; payloads only as shapes and fingerprints. Readers interpret four members: `error`, the
    /// text of a `run.error`; `profile` and `principal` of a `run.started`; and `outcome`, which is `"unknown"` in a
    /// `tool.completed` if it is not known what the source did.
    pub body: EventBody,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name that the record contains.
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
    /// Another configuration was put in force while the broker ran.
    ConfigReloaded = "config.reloaded",
    /// Another configuration was offered while the broker ran, and could not be put in force.
    ConfigRefused = "config.refused",
    /// A broker died, and its chain ends at the record with this number and hash.
    ChainSealed = "chain.sealed",
    /// The first records of a chain are removed because of their age: the number and the hash of the last, the root of
    /// the Merkle tree over them, the time of the newest, and the digest of their remaining data.
    RecordsRemoved = "records.removed",
    /// The data keys of the days before one were deleted, so that bodies that were sealed with them cannot be opened:
    /// the day, and how many keys there were.
    KeysRemoved = "keys.removed",
    /// Records were lost before this one: their number, and the cause.
    LedgerGap = "ledger.gap",
    /// A profile lets risky calls pass without asking.
    ProfileUnguarded = "profile.unguarded",
    /// A person cleared what a session had seen, for policies about information flow.
    SessionCleared = "session.cleared",
    /// A session began.
    RunStarted = "run.started",
    /// A session ended without an error; its `status` says how: ended, interrupted or abandoned.
    RunCompleted = "run.completed",
    /// A session ended with an error.
    RunError = "run.error",
    /// A source was discovered.
    McpConnected = "mcp.connected",
    /// A source listed its prompts, resources or templates.
    McpListed = "mcp.listed",
    /// A source could not be discovered, or did not list its items.
    McpError = "mcp.error",
    /// A member of a group offers a tool whose arguments differ from the exposed tool's; calls of that tool skip the
    /// member.
    GroupDiffers = "group.differs",
    /// The scanner found something in definitions of a source that were not reported before: each with its digest, its
    /// rules, and whether it is quarantined or only warned of.
    DefinitionFlagged = "definition.flagged",
    /// The input schemas of tools of a source were repaired for models, for the first time: each with the digest of the
    /// definition and the number of repairs of each kind.
    SchemaRepaired = "schema.repaired",
    /// A result was changed for the agent's model after it was recorded: images left out, structured content added as a
    /// text, or only its beginning given.
    ResultConverted = "result.converted",
    /// An item is called that has this definition, for the first time on this day.
    DefinitionCalled = "definition.called",
    /// A call is about to be sent to its source.
    CallIntent = "call.intent",
    /// The outcome of a call.
    ToolCompleted = "tool.completed",
    /// The gate refused a call.
    CallDenied = "call.denied",
    /// A person was asked about a call.
    CallAsked = "call.asked",
    /// A person answered, or the time to answer ran out.
    CallAnswered = "call.answered",
    /// The agent was told that a person must answer first. With that the call has ended: the agent sends it again.
    CallDeferred = "call.deferred",
    /// An answer was stored for later calls.
    GrantAdded = "grant.added",
    /// A session followed a change of its tools.
    ListChanged = "list.changed",
    /// Tools were left out of a listing.
    ListFiltered = "list.filtered",
    /// A front rejected a request.
    FrontRejected = "front.rejected",
    /// A plugin failed.
    PluginFailed = "plugin.failed",
    /// A person accepted a definition into the lock file.
    LockAccepted = "lock.accepted",
    /// A package was resolved and pinned by version and integrity hash.
    PackagePinned = "package.pinned",
    /// A source was started: its access, and the mechanism that enforces each limit.
    SourceStarted = "source.started",
    /// A connection to a source changed its state, and why.
    SourceState = "source.state",
    /// A line that a source wrote to its log.
    SourceLog = "source.log",
    /// A source in a cell connected to a declared destination, or was allowed to and failed.
    EgressAllowed = "egress.allowed",
    /// A source in a cell tried to reach something that is not allowed.
    EgressRefused = "egress.refused",
}

impl Event {
    /// Creates an event of the broker itself, without a session or a call.
    #[must_use]
    pub fn new(kind: EventKind, body: impl Into<EventBody>) -> Self {
        Self { kind, run: None, call: None, body: body.into() }
    }

    /// Sets the session in which the event happened.
    #[must_use]
    pub fn in_run(mut self, run: &SessionId) -> Self {
        self.run = Some(run.clone());
        self
    }

    /// Sets the call that the event concerns.
    #[must_use]
    pub fn to_call(mut self, call: &CallId) -> Self {
        self.call = Some(call.clone());
        self
    }

    /// Prepares everything except the place in the chain, so that the writer's thread must only concatenate and hash.
    /// `config` is the digest of the configuration under which it happened; records of the ledger itself have none. An
    /// intent, a refusal, a deferral or an outcome is recorded whatever its payloads are: [reduced](EventBody::reduced)
    /// if need be.
    pub(super) fn draft(self, config: Option<&Arc<str>>) -> Result<UnchainedRecord, LedgerError> {
        let is_of_call = matches!(
            self.kind,
            EventKind::CallIntent | EventKind::CallDenied | EventKind::CallDeferred | EventKind::ToolCompleted
        );
        let body = match text_of(&self.body) {
            Err(error) if is_of_call => {
                tracing::debug!(kind = self.kind.as_str(), %error, "a call is recorded without its payloads");
                text_of(&self.body.reduced())?
            }
            text => text?,
        };
        Ok(UnchainedRecord {
            at: now_millis(),
            kind: self.kind,
            run: self.run,
            call: self.call,
            config: config.cloned(),
            body,
        })
    }
}

/// Returns the text of a body, if a record may have it.
fn text_of(body: &EventBody) -> Result<String, LedgerError> {
    let text = body.to_text().map_err(|error| LedgerError::Body(error.to_string()))?;
    match text.len() {
        size if size > MAX_RECORD_BYTES => Err(LedgerError::TooLarge { size }),
        _ => Ok(text),
    }
}

/// A record that has no place in a chain yet.
#[derive(Debug)]
pub(super) struct UnchainedRecord {
    at: u64,
    kind: EventKind,
    run: Option<SessionId>,
    call: Option<CallId>,
    config: Option<Arc<str>>,
    body: String,
}

impl UnchainedRecord {
    /// Returns the run in which it happened.
    pub(super) fn run(&self) -> Option<&SessionId> {
        self.run.as_ref()
    }

    /// Returns the canonical text of the record at this place. The members are in canonical order, and no value except
    /// the body needs escaping.
    /// `run_seq` is the number of the record in its run, if it has one.
    pub(super) fn text(&self, chain: &str, seq: u64, run_seq: u64) -> String {
        let mut out = String::with_capacity(self.body.len() + 288);
        // Writing to a `String` does not fail.
        let _ = write!(out, r#"{{"at":{},"body":{}"#, self.at, self.body);
        if let Some(call) = &self.call {
            let _ = write!(out, r#","call":"{call}""#);
        }
        let _ = write!(out, r#","chain":"{chain}""#);
        if let Some(config) = &self.config {
            let _ = write!(out, r#","config":"{config}""#);
        }
        let _ = write!(out, r#","kind":"{}""#, self.kind.as_str());
        if let Some(run) = &self.run {
            let _ = write!(out, r#","run":"{run}","run_seq":{run_seq}"#);
        }
        let _ = write!(out, r#","seq":{seq},"v":{VERSION}}}"#);
        out
    }
}

/// A record with its place in a chain, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainedRecord {
    /// The number of the record in its chain, from 1.
    pub(super) seq: u64,
    /// The canonical text.
    pub(super) text: String,
    /// The hash, which covers the text and the hash of the record before.
    pub(super) hash: RecordHash,
}

/// Returns the hash of a record with this text that follows a record with the hash `before`.
pub(super) fn hash(before: &RecordHash, text: &[u8]) -> RecordHash {
    let mut sha = Sha256::new();
    sha.update(DOMAIN);
    sha.update(before);
    sha.update(text);
    sha.finalize().into()
}

/// A record as the ledger contains it. It serialises to the same members in the same order.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The time at which the event happened, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The facts.
    pub body: serde_json::Value,
    /// The call that the record is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The chain that contains the record.
    pub chain: String,
    /// The digest of the configuration under which it happened. `None` in records of the ledger itself, and in those of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The kind of event: [`EventKind::as_str`], or a kind of a later version.
    pub kind: String,
    /// The session that the record is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The number of the record among those of its session in the chain, from 1. `None` in records without a session,
    /// and in those of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seq: Option<u64>,
    /// The number of the record in its chain, from 1.
    pub seq: u64,
    /// The version of the record format: 1.
    pub v: u32,
}

/// The members of a record in its text, with the body unread. No member but the body needs escaping.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordMembers<'a> {
    pub(super) at: u64,
    #[serde(borrow)]
    pub(super) body: &'a RawValue,
    pub(super) call: Option<&'a str>,
    pub(super) chain: &'a str,
    #[serde(rename = "config")]
    _config: Option<&'a str>,
    pub(super) kind: &'a str,
    pub(super) run: Option<&'a str>,
    pub(super) run_seq: Option<u64>,
    pub(super) seq: u64,
    pub(super) v: u32,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use portcullis_core::digest::Digest;
    use portcullis_core::protocol::Json;
    use portcullis_core::protocol::canonical;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_canonical_and_reads_back() {
        let (run, call) = (SessionId::new(), CallId::new());
        let body = json!({"z": 1, "a": {"€\n": [1.50, "x"]}, "B": null});
        let digest = Digest::of(b"configuration").to_string();
        for (config, event) in [
            (None, Event::new(EventKind::CallIntent, body.clone())),
            (None, Event::new(EventKind::CallIntent, body.clone()).in_run(&run)),
            (Some(Arc::from(&*digest)), Event::new(EventKind::CallIntent, body.clone()).in_run(&run).to_call(&call)),
        ] {
            let (had_run, had_call) = (event.run.is_some(), event.call.is_some());
            let text = event.draft(config.as_ref()).unwrap().text("01ABC", 7, 3);
            assert_eq!(canonical(&Json::parse(text.clone()).unwrap()).unwrap(), text);
            let record: Record = serde_json::from_str(&text).unwrap();
            assert_eq!((record.chain.as_str(), record.seq, record.v), ("01ABC", 7, VERSION));
            assert_eq!((record.run.is_some(), record.call.is_some()), (had_run, had_call));
            assert_eq!((record.config.as_deref(), record.run_seq), (config.as_deref(), had_run.then_some(3)));
            assert_eq!(record.body, body);
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
        }
    }

    #[test]
    fn records_that_are_too_large_or_too_deep_are_refused() {
        let large = Event::new(EventKind::SourceLog, json!({ "line": "x".repeat(MAX_RECORD_BYTES) }));
        let around = r#"{"line":""}"#.len();
        assert!(matches!(large.draft(None), Err(LedgerError::TooLarge { size }) if size == MAX_RECORD_BYTES + around));
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        assert!(matches!(
            Event::new(EventKind::SourceLog, json!({ "deep": deep })).draft(None),
            Err(LedgerError::Body(_))
        ));
    }

    #[test]
    fn what_is_said_of_a_call_is_recorded_whatever_its_payloads_are() {
        for kind in [EventKind::CallIntent, EventKind::CallDenied, EventKind::CallDeferred, EventKind::ToolCompleted] {
            let body =
                json!({ "code": "x", "arguments": { "bytes": 1, "hash": "h", "body": "x".repeat(MAX_RECORD_BYTES) } });
            let record: Record =
                serde_json::from_str(&Event::new(kind, body).draft(None).unwrap().text("0", 2, 0)).unwrap();
            let expected = json!({ "code": "x", "arguments": { "bytes": 1, "hash": "h" }, "reduced": true });
            assert_eq!(record.body, expected);
        }
    }

    #[test]
    fn the_hash_covers_the_one_before() {
        assert_ne!(hash(&[0; 32], b"x"), hash(&[1; 32], b"x"));
        // Computed once with `printf 'portcullis ledger v1\0…' | sha256sum`, so that the formula cannot change
        // unnoticed.
        let hex: String = hash(&[0; 32], b"{}").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "e8edbca1a89e57476f789d1c349e09a92ac31a8c7798131fa052f538abb0aeb6");
    }
}
