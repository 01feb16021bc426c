//! The answers of people to questions.

/// The answer of a person to a question.
///
/// # Example
/// ```
/// use portcullis::GivenAnswer;
/// let for_the_session = GivenAnswer::yes().scope("session");
/// let no = GivenAnswer::no();
/// # assert!(for_the_session.approve && !no.approve);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GivenAnswer {
    /// True if the answer is yes.
    pub approve: bool,
    /// The scope of a yes, one of [`Question::scopes`](super::Question::scopes). Absent, it is `once`; with an end, the
    /// widest offered scope that can have one.
    pub scope: Option<String>,
    /// The time at which a yes ends, in milliseconds since the Unix epoch, for the scopes `session` and `principal`.
    pub until: Option<u64>,
}

impl GivenAnswer {
    /// Returns a yes to this one call.
    #[must_use]
    pub fn yes() -> Self {
        Self { approve: true, scope: None, until: None }
    }

    /// Returns a no.
    #[must_use]
    pub fn no() -> Self {
        Self { approve: false, ..Self::yes() }
    }

    /// Gives a yes for more than this call: with one of the scopes that the question offers
    /// ([`Question::scopes`](super::Question::scopes)).
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        Self { scope: Some(scope.into()), ..self }
    }

    /// Ends a yes at this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn until(self, until: u64) -> Self {
        Self { until: Some(until), ..self }
    }
}

/// The way by which an answer arrives.
///
/// # Example
/// ```
/// # async fn refuse(inbox: &portcullis::Inbox, id: &str) -> Result<(), portcullis::error::InboxError> {
/// use portcullis::{AnswerRoute, GivenAnswer};
/// inbox.answer(id, &GivenAnswer::no(), "ada", AnswerRoute::Person).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerRoute {
    /// Over the agent's own connection (elicitation), where the agent could have written it. Such an answer cannot
    /// accept a tool for good, and is refused where only a person may answer.
    Agent,
    /// From a person whom the agent cannot stand in for: another terminal, a page, a program that embeds the broker.
    Person,
}

/// The result of answering a question.
///
/// # Example
/// ```
/// # fn show(result: &portcullis::AnswerResult) {
/// if !result.waited {
///     println!("nobody waits for {} any more: a yes counts for the next identical call", result.tool);
/// }
/// # }
/// ```
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AnswerResult {
    /// The question's full id.
    pub question: String,
    /// The tool it was about.
    pub tool: String,
    /// True if the answer is yes.
    pub approved: bool,
    /// The scope of the answer.
    pub scope: &'static str,
    /// The time at which the answer ends, in milliseconds since the Unix epoch, if the person chose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// True if a call was waiting for it. If not, a yes lets the next identical call pass, for 24 hours, and after a no
    /// that call asks again.
    pub waited: bool,
}
