//! Judges calls with both sets of policies, with the plugins that the broker runs.

use anyhow::Context as _;
use portcullis::call::{CallView, Phase};
use portcullis::config::{Config, PluginConfig};
use portcullis::plugin::{Policy, Verdict};

use crate::joint_verdict::JointVerdict;
use crate::policy_hosts::PolicyHosts;

/// The policies before and after a change.
pub(super) struct Judge {
    old: Vec<Policy>,
    new: Vec<Policy>,
}

/// The joint verdict of a set of policies about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyJudgement {
    pub(super) joint: JointVerdict,
    /// The reason of each policy that does not let the call pass.
    pub(super) reasons: Vec<String>,
}

impl Judge {
    /// Loads the policies that judge calls before they are sent, those of the configuration as its broker does. Each set
    /// comes with the name that the user gave it.
    ///
    /// # Errors
    /// A policy cannot be loaded.
    pub(super) async fn load(
        config: &Config,
        old: (&str, &[PluginConfig]),
        new: (&str, &[PluginConfig]),
    ) -> anyhow::Result<Self> {
        let host = PolicyHosts::of(config)?;
        let mut sets = [Vec::new(), Vec::new()];
        for (set, (name, policies)) in sets.iter_mut().zip([old, new]) {
            for policy in policies {
                set.push(host.policy(policy).await.with_context(|| name.to_owned())?);
            }
        }
        let [old, new] = sets;
        Ok(Self { old, new })
    }

    /// Returns both judgements, if the new policies let the call go further than the old ones.
    pub(super) async fn wider(&self, view: &CallView) -> Option<(PolicyJudgement, PolicyJudgement)> {
        let old = judge(&self.old, view).await;
        if old.joint == JointVerdict::Pass {
            return None;
        }
        let new = judge(&self.new, view).await;
        (new.joint < old.joint).then_some((old, new))
    }
}

/// Returns what policies decide together. As at the gate, a policy that fails denies.
async fn judge(policies: &[Policy], view: &CallView) -> PolicyJudgement {
    let mut found = PolicyJudgement { joint: JointVerdict::Pass, reasons: Vec::new() };
    for policy in policies.iter().filter(|policy| policy.on(Phase::Call)) {
        let (verdict, reason) = match policy.check(view).await {
            Ok(Verdict::Pass) => continue,
            Ok(Verdict::Ask(concern)) => (JointVerdict::Ask, concern.message),
            Ok(Verdict::Deny(denial)) => (JointVerdict::Deny, denial.message),
            Err(failure) => (JointVerdict::Deny, failure.detail),
        };
        found.joint = found.joint.max(verdict);
        found.reasons.push(format!("{}: {reason}", policy.identity().name));
    }
    found
}
