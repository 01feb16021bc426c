//! Asking the plugins, and the one place that decides what a plugin's failure means.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Refusal, put};
use crate::call::View;
use crate::ledger::{Event, Kind, Ledger};
use crate::plugin::{Change, Denial, Failure, Identity, Policy, Transform, Vault, Verdict};

/// Asks every policy of the view's phase. Any deny denies; else the reasons of all asks. A shadow policy is asked and its
/// verdict recorded, nothing more.
pub(super) async fn judge(
    policies: &[Policy],
    view: &View,
    ledger: &Ledger,
    trail: &mut Vec<Value>,
) -> Result<Vec<String>, Refusal> {
    let mut asks = Vec::new();
    for policy in policies.iter().filter(|policy| policy.on(view.phase)) {
        let verdict = match policy.check(view).await {
            Ok(verdict) => verdict,
            Err(failure) => Verdict::Deny(denial(policy.identity(), &failure, view, ledger)),
        };
        trail.push(entry(policy.identity(), view, policy.shadow(), describe(&verdict)));
        if policy.shadow() {
            continue;
        }
        match verdict {
            Verdict::Pass => {}
            Verdict::Ask(reason) => asks.push(reason),
            Verdict::Deny(denial) => return Err(Refusal::denied(denial.code, denial.message)),
        }
    }
    Ok(asks)
}

/// Asks one transform. A shadow transform's change is recorded and not made.
pub(super) async fn rewrite(
    transform: &Transform,
    view: &View,
    vault: Arc<dyn Vault>,
    ledger: &Ledger,
    trail: &mut Vec<Value>,
) -> Result<Change, Refusal> {
    let change = match transform.rewrite(view, vault).await {
        Ok(change) => change,
        Err(failure) => Change::Refuse(denial(transform.identity(), &failure, view, ledger)),
    };
    let word = match &change {
        Change::Keep => json!("keep"),
        Change::Replace(_) => json!("replace"),
        Change::Refuse(denial) => json!({ "refuse": denial.code }),
    };
    trail.push(entry(transform.identity(), view, transform.shadow(), word));
    Ok(if transform.shadow() { Change::Keep } else { change })
}

/// A plugin's failure of any kind denies, with the failure's own code. The cause goes to the operator, not to the agent.
pub(super) fn denial(plugin: &Identity, failure: &Failure, view: &View, ledger: &Ledger) -> Denial {
    let code = failure.code.as_str();
    tracing::error!(plugin = %plugin.name, code, cause = %failure.detail, call = %view.call.id, "plugin failed, so the call is denied");
    ledger.note(Event {
        kind: Kind::PluginFailed,
        run: Some(view.call.caller.session.clone()),
        call: Some(view.call.id.clone()),
        body: json!({ "plugin": plugin.name, "digest": plugin.digest, "code": code, "cause": failure.detail }),
    });
    let message = format!("plugin `{}` failed ({code}); a call is never let through without its verdict", plugin.name);
    Denial { code: code.to_owned(), message }
}

fn describe(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Pass => json!("pass"),
        Verdict::Ask(reason) => json!({ "ask": reason }),
        Verdict::Deny(denial) => json!({ "deny": denial.code }),
    }
}

fn entry(plugin: &Identity, view: &View, shadow: bool, verdict: Value) -> Value {
    let mut entry = json!({
        "plugin": plugin.name,
        "digest": plugin.digest,
        "phase": view.phase.as_str(),
        "verdict": verdict,
    });
    if shadow {
        put(&mut entry, "shadow", json!(true));
    }
    entry
}
