//! Sources that are part of the program which embeds the broker, such as servers made with `rmcp`. They speak MCP over
//! a stream in memory, as a program speaks it over its standard streams, and pass the same gate.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{DuplexStream, duplex, empty, split};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::mcp_connection::{HandshakeDeadlines, McpConnection, McpConnectionConfig};
use super::pipe::{Pipe, PipeConfig, PipeStreams, RunningProgram};
use super::supervised::{Connector, SupervisedSource, SupervisionConfig};
use super::transport::Transport;
use super::{Discovery, SourceError};
use crate::plugin::NativeError;

/// The bytes that may be on their way in each direction.
const STREAM_BYTES: usize = 256 * 1024;

/// An MCP server that is part of the program. The configuration places it: `native = "NAME"` in `[sources.…]`. It runs
/// in no cell, so that each of its calls counts as risky unless a person accepted the tool: by default somebody is
/// asked before it, and [`Session::call_tool`](crate::Session::call_tool) waits for the answer. With
/// `trust-annotations = true` a tool with `readOnlyHint` is called without a question, and with `approve = "never"` for
/// the profile every tool is.
///
/// # Example
/// ```
/// use portcullis::{NativeError, NativeSource};
/// use rmcp::ServiceExt as _;
/// use tokio::io::DuplexStream;
///
/// #[derive(Clone)]
/// struct Notes;
/// impl rmcp::ServerHandler for Notes {}
///
/// #[async_trait::async_trait]
/// impl NativeSource for Notes {
///     fn version(&self) -> &str {
///         env!("CARGO_PKG_VERSION")
///     }
///
///     async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
///         self.clone().serve(stream).await?.waiting().await?;
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait NativeSource: Send + Sync {
    /// Returns the version of the server. Acceptances and approvals for another version do not count for this one. It
    /// must not change while the broker runs.
    fn version(&self) -> &str;

    /// Serves one connection: reads and writes MCP messages, each on a line, until the stream ends, as it does when the
    /// source is idle, is replaced by a reload, or the broker shuts down. Work after the end, such as saving, has two
    /// seconds: then the future is dropped. Sessions may share a connection, or have one each. It must not block its
    /// thread.
    ///
    /// The first request may be `server/discover` (2026-07-28). A server that does not know it answers with the error
    /// `-32601`, as to any method that it does not know, and hears `initialize` next.
    ///
    /// # Errors
    /// An error, like a panic, ends the connection, and its text is the reason that people read. The source connects
    /// again as after the end of a program.
    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError>;
}

#[async_trait]
impl<S: NativeSource + ?Sized> NativeSource for Arc<S> {
    fn version(&self) -> &str {
        (**self).version()
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        (**self).serve(stream).await
    }
}

/// A source of the program.
pub(crate) type InProcessSource = SupervisedSource<InProcessServer>;

/// The server of a source, and how its stream is handled.
pub(crate) struct InProcessServer {
    pub(crate) server: Arc<dyn NativeSource>,
    pub(crate) pipe_config: PipeConfig,
    /// Called at each start.
    pub(crate) started: Box<dyn Fn() + Send + Sync>,
}

impl InProcessSource {
    /// Describes the source; connects to nothing.
    pub(crate) fn new(supervision: SupervisionConfig, server: InProcessServer) -> Self {
        Self::of(supervision, server)
    }
}

#[async_trait]
impl Connector for InProcessServer {
    async fn connect(
        &self,
        deadlines: HandshakeDeadlines,
        config: McpConnectionConfig,
    ) -> Result<(McpConnection, Discovery), SourceError> {
        let (ours, theirs) = duplex(STREAM_BYTES);
        let (output, input) = split(ours);
        let streams = PipeStreams { input: Box::new(input), output: Box::new(output), error: Box::new(empty()) };
        let running = RunningServer::start(Arc::clone(&self.server), theirs);
        (self.started)();
        let label = "a server of this program".to_owned();
        let pipe = Arc::new(Pipe::with(Box::new(running), streams, label, self.pipe_config.clone()));
        let transport: Arc<dyn Transport> = Arc::<Pipe>::clone(&pipe);
        McpConnection::open(transport, deadlines, config).await.map_err(|error| pipe.explain(error))
    }
}

/// A server that serves one connection.
struct RunningServer {
    task: AbortHandle,
    /// When and how it ended, once it has.
    ended: watch::Receiver<Option<(Instant, String)>>,
}

impl RunningServer {
    fn start(server: Arc<dyn NativeSource>, stream: DuplexStream) -> Self {
        let serving = tokio::spawn(async move { server.serve(stream).await });
        let (task, (ending, ended)) = (serving.abort_handle(), watch::channel(None));
        tokio::spawn(async move {
            let how = match serving.await {
                Ok(Ok(())) => "ended".to_owned(),
                Ok(Err(error)) => format!("failed: {error}"),
                Err(error) if error.is_cancelled() => "was ended".to_owned(),
                Err(_) => "panicked".to_owned(),
            };
            ending.send_replace(Some((Instant::now(), how)));
        });
        Self { task, ended }
    }
}

#[async_trait]
impl RunningProgram for RunningServer {
    async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.as_ref().map(|(when, _)| *when));
        ended.unwrap_or_else(Instant::now)
    }

    /// Does nothing: the end of its stream has already asked it to end.
    fn terminate(&self) {}

    fn kill(&self) {
        self.task.abort();
    }

    fn exit_description(&self) -> Option<String> {
        self.ended.borrow().as_ref().map(|(_, how)| how.clone())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for InProcessServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcessServer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Endless;

    #[async_trait]
    impl NativeSource for Endless {
        fn version(&self) -> &str {
            "1"
        }

        async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
            let _held = stream;
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_server_that_never_ends_is_ended() {
        let (_ours, theirs) = duplex(1);
        let running = RunningServer::start(Arc::new(Endless), theirs);
        assert_eq!(running.exit_description(), None);
        running.kill();
        running.wait().await;
        assert_eq!(running.exit_description().as_deref(), Some("was ended"));
    }
}
