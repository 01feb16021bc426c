//! The risk of a call, and whether the risk by itself is a reason to ask.

use super::GateInput;
use super::approval::ApprovalOutcome;
use crate::call::{Call, Risk};
use crate::config::{Approve, Durability, SourceConfig};
use crate::item::{Item, ItemKind};
use crate::ledger::IntentDurability;
use crate::lockfile::Acceptance;
use crate::plugin::Concern;

/// The effects outside a source that its cell lets its calls have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellEffects {
    /// No effects: the cell can neither write nor reach a network.
    None,
    /// The cell can write or reach a network, or is not known yet.
    Possible,
}

/// Returns the risk of an item's calls. It comes from the cell: the calls of a source in a harmless cell, which can
/// neither write nor reach a network, are harmless. Others are risky, unless a person accepted the tool or trusts this
/// source's hints. An untrusted hint can raise the risk but never lower it.
///
/// Prompts and listed resources are harmless: a person picks a prompt, and an application a resource, so a question
/// would go to the very person who chose it. A resource that no list names carries words of the caller's own in its
/// URI, as the arguments of a tool do.
#[must_use]
pub fn risk_of(tool: &Item, source: &SourceConfig, cell_effects: CellEffects, acceptance: &Acceptance) -> Risk {
    match tool.kind {
        ItemKind::Prompt => return Risk::Harmless,
        ItemKind::Resource | ItemKind::Template if tool.is_listed() => return Risk::Harmless,
        ItemKind::Tool | ItemKind::Resource | ItemKind::Template | ItemKind::Source => {}
    }
    let harmless = match acceptance {
        Acceptance::Changed(_) => false,
        Acceptance::Accepted => true,
        Acceptance::Unknown => {
            let vouched = source.trust_annotations && tool.hints.claim_harmless();
            vouched || cell_effects == CellEffects::None && !tool.hints.raise_risk()
        }
    };
    if harmless { Risk::Harmless } else { Risk::Risky }
}

/// Returns whether a call waits until its intent is on disk. Only a call that can have no effect may go ahead, and only
/// if nobody was asked about it: the record of an approval must be followed by that of the call.
pub(super) fn intent_durability(call: &Call, input: &GateInput<'_>, approved: &ApprovalOutcome) -> IntentDurability {
    let GateInput { durability, harmless_cell, resumed, .. } = input;
    let has_no_effect = *harmless_cell && call.risk == Risk::Harmless;
    if *durability == Durability::Effects && has_no_effect && !approved.by_person && !resumed {
        IntentDurability::Queued
    } else {
        IntentDurability::BeforeCall
    }
}

/// Reports whether a question about the call must never be put through the agent. Elicitation uses the agent's own
/// channel, and an agent that answers without a person would approve itself: where the source itself says that the tool
/// may destroy or reach an open world and no person accepted it, or where the definition changed since a person did, a
/// person answers at another terminal.
pub(super) fn too_high_for_the_agents_channel(call: &Call, acceptance: &Acceptance) -> bool {
    match acceptance {
        Acceptance::Changed(_) => true,
        Acceptance::Accepted => false,
        Acceptance::Unknown => call.item.hints.raise_risk(),
    }
}

/// Reports whether [`reason`] would have none if a person accepted the item.
pub(super) fn lock_settles(input: &GateInput<'_>) -> bool {
    input.approve != Approve::Always
}

/// Returns why a person must be asked although no policy says so. Approval plugins get the code with it.
pub(super) fn reason(call: &Call, input: &GateInput<'_>) -> Option<Concern> {
    let concern = |code: &str, message: String| Concern::new(code, message);
    // A pinned definition that changed needs an answer whatever the profile states: `approve = "never"` was meant for
    // the old one.
    if let Acceptance::Changed(changes) = input.acceptance {
        let changes = changes.join("; ");
        let message = format!("the {} is not the one that was accepted: {changes}", call.item.kind.as_str());
        return Some(concern("definition-changed", message));
    }
    match input.approve {
        Approve::Never => None,
        Approve::Always => Some(concern("every-call", "the profile asks before every call".to_owned())),
        Approve::Risky => (call.risk == Risk::Risky).then(|| {
            // In a cell that can do neither, only the source's own word raises the risk.
            let why = match input.harmless_cell && call.item.hints.raise_risk() {
                true => "its own source calls it destructive or open to the world",
                false => "its source may write or reach a network",
            };
            concern("risky", format!("{why}, and nobody accepted the tool with `portcullis lock accept`"))
        }),
    }
}
