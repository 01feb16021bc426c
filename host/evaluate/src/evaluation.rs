//! An evaluation: the findings, the exercised parts, the smallest cell, and the risk under it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject, RecordedAttempt};
use portcullis_core::escape::escape_hidden;
use portcullis_core::protocol::revision::MODERN;
use portcullis_learn::{CellKey, Proposal, SourceFacts};
use portcullis_net::egress::MessageProtocol;
use serde::Serialize;

use crate::finding::{EvaluationFinding, FindingLevel, FindingList};
use crate::judge::judge;
use crate::observation::{Condition, Observation, ObservedCall};

/// The judgement that follows from an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Nothing was seen that a person should review. That is not the same as harmless.
    NothingSeen,
    /// Something was seen that a person should review.
    Findings,
    /// The source could not be judged.
    NotJudged,
}

/// One run, as reported.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// The condition of the run, in words that follow "when".
    pub condition: String,
    /// The number of calls.
    pub calls: usize,
    /// The number of calls that were answered without an error.
    pub answered: usize,
    /// The time that the run took, in seconds.
    pub seconds: u64,
    /// The reason why the run could not be observed to the end, if it could not.
    pub failure: Option<String>,
}

/// The runs that were made, the tools that were called, and everything that was not exercised.
#[derive(Debug, Clone, Serialize)]
pub struct EvaluationCoverage {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// The tools that were called.
    pub tools: Vec<String>,
    /// The tools with a failed call; those that never succeeded come first.
    pub failed: Vec<FailedTool>,
    /// Everything that was not exercised or could not be seen, in sentences.
    pub not: Vec<String>,
}

/// A tool with a failed call.
#[derive(Debug, Clone, Serialize)]
pub struct FailedTool {
    /// Its name.
    pub tool: String,
    /// The number of its calls, over all runs.
    pub calls: usize,
    /// The number of them that failed.
    pub failed: usize,
    /// The first line of the first error, which may be cut.
    pub error: String,
}

/// The kind of source that was evaluated, which decides how much of it was visible.
#[derive(Debug, Clone, Copy)]
pub enum EvaluationTarget<'a> {
    /// A program in recorded cells. The facts give the meaning of its paths.
    Program(&'a SourceFacts),
    /// A component; only its imports, definitions and results are seen.
    Component {
        /// True if it imports folders.
        files: bool,
        /// True if it imports the network.
        network: bool,
    },
    /// A server at a URL; only its messages are seen.
    Remote,
}

/// The report on one source.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// The judgement that follows from the findings and the runs.
    pub judgement: Judgement,
    /// The command, address or component that was evaluated.
    pub command: Vec<String>,
    /// The server's name and version, as it gives them.
    pub server: String,
    /// The reason why the source could not be judged, or the baseline not observed to the end, if there is one.
    pub failure: Option<String>,
    /// The facts that were known before it ran, in sentences: the content of its manifest, the earlier pin.
    pub about: Vec<String>,
    /// The findings, the worst first.
    pub findings: Vec<EvaluationFinding>,
    /// The smallest cell in which it can do what was seen; `None` for a source that no cell was recorded of.
    pub cell: Option<CellProposal>,
    /// The worst that the source could do, in that cell if there is one, in sentences.
    pub risk: Vec<String>,
    /// The runs and tools that were exercised, and those that were not.
    pub exercised: EvaluationCoverage,
}

/// The facts about a source that are known before it runs.
#[derive(Debug, Default)]
pub struct PriorKnowledge {
    /// The findings that need no run.
    pub findings: FindingList,
    /// The facts that a person should know, in sentences.
    pub about: Vec<String>,
    /// Everything that was not checked, in sentences.
    pub unchecked: Vec<String>,
}

/// The smallest cell of a source, and what nobody should open for it without a thought.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CellProposal {
    /// Lines of the cell.
    pub lines: Vec<portcullis_learn::CellLine>,
    /// Lines for what the source tried that are not proposed.
    pub withheld: Vec<portcullis_learn::CellLine>,
    /// Hosts whose names it looked up and to which it tried no connection, with `PORT` in place of a port.
    pub looked_up: Vec<portcullis_learn::CellLine>,
}

impl CellProposal {
    /// Says of a cell without lines that it opens nothing, and whether something was refused in it.
    #[must_use]
    pub fn opens_nothing(&self) -> &'static str {
        match self.withheld.is_empty() {
            true => "It opens nothing.",
            false => "It opens nothing, so what follows was refused to the server and would be again.",
        }
    }
}

impl fmt::Display for FailedTool {
    /// Writes the tool, how many of its calls failed, and the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, calls, failed, error } = self;
        write!(f, "{tool}, {failed} of {calls} calls: {error}")
    }
}

impl From<Proposal> for CellProposal {
    fn from(Proposal { lines, withheld, looked_up, .. }: Proposal) -> Self {
        Self { lines, withheld, looked_up }
    }
}

impl Evaluation {
    /// Judges the runs of a source, the first of which is the baseline.
    #[must_use]
    pub fn of(
        command: &[String],
        observations: &[Observation],
        target: EvaluationTarget<'_>,
        before: PriorKnowledge,
    ) -> Self {
        let findings = judge(observations, command, before.findings);
        let proposal = match target {
            EvaluationTarget::Program(situation) => Some(smallest_cell(observations, situation)),
            EvaluationTarget::Component { .. } | EvaluationTarget::Remote => None,
        };
        let baseline = observations.first();
        let failure = baseline.and_then(|run| run.failure.clone());
        let exercised = EvaluationCoverage::of(observations, target, before.unchecked);
        let worth_a_look = findings.iter().any(|finding| finding.level >= FindingLevel::Warning);
        let failure = failure.or_else(|| exercised.not_exercised(observations.is_empty()));
        let judgement = match worth_a_look {
            true => Judgement::Findings,
            false if failure.is_some() => Judgement::NotJudged,
            false => Judgement::NothingSeen,
        };
        Self {
            judgement,
            command: command.to_vec(),
            server: baseline.map(|run| run.server.clone()).unwrap_or_default(),
            failure,
            about: before.about,
            risk: match (target, &proposal) {
                (EvaluationTarget::Program(_), Some(proposal)) => risk(proposal),
                (EvaluationTarget::Component { files, network }, _) => component_risk(files, network),
                _ => remote_risk(),
            },
            cell: proposal.map(CellProposal::from),
            findings,
            exercised,
        }
    }
}

impl EvaluationCoverage {
    /// Says why nothing of the source was exercised, if so.
    fn not_exercised(&self, not_started: bool) -> Option<String> {
        if not_started {
            return Some("it was not started, because a database lists it as malicious".to_owned());
        }
        if self.tools.is_empty() {
            return Some("it offers no tool that could be called, so nothing was exercised".to_owned());
        }
        let failed = self.failed.first().filter(|_| self.runs.iter().all(|run| run.answered == 0))?;
        Some(format!("no tool ever answered without an error, so little of it ran: {failed}"))
    }

    fn of(observations: &[Observation], target: EvaluationTarget<'_>, unchecked: Vec<String>) -> Self {
        let runs = observations.iter().map(|run| RunSummary {
            condition: run.condition.in_words(),
            calls: run.calls.len(),
            answered: run.calls.iter().filter(|call| !call.failed).count(),
            seconds: run.took.as_secs(),
            failure: run.failure.clone(),
        });
        let called: BTreeSet<&str> =
            observations.iter().flat_map(|run| &run.calls).map(|call| call.tool.as_str()).collect();
        let definitions = || observations.iter().flat_map(|run| &run.listings).flat_map(|listing| &listing.definitions);
        let offered: BTreeSet<&str> = definitions()
            .filter(|(kind, _)| *kind == "tool")
            .filter_map(|(_, definition)| definition.get("name")?.as_str())
            .collect();
        let mut not = Vec::new();
        let uncalled: Vec<&str> = offered.difference(&called).copied().collect();
        if !uncalled.is_empty() {
            not.push(format!("{} tools were not called: {}", uncalled.len(), some(&uncalled)));
        }
        let answered = |tool: &&&str| {
            observations.iter().flat_map(|run| &run.calls).any(|call| call.tool == ***tool && !call.failed)
        };
        let unanswered: Vec<&str> = called.iter().filter(|tool| !answered(tool)).copied().collect();
        if !unanswered.is_empty() {
            not.push(format!(
                "{} tools never answered without an error, so that little of them ran: {}",
                unanswered.len(),
                some(&unanswered)
            ));
        }
        if definitions().any(|(kind, _)| matches!(*kind, "prompt" | "resource" | "template")) {
            not.push("prompts were not fetched and resources not read; their definitions were scanned".to_owned());
        }
        let unspoken = |run: &&Observation| run.listings.is_empty() && run.failure.is_none();
        if observations.iter().filter(|run| run.condition == Condition::Modern).any(|run| unspoken(&run)) {
            not.push(format!("a client of revision {MODERN}: the server does not speak it"));
        }
        if observations.iter().any(|run| run.condition == Condition::LaterClock && !run.clock_moved) {
            not.push("its clock could not be moved: only that of Node and of Python can".to_owned());
        }
        if observations.iter().flat_map(|run| &run.sent).any(|message| message.channel == MessageProtocol::Tls) {
            not.push(
                "some TLS connections did not trust the false internet; of them only the beginning is known".to_owned(),
            );
        }
        let missed: u64 = observations.iter().map(|run| run.missed).sum();
        if missed > 0 {
            not.push(format!(
                "{missed} attempts, messages and answers were not recorded as a whole, because there were too many"
            ));
        }
        let skipped = || observations.iter().flat_map(|run| &run.skipped);
        if skipped().next().is_some() {
            let tools: BTreeSet<&str> = skipped().map(|(tool, _)| tool.as_str()).collect();
            not.push(format!(
                "planned calls that were not made, because the tool or the run took too long ({}): {}",
                some(&Vec::from_iter(tools)),
                skipped().map(|(_, count)| count).sum::<u64>()
            ));
        }
        let mut unseen: BTreeMap<&str, u64> = BTreeMap::new();
        for (what, count) in observations.iter().flat_map(|run| &run.unseen) {
            *unseen.entry(what).or_default() += count;
        }
        not.extend(unseen.iter().map(|(what, count)| format!("{what}: {count}")));
        if matches!(target, EvaluationTarget::Program(_)) {
            not.push("what was encrypted or compressed before it was sent".to_owned());
        }
        not.push("behaviour that begins after a longer wait or with another input".to_owned());
        not.extend(unchecked);
        let failed = failed_tools(observations);
        Self { runs: runs.collect(), tools: called.into_iter().map(str::to_owned).collect(), failed, not }
    }
}

/// Returns the tools with a failed call; those that never succeeded come first.
fn failed_tools(observations: &[Observation]) -> Vec<FailedTool> {
    let mut tools: BTreeMap<&str, (usize, Vec<&ObservedCall>)> = BTreeMap::new();
    for call in observations.iter().flat_map(|run| &run.calls) {
        let (calls, failed) = tools.entry(&call.tool).or_default();
        *calls += 1;
        failed.extend(call.failed.then_some(call));
    }
    let failed = tools.into_iter().filter_map(|(tool, (calls, failed))| {
        let error = first_line(&failed.first()?.parsed_answer());
        Some(FailedTool { tool: tool.to_owned(), calls, failed: failed.len(), error })
    });
    let mut failed: Vec<FailedTool> = failed.collect();
    failed.sort_by_key(|tool| tool.failed < tool.calls);
    failed
}

/// Returns the first line of a tool's answer, or the beginning of a long one.
fn first_line(answer: &serde_json::Value) -> String {
    const SHOWN_CHARS: usize = 300;
    let places = ["/content/0/text", "/error/message", "/message", "/error", ""];
    let text = places.iter().find_map(|place| answer.pointer(place)?.as_str()).unwrap_or_default();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason");
    let line: String = line.chars().take(SHOWN_CHARS).collect();
    escape_hidden(&line).into_owned()
}

/// Names the first of many.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and others") } else { shown }
}

/// Proposes the cell in which everything works that was seen outside the false home.
fn smallest_cell(observations: &[Observation], situation: &SourceFacts) -> Proposal {
    let mut attempts = Vec::new();
    for run in observations {
        let of_the_machine = |attempt: &&RecordedAttempt| match &attempt.subject {
            AttemptSubject::Path(path) => !path.starts_with(&run.home),
            AttemptSubject::Host(_, Some(_)) => true,
            // Where there is an internet, names are taken from what was sent there.
            AttemptSubject::Host(_, None) | AttemptSubject::Address(_) => run.condition == Condition::Bare,
            AttemptSubject::Call(_) => true,
        };
        attempts.extend(run.attempts.iter().filter(of_the_machine).cloned());
        attempts.extend(run.sent.iter().map(|message| {
            let port = Some(message.port).filter(|_| message.channel != MessageProtocol::Dns);
            RecordedAttempt {
                action: AttemptAction::Connect,
                subject: AttemptSubject::Host(message.host.clone(), port),
                availability: AttemptAvailability::Denied,
                count: 1,
                after: Duration::ZERO,
                program: String::new(),
            }
        }));
    }
    let mut proposal = Proposal::of(&attempts, situation);
    proposal.withhold_unnamed(situation);
    proposal
}

const SENDS_NOTHING: &str = "It could send nothing anywhere by itself: what it learns leaves only in its results.";
const STEERS: &str = "Its definitions and results reach the model, and could steer it to use other tools.";

/// Says what a source could do at worst in a cell.
fn risk(proposal: &Proposal) -> Vec<String> {
    let values = |needs: CellKey| -> Vec<&str> {
        proposal.lines.iter().filter(|line| line.key == needs).map(|line| line.value.as_str()).collect()
    };
    let (read, write, network) = (values(CellKey::Read), values(CellKey::Write), values(CellKey::Network));
    let mut risk = Vec::new();
    if !read.is_empty() || !write.is_empty() {
        risk.push(format!("It could read everything in {}.", [read, write.clone()].concat().join(", ")));
    }
    if !write.is_empty() {
        risk.push(format!("It could change or delete everything in {}.", write.join(", ")));
    }
    risk.push(match network.is_empty() {
        true => SENDS_NOTHING.to_owned(),
        false => format!(
            "It could send what it reads, the variables that it is given and every argument of its tools to {}.",
            network.join(", ")
        ),
    });
    risk.push(STEERS.to_owned());
    risk
}

/// Describes the worst that a component could do with its imports, if they are granted.
fn component_risk(files: bool, network: bool) -> Vec<String> {
    let read = "It could read everything in the folders that it is granted, and change it where it may write.";
    let sent =
        "It could send what it reads, its variables and every argument of its tools to the hosts that it is granted.";
    let risk = [(files, read), (network, sent), (!network, SENDS_NOTHING), (true, STEERS)];
    risk.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()).collect()
}

/// Says what a server that runs elsewhere could do at worst.
fn remote_risk() -> Vec<String> {
    let kept = "It could keep, pass on or sell every argument of its tools: nobody here sees what its machine does.";
    [kept, STEERS].map(str::to_owned).into()
}
