//! The decision of several plugins about one call, as the gate makes it: a plugin that fails denies.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis::call::{CallView, Phase};
use portcullis::config::{Config, PluginConfig};
use portcullis::digest::Digest;
use portcullis::plugin::{
    Concern, Denial, PluginFailure, PluginHost, Policy, Transform, TransformDecision, Vault, Verdict,
};
use portcullis::protocol::Json;

/// The plugins that decide about calls, loaded and configured.
pub(super) struct DecidingPlugins {
    policies: Vec<Policy>,
    transforms: Vec<Transform>,
}

/// The decision of the plugins about a call, together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) verdict: DecidedVerdict,
    /// The plugin that denies, or the first that asks.
    pub(super) plugin: Option<String>,
    /// The reasons to ask, or the message of the denial.
    pub(super) reasons: Vec<String>,
    /// The arguments, or the outcome in the phase `result`, if a transform replaced them.
    pub(super) replaced: Option<Json>,
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DecidedVerdict {
    Pass,
    /// The code of the first plugin that asks.
    Ask(String),
    /// The code of the denial; of a plugin that failed, the code of its failure.
    Deny(String),
}

impl DecidedVerdict {
    /// Returns the code of an ask or a denial.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Ask(code) | Self::Deny(code) => Some(code),
        }
    }

    /// Returns the word for it in fixtures.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Ask(_) => "ask",
            Self::Deny(_) => "deny",
        }
    }
}

impl DecidingPlugins {
    /// Loads the policies and transforms of a configuration.
    ///
    /// # Errors
    /// One of them cannot be loaded, imports something that it is not granted, or refuses its settings.
    pub(super) async fn load(host: &PluginHost, config: &Config) -> anyhow::Result<Self> {
        let (mut policies, mut transforms) = (Vec::new(), Vec::new());
        for plugin in &config.policies {
            policies.push(host.policy(&enforced(plugin)).await?);
        }
        for plugin in &config.transforms {
            transforms.push(host.transform(&enforced(plugin)).await?);
        }
        Ok(Self { policies, transforms })
    }

    /// Asks the plugins as the gate does: all policies of the phase, then the transforms, and the policies again about
    /// what a transform changed.
    pub(super) async fn decide(&self, view: &CallView) -> Decision {
        self.passed(view).await.unwrap_or_else(|denied| denied)
    }

    /// Returns the decision that lets a call pass or asks about it, or else the denial.
    async fn passed(&self, view: &CallView) -> Result<Decision, Decision> {
        if let Some(denied) = ambiguous(view, "arguments-ambiguous") {
            return Err(denied);
        }
        let mut asks = self.judge(view).await?;
        let (phase, vault, mut view, mut replaced) = (view.phase, RehearsalVault::shared(), view.clone(), None);
        for transform in self.transforms.iter().filter(|transform| transform.on(phase)) {
            let change = transform.rewrite(&view, vault.clone()).await;
            let decision = Decision::of_transform(&transform.identity().name, change);
            if decision.verdict != DecidedVerdict::Pass {
                return Err(decision);
            }
            if let Some(json) = decision.replaced {
                view = with(&view, json.clone());
                replaced = Some(json);
            }
        }
        if replaced.is_some() {
            if let Some(denied) = ambiguous(&view, "plugin-output") {
                return Err(denied);
            }
            asks = self.judge(&view).await?;
        }
        let first = asks.first().map(|(plugin, concern)| (plugin.clone(), concern.code.clone()));
        let (plugin, code) = first.unzip();
        let verdict = match (phase, code) {
            // An item with the verdict `ask` at listing is shown, and the question comes when it is called.
            (_, None) | (Phase::List, _) => DecidedVerdict::Pass,
            (Phase::Call, Some(code)) => DecidedVerdict::Ask(code),
            // The source has acted, so nobody is asked.
            (_, Some(_)) => DecidedVerdict::Deny("result-asked".to_owned()),
        };
        let reasons = asks.into_iter().map(|(_, concern)| concern.message).collect();
        Ok(Decision { verdict, plugin, reasons, replaced })
    }

    /// Returns the policies that ask, with their reasons, or the denial of the first that denies.
    async fn judge(&self, view: &CallView) -> Result<Vec<(String, Concern)>, Decision> {
        let mut asks = Vec::new();
        for policy in self.policies.iter().filter(|policy| policy.on(view.phase)) {
            let name = &policy.identity().name;
            match policy.check(view).await {
                Ok(Verdict::Pass) => {}
                Ok(Verdict::Ask(concern)) => asks.push((name.clone(), concern)),
                decided => return Err(Decision::of_policy(name, decided)),
            }
        }
        Ok(asks)
    }
}

/// Returns the denial of arguments with a key that occurs twice, as the gate denies them: such a key means one thing to
/// a policy and another to a source.
fn ambiguous(view: &CallView, code: &str) -> Option<Decision> {
    let error = Digest::of_json(&view.call.arguments).err()?;
    Some(denied("the gate", Denial::new(code, error.to_string())))
}

impl Decision {
    /// Returns what one policy decided.
    pub(super) fn of_policy(name: &str, verdict: Result<Verdict, PluginFailure>) -> Self {
        let (verdict, reasons) = match verdict {
            Ok(Verdict::Pass) => (DecidedVerdict::Pass, Vec::new()),
            Ok(Verdict::Ask(concern)) => (DecidedVerdict::Ask(concern.code), vec![concern.message]),
            Ok(Verdict::Deny(denial)) => return denied(name, denial),
            Err(failure) => return failed(name, failure),
        };
        Self { verdict, plugin: Some(name.to_owned()), reasons, replaced: None }
    }

    /// Returns what one transform decided.
    pub(super) fn of_transform(name: &str, change: Result<TransformDecision, PluginFailure>) -> Self {
        let replaced = match change {
            Ok(TransformDecision::Keep) => None,
            Ok(TransformDecision::Replace(json)) => Some(json),
            Ok(TransformDecision::Refuse(denial)) => return denied(name, denial),
            Err(failure) => return failed(name, failure),
        };
        Self { verdict: DecidedVerdict::Pass, plugin: Some(name.to_owned()), reasons: Vec::new(), replaced }
    }
}

/// Returns the entry without `mode = "shadow"`, under which a plugin decides nothing.
fn enforced(plugin: &PluginConfig) -> PluginConfig {
    PluginConfig { shadow: false, ..plugin.clone() }
}

fn denied(plugin: &str, denial: Denial) -> Decision {
    let (verdict, plugin) = (DecidedVerdict::Deny(denial.code), Some(plugin.to_owned()));
    Decision { verdict, plugin, reasons: vec![denial.message], replaced: None }
}

fn failed(plugin: &str, failure: PluginFailure) -> Decision {
    denied(plugin, Denial::new(failure.code.as_str(), failure.detail))
}

fn with(view: &CallView, json: Json) -> CallView {
    let mut view = view.clone();
    if view.phase == Phase::Result {
        view.outcome = Some(json);
    } else {
        Arc::make_mut(&mut view.call).arguments = json;
    }
    view
}

/// A vault whose placeholders are the same in each run, so that a fixture can name them: `[[KIND:1]]`.
#[derive(Default)]
pub(super) struct RehearsalVault(Mutex<Vec<(String, String)>>);

impl RehearsalVault {
    /// Returns a vault for the transforms of one decision.
    pub(super) fn shared() -> Arc<dyn Vault> {
        Arc::new(Self::default())
    }
}

impl Vault for RehearsalVault {
    fn protect(&self, kind: &str, value: &str, _restore_to: Vec<String>) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().filter(|(known, _)| known == kind).position(|(_, known)| known == value);
        let number = known.unwrap_or_else(|| {
            kept.push((kind.to_owned(), value.to_owned()));
            kept.iter().filter(|(known, _)| known == kind).count() - 1
        });
        format!("[[{kind}:{}]]", number + 1)
    }
}
