//! The refusal of a call, in the words that the agent gets.

use serde_json::json;

use crate::ledger::LedgerError;
use crate::plugin::Denial;
use crate::protocol::{Answer, Json, RpcError};

/// The code of a call that a person refused.
const BY_PERSON: &str = "approval-refused";

/// The reason why a call is refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallRefusal {
    /// The call was denied.
    Denied {
        /// The code, for programs: lower case, with dashes.
        code: String,
        /// The message, for people.
        message: String,
        /// The kind of the denial.
        kind: DenialKind,
    },
    /// A person has not answered yet. The question stays open; the same call may be sent again.
    Pending {
        /// The question.
        question: String,
        /// Seconds until it expires.
        expires_in: u64,
    },
    /// The agent itself must put the question to a person (2026-07-28): this is the `InputRequiredResult`.
    InputRequired(Json),
    /// The call cannot be recorded, so it is not made.
    Ledger(String),
}

/// The kind of a denial. It is known where the call is denied and never read from the code, which a plugin may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialKind {
    /// The message is in words of the broker or of the operator's settings, and repeats no payload.
    Plain,
    /// The message may repeat something of the call or of its result, because a plugin wrote it or it names a key. The
    /// ledger keeps it the way it keeps the payload.
    MayQuote,
    /// A person refused the call.
    Person,
    /// The budget of the profile is spent.
    Budget,
}

/// The wording of a text that is recorded: whether it may repeat something of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wording {
    /// Words of the broker or of the operator's settings.
    Plain,
    /// Words that may repeat something of a call or of its result, because a plugin wrote them or they name a key.
    MayQuote,
}

impl DenialKind {
    /// Returns the wording of the message.
    pub(super) fn wording(self) -> Wording {
        if self == Self::MayQuote { Wording::MayQuote } else { Wording::Plain }
    }
}

impl CallRefusal {
    /// Makes a denial in the broker's own words, which repeat no payload.
    pub(crate) fn denied(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Denied { code: code.into(), message: message.into(), kind: DenialKind::Plain }
    }

    /// Makes the denial of a call that a person refused.
    pub(super) fn by_person() -> Self {
        let message = "a person refused it".to_owned();
        Self::Denied { code: BY_PERSON.to_owned(), message, kind: DenialKind::Person }
    }

    /// Reports whether a person refused the call.
    pub(super) fn is_by_person(&self) -> bool {
        matches!(self, Self::Denied { kind: DenialKind::Person, .. })
    }

    /// Makes a denial in words that may repeat something of the payload.
    pub(super) fn quoting(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Denied { code: code.into(), message: message.into(), kind: DenialKind::MayQuote }
    }

    /// Makes a refusal from a plugin's denial, whose words may repeat something of the payload.
    pub(super) fn by_plugin(denial: Denial) -> Self {
        Self::quoting(denial.code, denial.message)
    }

    /// Returns the refusal with the broker's own words in place of those that may repeat something of the payload.
    pub(super) fn without_quotes(self) -> Self {
        match self {
            Self::Denied { code, kind: DenialKind::MayQuote, .. } => {
                Self::denied(code, "a plugin withholds this; why is not shown, since it may quote what is hidden")
            }
            refusal => refusal,
        }
    }

    pub(super) fn from_ledger(error: LedgerError) -> Self {
        match error {
            LedgerError::GrantSpent(_) => {
                Self::denied("grant-spent", "the approval was used by another call meanwhile")
            }
            error => Self::Ledger(error.to_string()),
        }
    }

    /// Returns the answer for the agent. Details of a failing ledger stay in the operator's log.
    #[must_use]
    pub fn to_answer(&self) -> Answer {
        let error = match self {
            Self::InputRequired(result) => return Answer::Result(result.clone()),
            Self::Denied { code, message, .. } => {
                RpcError::new(RpcError::DENIED, message).with_data(json!({ "code": code }))
            }
            Self::Pending { question, expires_in } => RpcError::new(
                RpcError::PENDING,
                format!(
                    "waiting for a person: `portcullis approvals approve {question}` in a terminal, then send the same call again \
                     (the question expires in {expires_in} s)"
                ),
            )
            .with_data(json!({ "code": "approval-pending", "question": question, "expiresIn": expires_in, "retryable": true })),
            Self::Ledger(_) => RpcError::new(
                RpcError::INTERNAL,
                "the call cannot be recorded and is therefore not made; the operator's log has the cause",
            )
            .with_data(json!({ "code": "ledger-unavailable" })),
        };
        Answer::from(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_that_a_plugin_chooses_is_not_taken_for_the_broker_s_own() {
        for code in [BY_PERSON, "budget-spent"] {
            let refusal = CallRefusal::by_plugin(Denial::new(code, ""));
            assert!(!refusal.is_by_person(), "{code}");
            assert!(matches!(refusal, CallRefusal::Denied { kind: DenialKind::MayQuote, .. }), "{code}");
        }
        assert!(CallRefusal::by_person().is_by_person());
    }
}
