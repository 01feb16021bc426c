//! Errors of the inbox: an answer that was not accepted, or a question that could not be opened.

use std::sync::Arc;

use crate::ledger::LedgerError;
use crate::lockfile::LockError;

/// An error that says why an answer was not taken, or a question not opened.
///
/// # Example
/// ```
/// # fn show(error: portcullis::error::InboxError) {
/// use portcullis::error::InboxError;
/// match error {
///     InboxError::Unknown(id) => eprintln!("{id} was answered, or has expired"),
///     InboxError::Scope { offered, .. } => eprintln!("choose one of {offered}"),
///     error => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// No open question has that id.
    #[error("no open question {0:?}: it was answered, has expired, or never existed (see `portcullis approvals list`)")]
    Unknown(String),
    /// The prefix fits several questions.
    #[error("{0:?} matches several open questions: give a longer part of the id")]
    Ambiguous(String),
    /// The scope of the answer is not offered for this question.
    #[error("scope {scope:?} is not offered for this question: choose one of {offered}")]
    Scope {
        /// The scope that was asked for.
        scope: String,
        /// The scopes that are offered.
        offered: String,
    },
    /// The answer cannot end at the time that was given.
    #[error("this end of the answer is not possible: {0}")]
    End(String),
    /// This question may not be answered over the agent's own channel.
    #[error(
        "this question can only be answered with `portcullis approvals`: its tool changed since it was accepted, or is one \
         that its source calls destructive or open to the world"
    )]
    OutOfBand,
    /// The answer does not name the person who gives it.
    #[error("an answer needs a name of who gives it, which the ledger records: give a name")]
    Nameless,
    /// The name of the person is a word by which the broker names itself in the ledger.
    #[error("an answer cannot be given by {0:?}, which stands for the broker itself in the ledger: give another name")]
    Reserved(String),
    /// A question was not opened, because too many are open or their arguments are too large. The text names the limit
    /// that is reached, and what to do.
    #[error("{0}")]
    Full(String),
    /// The answer could not be recorded.
    #[error("the answer could not be recorded: {0}")]
    Ledger(String),
    /// The tool could not be accepted into the lock file.
    #[error("the tool could not be accepted: {0}")]
    Lock(#[from] Arc<LockError>),
}

impl From<LedgerError> for InboxError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error.to_string())
    }
}
