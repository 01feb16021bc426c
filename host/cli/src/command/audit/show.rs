//! `portcullis audit show`: a call or a run in words. The id of a question selects the call that it was about, and an
//! unambiguous beginning is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use portcullis::ledger::{
    CallFilter, CallOrRun, CallRange, EventKind, LedgerReader, PositionedRecord, Record, RecordFilter, RunRow,
};
use serde_json::Value;

use super::list;
use crate::identity::IdentityArgs;
use crate::json_text::{items, plain_text};
use crate::moment;
use crate::output::{self, BAD, BOLD, escape_hidden};

/// The longest payload that is shown in full, in characters.
const MAX_SHOWN: usize = 4000;

/// The number of newest questions among which an id is looked for.
const MAX_QUESTIONS: usize = 10_000;

/// The fewest characters by which a question is found, and a call.
const MIN_QUESTION_PREFIX: usize = 4;
const MIN_CALL_PREFIX: usize = 6;

/// The largest number of calls that are listed because their identifiers begin alike.
const MAX_CANDIDATES: usize = 10;

pub(super) fn run(folder: &Path, id: &str, identities: &IdentityArgs, json: bool) -> anyhow::Result<ExitCode> {
    let reader = identities.reader(folder)?;
    let mut shown = reader.show(id)?;
    if shown.is_none()
        && let Some(call) = call_meant(&reader, id)?
    {
        shown = reader.show(&call)?;
    }
    let Some(shown) = shown else {
        bail!(
            "no call, run or question {id:?} in the ledger at {}; `portcullis audit` lists the calls with their ids",
            folder.display()
        );
    };
    if json {
        output::json(&serde_json::to_value(&shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &shown {
        CallOrRun::Call { row, records } => {
            if let Some((entry, _)) = reader.call_entry(&row.call)? {
                output::text(&format!("{}\n", list::line(&entry)))?;
            }
            let is_decided = |entry: &PositionedRecord| {
                matches!(&*entry.record.kind, "call.intent" | "call.denied" | "call.deferred")
            };
            if let Some(asked) = records.first().filter(|_| !records.iter().any(is_decided)) {
                caller(&asked.record.body)?;
            }
            records.iter().try_for_each(|record| describe(&record.record))?;
            fact("state", &plain_text(&serde_json::to_value(row.state)?))?;
            fact("run", &format!("{}  `portcullis audit show` shows its calls", shown_or(row.run.as_deref())))?;
        }
        CallOrRun::Run { row, records } => run_in_words(&reader, row, records)?,
    }
    output::text("`--json` shows the records as they were written\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the call about which a question with this identifier was asked, or else the only call whose identifier, or
/// that of a question about it, begins like this.
///
/// # Errors
/// If there are several such calls; the error lists the first of them.
fn call_meant(reader: &LedgerReader, id: &str) -> anyhow::Result<Option<String>> {
    if id.len() < MIN_QUESTION_PREFIX {
        return Ok(None);
    }
    let asked = RecordFilter { kind: Some(EventKind::CallAsked.as_str().to_owned()), ..RecordFilter::default() };
    let asked = reader.tail(MAX_QUESTIONS, &asked)?.into_iter().map(|entry| entry.record);
    let about = asked.filter_map(|record| {
        let question = record.body.get("question")?.as_str()?.to_owned();
        Some((question, record.call?)).filter(|(question, _)| question.starts_with(id))
    });
    let about: BTreeMap<String, String> = about.collect();
    if let Some(call) = about.get(id) {
        return Ok(Some(call.clone()));
    }
    let mut calls: BTreeSet<String> = about.into_values().collect();
    if id.len() >= MIN_CALL_PREFIX {
        calls.extend(reader.calls_beginning(id, MAX_CANDIDATES + 1)?);
    }
    if calls.len() < 2 {
        return Ok(calls.pop_first());
    }
    let mut candidates = Vec::new();
    for call in calls.iter().take(MAX_CANDIDATES) {
        let entry = reader.call_entry(call)?.map(|(entry, _)| entry);
        let item = entry.and_then(|entry| entry.item).map(|item| format!(" ({})", escape_hidden(&item)));
        candidates.push(format!("{}{}", escape_hidden(call), item.unwrap_or_default()));
    }
    let more = if calls.len() > MAX_CANDIDATES { " and others" } else { "" };
    bail!(
        "{id:?} is the beginning of the ids of several calls or their questions, so write more of it: {}{more}",
        candidates.join(", ")
    );
}

fn run_in_words(reader: &LedgerReader, row: &RunRow, records: &[PositionedRecord]) -> anyhow::Result<()> {
    output::text(&format!("{BOLD}run {}{BOLD:#}\n", escape_hidden(&row.run)))?;
    let ended = row.ended.map(moment::local);
    fact("caller", &format!("{}, profile {}", shown_or(row.principal.as_deref()), shown_or(row.profile.as_deref())))?;
    fact("time", &format!("from {} to {}", moment::local(row.started), shown_or(ended.as_deref())))?;
    fact("state", &plain_text(&serde_json::to_value(row.state)?))?;
    if let Some(error) = &row.error {
        bad("error", &escape_hidden(error))?;
    }
    for entry in records.iter().filter(|entry| entry.record.call.is_none()) {
        describe(&entry.record)?;
    }
    numbers(records)?;
    fact("calls", &row.calls.to_string())?;
    let range = CallRange { run: Some(row.run.clone()), ..CallRange::default() };
    let mut printed = Ok(());
    reader.visit_calls(&range, &CallFilter::default(), |entry, _| {
        printed = output::text(&format!("  {}\n", list::line(&entry)));
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    printed
}

/// Prints the content of a record. A kind that this program has no words for is shown as written.
fn describe(record: &Record) -> anyhow::Result<()> {
    let body = &record.body;
    match &*record.kind {
        "call.asked" => {
            let reasons: Vec<_> = items(&body["reasons"]).iter().map(payload).collect();
            fact("asked", &format!("{}, as {}", moment::local(record.at), reasons.join("; ")))
        }
        "call.answered" => {
            let scope = body["scope"].as_str().map(|scope| format!(", scope {}", escape_hidden(scope)));
            let (by, scope, at) = (plain_text(&body["by"]), scope.unwrap_or_default(), moment::local(record.at));
            match body["approved"].as_bool() {
                Some(true) => fact("approved", &format!("{at}, by {by}{scope}")),
                _ => bad("refused", &format!("{at}, by {by}")),
            }
        }
        "grant.added" => fact(
            "remembered",
            &format!("as grant {}, scope {}", plain_text(&body["grant"]), plain_text(&body["scope"])),
        ),
        "call.intent" => {
            decision(body)?;
            fact("approval", &approval(&body["approval"]))?;
            fact("sent", &moment::local(record.at))
        }
        "call.deferred" => {
            decision(body)?;
            fact(
                "deferred",
                &format!("{}, the agent sends it again once a person has answered", moment::local(record.at)),
            )
        }
        "call.denied" => {
            decision(body)?;
            let message =
                if body["message"].is_null() { String::new() } else { format!(": {}", payload(&body["message"])) };
            bad("denied", &format!("{}, {}{message}", moment::local(record.at), plain_text(&body["code"])))
        }
        "tool.completed" => completed(record),
        "plugin.failed" => bad(
            "plugin",
            &format!(
                "{} failed ({}): {}",
                plain_text(&body["plugin"]),
                plain_text(&body["code"]),
                payload(&body["cause"])
            ),
        ),
        "run.started" => {
            fact("client", &format!("{} (trust level {})", plain_text(&body["client"]), plain_text(&body["trust"])))
        }
        "run.completed" => ended(body),
        // The head of the run says so.
        "run.error" => Ok(()),
        "mcp.connected" => {
            fact("source", &format!("{}, {} tools", plain_text(&body["source"]), plain_text(&body["count"])))
        }
        "mcp.error" => bad("missing", &plain_text(&body["error"])),
        kind => fact(&escape_hidden(kind), &payload_text(body)),
    }
}

/// Prints how a run ended. Earlier versions did not record it.
fn ended(body: &Value) -> anyhow::Result<()> {
    let why = body["error"].as_str().map(|why| format!(": {}", escape_hidden(why))).unwrap_or_default();
    match body["status"].as_str() {
        None => Ok(()),
        Some("ended") => fact("end", "ended"),
        Some(status) => bad("end", &format!("{}{why}", escape_hidden(status))),
    }
}

/// Prints whether all records of a run are there.
fn numbers(records: &[PositionedRecord]) -> anyhow::Result<()> {
    let numbers: Vec<u64> = records.iter().filter_map(|entry| entry.record.run_seq).collect();
    let Some(last) = numbers.last() else { return Ok(()) };
    match (1..).zip(&numbers).find(|(expected, number)| expected != *number) {
        None => fact("records", &format!("{last}, numbered from 1 without a gap")),
        Some((expected, number)) => bad(
            "records",
            &format!(
                "{} to {} are not there: `portcullis audit verify` says whether they were removed",
                expected,
                number - 1
            ),
        ),
    }
}

/// Prints the caller. Earlier versions did not record it with a question.
fn caller(body: &Value) -> anyhow::Result<()> {
    let Some(principal) = body["principal"].as_str() else { return Ok(()) };
    let client = body["client"].as_str().map(|client| format!(", client {}", escape_hidden(client)));
    let (principal, profile) = (escape_hidden(principal), plain_text(&body["profile"]));
    fact("caller", &format!("{principal}, profile {profile}{}", client.unwrap_or_default()))
}

/// Prints what the gate knew and decided.
fn decision(body: &Value) -> anyhow::Result<()> {
    let known = |key: &str| !body[key].is_null();
    if known("source") {
        let (method, source) = (plain_text(&body["method"]), plain_text(&body["source"]));
        fact("request", &format!("{method} of source {source}"))?;
    }
    caller(body)?;
    if known("arguments") {
        fact("arguments", &payload(&body["arguments"]))?;
    }
    if let Some(dropped) = body.pointer("/dropped/members") {
        fact("dropped", &format!("members beside the arguments: {}", payload_text(dropped)))?;
    }
    if known("risk") {
        fact("risk", &plain_text(&body["risk"]))?;
    }
    verdicts(body)
}

fn verdicts(body: &Value) -> anyhow::Result<()> {
    for entry in items(&body["verdicts"]) {
        let verdict = match &entry["verdict"] {
            Value::Object(members) if members.contains_key("ask") && members.contains_key("code") => {
                format!("ask ({}): {}", plain_text(&members["code"]), payload(&members["ask"]))
            }
            Value::Object(members) => {
                let words = members.iter().map(|(word, why)| format!("{} ({})", escape_hidden(word), payload(why)));
                words.collect::<Vec<_>>().join(", ")
            }
            word => plain_text(word),
        };
        let shadow = if entry["shadow"] == true { ", only for the record" } else { "" };
        fact("verdict", &format!("{}: {verdict}{shadow}", plain_text(&entry["plugin"])))?;
    }
    Ok(())
}

fn approval(approval: &Value) -> String {
    match (approval["by"].as_str(), approval["grant"].as_str()) {
        (Some(by), _) => format!("by {}, scope {}", escape_hidden(by), plain_text(&approval["scope"])),
        (None, Some(grant)) => format!("by an earlier answer, grant {}", escape_hidden(grant)),
        (None, None) => plain_text(approval),
    }
}

fn completed(record: &Record) -> anyhow::Result<()> {
    let body = &record.body;
    let took = body["micros"].as_u64().map(|micros| format!(" after {}", list::duration(micros))).unwrap_or_default();
    let outcome = format!("{}{took}", plain_text(&body["outcome"]));
    match body["outcome"].as_str() {
        Some("ok" | "sent") => fact("outcome", &outcome)?,
        _ => bad("outcome", &outcome)?,
    }
    if !body["error"].is_null() {
        bad("error", &plain_text(&body["error"]))?;
    }
    if !body["result"].is_null() {
        fact("result", &payload(&body["result"]))?;
    }
    if !body["replaced"].is_null() {
        fact("given", &payload(&body["replaced"]))?;
    }
    let withheld = &body["withheld"];
    if !withheld.is_null() {
        let (code, message) = (plain_text(&withheld["code"]), payload(&withheld["message"]));
        bad("withheld", &format!("{code}: {message}"))?;
    }
    verdicts(body)
}

/// Returns a payload as the ledger has it: its text, or its shape and size.
fn payload(value: &Value) -> String {
    let (shape, bytes) = (&value["shape"], &value["bytes"]);
    match &value["body"] {
        Value::Null if shape.is_null() => payload_text(value),
        Value::Null if value["sealed"].is_string() => format!(
            "{} ({bytes} bytes, sealed: `--identity FILE` opens them, unless their key was deleted or is for others)",
            payload_text(shape)
        ),
        Value::Null => {
            format!("{} ({bytes} bytes; `record = \"full\"` of the profile keeps them)", payload_text(shape))
        }
        body => payload_text(body),
    }
}

/// Returns a value in one line, and only the beginning of a long one.
fn payload_text(value: &Value) -> String {
    let text = plain_text(value);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((cut, _)) => {
            format!("{}… ({} characters in all)", text.get(..cut).unwrap_or_default(), text.chars().count())
        }
        None => text,
    }
}

fn shown_or(text: Option<&str>) -> String {
    escape_hidden(text.unwrap_or("-")).into_owned()
}

fn fact(name: &str, text: &str) -> anyhow::Result<()> {
    output::text(&format!("  {name:10}  {text}\n"))
}

fn bad(name: &str, text: &str) -> anyhow::Result<()> {
    output::text(&format!("  {BAD}{name:10}{BAD:#}  {text}\n"))
}
