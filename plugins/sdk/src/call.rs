//! One call, as a plugin sees it.

use crate::bindings::portcullis::plugin::calls;

/// The call that a plugin decides about. Each method asks the broker: keep a value that you need twice.
pub trait Call {
    /// Returns the broker's identifier of this call, as it appears in the ledger.
    fn id(&self) -> String;
    /// Returns when the broker received the call, in milliseconds since the Unix epoch.
    fn received_at(&self) -> u64;
    /// Returns where the call is on its way.
    fn phase(&self) -> Phase;
    /// Returns the MCP method, such as `tools/call`.
    fn method(&self) -> String;
    /// Returns the configured name of the source.
    fn source(&self) -> String;
    /// Returns the name of the tool or prompt, or the URI of the resource, as its source knows it. Empty for a method
    /// that concerns the source as a whole.
    fn tool(&self) -> String;
    /// Returns the name of the item as the agent sees it: `source__tool` unless configured otherwise.
    fn exposed_name(&self) -> String;
    /// Returns the arguments, a JSON object as text; `{}` in the list phase. Read it with [`crate::json::Json::parse`].
    fn arguments(&self) -> String;
    /// Returns what the source answered, as JSON text, such as an MCP `CallToolResult`. `None` before the result phase.
    fn outcome(&self) -> Option<String>;
    /// Reports whether the source marked the outcome as an error. False before the result phase.
    fn outcome_is_error(&self) -> bool;
    /// Returns the item's definition as JSON text, such as an MCP `Tool`.
    fn definition(&self) -> String;
    /// Returns the SHA-256 of the definition's canonical form, as `sha256:` and 64 hexadecimal digits.
    fn definition_digest(&self) -> String;
    /// Returns the source's hints about a tool, an MCP `ToolAnnotations` object as text. They are a claim, not a fact.
    fn annotations(&self) -> String;
    /// Returns the principal that calls: the name of a token's holder, or of the local user.
    fn principal(&self) -> String;
    /// Returns the profile under which the caller is served.
    fn profile(&self) -> String;
    /// Returns the identifier of the session.
    fn session(&self) -> String;
    /// Returns the name and version of the client program, as it gave them itself. Empty if it gave none.
    fn client(&self) -> String;
    /// Returns how far the profile is trusted.
    fn trust(&self) -> Trust;
    /// Returns what the call could do.
    fn risk(&self) -> Risk;
    /// Returns the tags that the configuration gives the source.
    fn tags(&self) -> Vec<String>;
}

/// The phase of a call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The source has not been reached yet.
    Call,
    /// The source has answered.
    Result,
    /// The item is about to be listed; there is no call yet.
    List,
    /// A phase that only a later broker knows. Judge it as strictly as [`Phase::Call`].
    Other,
}

/// The trust level of a profile, from the least to the most. A level that this version does not know is read as the
/// least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// The profile sees no source.
    Sandbox,
    /// The profile sees only what an allow list names.
    Low,
    /// The profile sees everything that the configuration does not exclude.
    Medium,
    /// Sees as much as [`Trust::Medium`]; policies may distinguish the two.
    High,
}

/// The risk of a call, by its possible effects. A value that this version does not know is read as risky.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// The source's cell can neither write nor reach the network.
    Harmless,
    /// Anything else.
    Risky,
}

impl Phase {
    fn of(word: &str) -> Self {
        match word {
            "call" => Self::Call,
            "result" => Self::Result,
            "list" => Self::List,
            _ => Self::Other,
        }
    }
}

impl Trust {
    fn of(word: &str) -> Self {
        match word {
            "high" => Self::High,
            "medium" => Self::Medium,
            "low" => Self::Low,
            _ => Self::Sandbox,
        }
    }
}

impl Risk {
    fn of(word: &str) -> Self {
        if word == "harmless" { Self::Harmless } else { Self::Risky }
    }
}

macro_rules! from_host {
    ($($method:ident -> $type:ty),* $(,)?) => {
        impl Call for calls::Call {
            $(fn $method(&self) -> $type { calls::Call::$method(self) })*

            fn phase(&self) -> Phase {
                Phase::of(&calls::Call::phase(self))
            }

            fn trust(&self) -> Trust {
                Trust::of(&calls::Call::trust(self))
            }

            fn risk(&self) -> Risk {
                Risk::of(&calls::Call::risk(self))
            }
        }
    };
}
from_host! {
    id -> String, received_at -> u64, method -> String, source -> String, tool -> String, exposed_name -> String,
    arguments -> String, outcome -> Option<String>, outcome_is_error -> bool, definition -> String,
    definition_digest -> String, annotations -> String, principal -> String, profile -> String, session -> String,
    client -> String, tags -> Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_the_most_dangerous_one() {
        assert_eq!((Trust::of("root"), Risk::of(""), Phase::of("stream")), (Trust::Sandbox, Risk::Risky, Phase::Other));
        assert_eq!(
            (Trust::of("high"), Risk::of("harmless"), Phase::of("list")),
            (Trust::High, Risk::Harmless, Phase::List)
        );
        assert!(Trust::Low < Trust::Medium && Risk::Harmless < Risk::Risky);
    }
}
