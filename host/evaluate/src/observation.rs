//! The observation of a source that ran once, under one condition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portcullis_cell::RecordedAttempt;
use portcullis_core::protocol::Era;
use portcullis_core::protocol::revision::MODERN;
use portcullis_net::egress::SentMessage;
use serde_json::Value;

use crate::canary::Canary;

/// The condition under which a source runs. Everything else is the same each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// As an ordinary user, with canaries; each tool is called many times.
    Baseline,
    /// As another client, by the name that it gives.
    Client(&'static str),
    /// As a user of this locale, with another name.
    Locale(&'static str),
    /// With a clock that is two years ahead, where the runtime lets it be moved.
    LaterClock,
    /// With particular values of arguments.
    Values,
    /// Without canaries and without an internet, as a cell is by default.
    Bare,
    /// As a client of the modern revision, if the source speaks it.
    Modern,
}

impl Condition {
    /// All conditions, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::Baseline,
        Self::Client("claude-ai"),
        Self::Client("Visual Studio Code"),
        Self::Client("cursor-vscode"),
        Self::Locale("de_DE.UTF-8"),
        Self::Locale("zh_CN.UTF-8"),
        Self::LaterClock,
        Self::Values,
        Self::Bare,
        Self::Modern,
    ];

    /// Returns the condition in words, after "when".
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Baseline => "it ran as usual".to_owned(),
            Self::Client(name) => format!("the client was {name}"),
            Self::Locale(locale) => format!("the locale was {locale}"),
            Self::LaterClock => "the clock was two years ahead".to_owned(),
            Self::Values => "arguments had particular values".to_owned(),
            Self::Bare => "there was nothing to find and no internet".to_owned(),
            Self::Modern => format!("the client spoke revision {MODERN}"),
        }
    }

    /// Returns the name that the client gives.
    #[must_use]
    pub fn client(self) -> &'static str {
        match self {
            Self::Client(name) => name,
            _ => "mcp",
        }
    }

    /// Returns the era of the protocol that the client speaks first.
    #[must_use]
    pub fn era(self) -> Era {
        if self == Self::Modern { Era::Modern } else { Era::Legacy }
    }

    /// Returns the locale of the user.
    #[must_use]
    pub fn locale(self) -> &'static str {
        match self {
            Self::Locale(locale) => locale,
            _ => "en_US.UTF-8",
        }
    }

    /// Returns the name of the user.
    #[must_use]
    pub fn user(self) -> &'static str {
        match self {
            Self::Locale(_) => "mkovacs",
            _ => "alex",
        }
    }
}

/// The longest time between an attempt and its note. A call that names a secret is followed by a pause of this length,
/// so that no other call is blamed.
pub const SETTLE: Duration = Duration::from_millis(100);

/// A call that was made.
#[derive(Debug, Clone)]
pub struct ObservedCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The paths in them that the evaluation chose, and not the source by its schema.
    pub asked: Vec<PathBuf>,
    /// The result or error as JSON text, or why there is none. It may be cut.
    pub answer: String,
    /// True if there is no answer, or it is an error.
    pub failed: bool,
    /// The time at which the call was made, since the run began.
    pub began: Duration,
    /// The time that the call took.
    pub took: Duration,
}

/// A list of everything that a source offers.
#[derive(Debug, Clone)]
pub struct ObservedListing {
    /// The time at which the list was asked for, in words: `at first`, `after the calls`.
    pub when: &'static str,
    /// The definitions, each with its kind: `tool`, `prompt`, `resource`, `template`, `instructions`.
    pub definitions: Vec<(&'static str, Value)>,
}

/// A request or notification of a source: a message to its client other than an answer.
#[derive(Debug, Clone)]
pub struct ObservedMessage {
    /// The method.
    pub method: String,
    /// The parameters as JSON text, which is empty if there are none. It may be cut.
    pub params: String,
}

/// One run of a source.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Under which condition.
    pub condition: Condition,
    /// The time at which the source was started.
    pub began: Instant,
    /// The time that the run took.
    pub took: Duration,
    /// The reason why the source could not be observed to the end, if it could not.
    pub failure: Option<String>,
    /// The server's name and version, as it gives them.
    pub server: String,
    /// The lists of everything that the source offers, one for each time that it was asked.
    pub listings: Vec<ObservedListing>,
    /// The calls.
    pub calls: Vec<ObservedCall>,
    /// The number of planned calls of each tool that were not made, because the tool or the run took too long.
    pub skipped: BTreeMap<String, u64>,
    /// The requests and notifications of the source.
    pub messages: Vec<ObservedMessage>,
    /// The attempts of the source to use something: a file, a host, an address, a system call.
    pub attempts: Vec<RecordedAttempt>,
    /// The messages that the source sent into the false internet.
    pub sent: Vec<SentMessage>,
    /// The number of attempts, messages and answers that were not kept in full, because there were too many.
    pub missed: u64,
    /// The gaps in the observation, in words, each with its number of occurrences.
    pub unseen: BTreeMap<&'static str, u64>,
    /// The files that the source left in the false home, with their content.
    pub written: Vec<(PathBuf, Vec<u8>)>,
    /// The canaries of this run.
    pub canaries: Vec<Canary>,
    /// The user's home as the source knows it.
    pub home: PathBuf,
    /// The program that was started, and the files that it was started from: none of them is remarkable.
    pub programs: Vec<PathBuf>,
    /// True if the source read the file that moves its clock.
    pub clock_moved: bool,
}

impl Observation {
    /// Returns an observation that begins now, in which nothing was seen yet.
    #[must_use]
    pub fn begin(condition: Condition) -> Self {
        Self {
            condition,
            began: Instant::now(),
            took: Duration::ZERO,
            failure: None,
            server: String::new(),
            listings: Vec::new(),
            calls: Vec::new(),
            skipped: BTreeMap::new(),
            messages: Vec::new(),
            attempts: Vec::new(),
            sent: Vec::new(),
            missed: 0,
            unseen: BTreeMap::new(),
            written: Vec::new(),
            canaries: Vec::new(),
            home: PathBuf::new(),
            programs: Vec::new(),
            clock_moved: false,
        }
    }

    /// Returns what the source was doing at a time: starting, in a call, or nothing that was asked for.
    #[must_use]
    pub fn at(&self, since: Duration) -> String {
        // An attempt is noted a little after it was made.
        let call = self.calls.iter().enumerate().rfind(|(_, call)| call.began <= since);
        match call {
            None => "before any call".to_owned(),
            Some((at, call)) if since <= call.began + call.took => format!("in call {} ({})", at + 1, call.tool),
            Some((at, _)) if at + 1 == self.calls.len() => "after the last call, while it was idle".to_owned(),
            Some((at, call)) => format!("after call {} ({})", at + 1, call.tool),
        }
    }

    /// Reports whether any call asks for exactly this path.
    #[must_use]
    pub fn is_asked_for(&self, path: &Path) -> bool {
        self.calls.iter().any(|call| call.asks_for(path))
    }

    /// Reports whether a call that was answered at this time, or just before, asks for exactly this path.
    #[must_use]
    pub fn is_asked_for_at(&self, path: &Path, since: Duration) -> bool {
        self.calls_at(since).any(|call| call.asks_for(path))
    }

    /// Reports whether a call that was answered at this time, or just before, asks for this path or a folder above it.
    #[must_use]
    pub fn is_work_at(&self, path: &Path, since: Duration) -> bool {
        self.calls_at(since).any(|call| call.asked.iter().any(|asked| path.starts_with(asked)))
    }

    fn calls_at(&self, since: Duration) -> impl Iterator<Item = &ObservedCall> {
        self.calls.iter().filter(move |call| call.began <= since && since <= call.began + call.took + SETTLE)
    }
}

impl ObservedMessage {
    /// Returns the parameters as JSON, or as one text if they are cut.
    #[must_use]
    pub fn parsed_params(&self) -> Value {
        serde_json::from_str(&self.params).unwrap_or_else(|_| Value::String(self.params.clone()))
    }
}

/// The largest number of values in an answer that is taken apart. A longer one is one text.
const MAX_ANSWER_VALUES: usize = 100_000;

impl ObservedCall {
    /// Reports whether the call asks for exactly this path. A folder above it asks for nothing in particular.
    #[must_use]
    pub fn asks_for(&self, path: &Path) -> bool {
        self.asked.iter().any(|asked| asked == path)
    }

    /// Returns the answer as JSON, or as one text if it is cut or has very many values.
    #[must_use]
    pub fn parsed_answer(&self) -> Value {
        let values = self.answer.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        let parsed = (values <= MAX_ANSWER_VALUES).then(|| serde_json::from_str(&self.answer).ok()).flatten();
        parsed.unwrap_or_else(|| Value::String(self.answer.clone()))
    }
}
