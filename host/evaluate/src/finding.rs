//! Findings: the observations, their weight, and the conditions under which they were made.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::escape::escape_hidden;
use serde::Serialize;

use crate::observation::Condition;

/// The largest number of pieces of evidence that a finding keeps.
const MAX_EVIDENCE: usize = 4;
/// The largest number of characters that are kept of each piece of evidence, and of a subject.
const EVIDENCE_CHARS: usize = 300;

/// The largest number of findings that are reported. Those that weigh least are left out.
const MAX_FINDINGS: usize = 200;

/// The level of a finding, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// Worth knowing: many honest servers do it.
    Note,
    /// A person should review it: some honest servers do it.
    Warning,
    /// No honest server has a reason to do it.
    High,
    /// A secret left, or was about to.
    Critical,
}

impl FindingLevel {
    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A rule by which something is found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JudgeRule {
    /// Its name, for programs.
    pub name: &'static str,
    /// The meaning of a finding by this rule, for people.
    pub meaning: &'static str,
}

macro_rules! rules {
    ($($constant:ident = $name:literal, $meaning:literal;)*) => {
        $(pub(crate) const $constant: &JudgeRule = &JudgeRule { name: $name, meaning: $meaning };)*

        /// All rules.
        pub const RULES: &[&JudgeRule] = &[$($constant),*];
    };
}

rules! {
    CANARY_SENT = "canary-sent", "It sent a secret over the network.";
    CANARY_USED = "canary-used", "It sent a credential to the service that the credential is for.";
    CANARY_RETURNED = "canary-returned", "It gave out a secret that nobody asked for.";
    CANARY_COPIED = "canary-copied", "It wrote a secret into another file.";
    CANARY_READ = "canary-read", "It read a secret file that nobody asked for.";
    CANARY_LOOKED = "canary-looked-for", "It looked whether a secret file exists.";
    PERSISTENCE = "persistence", "It wrote where something is started later.";
    ESCAPE = "escape", "It tried to get out of its cell.";
    DENIED_CALL = "denied-call", "It made system calls that every cell denies.";
    UNIX_SOCKET = "unix-socket", "It tried to talk to a service of this machine.";
    HOST = "undeclared-host", "It reached for a host that its definitions do not name.";
    RAW_ADDRESS = "raw-address", "It reached for an address without a name.";
    FLOODED = "flooded", "It did so much that a part of it was not recorded, in which anything may be hidden.";
    SLOW = "skipped-calls", "It was so slow that planned calls were not made, in which it may have behaved otherwise.";
    FAILED_RUN = "failed-run", "A run failed although the first one did not, so that less of the server was seen.";
    PROGRAM = "program", "It started another program.";
    CHANGED = "changed-definition", "What it offers is not the same each time.";
    STEERING = "steering-definition", "A definition tries to steer the model.";
    STEERING_RESULT = "steering-result", "A result or a message tries to steer the model.";
    DELAY = "delay", "A call took very long.";
    PACKAGE_NAME = "package-name", "The package's name is nearly that of a well-known one.";
    INSTALL_SCRIPT = "install-script", "The package runs a script when it is installed.";
    KNOWN_MALICIOUS = "known-malicious", "A database lists the package as malicious.";
    PINNED = "pinned-package", "The package is not what was pinned before.";
    KNOWN_VULNERABLE = "known-vulnerable", "A database lists a vulnerability of the package.";
}

/// Something that was found.
#[derive(Debug, Clone, Serialize)]
pub struct EvaluationFinding {
    /// The level of the finding.
    pub level: FindingLevel,
    /// The name of the rule.
    pub rule: &'static str,
    /// The subject of the finding: a file, a host, a tool.
    pub subject: String,
    /// The meaning of the rule.
    pub meaning: &'static str,
    /// The evidence: the first few observations.
    pub evidence: Vec<String>,
    /// Under which conditions it was seen, in words. Empty for findings made without running the source.
    pub conditions: Vec<String>,
}

/// Findings that are being collected. The same rule and subject is one finding.
#[derive(Debug, Default)]
pub struct FindingList(BTreeMap<(&'static JudgeRule, String), Found>);

#[derive(Debug)]
struct Found {
    level: FindingLevel,
    evidence: Vec<String>,
    conditions: BTreeSet<Condition>,
}

impl FindingList {
    /// Adds an observation under a condition.
    pub fn add(
        &mut self,
        rule: &'static JudgeRule,
        level: FindingLevel,
        subject: &str,
        condition: Option<Condition>,
        evidence: &str,
    ) {
        let subject = shown(subject);
        let found = self.0.entry((rule, subject)).or_insert_with(|| Found {
            level,
            evidence: Vec::new(),
            conditions: BTreeSet::new(),
        });
        found.level = found.level.max(level);
        found.conditions.extend(condition);
        let evidence = shown(evidence);
        if found.evidence.len() < MAX_EVIDENCE && !evidence.is_empty() && !found.evidence.contains(&evidence) {
            found.evidence.push(evidence);
        }
    }

    /// Takes in other findings, which were made without a run.
    pub fn take_in(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the findings, the worst first. `runs` are the conditions under which the source was seen at work.
    #[must_use]
    pub fn finish(self, runs: &[Condition]) -> Vec<EvaluationFinding> {
        let finding = |((rule, subject), found): ((&'static JudgeRule, String), Found)| EvaluationFinding {
            level: found.level,
            rule: rule.name,
            subject,
            meaning: rule.meaning,
            evidence: found.evidence,
            conditions: in_words(&found.conditions, runs),
        };
        let mut findings: Vec<_> = self.0.into_iter().map(finding).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        findings.truncate(MAX_FINDINGS);
        findings
    }
}

/// Returns the conditions in words. Every one of `runs`, or every one with something to find, is one.
fn in_words(conditions: &BTreeSet<Condition>, runs: &[Condition]) -> Vec<String> {
    let always = |left_out: &[Condition]| runs.iter().all(|run| conditions.contains(run) || left_out.contains(run));
    if conditions.is_empty() {
        Vec::new()
    } else if always(&[]) {
        vec!["it ran, every time".to_owned()]
    } else if always(&[Condition::Bare]) {
        vec!["it ran, every time that there was something to find".to_owned()]
    } else {
        conditions.iter().map(|condition| condition.in_words()).collect()
    }
}

/// Returns text of a source, cut and with hidden characters written out.
fn shown(text: &str) -> String {
    escape_hidden(&text.chars().take(EVIDENCE_CHARS).collect::<String>()).into_owned()
}
