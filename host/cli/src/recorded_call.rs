//! A recorded call, as policies can judge it again.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use portcullis::call::{Call, CallId, CallView, Caller, Params, Phase, Risk, SessionId, TrustLevel};
use portcullis::digest::Digest;
use portcullis::flow::{CallFlow, Effect, Origin, StatedFlow};
use portcullis::item::{Item, ItemKind, ToolAnnotations};
use portcullis::ledger::{CallEntry, EventKind, LedgerError, LedgerReader, PositionedRecord, RecordFilter};
use portcullis::principal::Principal;
use portcullis::protocol::{Json, Method};
use serde_json::{Value, json};

use crate::joint_verdict::{DecidedBy, JointVerdict};

/// The number of definitions that are read at once; each has up to 256 KiB.
const PAGE: usize = 64;

/// The largest amount of definitions, in bytes, that is kept in memory. Hostile sources can fill a ledger with more.
const MAX_BYTES: usize = 256 << 20;

/// The definitions of items that were called, by their digests.
pub(crate) struct Definitions(HashMap<String, Json>);

/// One decision of the policies about a call, and its basis.
pub(crate) struct RecordedDecision {
    pub(crate) call: String,
    pub(crate) started: u64,
    /// The item, as the agent saw it.
    pub(crate) item: String,
    pub(crate) verdict: DecidedBy,
    pub(crate) view: CallView,
    pub(crate) unknown: UnknownFacts,
}

/// The facts of a call that its records do not have. The view has empty ones in their place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UnknownFacts {
    /// The arguments or the outcome: only their shape was recorded.
    pub(crate) payload: bool,
    /// The definition, which earlier versions did not record.
    pub(crate) definition: bool,
    /// The information flow, which is recorded if a plugin can ask for it.
    pub(crate) flow: bool,
    /// The values that placeholders stood for, with which the policies judged the call too.
    pub(crate) hidden: bool,
    /// The URI of a resource that no list names: only the scheme was recorded.
    pub(crate) uri: bool,
}

/// A fact that a policy asked for and the records do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum MissingFact {
    Payload,
    Hidden,
    Definition,
    Flow,
    Session,
}

impl UnknownFacts {
    /// Reports whether a fact is unknown that every call has.
    pub(crate) fn any(self) -> bool {
        self.payload || self.definition || self.hidden || self.uri
    }

    /// Returns an unknown fact among those that a policy asked for. A decision based on such a fact is not valid.
    pub(crate) fn among(self, asked: &[&str]) -> Option<MissingFact> {
        let asks = |facts: &[&str]| asked.iter().any(|asked| facts.contains(asked));
        if asks(&["arguments", "outcome", "outcome-is-error"]) {
            if self.payload {
                return Some(MissingFact::Payload);
            }
            if self.hidden {
                return Some(MissingFact::Hidden);
            }
        }
        if self.uri && asks(&["tool", "exposed-name"]) {
            return Some(MissingFact::Payload);
        }
        if self.definition && asks(&["definition", "annotations"]) {
            return Some(MissingFact::Definition);
        }
        let flow = ["source-labels", "effects", "labels", "traced", "origins"];
        if self.flow && asks(&flow) {
            return Some(MissingFact::Flow);
        }
        asks(&["session.calls", "session.calls-of-item", "session.budget"]).then_some(MissingFact::Session)
    }
}

impl MissingFact {
    /// Says why the policy cannot judge, and what to do.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Payload => {
                "a policy reads arguments or results of which only the shape was recorded, or that are sealed: open \
                 sealed ones with `--identity FILE`; or set `record = \"full\"` in the profile, and later calls can be judged"
            }
            Self::Hidden => {
                "the source got values in the places of placeholders, with which a policy judged the call too, and the ledger \
                 has no such values"
            }
            Self::Definition => "a policy reads the tool's definition, which was not recorded",
            Self::Session => {
                "a policy counts the calls of a session or reads the budget, and the ledger has no such numbers"
            }
            Self::Flow => {
                "a policy reads the information flow of calls, which is recorded once such a policy is configured"
            }
        }
    }
}

/// The reason why a decision cannot be made again, whatever the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum NotDecided {
    /// The policies were not asked: the broker refused the call before, or it has not been decided.
    NotAsked,
    /// The records lack something that a policy must know.
    Unreadable,
}

impl Definitions {
    /// Reads the definitions of a ledger, up to 256 MiB. Calls of any others count as calls whose definition is
    /// unknown.
    ///
    /// # Errors
    /// [`LedgerError`] if it cannot be read.
    pub(crate) fn read(reader: &LedgerReader) -> Result<Self, LedgerError> {
        let kind = Some(EventKind::DefinitionCalled.as_str().to_owned());
        let filter = RecordFilter { kind, ..RecordFilter::default() };
        let (mut found, mut position, mut bytes) = (HashMap::new(), 0, 0);
        loop {
            let records = reader.after(position, PAGE, &filter)?;
            let Some(last) = records.last() else { return Ok(Self(found)) };
            position = last.position;
            for body in records.iter().map(|entry| &entry.record.body) {
                if let (Some(digest), Some(text)) = (body["definition"].as_str(), body["text"].as_str())
                    && !found.contains_key(digest)
                    && bytes + text.len() <= MAX_BYTES
                    && let Ok(definition) = Json::parse(text.to_owned())
                {
                    bytes += text.len();
                    found.insert(digest.to_owned(), definition);
                }
            }
        }
    }
}

/// Returns the decisions of the policies about a call: before it was sent, and after it was answered.
pub(crate) fn decisions(
    entry: &CallEntry,
    records: &[PositionedRecord],
    definitions: &Definitions,
) -> Vec<Result<RecordedDecision, NotDecided>> {
    let of_kind = |kind: EventKind| {
        records.iter().map(|entry| &entry.record).find(|record| record.kind == kind.as_str()).map(|record| &record.body)
    };
    let intent = of_kind(EventKind::CallIntent);
    let Some(body) = intent.or_else(|| of_kind(EventKind::CallDenied)) else { return vec![Err(NotDecided::NotAsked)] };
    let verdicts = last_round(&body["verdicts"], Phase::Call);
    if intent.is_none() && verdicts.is_empty() {
        return vec![Err(NotDecided::NotAsked)];
    }
    let Some((call, unknown)) = recorded_call(entry, body, definitions) else {
        return vec![Err(NotDecided::Unreadable)];
    };
    let unknown = UnknownFacts { hidden: is_revealed(&verdicts), ..unknown };
    let decision = |verdict, view, unknown| RecordedDecision {
        call: entry.call.clone(),
        started: entry.started,
        item: entry.item.clone().unwrap_or_default(),
        verdict,
        view,
        unknown,
    };
    let (call, flow) = (Arc::new(call), recorded_flow(&body["flow"]).map(|flow| Arc::new(flow) as Arc<dyn CallFlow>));
    let before = CallView::before(&call, Phase::Call).with_flow(flow.clone());
    let before = decision(joint_verdict(&verdicts), before, unknown);
    let after = of_kind(EventKind::ToolCompleted).and_then(|body| {
        let verdicts = last_round(&body["verdicts"], Phase::Result);
        // Where no policy judged the result, there is nothing to compare with, and the phase may not have been asked
        // for.
        if verdicts.is_empty() {
            return None;
        }
        let received = if body["replaced"].is_null() { &body["result"] } else { &body["replaced"] };
        let outcome = recorded_payload(received);
        let hidden = is_revealed(&verdicts);
        let unknown = UnknownFacts { payload: unknown.payload || outcome.is_none(), hidden, ..unknown };
        // A call without an answer has an error of the broker's own in its place.
        let failed =
            body["failed"] == true || ["error", "unknown", "not-sent"].iter().any(|word| body["outcome"] == *word);
        let outcome = outcome.unwrap_or_else(Json::empty_object);
        let view = CallView::before(&call, Phase::Result).with_outcome(outcome, failed).with_flow(flow);
        Some(decision(joint_verdict(&verdicts), view, unknown))
    });
    [Some(Ok(before)), after.map(Ok)].into_iter().flatten().collect()
}

/// Returns the verdicts that policies gave in a phase about the final form of a call or result: those after the last
/// replacement by a transform, with placeholders and with values. Plugins in shadow decide nothing.
pub(crate) fn last_round(verdicts: &Value, phase: Phase) -> Vec<&Value> {
    let mut round = Vec::new();
    for entry in verdicts.as_array().into_iter().flatten() {
        if entry["phase"] != phase.as_str() || entry["shadow"] == true {
            continue;
        }
        match &entry["verdict"] {
            Value::String(word) if word == "replace" => round.clear(),
            Value::String(word) if word == "keep" => {}
            verdict if verdict.get("refuse").is_some() => {}
            _ => round.push(entry),
        }
    }
    round
}

/// Reports whether policies judged a call with values in place of placeholders, too.
fn is_revealed(verdicts: &[&Value]) -> bool {
    verdicts.iter().any(|entry| entry["revealed"] == true)
}

/// Returns what policies decided together, and which of them decided it.
fn joint_verdict(verdicts: &[&Value]) -> DecidedBy {
    let mut decided = DecidedBy::default();
    for entry in verdicts {
        let plugin = entry["plugin"].as_str().unwrap_or_default();
        let verdict = &entry["verdict"];
        if verdict.get("deny").is_some() {
            decided.add(JointVerdict::Deny, plugin, verdict["deny"].as_str());
        } else if verdict.get("ask").is_some() {
            decided.add(JointVerdict::Ask, plugin, verdict["code"].as_str());
        }
    }
    decided
}

/// Returns the original arguments or result of a call, if they were recorded in full. Both are objects; one that no
/// value can represent, since it has `-0` or a member twice, is recorded as a text ([`Json::to_value`]).
fn recorded_payload(payload: &Value) -> Option<Json> {
    match payload.get("body")? {
        Value::String(text) => Json::parse(text.clone()).ok(),
        body => Some(Json::of(body)),
    }
}

/// Returns the call that a record describes; `None` if it does not describe one.
fn recorded_call(entry: &CallEntry, body: &Value, definitions: &Definitions) -> Option<(Call, UnknownFacts)> {
    let text = |key: &str| body[key].as_str();
    let (kind, exposed) = item_of(body)?;
    // A URI that no list names is the caller's own words, and recorded like arguments.
    let unlisted = body.pointer("/uri/body").and_then(Value::as_str).map(str::to_owned);
    let name = unlisted.as_deref().or(text("name"))?;
    let exposed = unlisted
        .as_ref()
        .map_or(Cow::Borrowed(exposed), |own| exposed.replace(text("name").unwrap_or_default(), own).into());
    let digest = text("definition")?;
    let known = definitions.0.get(digest).cloned();
    let arguments = recorded_payload(&body["arguments"]);
    let unknown = UnknownFacts {
        payload: arguments.is_none() && body.pointer("/arguments/shape") != Some(&json!({})),
        // A source itself has no definition.
        definition: known.is_none() && kind != ItemKind::Source,
        flow: body["flow"].is_null(),
        hidden: false,
        uri: !body["uri"].is_null() && unlisted.is_none(),
    };
    let definition = known.unwrap_or_else(Json::empty_object);
    let tags = body["tags"].as_array().into_iter().flatten();
    let item = Item {
        kind,
        source: text("source")?.parse().ok()?,
        group: None,
        name: name.into(),
        exposed: (*exposed).into(),
        digest: digest.parse::<Digest>().ok()?,
        hints: ToolAnnotations::of(&definition),
        definition,
        tags: tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect(),
        series_link: Default::default(),
        exposed_definition: Default::default(),
    };
    let caller = Caller {
        principal: Principal::established(text("principal")?),
        profile: text("profile")?.parse().ok()?,
        trust: serde_json::from_value::<TrustLevel>(body["trust"].clone()).ok()?,
        session: SessionId::recorded(entry.run.as_deref()?)?,
        client: text("client")?.into(),
    };
    let method = Method::from(text("method")?);
    let params = Params::parse(&Method::ToolsCall, Json::of(&json!({ "name": exposed })));
    let id = CallId::recorded(&entry.call)?;
    let received_at = id.received_at();
    let call = Call::new(&method, params, &Arc::new(caller), Arc::new(item), Risk::recorded(text("risk")?));
    Some((Call { id, received_at, arguments: arguments.unwrap_or_else(Json::empty_object), ..call }, unknown))
}

/// Returns the information flow of a call, if it was recorded.
fn recorded_flow(flow: &Value) -> Option<StatedFlow> {
    let texts = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let origin = |origin: &Value| {
        let text = |key: &str| origin[key].as_str();
        Some(Origin {
            source: text("source")?.into(),
            exposed: text("item")?.into(),
            call: text("call")?.into(),
            calls_ago: u32::try_from(origin["ago"].as_u64()?).ok()?,
            labels: texts(&origin["labels"])?.into(),
            pointer: text("pointer")?.to_owned(),
        })
    };
    Some(StatedFlow {
        source_labels: texts(&flow["source-labels"])?,
        effects: serde_json::from_value::<Vec<Effect>>(flow["effects"].clone()).ok()?,
        labels: texts(&flow["labels"])?,
        traced: flow["traced"].as_bool()?,
        origins: flow["origins"].as_array()?.iter().map(origin).collect::<Option<_>>()?,
    })
}

fn item_of(body: &Value) -> Option<(ItemKind, &str)> {
    let kinds = [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];
    let named = kinds.into_iter().find_map(|kind| Some((kind, body[kind.as_str()].as_str()?)));
    named.or_else(|| Some((ItemKind::Source, body["source"].as_str()?)))
}
