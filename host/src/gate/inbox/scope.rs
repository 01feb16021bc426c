//! The scopes of answers: the calls that a yes counts for.

use std::str::FromStr;

use crate::plugin::AnswerScope;

/// A scope that a person can choose for a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeChoice {
    /// A scope that approval plugins offer.
    Offered(AnswerScope),
    /// The widest offered scope that counts for more than one call, for an hour.
    Hour,
    /// Always, until the tool's definition or its source changes.
    Always,
}

/// The error for a word that is no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an answer has no such scope")]
pub struct UnknownScope;

impl ScopeChoice {
    const ALL: [Self; 6] = [
        Self::Offered(AnswerScope::Once),
        Self::Offered(AnswerScope::Arguments),
        Self::Offered(AnswerScope::Session),
        Self::Offered(AnswerScope::Principal),
        Self::Hour,
        Self::Always,
    ];

    /// Returns the word that messages, answers and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offered(scope) => scope.as_str(),
            Self::Hour => "hour",
            Self::Always => "always",
        }
    }

    /// Returns the words for a yes with this scope, as a person chooses it among those that are offered.
    #[must_use]
    pub fn in_words(self, offered: &[Self]) -> &'static str {
        match self {
            Self::Offered(AnswerScope::Once) => "Yes, this once",
            Self::Offered(AnswerScope::Arguments) => "Yes, and once more with exactly these arguments",
            Self::Offered(AnswerScope::Session) => "Yes, and this tool for the rest of this session",
            Self::Offered(AnswerScope::Principal) => "Yes, and this tool until the answer expires",
            Self::Hour if offered.contains(&Self::Offered(AnswerScope::Principal)) => "Yes, and this tool for one hour",
            Self::Hour => "Yes, and this tool for one hour of this session",
            Self::Always => "Yes, always: accept this tool until it changes",
        }
    }
}

impl FromStr for ScopeChoice {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == word).ok_or(UnknownScope)
    }
}

/// The scope of a yes that counts. Of the choices, `hour` is one of the offered scopes with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum GivenScope {
    /// A scope that approval plugins offer.
    Offered(AnswerScope),
    /// Always, until the tool's definition or its source changes.
    Always,
}

impl GivenScope {
    pub(in crate::gate) fn as_str(self) -> &'static str {
        match self {
            Self::Offered(scope) => ScopeChoice::Offered(scope).as_str(),
            Self::Always => ScopeChoice::Always.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_reads_back_and_other_words_are_refused() {
        for choice in ScopeChoice::ALL {
            assert_eq!(choice.as_str().parse(), Ok(choice));
        }
        assert_eq!("Once".parse::<ScopeChoice>(), Err(UnknownScope));
    }
}
