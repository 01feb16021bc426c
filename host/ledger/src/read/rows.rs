//! Calls and runs as their records show them.

use super::PositionedRecord;

/// The progress of a call: how far it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallState {
    /// The gate is deciding; a person may have been asked. The source has seen nothing.
    Waiting,
    /// The agent was told to send the call again once a person has answered. The source has seen nothing.
    Deferred,
    /// The broker ended while the gate was deciding. The source has seen nothing.
    Abandoned,
    /// The call was sent to the source, and its broker lives.
    Running,
    /// The source answered, and the agent got the answer.
    Done,
    /// The gate refused the call, or refused to release its result.
    Denied,
    /// The call was sent, or may have been, and it is not known what the source did.
    Unknown,
}

/// A call, derived from its records.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CallRow {
    /// The call's identifier.
    pub call: String,
    /// The call's session.
    pub run: Option<String>,
    /// The chain of the broker that handled the call.
    pub chain: String,
    /// The progress of the call.
    pub state: CallState,
    /// The time at which the call began, in milliseconds since the Unix epoch.
    pub started: u64,
    /// The time at which the call ended, in milliseconds since the Unix epoch; `None` if no end was recorded.
    pub ended: Option<u64>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The run is open, and its broker lives.
    Running,
    /// The run ended without an error.
    Completed,
    /// The run ended with an error.
    Error,
    /// The broker ended without ending the run.
    Unknown,
}

/// A run (one session), derived from its records.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RunRow {
    /// The run's identifier.
    pub run: String,
    /// The chain of the run's broker.
    pub chain: String,
    /// The state of the run.
    pub state: RunState,
    /// The error that ended the run.
    pub error: Option<String>,
    /// The principal who opened the run.
    pub principal: Option<String>,
    /// The profile under which the run was opened.
    pub profile: Option<String>,
    /// The number of calls that the run has made.
    pub calls: u64,
    /// The time at which the run began, in milliseconds since the Unix epoch.
    pub started: u64,
    /// The time at which the run ended, in milliseconds since the Unix epoch; `None` if no end was recorded.
    pub ended: Option<u64>,
}

/// A call or a run with its records.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum CallOrRun {
    /// A call and its records.
    Call {
        /// The call's summary.
        row: CallRow,
        /// The call's records.
        records: Vec<PositionedRecord>,
    },
    /// A run and its records.
    Run {
        /// The run's summary.
        row: RunRow,
        /// The run's records.
        records: Vec<PositionedRecord>,
    },
}
