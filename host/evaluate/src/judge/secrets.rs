//! Canaries: the sources that read one, and the places where one went.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject};
use serde_json::Value;

use super::SelfDescription;
use super::definitions::name;
use super::sent_texts::{SentTexts, each_piece, leaves};
use crate::canary::{Canary, CanaryPlace};
use crate::encoding::{CanaryPatterns, FoundCanary};
use crate::finding::{
    CANARY_COPIED, CANARY_LOOKED, CANARY_READ, CANARY_RETURNED, CANARY_SENT, CANARY_USED, FindingLevel, FindingList,
};
use crate::observation::{Observation, ObservedCall};

/// The beginning of the places in requests without encryption.
const PLAIN: &str = "HTTP ";

pub(super) fn judge(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    reads(run, declared, findings);
    let patterns = CanaryPatterns::of(&run.canaries);
    sent(run, &patterns, declared, findings);
    returned(run, &patterns, findings);
    told(run, &patterns, findings);
    copied(run, &patterns, findings);
}

fn reads(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    for canary in &run.canaries {
        let CanaryPlace::File(file) = canary.place else { continue };
        let path = run.home.join(file);
        let attempts = run.attempts.iter().filter(|attempt| attempt.subject == AttemptSubject::Path(path.clone()));
        for attempt in attempts.filter(|attempt| !run.is_asked_for_at(&path, attempt.after)) {
            let evidence = format!("{} did, {}", attempt.program, run.at(attempt.after));
            match attempt.action {
                AttemptAction::Read if attempt.availability == AttemptAvailability::Granted => {
                    // The source chose the words of its description itself, so they make nothing harmless.
                    let level = match canary.is_topic_among(&declared.words) {
                        _ if canary.is_read_by_habit() => FindingLevel::Note,
                        true => FindingLevel::Warning,
                        false => FindingLevel::High,
                    };
                    findings.add(CANARY_READ, level, &canary.name(), Some(run.condition), &evidence);
                }
                AttemptAction::Look => {
                    findings.add(CANARY_LOOKED, FindingLevel::Note, &canary.name(), Some(run.condition), &evidence);
                }
                _ => {}
            }
        }
    }
}

fn sent(run: &Observation, patterns: &CanaryPatterns, declared: &SelfDescription, findings: &mut FindingList) {
    for (host, place, text) in SentTexts::of(&run.sent).each() {
        for FoundCanary { canary, encoding } in patterns.find(text) {
            let Some(canary) = run.canaries.get(canary) else { continue };
            let is_file = matches!(canary.place, CanaryPlace::File(_));
            let evidence = format!("{}, {encoding}, in {place}", canary.name());
            let (rule, level) = match declared.names_host(host) {
                // Anyone on the network path reads unencrypted data.
                _ if canary.is_meant_for(host) && !place.starts_with(PLAIN) => (CANARY_USED, FindingLevel::Note),
                true if !is_file || asked(run, canary) => (CANARY_SENT, FindingLevel::Warning),
                true => (CANARY_SENT, FindingLevel::High),
                false => (CANARY_SENT, FindingLevel::Critical),
            };
            findings.add(rule, level, &format!("to {host}"), Some(run.condition), &evidence);
        }
    }
}

fn returned(run: &Observation, patterns: &CanaryPatterns, findings: &mut FindingList) {
    let mut results: BTreeMap<(&str, String), Vec<u8>> = BTreeMap::new();
    // The canaries that each tool gave out, in which encodings.
    let mut given: BTreeMap<(&str, usize), BTreeSet<String>> = BTreeMap::new();
    for call in &run.calls {
        // A call that names a secret file may return it, but no other.
        if run.canaries.iter().any(|canary| is_asked_by(run, call, canary)) {
            for FoundCanary { canary, encoding } in patterns.find(call.answer.as_bytes()) {
                if run.canaries.get(canary).is_some_and(|canary| !is_asked_by(run, call, canary)) {
                    given.entry((call.tool.as_str(), canary)).or_default().insert(encoding);
                }
            }
            continue;
        }
        leaves("", &call.parsed_answer(), &mut |place, text| {
            each_piece(text, &mut |piece, bytes| {
                for tool in [call.tool.as_str(), ""] {
                    results.entry((tool, format!("{place}{piece}"))).or_default().extend_from_slice(bytes);
                }
            });
        });
    }
    // Secrets that several tools gave out together come last, and are reported only if no single tool gave them out.
    let mut by_itself = BTreeSet::new();
    for ((tool, _), text) in results.iter().rev() {
        for FoundCanary { canary, encoding } in patterns.find(text) {
            if !tool.is_empty() {
                by_itself.insert(canary);
            } else if by_itself.contains(&canary) {
                continue;
            }
            given.entry((*tool, canary)).or_default().insert(encoding);
        }
    }
    for ((tool, canary), encodings) in &given {
        if let Some(canary) = run.canaries.get(*canary) {
            report_returned(run, tool, canary, encodings, findings);
        }
    }
}

/// Reports a secret that a tool returned, or several tools together if `tool` is empty.
fn report_returned(
    run: &Observation,
    tool: &str,
    canary: &Canary,
    encodings: &BTreeSet<String>,
    findings: &mut FindingList,
) {
    let definitions = run.listings.iter().flat_map(|listing| &listing.definitions);
    let of_tool: String = definitions
        .filter(|(_, definition)| definition.get("name").and_then(|name| name.as_str()) == Some(tool))
        .map(|(_, definition)| definition.to_string().to_ascii_lowercase())
        .collect();
    let speaks = ["env", "variable", "credential", "secret"].iter().any(|word| of_tool.contains(word));
    let level = match canary.place {
        CanaryPlace::Variable(_) if speaks => FindingLevel::Warning,
        _ if canary.is_topic_of(&of_tool) || canary.is_read_by_habit() => FindingLevel::Warning,
        _ => FindingLevel::High,
    };
    let of = if tool.is_empty() { "several tools together".to_owned() } else { format!("tool {tool}") };
    for encoding in encodings {
        findings.add(CANARY_RETURNED, level, &of, Some(run.condition), &format!("{}, {encoding}", canary.name()));
    }
}

/// Finds secrets in the source's words other than the results of its tools: its name, what it offers, and its messages
/// to the client.
fn told(run: &Observation, patterns: &CanaryPatterns, findings: &mut FindingList) {
    let mut report = |subject: &str, FoundCanary { canary, encoding }: &FoundCanary| {
        let Some(canary) = run.canaries.get(*canary) else { return };
        let level = if asked(run, canary) { FindingLevel::Warning } else { FindingLevel::High };
        let evidence = format!("{}, {encoding}", canary.name());
        findings.add(CANARY_RETURNED, level, subject, Some(run.condition), &evidence);
    };
    let server: (String, Cow<'_, Value>) = ("its name".to_owned(), Cow::Owned(Value::from(run.server.as_str())));
    let listed = run.listings.iter().flat_map(|listing| &listing.definitions);
    let listed = listed.map(|(kind, definition)| (format!("{kind} {}", name(definition)), Cow::Borrowed(definition)));
    let sent = run.messages.iter();
    let sent = sent.map(|message| (format!("message {}", message.method), Cow::Owned(message.parsed_params())));
    // A secret that is given out in pieces has them at the same place of several definitions or messages.
    let mut together: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut by_itself = BTreeSet::new();
    for (subject, said) in std::iter::once(server).chain(listed).chain(sent) {
        for found in patterns.find(format!("{subject} {said}").as_bytes()) {
            by_itself.insert(found.canary);
            report(&subject, &found);
        }
        leaves("", &said, &mut |place, text| {
            each_piece(text, &mut |piece, bytes| {
                together.entry(format!("{place}{piece}")).or_default().extend_from_slice(bytes);
            });
        });
    }
    for found in together.values().flat_map(|text| patterns.find(text)) {
        if by_itself.insert(found.canary) {
            report("several definitions or messages together", &found);
        }
    }
}

fn is_asked_by(run: &Observation, call: &ObservedCall, canary: &Canary) -> bool {
    matches!(canary.place, CanaryPlace::File(file) if call.asks_for(&run.home.join(file)))
}

fn copied(run: &Observation, patterns: &CanaryPatterns, findings: &mut FindingList) {
    for (path, content) in &run.written {
        for FoundCanary { canary, encoding } in patterns.find(content) {
            let Some(canary) = run.canaries.get(canary) else { continue };
            let level = if asked(run, canary) { FindingLevel::Warning } else { FindingLevel::High };
            let path = path.strip_prefix(&run.home).unwrap_or(path);
            let subject = format!("{} to ~/{}", canary.name(), path.display());
            findings.add(CANARY_COPIED, level, &subject, Some(run.condition), &encoding);
        }
    }
}

fn asked(run: &Observation, canary: &Canary) -> bool {
    matches!(canary.place, CanaryPlace::File(file) if run.is_asked_for(&run.home.join(file)))
}
