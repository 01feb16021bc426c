//! Judges observations: each module looks at one kind of conduct.

mod changes;
mod conduct;
mod definitions;
mod hosts;
mod secrets;
mod sent_texts;
#[cfg(test)]
mod tests;

use portcullis_scan::Scanner;

use crate::finding::{EvaluationFinding, FindingList};
use crate::observation::Observation;

/// The text in which a source describes itself: all its first definitions, its name and its command. What is named here
/// was declared.
pub(crate) struct SelfDescription {
    pub(crate) text: String,
}

impl SelfDescription {
    fn of(observations: &[Observation], command: &[String]) -> Self {
        // What it says at first: a definition that changes later declares nothing.
        let first = observations.first().and_then(|run| run.listings.first());
        let definitions = first.into_iter().flat_map(|listing| &listing.definitions);
        let texts = definitions.map(|(_, definition)| definition.to_string()).chain(command.iter().cloned());
        let server = observations.first().map(|run| run.server.clone());
        Self { text: texts.chain(server).collect::<Vec<_>>().join("\n").to_ascii_lowercase() }
    }

    /// Reports whether a host is named, or the name that it is known by.
    pub(crate) fn names_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let labels: Vec<&str> = host.split('.').collect();
        let known_by = labels.len().checked_sub(2).and_then(|at| labels.get(at)).filter(|label| label.len() > 3);
        self.text.contains(&host)
            || known_by
                .is_some_and(|label| self.text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *label))
    }
}

/// Judges all runs of one source that was started by this command.
#[must_use]
pub(crate) fn judge(
    observations: &[Observation],
    command: &[String],
    mut findings: FindingList,
) -> Vec<EvaluationFinding> {
    let declared = SelfDescription::of(observations, command);
    let scanner = Scanner::new();
    for run in observations {
        definitions::judge(run, &scanner, &mut findings);
        secrets::judge(run, &declared, &mut findings);
        conduct::judge(run, &declared, &mut findings);
        hosts::judge(run, &declared, &mut findings);
    }
    changes::judge(observations, &scanner, &mut findings);
    findings.finish()
}
