//! Definitions that are not the same each time.

use std::collections::BTreeMap;

use portcullis_scan::{Scanner, Severity};
use serde_json::Value;

use super::definitions::name;
use crate::finding::{CHANGED, FindingLevel, FindingList};
use crate::observation::{Observation, ObservedListing};

/// The largest number of characters that are shown of each version of a changed text, from shortly before the first
/// difference.
const SHOWN_CHARS: usize = 60;

pub(super) fn judge(observations: &[Observation], scanner: &Scanner, findings: &mut FindingList) {
    let Some(first) = observations.first().and_then(|run| run.listings.first().map(|listing| (run, listing))) else {
        return;
    };
    let before = by_name(first.0, first.1);
    for run in observations {
        for listing in &run.listings {
            let now = by_name(run, listing);
            for (subject, definition) in &now {
                let worse = || {
                    let worst = |definition: &Value| scanner.scan(definition).first().map(|found| found.severity);
                    let old = before.get(subject).and_then(worst);
                    worst(definition) >= Some(Severity::Warning) && worst(definition) > old
                };
                let evidence = match before.get(subject) {
                    Some(known) if known == definition => continue,
                    Some(known) => difference(known, definition),
                    None => "it was not there at first".to_owned(),
                };
                let (subject, evidence, usual) = of_its_kind(subject, evidence);
                let level = if worse() { FindingLevel::High } else { usual };
                findings.add(CHANGED, level, subject, Some(run.condition), &format!("{}: {evidence}", listing.when));
            }
            for subject in before.keys().filter(|subject| !now.contains_key(*subject)) {
                let (subject, evidence, level) = of_its_kind(subject, "it was no longer there".to_owned());
                findings.add(CHANGED, level, subject, Some(run.condition), &format!("{}: {evidence}", listing.when));
            }
        }
    }
}

/// Returns the subject, the evidence and the level of a change. Resources are data, which change: they are one
/// subject.
fn of_its_kind(subject: &str, evidence: String) -> (&str, String, FindingLevel) {
    match subject.strip_prefix("resource ") {
        Some(name) => ("its resources", format!("{name}: {evidence}"), FindingLevel::Note),
        None => (subject, evidence, FindingLevel::Warning),
    }
}

/// Returns the definitions by kind and name, without what differs between runs because the false home does.
fn by_name(run: &Observation, listing: &ObservedListing) -> BTreeMap<String, Value> {
    let home = run.home.to_string_lossy();
    let own = |(kind, definition): &(&'static str, Value)| {
        let without_home = || serde_json::from_str(&definition.to_string().replace(&*home, "~")).unwrap_or_default();
        // A server elsewhere knows of no home.
        let same = if home.is_empty() { definition.clone() } else { without_home() };
        (format!("{kind} {}", name(definition)), same)
    };
    listing.definitions.iter().map(own).collect()
}

/// Returns the first difference of two definitions.
fn difference(before: &Value, now: &Value) -> String {
    let (before, now) = (before.to_string(), now.to_string());
    let same = before
        .char_indices()
        .zip(now.chars())
        .find(|((_, old), new)| old != new)
        .map_or(before.len(), |((at, _), _)| at);
    let around = |text: &str| {
        let start = text.floor_char_boundary(same.saturating_sub(SHOWN_CHARS / 3));
        text.get(start..).unwrap_or_default().chars().take(SHOWN_CHARS).collect::<String>()
    };
    format!("first `…{}…`, then `…{}…`", around(&before), around(&now))
}
