//! Definitions, results and messages that try to steer the model.

use std::borrow::Cow;
use std::cell::LazyCell;

use portcullis_scan::{Scanner, Severity};
use serde_json::Value;

use super::sent_texts::leaves;
use crate::finding::{FindingLevel, FindingList, STEERING, STEERING_RESULT};
use crate::observation::Observation;

/// The shortest text that can address a model, in bytes.
const MIN_INSTRUCTION: usize = 8;

/// The number of characters of such a text that are shown.
const SHOWN_CHARS: usize = 160;

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
        instructions(&call.parsed_answer(), &call.arguments, scanner, &mut |evidence| {
            let subject = format!("tool {}", call.tool);
            findings.add(STEERING_RESULT, FindingLevel::High, &subject, Some(run.condition), evidence);
        });
    }
    for message in &run.messages {
        instructions(&message.parsed_params(), &Value::Null, scanner, &mut |evidence| {
            let subject = format!("message {}", message.method);
            findings.add(STEERING_RESULT, FindingLevel::High, &subject, Some(run.condition), evidence);
        });
        let found = scanner.scan(&message.parsed_params());
        for found in found.iter().filter(|found| found.severity == Severity::Grave) {
            let (subject, evidence) =
                (format!("message {}", message.method), format!("{}: {}", found.rule, found.excerpt));
            findings.add(STEERING_RESULT, FindingLevel::High, &subject, Some(run.condition), &evidence);
        }
    }
}

/// Finds the strings of an answer that read like an instruction to a model, as the broker marks them for its agents.
/// One that the arguments hold may be repeated.
fn instructions(answer: &Value, arguments: &Value, scanner: &Scanner, report: &mut impl FnMut(&str)) {
    let find = |text: &str| (text.len() >= MIN_INSTRUCTION).then(|| scanner.instruction(text)).flatten();
    let mut asked = Vec::new();
    leaves("", arguments, &mut |_, text| asked.extend(find(text).map(|_| text.to_owned())));
    leaves("", answer, &mut |_, text| {
        let own = asked.iter().fold(Cow::Borrowed(text), |text, asked| text.replace(asked.as_str(), " ").into());
        if let Some(found) = find(&own) {
            let place: String =
                own.get(found.at..).unwrap_or_default().trim_start().chars().take(SHOWN_CHARS).collect();
            report(&format!("{}: {place}", found.rule));
        }
    });
}

/// Returns the name of a definition.
pub(super) fn name(definition: &Value) -> &str {
    ["name", "uri", "uriTemplate"].iter().find_map(|key| definition.get(*key)?.as_str()).unwrap_or_default()
}
