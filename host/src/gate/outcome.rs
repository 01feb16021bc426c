//! Judges what a source answers, and what the agent answers a source.

use std::sync::Arc;

use super::judge::{self, AskReason, DecisionTrail};
use super::{CallRefusal, Gate, SessionVault};
use crate::call::{Call, CallView, Phase};
use crate::plugin::{Transform, TransformDecision};
use crate::protocol::{Answer, Json};
use crate::provenance::TracedCall;

/// A call whose outcome is judged.
pub(super) struct JudgedCall<'a> {
    pub(super) call: &'a Arc<Call>,
    /// The call as its source gets it, if placeholders stand for values in its arguments.
    pub(super) revealed: Option<&'a Arc<Call>>,
    pub(super) vault: &'a Arc<SessionVault>,
    pub(super) flow: &'a Option<Arc<TracedCall>>,
}

/// The judgement of an outcome.
pub(super) struct JudgedOutcome {
    /// The outcome as transforms changed it; `None` where it stays byte for byte.
    pub(super) replaced: Option<Json>,
    /// The reason why the agent does not get it.
    pub(super) refusal: Option<CallRefusal>,
    /// True if the refusal's message may quote what a transform would have hidden from the agent.
    pub(super) may_quote_hidden: bool,
}

impl Gate {
    /// Lets policies and transforms decide what the agent gets of an outcome.
    pub(super) async fn pass_result(
        &self,
        judged: &JudgedCall<'_>,
        answer: &Answer,
        trail: &mut DecisionTrail,
    ) -> JudgedOutcome {
        let (outcome, failed) = match answer {
            Answer::Result(json) => (json, false),
            Answer::Error(json) => (json, true),
        };
        let view = judged.view(outcome, failed);
        if let Err(refusal) = self.judge_outcome(judged, &view, trail).await {
            let may_quote_hidden = self.transforms_of_results().next().is_some();
            return JudgedOutcome { replaced: None, refusal: Some(refusal), may_quote_hidden };
        }
        let mut replaced = None;
        let refusal = self.transform_result(judged, view, &mut replaced, trail).await.err();
        JudgedOutcome { replaced, refusal, may_quote_hidden: false }
    }

    fn transforms_of_results(&self) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(|transform| transform.on(Phase::Result))
    }

    async fn transform_result(
        &self,
        judged: &JudgedCall<'_>,
        mut view: CallView,
        replaced: &mut Option<Json>,
        trail: &mut DecisionTrail,
    ) -> Result<(), CallRefusal> {
        for transform in self.transforms_of_results() {
            let keeper = judged.vault.keeper(judged.call.source());
            match judge::rewrite(transform, &view, keeper, &self.ledger, trail).await? {
                TransformDecision::Keep => {}
                TransformDecision::Replace(json) => {
                    view.outcome = Some(json.clone());
                    *replaced = Some(json);
                }
                TransformDecision::Refuse(denial) => return Err(CallRefusal::by_plugin(denial)),
            }
        }
        if replaced.is_some() {
            self.judge_outcome(judged, &view, trail).await?;
        }
        Ok(())
    }

    /// Asks the policies about an outcome, which can pass or be withheld. It cannot wait for a person: the source has
    /// acted, and holding the call open would only make the agent try again.
    async fn judge_outcome(
        &self,
        judged: &JudgedCall<'_>,
        view: &CallView,
        trail: &mut DecisionTrail,
    ) -> Result<(), CallRefusal> {
        without_doubts(&judge::judge(&self.policies, view, &self.ledger, trail).await?)?;
        if let Some(revealed) = judged.revealed {
            without_doubts(&self.judge_revealed(&view.of_form(revealed), judged.vault, trail).await?)?;
        }
        Ok(())
    }

    /// Returns the agent's answer to its source with values in place of placeholders, if the source may have any. The
    /// policies judge it with them too.
    pub(super) async fn restore_answer(
        &self,
        judged: &JudgedCall<'_>,
        answer: &Answer,
        given: &Json,
        trail: &mut DecisionTrail,
    ) -> Result<Option<Json>, CallRefusal> {
        let Some(restored) = judged.vault.restore(given, judged.call) else { return Ok(None) };
        let view = judged.view(&restored, matches!(answer, Answer::Error(_)));
        without_doubts(&self.judge_revealed(&view, judged.vault, trail).await?)?;
        Ok(Some(restored))
    }
}

impl JudgedCall<'_> {
    fn view(&self, outcome: &Json, failed: bool) -> CallView {
        let view = CallView::before(self.call, Phase::Result).with_outcome(outcome.clone(), failed);
        view.with_flow(super::as_facts(self.flow))
    }
}

/// Refuses an outcome about which a policy asks.
fn without_doubts(reasons: &[AskReason]) -> Result<(), CallRefusal> {
    let Some(reason) = reasons.first() else { return Ok(()) };
    let text = format!("a policy has doubts about the result: {}", reason.concern.message);
    Err(CallRefusal::quoting("result-asked", text))
}
