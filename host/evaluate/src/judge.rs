//! Judges observations: each module examines one kind of conduct.

mod changes;
mod conduct;
mod definitions;
mod hosts;
mod secrets;
mod sent_texts;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use portcullis_scan::Scanner;
use serde_json::Value;

use self::hosts::HostWords;
use crate::finding::{EvaluationFinding, FindingList};
use crate::observation::{Condition, Observation};

/// The members of a definition that are written for people.
const DESCRIPTIONS: [&str; 4] = ["name", "title", "description", "instructions"];

/// Programs that run the next word, by the beginning of their names.
const RUNNERS: [&str; 14] =
    ["npx", "npm", "pnpm", "yarn", "node", "bun", "deno", "uv", "pipx", "python", "docker", "podman", "sh", "bash"];

/// The text in which a source describes itself: the names, titles and descriptions of its first definitions, its
/// instructions, its name, and that of its package or program. Things named here count as declared; the words of a
/// schema declare nothing.
pub(crate) struct SelfDescription {
    pub(crate) text: String,
    /// Its words that may be the names of hosts.
    hosts: HostWords,
    /// Its words of ASCII letters and digits.
    pub(crate) words: HashSet<String>,
}

impl SelfDescription {
    fn of(observations: &[Observation], command: &[String]) -> Self {
        // Its first description: a definition that changes later declares nothing.
        let first = observations.first().and_then(|run| run.listings.first());
        let definitions = first.into_iter().flat_map(|listing| &listing.definitions);
        let mut texts: Vec<&str> = observations.first().map(|run| run.server.as_str()).into_iter().collect();
        definitions.for_each(|(_, definition)| described(definition, &mut texts));
        texts.extend(started(command));
        let text = texts.join("\n").to_ascii_lowercase();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect();
        Self { hosts: HostWords::of(&text), words, text }
    }

    /// Reports whether a host is named, or the name that it is known by.
    pub(crate) fn names_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let labels: Vec<&str> = host.split('.').collect();
        let known_by = labels.len().checked_sub(2).and_then(|at| labels.get(at)).filter(|label| label.len() > 3);
        self.hosts.name(&host) || known_by.is_some_and(|label| self.words.contains(*label))
    }
}

/// Returns the name of the package or program that a command starts.
fn started(command: &[String]) -> Option<&str> {
    let (program, arguments) = command.split_first()?;
    let own = program.rsplit('/').next()?;
    if !RUNNERS.iter().any(|runner| own.starts_with(runner)) {
        return Some(own);
    }
    let word = arguments.iter().find(|word| !word.starts_with('-'))?;
    // A scope is part of a package's name, a folder no part of a program's.
    if word.starts_with('@') { Some(word) } else { word.rsplit('/').next() }
}

/// Collects the texts for people in a definition.
fn described<'a>(definition: &'a Value, texts: &mut Vec<&'a str>) {
    match definition {
        Value::Array(items) => items.iter().for_each(|item| described(item, texts)),
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(text) if DESCRIPTIONS.contains(&key.as_str()) => texts.push(text),
                    member => described(member, texts),
                }
            }
        }
        _ => {}
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
    conduct::failures(observations, &mut findings);
    changes::judge(observations, &scanner, &mut findings);
    // One that does not speak the revision of a run was seen at work in the others.
    let seen = observations.iter().filter(|run| !run.listings.is_empty() || run.condition == Condition::Baseline);
    findings.finish(&seen.map(|run| run.condition).collect::<Vec<_>>())
}
