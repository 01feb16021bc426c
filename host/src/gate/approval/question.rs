//! The call that a person is asked about, and the question made from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::Question;
use super::super::inbox::{AcceptableTool, QuestionArguments, QuestionTerms, ScopeChoice, offered};
use super::super::judge::AskReason;
use crate::call::Call;
use crate::config::Detail;
use crate::digest::Digest;
use crate::flow::CallFlow;
use crate::item::title_of;
use crate::ledger::{GrantBinding, Ledger};
use crate::plugin::{Concern, Offer};

/// A call that needs a person.
pub(in crate::gate) struct ApprovalQuestion<'a> {
    pub(in crate::gate) call: &'a Arc<Call>,
    /// The information flow of the call, if a plugin can ask for it.
    pub(in crate::gate) flow: Option<Arc<dyn CallFlow>>,
    pub(in crate::gate) reasons: Vec<AskReason>,
    pub(in crate::gate) arguments_digest: Digest,
    pub(in crate::gate) identity: Digest,
    pub(in crate::gate) out_of_band: bool,
    /// True if an entry in the lock file would be enough to make the question needless.
    pub(in crate::gate) lock_settles: bool,
    /// The amount of detail that the ledger keeps of plugins' messages.
    pub(in crate::gate) record: Detail,
}

impl ApprovalQuestion<'_> {
    /// Returns the reasons as a person reads them.
    fn texts(&self) -> Vec<String> {
        self.reasons.iter().map(|reason| reason.concern.message.clone()).collect()
    }

    /// Returns the bytes that are kept for as long as the question is open: those of its arguments and of its reasons.
    pub(super) fn bytes(&self) -> usize {
        let reasons: usize = self.reasons.iter().map(|reason| reason.concern.message.len()).sum();
        self.call.arguments.as_bytes().len() + reasons
    }

    /// Returns the reasons as an approval plugin reads them.
    pub(super) fn concerns(&self) -> Vec<Concern> {
        self.reasons.iter().map(|reason| reason.concern.clone()).collect()
    }

    /// Returns the digests of the reasons, by which an answer is bound to them.
    pub(super) fn reason_digests(&self) -> BTreeSet<Digest> {
        self.reasons.iter().map(|reason| reason.digest).collect()
    }

    /// Returns the question that is put to a person, and its reasons as the ledger keeps them. Its arguments are
    /// copied, so that it keeps nothing else of the agent's message.
    pub(super) fn draft(
        &self,
        ledger: &Ledger,
        timeout: Duration,
        binding: GrantBinding,
        offer: Offer,
        acceptable: Option<AcceptableTool>,
    ) -> (QuestionTerms, Vec<serde_json::Value>) {
        let call = self.call;
        let scopes = offered(&offer).into_iter().chain(acceptable.is_some().then_some(ScopeChoice::Always));
        let summary = Question {
            id: ulid::Ulid::generate().to_string(),
            method: call.method.to_string(),
            tool: call.item.exposed.to_string(),
            source: call.source().to_string(),
            name: call.item.name.to_string(),
            recorded_tool: call.item.recorded_exposed().into_owned(),
            title: title_of(&call.item.definition),
            hints: call.item.hints.words().collect(),
            principal: call.caller.principal.to_string(),
            profile: call.caller.profile.to_string(),
            client: call.caller.client.to_string(),
            reasons: self.texts(),
            // The part to show is made from their text on request.
            arguments: serde_json::Value::Null,
            arguments_bytes: call.arguments.as_bytes().len(),
            cut: false,
            may_do_harm: call.item.hints.may_do_harm(),
            scopes: scopes.map(ScopeChoice::as_str).collect(),
            // Both change as long as the question is open, so that it is asked for them.
            waiting: 0,
            expires_in: 0,
        };
        let recorded = self.reasons.iter().map(|reason| reason.recorded(ledger, self.record)).collect();
        let terms = QuestionTerms {
            summary,
            arguments: QuestionArguments::of(&call.arguments),
            binding,
            offer,
            acceptable,
            out_of_band: self.out_of_band,
            call: call.id.clone(),
            expires: Instant::now() + timeout,
            ledger: ledger.clone(),
        };
        (terms, recorded)
    }
}
