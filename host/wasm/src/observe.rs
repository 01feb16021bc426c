//! Observed decisions: the queries and resources that a plugin used, for its author.

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
    /// The lines that it wrote to the operator's log, in order.
    pub log: Vec<String>,
    /// The memory of its instance at the end, in bytes.
    pub memory: usize,
    /// The number of instructions that it ran, if the host counts them. It is the same for the same call on every
    /// machine.
    pub instructions: Option<u64>,
}

/// A decision with its usage.
#[derive(Debug)]
pub struct ObservedDecision<T> {
    /// The decision, or the failure on which the gate denies.
    pub decision: Result<T, PluginFailure>,
    /// The usage.
    pub usage: DecisionUsage,
}

impl Policy {
    /// Judges one call as [`Policy::check`] does, and returns what that needed. It is not counted, and also a call that the
    /// policy says it passes is judged. Cancellation safe.
    ///
    /// # Errors
    /// [`PluginFailure`] if there is no instance.
    pub async fn check_observed(&self, view: &CallView) -> Result<ObservedDecision<Verdict>, PluginFailure> {
        let pool = match &self.code {
            PolicyCode::Component { pool, .. } => pool,
            PolicyCode::Native(policy) => {
                let decision = native::check(&**policy, view).await;
                return Ok(ObservedDecision { decision, usage: DecisionUsage::default() });
            }
        };
        let mut live = pool.take().await?;
        let fuel = begin(&mut live, view);
        let decision = live.check().await;
        Ok(ObservedDecision { decision, usage: usage(&mut live, fuel) })
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
        let fuel = begin(&mut live, view);
        live.store.data_mut().facts.vault = Some(vault);
        let decision = live.rewrite().await;
        Ok(ObservedDecision { decision, usage: usage(&mut live, fuel) })
    }
}

/// Prepares an instance for an observed decision, and returns the fuel that it has, if the engine counts instructions.
fn begin<W>(live: &mut ReadyInstance<W>, view: &CallView) -> Option<u64> {
    let facts = &mut live.store.data_mut().facts;
    (facts.view, facts.asked, facts.log) = (Some(view.clone()), Some(Vec::new()), Some(Vec::new()));
    live.store.get_fuel().ok()
}

fn usage<W>(live: &mut ReadyInstance<W>, fuel: Option<u64>) -> DecisionUsage {
    let left = live.store.get_fuel().ok();
    let state = live.store.data_mut();
    DecisionUsage {
        asked: state.facts.asked.take().unwrap_or_default(),
        log: state.facts.log.take().unwrap_or_default(),
        memory: state.memory(),
        instructions: fuel.zip(left).map(|(fuel, left)| fuel.saturating_sub(left)),
    }
}
