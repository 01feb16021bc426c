//! The decisions of plugins, and the facts that they get for them.

use portcullis_core::limits::CODE_BYTES;
use portcullis_core::protocol::Json;

use super::error::{FailureCode, PluginFailure};

/// The decision of a policy about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The policy has no objection.
    Pass,
    /// A person must agree, for this reason.
    Ask(Concern),
    /// The call is refused.
    Deny(Denial),
}

impl Verdict {
    /// Asks a person, with a code for machines and a message for the person. A code is one to 64 of the characters `a`
    /// to `z`, `0` to `9` and `-`; with any other the policy counts as failed, and the call is denied with the code
    /// `plugin-output`.
    #[must_use]
    pub fn ask(code: &str, message: impl Into<String>) -> Self {
        Self::Ask(Concern::new(code, message))
    }

    /// Denies the call, with a code for machines and a message for people. A code is one to 64 of the characters `a` to
    /// `z`, `0` to `9` and `-`; with any other the policy counts as failed, and the call is denied with the code
    /// `plugin-output`.
    #[must_use]
    pub fn deny(code: &str, message: impl Into<String>) -> Self {
        Self::Deny(Denial::new(code, message))
    }

    /// Returns the verdict if its code is one that programs can rely on.
    pub(super) fn checked(self) -> Result<Self, PluginFailure> {
        if let Self::Ask(Concern { code, .. }) | Self::Deny(Denial { code, .. }) = &self {
            check_code(code)?;
        }
        Ok(self)
    }
}

/// The reason why a policy wants a person to agree to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Concern {
    /// The code, for machines: up to 64 lower-case letters, digits and dashes.
    pub code: String,
    /// The message, for the person who is asked.
    pub message: String,
}

impl Concern {
    /// Creates a concern. See [`Verdict::ask`] for what a code may be.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// The reason why a plugin refuses a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// The code, for machines: up to 64 lower-case letters, digits and dashes.
    pub code: String,
    /// The message, for people.
    pub message: String,
}

impl Denial {
    /// Creates a denial. See [`Verdict::deny`] for what a code may be.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }

    /// Returns the denial if its code is one that programs can rely on.
    pub(super) fn checked(self) -> Result<Self, PluginFailure> {
        check_code(&self.code).map(|()| self)
    }
}

fn check_code(code: &str) -> Result<(), PluginFailure> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if code.is_empty() || code.len() > CODE_BYTES || !code.bytes().all(plain) {
        let code: String = code.chars().take(CODE_BYTES).collect();
        let detail = format!("its code {code:?} is not one to {CODE_BYTES} of the characters `[a-z0-9-]`");
        return Err(PluginFailure::new(FailureCode::Output, detail));
    }
    Ok(())
}

/// The decision of a transform about the arguments or the outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransformDecision {
    /// The value stays unchanged, byte for byte.
    Keep,
    /// They become this object.
    Replace(Json),
    /// The call ends here.
    Refuse(Denial),
}

/// A store of values that the agent must not see, for as long as a session lives.
pub trait Vault: Send + Sync {
    /// Keeps `value` and returns its placeholder, which is the same for the same value and kind from the same source.
    /// `restore_to` lists globs over exposed tool names; if it is empty, the value returns only to the source whose call
    /// or result contained it. Must not block, because a guest waits for it.
    fn protect(&self, kind: &str, value: &str, restore_to: Vec<String>) -> String;
}

/// The facts about an ask that an approval plugin gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskFacts {
    /// The reasons to ask: one for each policy that asks, and one if the call's risk requires it.
    pub reasons: Vec<Concern>,
    /// The earlier answers that would cover the call.
    pub grants: Vec<GrantFacts>,
    /// True if the tool may be destructive or may reach an open world.
    pub grave: bool,
}

/// An earlier answer that would cover a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFacts {
    /// The grant's identifier.
    pub id: String,
    /// The scope of the answer.
    pub scope: AnswerScope,
    /// The seconds since a person gave the answer.
    pub age: u32,
}

/// The way in which an approval plugin wants an approval to be settled. The gate may allow fewer scopes, a shorter time
/// or fewer uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// A person is asked, and may give one of these answers.
    Question(Offer),
    /// Uses the earlier answer with this id.
    Remembered(String),
    /// Refuses the call without asking.
    Refuse(Denial),
}

/// The answers that a person may choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The scopes as the plugin listed them; may contain duplicates.
    pub scopes: Vec<AnswerScope>,
    /// The time for which a remembered answer is valid, in seconds.
    pub valid_for: u32,
    /// The number of times that a remembered answer may be used; 0 means without limit.
    pub uses: u32,
}

/// The scope of an answer: the calls that it counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerScope {
    /// This call only.
    Once,
    /// One later call with the same arguments.
    Arguments,
    /// Calls of the tool in this session.
    Session,
    /// Calls of the tool by this principal.
    Principal,
}

impl AnswerScope {
    /// Returns the word that messages, answers and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Arguments => "arguments",
            Self::Session => "session",
            Self::Principal => "principal",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_error_of_a_code_says_what_a_code_is() {
        assert!(Verdict::deny("off-duty-2", "no").checked().is_ok());
        for code in ["", "Off Duty", &"a".repeat(CODE_BYTES + 1)] {
            let refused = Verdict::ask(code, "really?").checked().unwrap_err();
            assert_eq!(refused.code, FailureCode::Output);
            assert!(refused.detail.ends_with("is not one to 64 of the characters `[a-z0-9-]`"), "{}", refused.detail);
        }
    }
}
