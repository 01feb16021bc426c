//! Information flow: the facts that a plugin can query about the results that a session has seen, and about the results
//! that the arguments of a call came from.

use std::fmt;
use std::sync::Arc;

/// The label of a source that reaches a network, or that is on one: its results may hold what strangers write.
pub const UNTRUSTED: &str = "untrusted";

/// The label of a source that is granted files, secrets or an account: its results may hold what strangers must not
/// read.
pub const PRIVATE: &str = "private";

/// The label of a session that was shown text that reads like an instruction to a model, by the rules of the scanner.
/// It is the only label that follows from the content of a text, and it can only be added.
pub const INSTRUCTIONS: &str = "instructions";

/// A way in which a call can change or disclose something outside its source. It is derived from the source's cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The arguments can reach a network.
    Network,
    /// The call can change files or a store.
    Write,
}

impl Effect {
    /// All effects. Where nothing is known of a call, it can have all of them.
    pub const ALL: [Self; 2] = [Self::Network, Self::Write];

    /// Returns the word that plugins and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Write => "write",
        }
    }
}

/// An earlier result from which a value of a call's arguments came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The configured name of the source that gave the result.
    pub source: Arc<str>,
    /// The exposed name of the item whose call gave the result.
    pub exposed: Arc<str>,
    /// The identifier of that call.
    pub call: Arc<str>,
    /// The number of results since then: 1 for the one before this call.
    pub calls_ago: u32,
    /// The labels of the result.
    pub labels: Arc<[String]>,
    /// The place of the value in the arguments, as a JSON Pointer (RFC 6901). A long one is cut, and ends with `…`.
    pub pointer: String,
}

/// The information flow of one call, as plugins can ask for it.
pub trait CallFlow: fmt::Debug + Send + Sync {
    /// Returns the labels of the call's source.
    fn source_labels(&self) -> &[String];

    /// Returns the ways in which the call can have an effect outside its source. It is empty if the source's cell can
    /// neither write nor reach a network.
    fn effects(&self) -> &[Effect];

    /// Returns the labels of all results that the session saw before this call.
    fn labels(&self) -> &[String];

    /// Reports whether every labelled result that the session saw can be found in arguments, and no person has refused
    /// a call of the session. If not, the arguments must be treated as coming from everything that the session has
    /// seen.
    fn is_traced(&self) -> bool;

    /// Returns the earlier results from which values of the arguments came, the latest first. Those that are left out
    /// of a long list have no label that a listed one has not.
    fn origins(&self) -> Vec<Origin>;
}

/// The information flow of a call as facts that are written down, such as those of a test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedFlow {
    /// The labels of the call's source.
    pub source_labels: Vec<String>,
    /// The ways in which the call can have an effect outside its source.
    pub effects: Vec<Effect>,
    /// The labels of all results that the session saw before this call.
    pub labels: Vec<String>,
    /// True if every labelled result that the session saw can be found in arguments.
    pub traced: bool,
    /// The earlier results from which values of the arguments came.
    pub origins: Vec<Origin>,
}

impl StatedFlow {
    /// Returns the information flow of a call about which nothing is known: everything may have been seen, and the call
    /// can have every effect.
    #[must_use]
    pub fn unknown() -> Self {
        let labels = || vec![UNTRUSTED.to_owned(), PRIVATE.to_owned()];
        Self {
            source_labels: labels(),
            effects: Effect::ALL.to_vec(),
            labels: labels(),
            traced: false,
            origins: Vec::new(),
        }
    }
}

impl CallFlow for StatedFlow {
    fn source_labels(&self) -> &[String] {
        &self.source_labels
    }

    fn effects(&self) -> &[Effect] {
        &self.effects
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn is_traced(&self) -> bool {
        self.traced
    }

    fn origins(&self) -> Vec<Origin> {
        self.origins.clone()
    }
}
