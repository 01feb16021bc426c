//! The stdio front: one agent, one message per line.

mod lines;

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::lines::{AgentLine, AgentLines};
use super::backend::Backend;
use super::outgoing::{MessageSender, OutgoingRoom};
use super::protocol::{AgentConnection, NextStep, parse_error};
use super::{CUT_ANSWER_TIMEOUT, DRAIN};
use crate::broker::Broker;
use crate::control::LocalConnection;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{Message, MessageError};

/// The largest number of messages that are read ahead while one before them is being taken. Further ones are read when
/// that is done.
const MAX_AHEAD: usize = 16;

/// The bytes that may be on their way in each direction between a client in this program and its session.
const IN_PROCESS_BYTES: usize = 256 * 1024;

/// The largest number of sessions that programs of the same user may have open over the control socket.
const MAX_LOCAL_SESSIONS: usize = 64;

/// Serves one agent until it closes `input` or `shutdown` is ready. Open calls then have 5 seconds to end; those that
/// do not are answered with an error that says so. The session is closed.
///
/// Dropping the future cancels the open calls and leaves the session open in the ledger.
///
/// # Errors
/// If `input` or `output` fails in another way than by being closed.
///
/// # Example
/// ```
/// # async fn serve(broker: portcullis::Broker) -> Result<(), Box<dyn std::error::Error>> {
/// let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
/// portcullis::serve_stdio(broker, "default".parse()?, input, output, std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn serve_stdio(
    broker: Broker,
    profile: ProfileName,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let max = broker.config().max_message;
    serve(Arc::new(broker), profile, input, output, max, shutdown).await
}

/// Returns a stream on which an MCP client in this program uses its own session, such as that of `rmcp`. The client
/// opens the session by its first message, under this profile and for this principal; dropping the stream closes it,
/// and the stream ends when the broker shuts down. Sessions of the same principal share what people answered for it.
///
/// # Example
/// ```
/// use portcullis::{Broker, Config, Launcher};
/// use rmcp::ServiceExt as _;
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let config = Config::builder(folder.path()).source("calc", json!({ "component": "builtin:calculator" })).build()?;
/// let broker = Broker::build(config, Launcher::SelfExec).await?;
/// let client = ().serve(portcullis::connect(&broker, "default".parse()?, &"me".parse()?)).await?;
/// let tools = client.list_all_tools().await?;
/// # assert_eq!(tools.len(), 4);
/// # client.cancel().await?;
/// broker.shutdown().await;
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Panics
/// Outside of a runtime of tokio.
#[must_use = "dropping the stream closes the session"]
pub fn connect(broker: &Broker, profile: ProfileName, principal: &Principal) -> DuplexStream {
    let (ours, theirs) = duplex(IN_PROCESS_BYTES);
    let (input, output) = split(ours);
    let (max, principal, stopped) = (broker.config().max_message, principal.clone(), broker.stopped());
    let backend: Arc<dyn Backend> = Arc::new(broker.clone());
    tokio::spawn(async move {
        if let Err(error) = serve_as(backend, profile, principal, input, output, max, stopped).await {
            tracing::debug!(%error, "a session of a client in this program");
        }
    });
    theirs
}

/// Serves the sessions that programs of the same user open over the broker's control socket, until `shutdown` is ready;
/// each is a session like those of [`serve_stdio`]. `portcullis call` and `portcullis tools` open such sessions.
///
/// Dropping the future cuts the open sessions.
pub async fn serve_local(broker: Broker, shutdown: impl Future<Output = ()> + Send) {
    let (mut connections, mut shutdown) = (broker.local_connections(), pin!(shutdown));
    let mut sessions = JoinSet::new();
    loop {
        let LocalConnection { stream, profile } = tokio::select! {
            Some(connection) = connections.recv() => connection,
            Some(_) = sessions.join_next(), if !sessions.is_empty() => continue,
            () = &mut shutdown => return,
        };
        if sessions.len() >= MAX_LOCAL_SESSIONS {
            tracing::warn!("a session of the command line is refused: {MAX_LOCAL_SESSIONS} are open");
            continue;
        }
        let (input, output) = stream.into_split();
        let broker = broker.clone();
        sessions.spawn(async move {
            if let Err(error) = serve_stdio(broker, profile, input, output, std::future::pending()).await {
                tracing::debug!(%error, "a session of the command line");
            }
        });
    }
}

pub(crate) async fn serve(
    backend: Arc<dyn Backend>,
    profile: ProfileName,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    max_line: usize,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_as(backend, profile, Principal::local(), input, output, max_line, shutdown).await
}

async fn serve_as(
    backend: Arc<dyn Backend>,
    profile: ProfileName,
    principal: Principal,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
    max_line: usize,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let room = OutgoingRoom::new(&OutgoingRoom::limit(max_line), &principal);
    let (out, queue) = MessageSender::queue(room);
    let mut writer = JoinSet::new();
    writer.spawn(write(queue, output));

    let mut agent = AgentConnection::new(backend, profile, principal);
    let mut calls = JoinSet::new();
    let stop = CancellationToken::new();
    let input =
        Input { lines: AgentLines::new(input, max_line), ahead: VecDeque::new(), stop: stop.clone(), ended: false };
    let read = {
        let mut conversation = pin!(converse(&mut agent, &mut calls, input, &out));
        tokio::select! {
            biased;
            read = &mut conversation => read,
            () = shutdown => {
                stop.cancel();
                conversation.await
            }
        }
    };

    agent.input_ended();
    let ended = tokio::time::timeout(DRAIN, async { while calls.join_next().await.is_some() {} });
    if ended.await.is_err() {
        tracing::warn!(open = calls.len(), "calls that are still open are cut");
        agent.interrupt();
        let answered = async { while calls.join_next().await.is_some() {} };
        // An agent that does not read its answers is not waited for.
        let _ = tokio::time::timeout(CUT_ANSWER_TIMEOUT, answered).await;
    }
    calls.shutdown().await;
    agent.close(DRAIN).await;

    // Without senders the writer ends when the queue is empty, unless the agent does not read.
    drop((out, agent));
    let written = tokio::time::timeout(DRAIN, writer.join_next()).await.ok().flatten();
    let written = written.and_then(Result::ok).unwrap_or(Ok(()));
    read.and(written).or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Takes lines until there are no more, the front stops, or the output is closed.
async fn converse<R: AsyncRead + Unpin>(
    agent: &mut AgentConnection,
    calls: &mut JoinSet<()>,
    mut input: Input<R>,
    out: &MessageSender,
) -> io::Result<()> {
    loop {
        let line = tokio::select! {
            line = input.next() => line?,
            Some(_) = calls.join_next(), if !calls.is_empty() => continue,
            () = out.closed() => return Ok(()),
        };
        let step = match line {
            None => return Ok(()),
            Some(AgentLine::TooLong(size)) => {
                let error = MessageError::TooLarge { size, limit: input.lines.max() };
                NextStep::Answer(parse_error(&bytes::Bytes::new(), &error))
            }
            Some(AgentLine::Text(text)) => match Message::parse(text.clone()) {
                Ok(message) => match input.meanwhile(agent.accept(message, out), out).await? {
                    Some(step) => step,
                    None => return Ok(()),
                },
                Err(error) => NextStep::Answer(parse_error(&text, &error)),
            },
        };
        match step {
            NextStep::Silence => {}
            NextStep::Answer(response) => {
                // An agent that does not read keeps the answer waiting, and must not keep the front from stopping.
                if input.meanwhile(out.send(Message::Response(response)), out).await?.is_none() {
                    return Ok(());
                }
            }
            NextStep::Work(work) => {
                let out = out.clone();
                calls.spawn(async move {
                    if let Some(response) = work.run().await {
                        out.send(Message::Response(response)).await;
                    }
                });
            }
        }
    }
}

/// The agent's input, some of it read ahead while a message is being taken: `initialize` takes as long as the slowest
/// source, and must not keep the front from noticing that the agent has given up.
struct Input<R> {
    lines: AgentLines<R>,
    ahead: VecDeque<AgentLine>,
    /// Cancelled when the front stops, which ends the input.
    stop: CancellationToken,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Returns the next line, or `None` at the end. Cancellation safe.
    async fn next(&mut self) -> io::Result<Option<AgentLine>> {
        match self.ahead.pop_front() {
            None if !self.ended => tokio::select! {
                biased;
                () = self.stop.cancelled() => Ok(None),
                line = self.lines.next() => line,
            },
            line => Ok(line),
        }
    }

    /// Reads ahead until a message has been taken or answered. Returns `None` if the agent has disconnected: if the
    /// output is closed, or if the input has ended and `work` takes longer than [`DRAIN`] from then on.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>, out: &MessageSender) -> io::Result<Option<T>> {
        let mut work = pin!(work);
        while !self.ended {
            tokio::select! {
                biased;
                done = &mut work => return Ok(Some(done)),
                () = out.closed() => return Ok(None),
                () = self.stop.cancelled() => self.ended = true,
                line = self.lines.next(), if self.ahead.len() < MAX_AHEAD => match line? {
                    Some(line) => self.ahead.push_back(line),
                    None => self.ended = true,
                },
            }
        }
        Ok(tokio::time::timeout(DRAIN, work).await.ok())
    }
}

/// Writes messages until all senders are gone. Flushes whenever no message waits.
async fn write(mut queue: mpsc::Receiver<Message>, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    while let Some(message) = queue.recv().await {
        for piece in message.to_chunks() {
            output.write_all(&piece).await?;
        }
        output.write_all(b"\n").await?;
        if queue.is_empty() {
            output.flush().await?;
        }
    }
    output.flush().await
}

#[cfg(test)]
mod tests;
