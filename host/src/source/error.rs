//! The errors of sources.

use std::time::Duration;

use crate::call::{Cause, Delivery};

/// An error that says why a source cannot be used. The text names the source's command, URL or file, what happened, and
/// the way out.
///
/// # Example
/// ```
/// # fn show(error: portcullis::SourceError) {
/// use portcullis::SourceError;
/// match error {
///     SourceError::Timeout { seconds, .. } => eprintln!("it has not answered for {seconds} s"),
///     error => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It could not be started or reached.
    #[error(transparent)]
    Start(Cause),
    /// It did not answer in time.
    #[error("no answer to `{method}` within {seconds} s")]
    Timeout {
        /// The method that went unanswered, of the protocol or of HTTP.
        method: String,
        /// The deadline.
        seconds: u64,
    },
    /// It sent something that violates the protocol.
    #[error(transparent)]
    Protocol(Cause),
    /// It ended, or the connection broke.
    #[error(transparent)]
    Closed(Cause),
}

impl From<SourceError> for Delivery {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Timeout { .. } => Self::Unknown(error.into_cause()),
            _ => Self::NotSent(error.into_cause()),
        }
    }
}

impl SourceError {
    /// Returns the cause, without its meaning for the source.
    #[must_use]
    #[doc(hidden)]
    pub fn into_cause(self) -> Cause {
        match self {
            Self::Start(cause) | Self::Protocol(cause) | Self::Closed(cause) => cause,
            // All of it is the broker's own.
            Self::Timeout { .. } => Cause::own(self.to_string()),
        }
    }

    /// Returns the text for the ledger: without the source's own words.
    pub(crate) fn recorded(&self) -> String {
        match self {
            Self::Start(cause) | Self::Protocol(cause) | Self::Closed(cause) => cause.recorded(),
            Self::Timeout { .. } => self.to_string(),
        }
    }

    /// Appends what the source's own words led to.
    #[cfg(feature = "process")]
    pub(crate) fn said(self, before: &'static str, words: String) -> Self {
        let add = |cause: Cause| cause.said(before, words, "");
        match self {
            Self::Start(cause) => Self::Start(add(cause)),
            Self::Protocol(cause) => Self::Protocol(add(cause)),
            Self::Closed(cause) => Self::Closed(add(cause)),
            timeout @ Self::Timeout { .. } => timeout,
        }
    }

    /// Returns the error of a source that failed `attempts` times in a row and is left alone for another `wait`.
    pub(crate) fn paused_after(self, attempts: u32, wait: Duration) -> Self {
        let seconds = wait.as_secs().max(1);
        Self::Closed(
            self.into_cause()
                .then(format!("; {attempts} attempts to reconnect have failed, and the next is made in {seconds} s")),
        )
    }
}
