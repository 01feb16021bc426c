//! Definitions, results and messages that try to steer the model.

use std::cell::LazyCell;

use portcullis_scan::{Scanner, Severity};
use serde_json::Value;

use crate::finding::{FindingLevel, FindingList, STEERING, STEERING_RESULT};
use crate::observation::Observation;

pub(super) fn judge(run: &Observation, scanner: &Scanner, findings: &mut FindingList) {
    for listing in &run.listings {
        for (kind, definition) in &listing.definitions {
            for found in scanner.scan(definition) {
                let level = match found.severity {
                    Severity::Grave => FindingLevel::High,
                    Severity::Warning => FindingLevel::Warning,
                    Severity::Note => FindingLevel::Note,
                };
                let subject = format!("{kind} {}", name(definition));
                let evidence = format!("{}: {}: {}", found.rule, found.pointer, found.excerpt);
                findings.add(STEERING, level, &subject, Some(run.condition), &evidence);
            }
        }
    }
    for call in &run.calls {
        // Text from the arguments may come back.
        let asked = LazyCell::new(|| scanner.scan(&call.arguments));
        let is_echo = |rule: &str| asked.iter().any(|own| own.rule == rule && own.severity == Severity::Grave);
        let grave = scanner.scan(&call.parsed_answer()).into_iter().filter(|found| found.severity == Severity::Grave);
        for found in grave.filter(|found| !is_echo(found.rule)) {
            let evidence = format!("{}: {}", found.rule, found.excerpt);
            findings.add(
                STEERING_RESULT,
                FindingLevel::High,
                &format!("tool {}", call.tool),
                Some(run.condition),
                &evidence,
            );
        }
    }
    for message in &run.messages {
        let found = scanner.scan(&message.parsed_params());
        for found in found.iter().filter(|found| found.severity == Severity::Grave) {
            let (subject, evidence) =
                (format!("message {}", message.method), format!("{}: {}", found.rule, found.excerpt));
            findings.add(STEERING_RESULT, FindingLevel::High, &subject, Some(run.condition), &evidence);
        }
    }
}

/// Returns the name of a definition.
pub(super) fn name(definition: &Value) -> &str {
    ["name", "uri", "uriTemplate"].iter().find_map(|key| definition.get(*key)?.as_str()).unwrap_or_default()
}
