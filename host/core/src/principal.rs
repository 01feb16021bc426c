//! The identity of a caller.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use crate::escape::is_hidden;

/// The longest principal, in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 256;

/// The principals that the fronts and the command line give: these words, or these followed by a colon and a name.
const RESERVED: [&str; 8] = ["local", "token", "jwt", "cli", "anonymous", "demo", "evaluate", "learn"];

/// The identity of a caller. Its permissions follow from its profile, and people's answers for it count for all of its
/// sessions.
///
/// Fronts use `local` (the user who started the broker), `token`, `token:NAME` and `jwt:SUBJECT`. A program that embeds
/// the broker makes its own from text: 1 to 256 bytes without hidden characters, other than the above, and not `cli`,
/// `anonymous`, `demo`, `evaluate` or `learn`, also not before a colon. [`Principal::local`] is for programs that act
/// for the user who started them, and has that user's answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

/// An error that tells why a text is not a principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// The text is empty.
    #[error("a principal must not be empty")]
    Empty,
    /// The text is longer than [`MAX_PRINCIPAL_BYTES`].
    #[error("a principal of {0} bytes is longer than {MAX_PRINCIPAL_BYTES}")]
    TooLong(usize),
    /// The text has a control character, or one that cannot be seen.
    #[error("principal {0:?} must not have control characters or others that cannot be seen")]
    Characters(String),
    /// The principal is one that fronts give.
    #[error("principal {0:?} is one that the fronts give; put a word of your own before it, such as `user:{0}`")]
    Reserved(String),
}

impl Principal {
    /// Returns the local user, who started the program, as the stdio front names it.
    #[must_use]
    pub fn local() -> Self {
        Self::established("local")
    }

    /// Returns the principal that a front or the command line has established.
    #[doc(hidden)]
    #[must_use]
    pub fn established(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the principal as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let first = text.split(':').next().unwrap_or_default();
        match text {
            "" => Err(PrincipalError::Empty),
            _ if text.len() > MAX_PRINCIPAL_BYTES => Err(PrincipalError::TooLong(text.len())),
            _ if text.contains(is_hidden) => Err(PrincipalError::Characters(text.to_owned())),
            _ if RESERVED.contains(&first) => Err(PrincipalError::Reserved(text.to_owned())),
            _ => Ok(Self(text.into())),
        }
    }
}

impl Deref for Principal {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_pass_for_a_caller_of_a_front() {
        for front in ["local", "token", "token:ada", "jwt:ada", "cli", "anonymous", "local:"] {
            assert_eq!(front.parse::<Principal>(), Err(PrincipalError::Reserved(front.to_owned())), "{front}");
        }
        for own in ["ada", "user:token", "tokens", "lokal", "Zoë Ångström", "ada@example.com"] {
            assert_eq!(own.parse::<Principal>().map(|principal| principal.to_string()), Ok(own.to_owned()));
        }
    }

    #[test]
    fn a_principal_fits_into_a_record_and_on_a_line() {
        assert_eq!("".parse::<Principal>(), Err(PrincipalError::Empty));
        assert_eq!("a\nb".parse::<Principal>(), Err(PrincipalError::Characters("a\nb".to_owned())));
        assert_eq!("ada\u{200b}".parse::<Principal>(), Err(PrincipalError::Characters("ada\u{200b}".to_owned())));
        let long = "x".repeat(MAX_PRINCIPAL_BYTES + 1);
        assert_eq!(long.parse::<Principal>(), Err(PrincipalError::TooLong(long.len())));
        assert!("x".repeat(MAX_PRINCIPAL_BYTES).parse::<Principal>().is_ok());
    }
}
