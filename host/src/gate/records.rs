//! Builds the ledger records of a call before it is sent: the intent or the refusal, with payloads in the detail that
//! the profile asks for.

use std::sync::Arc;

use serde_json::json;

use super::judge::DecisionTrail;
use super::{CallRefusal, Gate, GateInput};
use crate::call::Call;
use crate::config::Detail;
use crate::ledger::{Event, EventKind, Ledger, shape};
use crate::metrics::Series;
use crate::protocol::Json;

/// The largest payload, in bytes, whose body is recorded where a profile says so. Of a larger payload only the shape is
/// recorded: as a tree a body takes many times its size, and a record has its own limit.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The largest number of dropped members of `params` that a record names, and of characters of each name: an agent
/// chooses them.
const MAX_DROPPED_SHOWN: usize = 16;
const MAX_DROPPED_CHARS: usize = 64;

impl Gate {
    /// Records that a call was refused.
    pub(super) async fn record_refusal(
        &self,
        call: &Call,
        input: &GateInput<'_>,
        series: &Series,
        refusal: &CallRefusal,
        trail: DecisionTrail,
    ) -> Result<(), CallRefusal> {
        // A question that is still open is recorded as asked, by the inbox; its call has not ended.
        let CallRefusal::Denied { code, message, quotes } = refusal else { return Ok(()) };
        series.denied();
        let mut body = self.describe(call, input, trail);
        set_member(&mut body, "code", json!(code));
        set_member(&mut body, "message", recorded_text(&self.ledger, message, *quotes, input.record));
        let event = Event {
            kind: EventKind::CallDenied,
            run: Some(call.caller.session.clone()),
            call: Some(call.id.clone()),
            body,
        };
        self.ledger.append(event).await.map(drop).map_err(CallRefusal::from_ledger)
    }

    /// Returns the members that every record of a call has.
    pub(super) fn describe(&self, call: &Call, input: &GateInput<'_>, trail: DecisionTrail) -> serde_json::Value {
        let mut body = json!({
            "method": &*call.method,
            call.item.kind.as_str(): &*call.item.exposed,
            "source": call.source(),
            "name": &*call.item.name,
            "definition": call.item.digest,
            "identity": input.identity,
            "principal": &*call.caller.principal,
            "profile": call.caller.profile,
            "client": &*call.caller.client,
            "trust": call.caller.trust.as_str(),
            "risk": call.risk.as_str(),
            "policies": self.policies_digest,
            "verdicts": trail.entries,
            "arguments": recorded_payload(&self.ledger, &call.arguments, input.record),
        });
        if !call.dropped.is_empty() {
            // Their values are payload, and are neither sent nor recorded.
            let shown = call.dropped.iter().take(MAX_DROPPED_SHOWN);
            let names: Vec<String> = shown.map(|name| name.chars().take(MAX_DROPPED_CHARS).collect()).collect();
            set_member(&mut body, "dropped", json!({ "count": call.dropped.len(), "members": names }));
        }
        if let Some(attempt) = call.attempt {
            set_member(&mut body, "group", json!(call.item.group));
            set_member(&mut body, "attempt", json!(attempt.number));
        }
        body
    }
}

/// A call that the gate has taken and not yet decided. If it is dropped in this state, its caller went away.
pub(super) struct UndecidedCall<'a> {
    pub(super) call: Arc<Call>,
    pub(super) series: &'a Series,
    pub(super) ledger: &'a Ledger,
    pub(super) decided: bool,
}

impl Drop for UndecidedCall<'_> {
    fn drop(&mut self) {
        if self.decided {
            return;
        }
        self.series.denied();
        let body = json!({
            "code": "cancelled",
            "message": "the caller went away before the call was decided",
            "method": &*self.call.method,
            self.call.item.kind.as_str(): &*self.call.item.exposed,
            "source": self.call.source(),
            "principal": &*self.call.caller.principal,
            "profile": self.call.caller.profile,
        });
        let run = Some(self.call.caller.session.clone());
        self.ledger.record(Event { kind: EventKind::CallDenied, run, call: Some(self.call.id.clone()), body });
    }
}

/// Returns a payload as the ledger keeps it: size, keyed hash of the bytes received, and the redacted shape or, where
/// the profile says so, the body.
pub(super) fn recorded_payload(ledger: &Ledger, json: &Json, detail: Detail) -> serde_json::Value {
    let hash = ledger.fingerprint(json.as_bytes());
    let bytes = json.as_bytes().len();
    match detail {
        Detail::Full if bytes <= MAX_BODY_BYTES => json!({ "bytes": bytes, "hash": hash, "body": json.to_value() }),
        Detail::Shape | Detail::Full => json!({ "bytes": bytes, "hash": hash, "shape": shape(json) }),
    }
}

/// Returns a text as the ledger keeps it: one that may repeat a payload is kept the way the payload is.
pub(super) fn recorded_text(ledger: &Ledger, text: &str, quotes: bool, detail: Detail) -> serde_json::Value {
    if quotes { recorded_payload(ledger, &Json::of(&text), detail) } else { text.into() }
}

/// Sets a member of a record's body.
pub(super) fn set_member(body: &mut serde_json::Value, key: &str, value: serde_json::Value) {
    if let serde_json::Value::Object(members) = body {
        members.insert(key.to_owned(), value);
    }
}
