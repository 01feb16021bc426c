//! Asks the plugins. This is the one place that decides what a plugin's failure means.

use std::sync::Arc;

use serde_json::Value;

use super::failures::FailureCounter;
use super::records::recorded_text;
use super::refusal::{DenialKind, Wording};
use super::{CallRefusal, SessionVault};
use crate::call::CallView;
use crate::config::Detail;
use crate::digest::Digest;
use crate::ledger::{Event, EventBody, EventKind, Ledger};
use crate::plugin::{
    Concern, Denial, FailureCode, PluginFailure, PluginIdentity, Policy, Transform, TransformDecision, Vault, Verdict,
};
use crate::provenance::TracedCall;

/// The decisions of the plugins about one call, for its record.
pub(super) struct DecisionTrail {
    pub(super) entries: Vec<EventBody>,
    /// The amount of detail that the ledger keeps of the plugins' messages.
    pub(super) record: Detail,
    /// The information flow that they were given, if one of them can ask for it.
    pub(super) flow: Option<Arc<TracedCall>>,
    /// The vault, while plugins see values that the agent does not see. In their messages these are hidden again.
    pub(super) revealed: Option<Arc<SessionVault>>,
    /// The counter of failures, where nothing is recorded one by one.
    failures: Option<Arc<FailureCounter>>,
}

impl DecisionTrail {
    pub(super) fn new(record: Detail) -> Self {
        Self { entries: Vec::new(), record, flow: None, revealed: None, failures: None }
    }

    /// Makes a trail of decisions that are not recorded, such as those about notifications. Failures of plugins are
    /// counted.
    pub(super) fn unrecorded(failures: &Arc<FailureCounter>) -> Self {
        Self { failures: Some(Arc::clone(failures)), ..Self::new(Detail::Shape) }
    }

    /// Returns the answer of a policy without values that are hidden from the agent.
    fn without_revealed(&self, answer: Result<Verdict, PluginFailure>) -> Result<Verdict, PluginFailure> {
        let Some(vault) = &self.revealed else { return answer };
        match answer {
            Ok(Verdict::Pass) => Ok(Verdict::Pass),
            Ok(Verdict::Ask(concern)) => Ok(Verdict::Ask(Concern::new(&concern.code, vault.hide(concern.message)))),
            Ok(Verdict::Deny(denial)) => Ok(Verdict::Deny(Denial::new(&denial.code, vault.hide(denial.message)))),
            Err(failure) => Err(PluginFailure { detail: vault.hide(failure.detail), ..failure }),
        }
    }
}

/// A reason for which a person is asked.
pub(super) struct AskReason {
    pub(super) concern: Concern,
    /// The wording of its message.
    pub(super) wording: Wording,
    /// The digest of who asks and why: an answer covers later calls only for the reasons that the person was told.
    pub(super) digest: Digest,
}

impl AskReason {
    /// Makes a reason of the broker's own.
    pub(super) fn ours(concern: Concern) -> Self {
        let digest = Digest::of_serialized(&("broker", &concern.code));
        Self { concern, wording: Wording::Plain, digest }
    }

    /// Makes a reason of a policy's.
    fn of(policy: &PluginIdentity, concern: Concern) -> Self {
        // The messages of these say which rules ask. Those of others may be different for every call.
        let rules = match (policy.name.as_str(), &*concern.code) {
            ("builtin:rules", "rule") | ("builtin:cedar", "approval-required") => Some(&concern.message),
            _ => None,
        };
        let digest = Digest::of_serialized(&(&policy.name, policy.settings, &concern.code, rules));
        Self { wording: wording(policy, &concern.code, &concern.message), digest, concern }
    }

    /// Returns the reason as the ledger keeps it.
    pub(super) fn recorded(&self, ledger: &Ledger, record: Detail) -> Value {
        recorded_text(ledger, &self.concern.message, self.wording, record)
    }
}

/// Asks every policy of the view's phase. Any deny denies; otherwise returns the reasons of all asks. A shadow policy
/// is asked and its verdict recorded, nothing more.
pub(super) async fn judge(
    policies: &[Policy],
    view: &CallView,
    ledger: &Ledger,
    trail: &mut DecisionTrail,
) -> Result<Vec<AskReason>, CallRefusal> {
    let mut asks = Vec::new();
    for policy in policies.iter().filter(|policy| policy.on(view.phase)) {
        let verdict = match trail.without_revealed(policy.check(view).await) {
            Ok(verdict) => verdict,
            Err(failure) => Verdict::Deny(denial(policy.identity(), &failure, view, ledger, trail)),
        };
        let entry = entry(policy.identity(), view);
        let entry = if policy.shadow() { entry.with("shadow", true) } else { entry };
        let entry = if trail.revealed.is_some() { entry.with("revealed", true) } else { entry };
        trail.entries.push(match &verdict {
            Verdict::Pass => entry.with("verdict", "pass"),
            Verdict::Ask(Concern { code, message, .. }) => {
                let message = recorded_text(ledger, message, wording(policy.identity(), code, message), trail.record);
                entry.with("verdict", EventBody::new().with("ask", message).with("code", code))
            }
            Verdict::Deny(denial) => entry.with("verdict", EventBody::new().with("deny", &denial.code)),
        });
        if policy.shadow() {
            continue;
        }
        match verdict {
            Verdict::Pass => {}
            Verdict::Ask(concern) => asks.push(AskReason::of(policy.identity(), concern)),
            Verdict::Deny(Denial { code, message, .. }) => {
                let kind = match wording(policy.identity(), &code, &message) {
                    Wording::Plain => DenialKind::Plain,
                    Wording::MayQuote => DenialKind::MayQuote,
                };
                return Err(CallRefusal::Denied { code, message, kind });
            }
        }
    }
    Ok(asks)
}

/// Returns the wording of a message of a policy. It is plain if it can contain only the operator's own settings: the text
/// or the name of a rule. The name of one that compares arguments has the values in it that it compares with. Only
/// policies that are part of the broker are believed.
fn wording(policy: &PluginIdentity, code: &str, message: &str) -> Wording {
    match (policy.name.as_str(), code) {
        ("builtin:rules", "rule") if !message.contains("arguments") => Wording::Plain,
        ("builtin:cedar", "forbidden" | "approval-required") => Wording::Plain,
        _ => Wording::MayQuote,
    }
}

/// Asks one transform.
pub(super) async fn rewrite(
    transform: &Transform,
    view: &CallView,
    vault: Arc<dyn Vault>,
    ledger: &Ledger,
    trail: &mut DecisionTrail,
) -> Result<TransformDecision, CallRefusal> {
    let change = match transform.rewrite(view, vault).await {
        Ok(change) => change,
        Err(failure) => TransformDecision::Refuse(denial(transform.identity(), &failure, view, ledger, trail)),
    };
    let entry = entry(transform.identity(), view);
    trail.entries.push(match &change {
        TransformDecision::Keep => entry.with("verdict", "keep"),
        TransformDecision::Replace(_) => entry.with("verdict", "replace"),
        TransformDecision::Refuse(denial) => entry.with("verdict", EventBody::new().with("refuse", &denial.code)),
    });
    Ok(change)
}

/// Returns the denial that a plugin's failure of any kind means, with the failure's own code. The cause goes to the
/// operator, not to the agent; a cause in the plugin's own words is kept the way the payload is, and is not logged.
pub(super) fn denial(
    plugin: &PluginIdentity,
    failure: &PluginFailure,
    view: &CallView,
    ledger: &Ledger,
    trail: &DecisionTrail,
) -> Denial {
    let code = failure.code.as_str();
    let message = format!("plugin `{}` failed ({code}); a call is never let through without its verdict", plugin.name);
    let counter = trail.failures.as_ref();
    if counter.is_some_and(|counter| !counter.is_first(plugin, failure.code, view.call.source())) {
        return Denial::new(code, message);
    }
    // The detail is the plugin's own text, or what it returned instead of an answer.
    let wording = match failure.code {
        FailureCode::Error | FailureCode::Output => Wording::MayQuote,
        _ => Wording::Plain,
    };
    let cause = match failure.code {
        FailureCode::Error => "the ledger has the plugin's own words, with `record = \"full\"`",
        FailureCode::Output => {
            "its answer does not follow the contract, as with a code that is not one to 64 of `[a-z0-9-]`; the ledger has the \
             plugin's own words, with `record = \"full\"`"
        }
        _ => &failure.detail,
    };
    tracing::error!(plugin = %plugin.name, code, cause, call = %view.call.id, "plugin failed, so the call is denied");
    let cause = recorded_text(ledger, &failure.detail, wording, trail.record);
    ledger.record(Event {
        kind: EventKind::PluginFailed,
        run: Some(view.call.caller.session.clone()),
        call: Some(view.call.id.clone()),
        body: EventBody::new()
            .with("plugin", &*plugin.name)
            .with("digest", plugin.digest)
            .with("code", code)
            .with("cause", cause),
    });
    Denial::new(code, message)
}

/// Returns the entry of a decision, without the verdict.
fn entry(plugin: &PluginIdentity, view: &CallView) -> EventBody {
    EventBody::new().with("plugin", &*plugin.name).with("digest", plugin.digest).with("phase", view.phase.as_str())
}
