//! SARIF 2.1.0, which code hosts and editors read.

use serde_json::{Value, json};

use crate::evaluation::{Evaluation, Judgement};
use crate::finding::{FindingLevel, RULES};

/// Returns the evaluation as a SARIF log. `version` is the broker's.
#[must_use]
pub fn sarif(evaluation: &Evaluation, version: &str) -> Value {
    let rules = RULES.iter().map(|rule| json!({ "id": rule.name, "shortDescription": { "text": rule.meaning } }));
    let results = evaluation.findings.iter().map(|finding| {
        let level = match finding.level {
            FindingLevel::Critical | FindingLevel::High => "error",
            FindingLevel::Warning => "warning",
            FindingLevel::Note => "note",
        };
        let evidence: String = finding.evidence.iter().map(|text| format!("\n{text}")).collect();
        let text = format!("{} {}{evidence}", finding.meaning, finding.subject);
        json!({
            "ruleId": finding.rule,
            "ruleIndex": RULES.iter().position(|rule| rule.name == finding.rule),
            "level": level,
            "message": { "text": plain(&text) },
            "locations": [{ "logicalLocations": [{ "fullyQualifiedName": finding.subject, "kind": "resource" }] }],
            "properties": { "level": finding.level, "conditions": finding.conditions },
        })
    });
    let notification = |text: &String| json!({ "level": "note", "message": { "text": plain(text) } });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "portcullis evaluate", "version": version, "rules": rules.collect::<Vec<_>>() } },
            "invocations": [{
                "executionSuccessful": evaluation.judgement != Judgement::NotJudged,
                "commandLine": evaluation.command.join(" "),
                "toolExecutionNotifications":
                    evaluation.failure.iter().chain(&evaluation.exercised.not).map(notification).collect::<Vec<_>>(),
            }],
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

/// Returns text escaped for a message, in which brackets make links (SARIF 2.1.0, 3.11.6).
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '[' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_source_says_makes_no_link() {
        assert_eq!(plain(r"see [here](https://evil.test) \[x]"), r"see \[here\](https://evil.test) \\\[x\]");
    }
}
