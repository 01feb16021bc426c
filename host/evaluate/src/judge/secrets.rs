//! Canaries: who read one, and where one went.

use std::collections::BTreeMap;

use portcullis_cell::{Action, Availability, Subject};

use super::SelfDescription;
use super::sent_texts::{SentTexts, leaves};
use crate::canary::{Canary, CanaryPlace};
use crate::encoding::{FoundCanary, Needles, decoded};
use crate::finding::{
    CANARY_COPIED, CANARY_LOOKED, CANARY_READ, CANARY_RETURNED, CANARY_SENT, CANARY_USED, FindingList, Weight,
};
use crate::observation::Observation;

pub(super) fn judge(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    reads(run, declared, findings);
    let needles = Needles::of(&run.canaries);
    sent(run, &needles, declared, findings);
    returned(run, &needles, findings);
    copied(run, &needles, findings);
}

fn reads(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    for canary in &run.canaries {
        let CanaryPlace::File(file) = canary.place else { continue };
        let path = run.home.join(file);
        if run.is_asked_for(&path) {
            continue;
        }
        for attempt in run.attempts.iter().filter(|attempt| attempt.subject == Subject::Path(path.clone())) {
            let evidence = format!("{} did, {}", attempt.program, run.at(attempt.after));
            match attempt.action {
                Action::Read if attempt.availability == Availability::Granted => {
                    let expected = canary.is_read_by_habit() || canary.is_topic_of(&declared.text);
                    let weight = if expected { Weight::Note } else { Weight::High };
                    findings.add(CANARY_READ, weight, &canary.name(), Some(run.condition), &evidence);
                }
                Action::Look => {
                    findings.add(CANARY_LOOKED, Weight::Note, &canary.name(), Some(run.condition), &evidence);
                }
                _ => {}
            }
        }
    }
}

fn sent(run: &Observation, needles: &Needles, declared: &SelfDescription, findings: &mut FindingList) {
    for (host, place, text) in SentTexts::of(&run.sent).each() {
        for FoundCanary { canary, encoding } in needles.find(text) {
            let Some(canary) = run.canaries.get(canary) else { continue };
            let is_file = matches!(canary.place, CanaryPlace::File(_));
            let evidence = format!("{encoding}, in {place} to {host}");
            let subject = format!("{} to {host}", canary.name());
            let (rule, weight) = match declared.names_host(host) {
                _ if canary.is_meant_for(host) => (CANARY_USED, Weight::Note),
                true if !is_file || asked(run, canary) => (CANARY_SENT, Weight::Warning),
                true => (CANARY_SENT, Weight::High),
                false => (CANARY_SENT, Weight::Critical),
            };
            findings.add(rule, weight, &subject, Some(run.condition), &evidence);
        }
    }
}

fn returned(run: &Observation, needles: &Needles, findings: &mut FindingList) {
    let mut results: BTreeMap<(&str, String), Vec<u8>> = BTreeMap::new();
    for call in &run.calls {
        leaves("", &call.answer, &mut |place, text| {
            for tool in [call.tool.as_str(), ""] {
                results.entry((tool, place.to_owned())).or_default().extend_from_slice(text.as_bytes());
            }
            if let Some(decoded) = Some(text).filter(|text| text.len() <= 256).and_then(|text| decoded(text.as_bytes()))
            {
                results.entry((&call.tool, format!("{place}, decoded piece by piece"))).or_default().extend(decoded);
            }
        });
    }
    for ((tool, _), text) in &results {
        for FoundCanary { canary, encoding } in needles.find(text) {
            let Some(canary) = run.canaries.get(canary).filter(|canary| !asked(run, canary)) else { continue };
            let definition = run.listings.iter().flat_map(|listing| &listing.definitions);
            let of_tool = definition
                .filter(|(_, definition)| definition.get("name").and_then(|name| name.as_str()) == Some(tool))
                .map(|(_, definition)| definition.to_string().to_ascii_lowercase())
                .collect::<String>();
            let speaks = ["env", "variable", "credential", "secret"].iter().any(|word| of_tool.contains(word));
            let weight = match canary.place {
                CanaryPlace::Variable(_) if speaks || tool.is_empty() => Weight::Warning,
                _ if canary.is_topic_of(&of_tool) || canary.is_read_by_habit() => Weight::Warning,
                _ => Weight::High,
            };
            let of = if tool.is_empty() { "several tools together".to_owned() } else { format!("tool {tool}") };
            findings.add(CANARY_RETURNED, weight, &canary.name(), Some(run.condition), &format!("{encoding}, by {of}"));
        }
    }
}

fn copied(run: &Observation, needles: &Needles, findings: &mut FindingList) {
    for (path, content) in &run.written {
        for FoundCanary { canary, encoding } in needles.find(content) {
            let Some(canary) = run.canaries.get(canary) else { continue };
            let weight = if asked(run, canary) { Weight::Warning } else { Weight::High };
            let subject = format!("{} to {}", canary.name(), path.display());
            findings.add(CANARY_COPIED, weight, &subject, Some(run.condition), &encoding);
        }
    }
}

fn asked(run: &Observation, canary: &Canary) -> bool {
    matches!(canary.place, CanaryPlace::File(file) if run.is_asked_for(&run.home.join(file)))
}
