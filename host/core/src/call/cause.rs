//! The cause of a failure at a source: in the broker's own words, and separately in those of the source.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The source's own words: a line of its standard error, a part of a body, the text of an error. They may repeat
/// arguments or results, so only the agent and the operator may read them. The type has no `Display`; only a [`Cause`]
/// shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceWords(String);

impl SourceWords {
    /// Wraps the words of a source.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for SourceWords {
    // Payloads must not reach logs by way of `{:?}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceWords({} bytes)", self.0.len())
    }
}

/// The cause of a failure at a source. Its `Display` is the whole text, for the agent and the operator;
/// [`Cause::recorded`] is the text for the ledger, without the source's own words.
#[derive(Debug, Clone)]
pub struct Cause {
    parts: Vec<Part>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Own(Cow<'static, str>),
    /// The source's words, with words of the broker's that are left out together with them.
    Said {
        before: &'static str,
        words: SourceWords,
        after: &'static str,
    },
    /// The source's words for people, and the broker's in their place for the ledger.
    Instead {
        own: Cow<'static, str>,
        words: SourceWords,
    },
}

impl Cause {
    /// Makes a cause in the broker's own words, which repeat no words of a source.
    #[doc(hidden)]
    #[must_use]
    pub fn own(text: impl Into<Cow<'static, str>>) -> Self {
        Self { parts: vec![Part::Own(text.into())], source: None }
    }

    /// Makes a cause from one of the broker's own errors, whose text repeats no words of a source. The error is kept as
    /// the source of this one.
    #[doc(hidden)]
    #[must_use]
    pub fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self::own(error.to_string()).because_of(error)
    }

    /// Appends words of the broker's own.
    #[doc(hidden)]
    #[must_use]
    pub fn then(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.parts.push(Part::Own(text.into()));
        self
    }

    /// Appends text from the source, with the broker's own text before and after it.
    #[doc(hidden)]
    #[must_use]
    pub fn said(mut self, before: &'static str, words: impl Into<String>, after: &'static str) -> Self {
        self.parts.push(Part::Said { before, words: SourceWords::new(words), after });
        self
    }

    /// Replaces the text that people read with the source's words; the ledger keeps the broker's words.
    #[doc(hidden)]
    #[must_use]
    pub fn replace_with_source_words(mut self, words: impl Into<String>) -> Self {
        let own = self.recorded();
        self.parts = vec![Part::Instead { own: own.into(), words: SourceWords::new(words) }];
        self
    }

    /// Puts words of the broker's own in front, such as a label.
    #[doc(hidden)]
    #[must_use]
    pub fn under(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.parts.insert(0, Part::Own(label.into()));
        self
    }

    /// Keeps an error as the source of this one.
    #[doc(hidden)]
    #[must_use]
    pub fn because_of(self, error: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(error)), ..self }
    }

    /// Returns the text for the ledger: only the broker's own words.
    #[must_use]
    pub fn recorded(&self) -> String {
        let own = self.parts.iter().filter_map(|part| match part {
            Part::Own(text) | Part::Instead { own: text, .. } => Some(&**text),
            Part::Said { .. } => None,
        });
        own.collect()
    }

    /// Reports whether the whole text contains this one.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn contains(&self, text: &str) -> bool {
        self.to_string().contains(text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Own(text) => f.write_str(text),
            Part::Instead { words, .. } => f.write_str(&words.0),
            Part::Said { before, words, after } => write!(f, "{before}{}{after}", words.0),
        })
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Cause {}

/// Texts that are written in this program. Any other text goes through [`Cause::own`] or [`Cause::said`].
impl From<&'static str> for Cause {
    fn from(text: &'static str) -> Self {
        Self::own(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_is_for_people_and_what_the_source_said_is_not_for_the_ledger() {
        let cause = Cause::own("`x; it wrote this` exited").said("; its last words: ", "ann@example.com", "");
        let cause = cause.then("; 3 attempts failed").under("source `x`: ");
        assert_eq!(
            cause.to_string(),
            "source `x`: `x; it wrote this` exited; its last words: ann@example.com; 3 attempts failed"
        );
        assert_eq!(cause.recorded(), "source `x`: `x; it wrote this` exited; 3 attempts failed");
        assert!(!format!("{cause:?}").contains("ann@"), "{cause:?}");
    }

    #[test]
    fn the_error_behind_a_cause_is_kept() {
        let cause = Cause::of(std::io::Error::other("no such file"));
        assert_eq!(cause.to_string(), "no such file");
        assert_eq!(cause.source().map(ToString::to_string).as_deref(), Some("no such file"));
    }
}
