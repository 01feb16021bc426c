//! The second look at a call for which a person was asked: the configuration may have changed by the time they answer.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::judge::DecisionTrail;
use super::{CallRefusal, Gate, GateInput, as_facts};
use crate::call::{Call, CallView, Phase};
use crate::provenance::TracedCall;

/// The configuration in force, which may be another than the one that a call began with.
pub(crate) trait ConfigInForce: Send + Sync {
    /// Returns its gate if it is another one.
    ///
    /// # Errors
    /// The refusal, if the caller may no longer call the item.
    fn newer_gate(&self) -> BoxFuture<'_, Result<Option<Arc<Gate>>, CallRefusal>>;
}

/// Refuses a call that a person has approved if the configuration that is in force now denies it. That it passed, and what
/// a person was asked, stays a matter of the configuration that it began with.
pub(super) async fn confirm(
    call: &Arc<Call>,
    revealed: Option<&Arc<Call>>,
    flow: &Option<Arc<TracedCall>>,
    input: &GateInput<'_>,
    trail: &mut DecisionTrail,
) -> Result<(), CallRefusal> {
    let Some(in_force) = input.in_force else { return Ok(()) };
    let Some(newer) = in_force.newer_gate().await? else { return Ok(()) };
    // The questions of its policies are already answered: a person has agreed to this call.
    newer.judge_call(call, flow, trail).await?;
    if let Some(revealed) = revealed {
        let view = CallView::before(revealed, Phase::Call).with_flow(as_facts(flow));
        newer.judge_revealed(&view, input.vault, trail).await?;
    }
    Ok(())
}
