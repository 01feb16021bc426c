//! The answer of `portcullis policy prove`: whether a call goes further, how that was found, and the call.

use portcullis::call::CallView;
use portcullis::item::ItemKind;
use serde_json::{Value, json};

use super::judge::PolicyJudgement;
use super::search::Wider;
use crate::output::{self, BAD, BOLD, escape_hidden, plain_shell_word};

/// The way in which the answer was found.
pub(super) enum FoundBy {
    /// There is nothing to find: the policies are the same.
    Same,
    /// By a solver: it is about all calls whose arguments agree with the tools' input schemas. This many others were
    /// judged.
    Proof { judged: usize },
    /// By judging calls.
    Search { judged: usize, sample: usize, is_exhaustive: bool, no_proof: String },
}

/// The answer to whether the new policies are wider.
pub(super) struct ProveReport {
    pub(super) method: FoundBy,
    pub(super) wider: Option<Wider>,
}

impl ProveReport {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return output::json(&self.to_json());
        }
        if let Some(Wider { view, old, new }) = &self.wider {
            output::text(&format!("{BAD}wider: {} instead of {}{BAD:#}\n", new.joint.word(), old.joint.word()))?;
            for line in call_lines(view) {
                output::text(&format!("  {}\n", escape_hidden(&line)))?;
            }
            for (name, judgement) in [("old", old), ("new", new)] {
                output::text(&format!("{name}: {}\n", judgement.joint.word()))?;
                for reason in &judgement.reasons {
                    output::text(&format!("  {}\n", escape_hidden(reason)))?;
                }
            }
        }
        match (&self.wider, &self.method) {
            (None, FoundBy::Same) => output::text(&format!("{BOLD}never wider{BOLD:#}\nthe policies are the same\n")),
            (None, FoundBy::Proof { judged }) => output::text(&format!(
                "{BOLD}never wider{BOLD:#}\nproved by cvc5, for every call whose arguments agree with the input schemas of the tools \
                 and whose numbers are whole; of {judged} tried calls, also with other arguments, none goes further\n"
            )),
            (None, FoundBy::Search { judged, sample, is_exhaustive, no_proof }) => {
                let all = if *is_exhaustive {
                    format!("searched: all {judged} calls of a sample were judged")
                } else {
                    format!("searched: {judged} calls were judged, chosen at random from a sample of {sample}")
                };
                output::text(&format!(
                    "{BOLD}no wider call was found{BOLD:#}\n{all}\nthis is not a proof: {}\n",
                    escape_hidden(no_proof)
                ))
            }
            (Some(_), FoundBy::Search { judged, .. }) => {
                output::text(&format!("found by a search, after {judged} calls\n"))
            }
            (Some(_), _) => output::text("found by cvc5\n"),
        }
    }

    /// Reports whether the answer holds for every call that the schemas allow.
    pub(super) fn is_proved(&self) -> bool {
        matches!(self.method, FoundBy::Same | FoundBy::Proof { .. })
    }

    fn to_json(&self) -> Value {
        let wider = self.wider.as_ref().map(|Wider { view, old, new }| {
            let call = &view.call;
            json!({
                "item": call.item.exposed, "source": call.item.source, "method": call.method.as_str(),
                "arguments": call.arguments.read::<Value>().unwrap_or_default(),
                "principal": call.caller.principal.as_str(), "profile": call.caller.profile, "trust": call.caller.trust,
                "risk": call.risk.as_str(), "old": judgement(old), "new": judgement(new),
            })
        });
        let (method, judged, sample, no_proof) = match &self.method {
            FoundBy::Same => ("same", 0, None, None),
            FoundBy::Proof { judged } => ("proof", *judged, None, None),
            FoundBy::Search { judged, sample, is_exhaustive, no_proof } => {
                let method = if *is_exhaustive { "exhaustive-search" } else { "random-search" };
                (method, *judged, Some(sample), Some(no_proof))
            }
        };
        json!({
            "wider": self.wider.is_some(), "proved": no_proof.is_none(), "method": method, "judged": judged, "sample": sample,
            "notProved": no_proof, "call": wider,
        })
    }
}

fn judgement(judgement: &PolicyJudgement) -> Value {
    json!({ "verdict": judgement.joint.word(), "reasons": judgement.reasons })
}

/// Describes a call: a tool as a command that can be pasted, and the caller and circumstances.
fn call_lines(view: &CallView) -> [String; 2] {
    let call = &view.call;
    let arguments = call.arguments.as_str();
    let first = if call.item.kind == ItemKind::Tool {
        format!("portcullis call {} {}", plain_shell_word(&call.item.exposed), plain_shell_word(arguments))
    } else {
        format!("{} {} {arguments}", call.method.as_str(), call.item.exposed)
    };
    let caller = &call.caller;
    let second = format!(
        "as {}, profile {}, trust level {}, {}",
        caller.principal,
        caller.profile,
        caller.trust.as_str(),
        call.risk.as_str()
    );
    [first, second]
}
