//! Builds the ledger records of a call before it is sent: the intent or the refusal, with payloads in the detail that
//! the profile asks for.

use std::sync::Arc;

use super::judge::DecisionTrail;
use super::refusal::{DenialKind, Wording};
use super::{CallRefusal, Gate, GateInput};
use crate::call::Call;
use crate::config::Detail;
use crate::ledger::{Event, EventBody, EventKind, Ledger, shape};
use crate::metrics::Series;
use crate::protocol::Json;

/// The largest payload, in bytes, whose body is recorded where a profile says so. Of a larger payload only the shape is
/// recorded: as a tree a body takes many times its size, and a record has its own limit.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The largest number of dropped members of `params` that a record names: an agent chooses them.
const MAX_DROPPED_SHOWN: usize = 16;

/// The most characters of the name of a dropped member that a record has.
const MAX_DROPPED_CHARS: usize = 64;

impl Gate {
    /// Prepares for records in this detail, so that later records do not wait for the disk.
    pub(super) async fn prepare_records(&self, detail: Detail) {
        if detail == Detail::Sealed {
            self.ledger.prepare_sealing().await;
        }
    }

    /// Records that a call was refused, or that the agent must send it again once a person has answered.
    pub(super) async fn record_refusal(
        &self,
        call: &Call,
        input: &GateInput<'_>,
        series: &Series,
        refusal: &CallRefusal,
        trail: DecisionTrail,
    ) -> Result<(), CallRefusal> {
        let (code, message, kind) = match refusal {
            CallRefusal::Denied { code, message, kind } => (code, message, *kind),
            CallRefusal::Pending { .. } | CallRefusal::InputRequired(_) => {
                return self.record_deferral(call, input, trail).await;
            }
            CallRefusal::Ledger(_) => return Ok(()),
        };
        series.denied();
        self.ledger.record_definition(&call.item);
        // A caller that has spent its budget may call as often as before, and chooses the names in the shape of the
        // arguments.
        let arguments = match kind {
            DenialKind::Budget => recorded_size(&self.ledger, &call.arguments),
            _ => recorded_payload(&self.ledger, &call.arguments, input.record),
        };
        let mut body = self.describe(call, input, trail, arguments);
        body.set("code", code);
        body.set("message", recorded_text(&self.ledger, message, kind.wording(), input.record));
        let event = Event {
            kind: EventKind::CallDenied,
            run: Some(call.caller.session.clone()),
            call: Some(call.id.clone()),
            body,
        };
        self.ledger.append(event).await.map(drop).map_err(CallRefusal::from_ledger)
    }

    /// Records that the agent must send the call again once a person has answered.
    async fn record_deferral(
        &self,
        call: &Call,
        input: &GateInput<'_>,
        trail: DecisionTrail,
    ) -> Result<(), CallRefusal> {
        self.ledger.record_definition(&call.item);
        let arguments = recorded_payload(&self.ledger, &call.arguments, input.record);
        let event = Event {
            kind: EventKind::CallDeferred,
            run: Some(call.caller.session.clone()),
            call: Some(call.id.clone()),
            body: self.describe(call, input, trail, arguments),
        };
        self.ledger.append(event).await.map(drop).map_err(CallRefusal::from_ledger)
    }

    /// Returns the members that every record of a call has, with its recorded arguments.
    pub(super) fn describe(
        &self,
        call: &Call,
        input: &GateInput<'_>,
        trail: DecisionTrail,
        arguments: EventBody,
    ) -> EventBody {
        let mut body = EventBody::new()
            .with("method", call.method.as_str())
            .with(call.item.kind.as_str(), &*call.item.recorded_exposed())
            .with("source", call.source().as_str())
            .with("name", &*call.item.recorded_name())
            .with("definition", call.item.digest)
            .with("identity", input.identity)
            .with("principal", &*call.caller.principal)
            .with("profile", call.caller.profile.as_str())
            .with("client", &*call.caller.client)
            .with("trust", call.caller.trust.as_str())
            .with("risk", call.risk.as_str())
            .with("policies", self.policies_digest)
            .with("verdicts", trail.entries)
            .with("arguments", arguments);
        if let Some(flow) = &trail.flow {
            body.set("flow", flow.describe());
        }
        if call.item.is_unlisted() {
            body.set("uri", recorded_payload(&self.ledger, &Json::of(&&*call.item.name), input.record));
        }
        if call.arguments_repaired {
            body.set("restored", true);
        }
        if !call.item.tags.is_empty() {
            body.set("tags", &call.item.tags[..]);
        }
        if !call.dropped.is_empty() {
            // Their values are payload, and are neither sent nor recorded.
            let shown = call.dropped.iter().take(MAX_DROPPED_SHOWN);
            let names: Vec<String> = shown.map(|name| name.chars().take(MAX_DROPPED_CHARS).collect()).collect();
            body.set("dropped", EventBody::new().with("count", call.dropped.len()).with("members", names));
        }
        if let Some(attempt) = call.attempt {
            body.set("group", call.item.group.as_ref().map(|group| group.as_str()));
            body.set("attempt", attempt.number);
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
        let body = EventBody::new()
            .with("code", "cancelled")
            .with("message", "the caller went away before the call was decided")
            .with("method", self.call.method.as_str())
            .with(self.call.item.kind.as_str(), &*self.call.item.recorded_exposed())
            .with("source", self.call.source().as_str())
            .with("principal", &*self.call.caller.principal)
            .with("profile", self.call.caller.profile.as_str());
        let run = Some(self.call.caller.session.clone());
        self.ledger.record(Event { kind: EventKind::CallDenied, run, call: Some(self.call.id.clone()), body });
    }
}

/// Returns what the ledger keeps of a payload that costs it nothing: size, and keyed hash of the bytes received.
fn recorded_size(ledger: &Ledger, json: &Json) -> EventBody {
    EventBody::new().with("bytes", json.as_bytes().len()).with("hash", ledger.fingerprint(json.as_bytes()))
}

/// Returns a payload as the ledger keeps it: size, keyed hash of the bytes received, and the redacted shape or, where
/// the profile says so, the body, sealed or not.
pub(super) fn recorded_payload(ledger: &Ledger, json: &Json, detail: Detail) -> EventBody {
    let hash = ledger.fingerprint(json.as_bytes());
    let bytes = json.as_bytes().len();
    let body = EventBody::new().with("bytes", bytes);
    let body = match detail {
        Detail::Full if bytes <= MAX_BODY_BYTES => body.with("body", json),
        Detail::Sealed if bytes <= MAX_BODY_BYTES => {
            let sealed = ledger.seal_body(&hash, json.as_bytes());
            let body = body.with("shape", shape(json));
            match sealed {
                Ok(sealed) => body.with("sealed", sealed),
                Err(error) => {
                    tracing::error!(%error, "a body cannot be sealed, and only its shape is recorded");
                    body.with("not_sealed", error.to_string())
                }
            }
        }
        Detail::Shape | Detail::Full | Detail::Sealed => body.with("shape", shape(json)),
    };
    body.with("hash", hash)
}

/// Returns a text as the ledger keeps it: one that may repeat a payload is kept the way the payload is.
pub(super) fn recorded_text(ledger: &Ledger, text: &str, wording: Wording, detail: Detail) -> serde_json::Value {
    match wording {
        Wording::Plain => text.into(),
        Wording::MayQuote => recorded_payload(ledger, &Json::of(&text), detail).into(),
    }
}
