//! One call, as a plugin sees it.

use crate::bindings::portcullis::plugin::calls;

/// What a plugin may know of one call. Each method asks the broker: keep what you need twice.
pub trait Call {
    /// The broker's identifier of this call, as in the ledger.
    fn id(&self) -> String;
    /// When the broker received the call, in milliseconds since the Unix epoch.
    fn received_at(&self) -> u64;
    /// At which point of its way the call is.
    fn phase(&self) -> Phase;
    /// The MCP method, such as `tools/call`.
    fn method(&self) -> String;
    /// The configured name of the source.
    fn source(&self) -> String;
    /// The tool's name as its source knows it.
    fn tool(&self) -> String;
    /// The tool's name as the agent sees it.
    fn exposed_name(&self) -> String;
    /// The arguments, a JSON object as text; `{}` in the list phase. Read it with [`crate::json::Json::parse`].
    fn arguments(&self) -> String;
    /// What the source answered, an MCP `CallToolResult` as text; None before the result phase.
    fn outcome(&self) -> Option<String>;
    /// Whether the source says that the outcome is an error.
    fn outcome_is_error(&self) -> bool;
    /// The tool's definition, an MCP `Tool` as text.
    fn definition(&self) -> String;
    /// `sha256:` and 64 hexadecimal digits.
    fn definition_digest(&self) -> String;
    /// The source's hints, an MCP `ToolAnnotations` as text. A claim, not a fact.
    fn annotations(&self) -> String;
    /// Who is calling.
    fn principal(&self) -> String;
    /// The profile under which the caller is served.
    fn profile(&self) -> String;
    /// The session.
    fn session(&self) -> String;
    /// Name and version of the client program, as it says itself.
    fn client(&self) -> String;
    /// How far the profile is trusted.
    fn trust(&self) -> Trust;
    /// What the call could do.
    fn risk(&self) -> Risk;
    /// The source's tags.
    fn tags(&self) -> Vec<String>;
}

/// At which point of its way a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the source is reached.
    Call,
    /// When the source has answered.
    Result,
    /// When a tool is about to be shown.
    List,
    /// A point that a later broker knows. Judge it as strictly as [`Phase::Call`].
    Other,
}

/// How far a profile is trusted, least first. A word this version does not know is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Sees no source at all.
    Sandbox,
    /// Sees only what an allow list names.
    Low,
    /// Sees what is not narrowed.
    Medium,
    /// Like medium; policies may tell them apart.
    High,
}

/// What a call could do. A word this version does not know is risky.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// The cell can neither write nor reach the network.
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
