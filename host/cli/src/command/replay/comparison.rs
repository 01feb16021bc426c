//! Verdicts then and now: how many differ, which way, and examples.

use std::collections::BTreeMap;

use portcullis::call::Phase;
use serde_json::{Value, json};

use crate::joint_verdict::{DecidedBy, JointVerdict};
use crate::moment;
use crate::output::{self, BAD, BOLD, escape_hidden};
use crate::recorded_call::{MissingFact, RecordedDecision};

/// The reason why a recorded decision could not be judged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum NotJudged {
    Reads(MissingFact),
    NotAsked,
    Unreadable,
}

/// A decision that differs.
#[derive(Debug)]
struct Difference {
    started: u64,
    item: String,
    phase: Phase,
    then: DecidedBy,
    now: DecidedBy,
}

/// The result of a replay: how many verdicts differ, and which way.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) calls: u64,
    judged: u64,
    differ: BTreeMap<(JointVerdict, JointVerdict), u64>,
    not_judged: BTreeMap<NotJudged, u64>,
    /// The first calls of each difference.
    examples: BTreeMap<(JointVerdict, JointVerdict), BTreeMap<String, Difference>>,
    /// The largest number of examples of each difference.
    most: usize,
}

impl NotJudged {
    fn word(self) -> &'static str {
        match self {
            Self::Reads(MissingFact::Payload) => "reads-payload",
            Self::Reads(MissingFact::Hidden) => "reads-hidden-values",
            Self::Reads(MissingFact::Definition) => "reads-definition",
            Self::Reads(MissingFact::Flow) => "reads-flow",
            Self::Reads(MissingFact::Session) => "reads-session",
            Self::NotAsked => "not-asked",
            Self::Unreadable => "unreadable",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Reads(missing) => missing.in_words(),
            Self::NotAsked => {
                "no verdict was final: no policy was asked, or the call ended while its question was open"
            }
            Self::Unreadable => "the records are of another version and do not say enough",
        }
    }
}

impl Comparison {
    /// Begins a comparison that keeps this many examples of each difference.
    pub(super) fn new(most: usize) -> Self {
        let (differ, not_judged, examples) = Default::default();
        Self { calls: 0, judged: 0, differ, not_judged, examples, most }
    }

    /// Compares a decision with the verdict that is given now.
    pub(super) fn compare(&mut self, decision: &RecordedDecision, now: DecidedBy) {
        let (phase, then) = (decision.view.phase, decision.verdict.clone());
        let (then, now) = if phase == Phase::Result { (then.of_result(), now.of_result()) } else { (then, now) };
        self.judged += 1;
        if then.joint == now.joint {
            return;
        }
        let way = (then.joint, now.joint);
        *self.differ.entry(way).or_default() += 1;
        let (started, item) = (decision.started, decision.item.clone());
        self.keep(way, decision.call.clone(), Difference { started, item, phase, then, now });
    }

    /// Counts a decision that cannot be judged.
    pub(super) fn skip(&mut self, why: NotJudged) {
        *self.not_judged.entry(why).or_default() += 1;
    }

    /// Takes in what another part of the replay found.
    pub(super) fn add(&mut self, other: Self) {
        self.judged += other.judged;
        for (way, count) in other.differ {
            *self.differ.entry(way).or_default() += count;
        }
        for (why, count) in other.not_judged {
            *self.not_judged.entry(why).or_default() += count;
        }
        for (way, examples) in other.examples {
            for (call, difference) in examples {
                self.keep(way, call, difference);
            }
        }
    }

    /// Keeps an example, if it is among the first calls.
    fn keep(&mut self, way: (JointVerdict, JointVerdict), call: String, difference: Difference) {
        let examples = self.examples.entry(way).or_default();
        examples.insert(call, difference);
        if examples.len() > self.most {
            examples.pop_last();
        }
    }

    /// Reports whether a verdict became wider.
    pub(super) fn is_wider(&self) -> bool {
        self.differ.keys().any(|(then, now)| now < then)
    }

    /// Reports whether there were verdicts, and none of them could be judged.
    pub(super) fn judged_nothing(&self) -> bool {
        self.judged == 0 && !self.not_judged.is_empty()
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return output::json(&self.to_json());
        }
        let differ: u64 = self.differ.values().sum();
        output::text(&format!(
            "{BOLD}{}, {} judged anew: {} as they were, {differ} differ{BOLD:#}\n",
            output::counted(self.calls, "call"),
            output::counted(self.judged, "verdict"),
            self.judged - differ
        ))?;
        for (way @ (then, now), count) in &self.differ {
            let (style, word) = if now < then { (BAD, "wider") } else { (BOLD, "narrower") };
            output::text(&format!("\n{style}{} → {}  {count}, {word}{style:#}\n", then.word(), now.word()))?;
            for (call, difference) in self.examples.get(way).into_iter().flatten() {
                let Difference { started, item, phase, then, now } = difference;
                let result = if *phase == Phase::Result { ", its result" } else { "" };
                let line = format!(
                    "  {call}  {}  {item}{result}: {} then, {} now",
                    moment::local(*started),
                    then.in_words(),
                    now.in_words()
                );
                output::text(&format!("{}\n", escape_hidden(&line)))?;
            }
        }
        let not_judged: u64 = self.not_judged.values().sum();
        if not_judged > 0 {
            output::text(&format!("\n{BOLD}{not_judged} could not be judged{BOLD:#}\n"))?;
        }
        for (why, count) in &self.not_judged {
            output::text(&format!("  {count}: {}\n", why.in_words()))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let differences = self.differ.iter().map(|(way @ (then, now), count)| {
            let examples = self.examples.get(way).into_iter().flatten().map(|(call, difference)| {
                let Difference { started, item, phase, then, now } = difference;
                json!({
                    "call": call, "started": started, "item": item, "phase": phase,
                    "then": then.to_json(), "now": now.to_json(),
                })
            });
            let examples: Vec<_> = examples.collect();
            json!({ "then": then.word(), "now": now.word(), "wider": now < then, "count": count, "examples": examples })
        });
        let not_judged: BTreeMap<_, _> = self.not_judged.iter().map(|(why, count)| (why.word(), count)).collect();
        json!({
            "calls": self.calls, "judged": self.judged, "wider": self.is_wider(),
            "differences": differences.collect::<Vec<_>>(), "notJudged": not_judged,
        })
    }
}
