//! The second judgement of a call: with the values that its source gets in place of placeholders.
//!
//! An agent can turn any text into a placeholder, by having a source return it. So a call, and its result, that passes
//! with placeholders must pass with the values too. Policies' messages about these calls contain no values.

use std::sync::Arc;

use super::judge::{AskReason, DecisionTrail, judge};
use super::{CallRefusal, Gate, SessionVault};
use crate::call::{Call, CallView, Params};

impl Gate {
    /// Lets the policies judge a call or its result with values in place of placeholders. Their messages contain none
    /// of these values.
    pub(super) async fn judge_revealed(
        &self,
        view: &CallView,
        vault: &Arc<SessionVault>,
        trail: &mut DecisionTrail,
    ) -> Result<Vec<AskReason>, CallRefusal> {
        trail.revealed = Some(Arc::clone(vault));
        let asks = judge(&self.policies, view, &self.ledger, trail).await;
        trail.revealed = None;
        asks
    }
}

/// Returns the call as its source gets it, with values in place of placeholders. `None` if no placeholder stands for a
/// value that the source may have.
///
/// # Errors
/// [`CallRefusal::Denied`] if the values have no place in the parameters.
pub(super) fn revealed(call: &Arc<Call>, vault: &SessionVault) -> Result<Option<Arc<Call>>, CallRefusal> {
    let Some(arguments) = vault.restore(&call.arguments, call) else { return Ok(None) };
    let no_place = || CallRefusal::denied("arguments-ambiguous", "hidden values have no place in the parameters");
    let params = Params::parse(&call.method, call.params_with(&arguments).ok_or_else(no_place)?);
    Ok(Some(Arc::new(Call { arguments, params, ..Call::clone(call) })))
}
