//! Components that are programs: MCP servers for `wasm32-wasip2`, which run in the broker's process and speak MCP over
//! pipes, like any other program.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::call::Cause;
use crate::plugin::{CommandComponent, CommandStreams, RunningCommand};
use crate::source::mcp_connection::{HandshakeDeadlines, McpConnection, McpConnectionConfig};
use crate::source::pipe::{self, Pipe, PipeConfig, RunningProgram};
use crate::source::supervised::{Connector, SupervisedSource, SupervisionConfig};
use crate::source::transport::Transport;
use crate::source::{Discovery, GivenValues, SourceError};

/// A component that is a program.
pub(crate) type CommandSource = SupervisedSource<ComponentProgram>;

/// The program of a source, and how its streams are handled.
pub(crate) struct ComponentProgram {
    pub(crate) command: CommandComponent,
    pub(crate) pipe_config: PipeConfig,
    /// The variables that it is given.
    pub(crate) given: GivenValues,
    /// Called at each start.
    pub(crate) started: Box<dyn Fn() + Send + Sync>,
}

impl CommandSource {
    /// Describes the source; runs nothing.
    pub(crate) fn new(supervision: SupervisionConfig, program: ComponentProgram) -> Self {
        Self::of(supervision, program)
    }
}

#[async_trait]
impl Connector for ComponentProgram {
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let label = format!("`{}`", pipe::escape(&self.command.identity().name));
        let (env, secrets) = self.given.for_start()?;
        let started = self.command.start(&env).await;
        let (running, CommandStreams { input, output, error }) = started.map_err(|failure| {
            SourceError::Start(Cause::of(failure).under(format!("{label} could not be started: ")))
        })?;
        (self.started)();
        let streams = pipe::PipeStreams { input: Box::new(input), output: Box::new(output), error: Box::new(error) };
        let pipe =
            Arc::new(Pipe::with(Box::new(running), streams, label, PipeConfig { secrets, ..self.pipe_config.clone() }));
        let transport: Arc<dyn Transport> = Arc::<Pipe>::clone(&pipe);
        McpConnection::open(transport, deadlines, config).await.map_err(|error| pipe.explain(error))
    }
}

#[async_trait]
impl RunningProgram for RunningCommand {
    async fn wait(&self) -> Instant {
        RunningCommand::wait(self).await
    }

    /// Stops the component: it has no signals, and the end of its input has already asked it to end.
    fn terminate(&self) {
        self.stop();
    }

    fn kill(&self) {
        self.stop();
    }

    fn exit_description(&self) -> Option<String> {
        RunningCommand::exit_description(self)
    }

    fn sending(&self) {
        RunningCommand::message_sent(self);
    }

    fn received(&self) {
        RunningCommand::message_received(self);
    }
}

impl std::fmt::Debug for ComponentProgram {
    // The other fields hold secrets or add nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComponentProgram").field("command", &self.command).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
