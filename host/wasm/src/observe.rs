//! Decisions that are observed: what a plugin asked for and used, for its author.

use std::sync::Arc;

use portcullis_core::call::CallView;

use super::decide::{Policy, PolicyCode, Transform};
use super::error::PluginFailure;
use super::guest::ReadyInstance;
use super::{TransformDecision, Vault, Verdict, native};

/// The things that a plugin asked for and used while it made one decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionUsage {
    /// The facts of the call that it asked the host for, in order, as the contract names them: `arguments`, `tool`.
    pub asked: Vec<&'static str>,
    /// The memory of its instance at the end, in bytes.
    pub memory: usize,
}

/// A decision with what it needed.
#[derive(Debug)]
pub struct ObservedDecision<T> {
    /// The decision, or the failure on which the gate denies.
    pub decision: Result<T, PluginFailure>,
    /// The usage.
    pub usage: DecisionUsage,
}

impl Policy {
    /// Judges one call as [`Policy::check`] does, and returns what that needed. It is not counted. Cancellation safe.
    ///
    /// # Errors
    /// [`PluginFailure`] if there is no instance.
    pub async fn check_observed(&self, view: &CallView) -> Result<ObservedDecision<Verdict>, PluginFailure> {
        let instance_pool = match &self.code {
            PolicyCode::Component(instance_pool) => instance_pool,
            PolicyCode::Native(policy) => {
                let decision = native::check(&**policy, view).await;
                return Ok(ObservedDecision { decision, usage: DecisionUsage::default() });
            }
        };
        let mut live = instance_pool.take().await?;
        begin(&mut live, view);
        let decision = live.check().await;
        Ok(ObservedDecision { decision, usage: usage(&mut live) })
    }
}

impl Transform {
    /// Rewrites as [`Transform::rewrite`] does, and returns what that needed. It is not counted. Cancellation safe.
    ///
    /// # Errors
    /// [`PluginFailure`] if there is no instance.
    pub async fn rewrite_observed(
        &self,
        view: &CallView,
        vault: Arc<dyn Vault>,
    ) -> Result<ObservedDecision<TransformDecision>, PluginFailure> {
        let mut live = self.code.take().await?;
        begin(&mut live, view);
        live.store.data_mut().facts.vault = Some(vault);
        let decision = live.rewrite().await;
        Ok(ObservedDecision { decision, usage: usage(&mut live) })
    }
}

fn begin<W>(live: &mut ReadyInstance<W>, view: &CallView) {
    let facts = &mut live.store.data_mut().facts;
    (facts.view, facts.asked) = (Some(view.clone()), Some(Vec::new()));
}

fn usage<W>(live: &mut ReadyInstance<W>) -> DecisionUsage {
    let state = live.store.data_mut();
    DecisionUsage { asked: state.facts.asked.take().unwrap_or_default(), memory: state.memory() }
}
