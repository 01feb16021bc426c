//! Sources that are programs, which the broker speaks to over their standard streams.
//!
//! A program runs in a cell: its environment consists of the broker's four variables and the listed ones, its
//! descriptors are the three standard streams, it sees only granted files, and it reaches only granted hosts on the
//! network. Everything in the cell ends with it.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::mcp_connection::{HandshakeDeadlines, McpConnection, McpConnectionConfig};
use super::pipe::{Pipe, PipeConfig, escape};
use super::supervised::{Connector, SupervisedSource, SupervisionConfig};
use super::transport::Transport;
use super::{Discovery, GivenValues, SourceError, log_file};
use crate::call::Cause;
use crate::cell::{CellStartError, ProcessCell};
use crate::config::{Endpoint, SourceConfig, secret_arguments};
use running::RunningCell;

mod running;

/// The largest number of characters of the command that messages show.
const SHOWN_CHARS: usize = 120;

/// A source with a `command`. Dropping it kills everything in its cell.
pub(crate) type ProcessSource = SupervisedSource<ProcessProgram>;

/// The program of a source, and how it is started.
pub(crate) struct ProcessProgram {
    argv: Vec<String>,
    /// The variables that it is given.
    given: GivenValues,
    process_cell: Arc<ProcessCell>,
    /// The largest message, in bytes.
    limit: usize,
}

impl ProcessSource {
    /// Describes the source; opens nothing. `given` are the listed variables, which are all that the program sees
    /// besides PATH, HOME, LANG and TMPDIR. Standard error goes to `data_dir/logs/NAME.log`.
    ///
    /// # Errors
    /// [`SourceError::Start`] if the configuration describes no program.
    pub(crate) fn new(
        config: &SourceConfig,
        process_cell: Arc<ProcessCell>,
        given: GivenValues,
    ) -> Result<Self, SourceError> {
        let Endpoint::Command { argv, .. } = &config.endpoint else {
            return Err(SourceError::Start(Cause::own(format!("source `{}` has no `command`", config.name))));
        };
        let supervision = SupervisionConfig::of(config, process_cell.cells.recorder());
        let program = ProcessProgram { argv: argv.clone(), given, process_cell, limit: config.max_message };
        Ok(Self::of(supervision, program))
    }
}

#[async_trait]
impl Connector for ProcessProgram {
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let began = Instant::now();
        let (env, secrets) = self.given.for_start()?;
        let plan = self.process_cell.plan(&env).await.map_err(|error| SourceError::Start(Cause::of(error)))?;
        tracing::info!(source = %self.process_cell.source(), program = %plan.launch.program.display(), "program of the source");
        let cells = &self.process_cell.cells;
        let log = log_file(&cells.data_dir, self.process_cell.source());
        let pipe_config = PipeConfig { limit: self.limit, log, secrets };
        let recording = self.process_cell.recording().cloned();
        let serve = |ready| self.process_cell.started(ready);
        let started = RunningCell::start(plan.launch, cells.launcher.clone(), recording, serve).await;
        let (running, streams) = started.map_err(|error| self.not_started(error))?;
        let pipe = Arc::new(Pipe::with(Box::new(running), streams, self.label(), pipe_config));
        let transport: Arc<dyn Transport> = Arc::<Pipe>::clone(&pipe);
        McpConnection::open(transport, deadlines, config).await.map_err(|error| {
            let error = pipe.explain(error);
            let missing = self.process_cell.missing_access_at_start(began, &error.to_string());
            missing.into_iter().fold(error, |error, access| error.said("; ", access.to_string()))
        })
    }
}

impl ProcessProgram {
    fn not_started(&self, error: CellStartError) -> SourceError {
        let label = self.label();
        let text = match &error {
            CellStartError::System(error) => {
                format!("{label} could not be started by {:?}: {error}", self.process_cell.cells.launcher)
            }
            CellStartError::Refused(refusal) => format!("{label} was not started: {refusal}"),
        };
        SourceError::Start(Cause::own(text).because_of(error))
    }

    /// Returns the command for messages, which reach agents and the ledger. Of one with a secret among its arguments it
    /// is the program alone.
    fn label(&self) -> String {
        let (shown, rest) = match secret_arguments(&self.argv).is_empty() {
            true => (&*self.argv, ""),
            false => (self.argv.get(..1).unwrap_or_default(), " …"),
        };
        let command: String = shown.join(" ").chars().take(SHOWN_CHARS).collect();
        format!("`{}{rest}`", escape(&command))
    }
}

impl std::fmt::Debug for ProcessProgram {
    // The other fields add nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessProgram")
            .field("name", self.process_cell.source())
            .field("argv", &self.argv)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
