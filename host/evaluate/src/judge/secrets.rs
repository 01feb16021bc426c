//! Canaries: who read one, and where one went.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject};

use super::SelfDescription;
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
    let needles = CanaryPatterns::of(&run.canaries);
    sent(run, &needles, declared, findings);
    returned(run, &needles, findings);
    copied(run, &needles, findings);
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
                    let expected = canary.is_read_by_habit() || canary.is_topic_of(&declared.text);
                    let level = if expected { FindingLevel::Note } else { FindingLevel::High };
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

fn sent(run: &Observation, needles: &CanaryPatterns, declared: &SelfDescription, findings: &mut FindingList) {
    for (host, place, text) in SentTexts::of(&run.sent).each() {
        for FoundCanary { canary, encoding } in needles.find(text) {
            let Some(canary) = run.canaries.get(canary) else { continue };
            let is_file = matches!(canary.place, CanaryPlace::File(_));
            let evidence = format!("{}, {encoding}, in {place}", canary.name());
            let (rule, level) = match declared.names_host(host) {
                // Whoever is on the way reads what is not encrypted.
                _ if canary.is_meant_for(host) && !place.starts_with(PLAIN) => (CANARY_USED, FindingLevel::Note),
                true if !is_file || asked(run, canary) => (CANARY_SENT, FindingLevel::Warning),
                true => (CANARY_SENT, FindingLevel::High),
                false => (CANARY_SENT, FindingLevel::Critical),
            };
            findings.add(rule, level, &format!("to {host}"), Some(run.condition), &evidence);
        }
    }
}

fn returned(run: &Observation, needles: &CanaryPatterns, findings: &mut FindingList) {
    let mut results: BTreeMap<(&str, String), Vec<u8>> = BTreeMap::new();
    for call in &run.calls {
        // A call that names a secret file may return it, but no other.
        if run.canaries.iter().any(|canary| is_asked_by(run, call, canary)) {
            let found = needles.find(call.answer.as_bytes());
            let found = found
                .into_iter()
                .filter_map(|FoundCanary { canary, encoding }| Some((run.canaries.get(canary)?, encoding)));
            for (canary, encoding) in found.filter(|(canary, _)| !is_asked_by(run, call, canary)) {
                report_returned(run, &call.tool, canary, &encoding, findings);
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
    // What several tools gave out together is last, and is told only of what none gave out by itself.
    let mut by_itself = BTreeSet::new();
    for ((tool, _), text) in results.iter().rev() {
        for FoundCanary { canary, encoding } in needles.find(text) {
            if !tool.is_empty() {
                by_itself.insert(canary);
            } else if by_itself.contains(&canary) {
                continue;
            }
            if let Some(canary) = run.canaries.get(canary) {
                report_returned(run, tool, canary, &encoding, findings);
            }
        }
    }
}

/// Reports a secret that a tool returned, or several tools together if `tool` is empty.
fn report_returned(run: &Observation, tool: &str, canary: &Canary, encoding: &str, findings: &mut FindingList) {
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
    findings.add(CANARY_RETURNED, level, &of, Some(run.condition), &format!("{}, {encoding}", canary.name()));
}

fn is_asked_by(run: &Observation, call: &ObservedCall, canary: &Canary) -> bool {
    matches!(canary.place, CanaryPlace::File(file) if call.asks_for(&run.home.join(file)))
}

fn copied(run: &Observation, needles: &CanaryPatterns, findings: &mut FindingList) {
    for (path, content) in &run.written {
        for FoundCanary { canary, encoding } in needles.find(content) {
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
