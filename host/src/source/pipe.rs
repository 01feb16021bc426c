//! MCP messages as lines over standard streams, of a process in its cell or of a component in this process.
//!
//! Specification: MCP, "Transports", stdio.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::SourceError;
use super::transport::{ReceivedMessage, Transport, TransportError};
use crate::call::Cause;
use crate::limited_lines::{LimitedLine, LimitedLines};
use crate::protocol::{Message, MessageError};
use crate::sync::Mutex;
use input::{NotWritten, SourceInput};
pub(crate) use stderr::RedactedValues;
pub(super) use stderr::escape;
use stderr::{StderrTail, capture};

mod input;
mod partial_line;
mod stderr;
#[cfg(test)]
mod tests;

/// The number of consecutive lines that are not messages after which the source is given up. Servers print banners, and
/// their installers' output; clients that speak to them directly read on.
const MAX_GARBAGE_LINES: usize = 1000;

/// The number of characters of a line that is not a message that are shown to a person.
const SHOWN_CHARS: usize = 80;

/// The largest part of an oversized line that is skipped in search of its end, in multiples of the largest message.
const MAX_SKIPPED: usize = 16;

/// The longest time that the source may take to end after each of the two graceful signs (end of input, SIGTERM). Twice
/// this, and what follows the kill, stay below [`CLOSE_DEADLINE`](crate::limits::CLOSE_DEADLINE).
const GRACE: Duration = Duration::from_secs(1);

/// The time after which the output of a source that has ended is over, if nothing more comes: other processes may hold
/// the streams open.
const DRAIN: Duration = Duration::from_millis(500);

/// The longest time for which the output of a source is read after its end.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

/// The program behind the streams. Dropping it ends the program.
#[async_trait]
pub(super) trait RunningProgram: Send + Sync {
    /// Waits until the program has ended, and returns when that was. Cancellation safe.
    async fn wait(&self) -> Instant;
    /// Asks the program to end.
    fn terminate(&self);
    /// Ends the program by force.
    fn kill(&self);
    /// Returns how the program ended, if it has: "exited with status 1".
    fn exit_description(&self) -> Option<String>;
    /// Notes that a message is about to be sent to the program.
    fn sending(&self) {}
    /// Notes that a message came from the program.
    fn received(&self) {}
    /// Releases what served the program while it ran.
    fn has_ended(&self) {}
}

/// The broker's ends of the three standard streams.
pub(super) struct PipeStreams {
    pub(super) input: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) output: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) error: Box<dyn AsyncRead + Send + Unpin>,
}

/// A connection to a running source. Dropping it kills everything that belongs to the source.
pub(super) struct Pipe {
    /// The command, for messages to people.
    label: String,
    program: Box<dyn RunningProgram>,
    /// The largest message, in bytes.
    limit: usize,
    secrets: RedactedValues,
    words: StderrTail,
    /// Closes when standard error has been read to its end.
    captured: watch::Receiver<()>,
    input: SourceInput,
    incoming: AsyncMutex<Incoming>,
    findings: Mutex<Findings>,
    capture: JoinHandle<()>,
}

/// The settings for a source's streams.
#[derive(Clone)]
pub(crate) struct PipeConfig {
    /// The largest message, in bytes.
    pub(crate) limit: usize,
    /// The file that standard error is logged to.
    pub(crate) log: PathBuf,
    /// The values that are redacted in the log, and in everything else that repeats what the source wrote.
    pub(crate) secrets: RedactedValues,
}

struct Incoming {
    lines: LimitedLines<Box<dyn AsyncRead + Send + Unpin>>,
    /// The number of consecutive lines that are not messages.
    garbage: usize,
}

/// The findings about the output so far, apart from [`Incoming`], which a reader holds while it waits for the next
/// line.
#[derive(Default)]
struct Findings {
    /// The first of the latest lines that are not messages.
    first: Option<String>,
    /// The number of lines from that one on.
    lines: usize,
    /// True once a message came.
    spoke: bool,
    /// True once nothing more is read.
    over: bool,
    /// The reason why the source was given up.
    verdict: Option<Cause>,
}

impl Pipe {
    /// Returns a connection to a source that was just started.
    pub(super) fn with(
        program: Box<dyn RunningProgram>,
        PipeStreams { input, output, error }: PipeStreams,
        label: String,
        PipeConfig { limit, log, secrets }: PipeConfig,
    ) -> Self {
        let lines = LimitedLines::new(output, limit, limit.saturating_mul(MAX_SKIPPED));
        let words = StderrTail::default();
        let (done, captured) = watch::channel(());
        let (kept, redacted_values) = (words.clone(), secrets.clone());
        let capture = tokio::spawn(async move {
            capture(error, log, redacted_values, kept).await;
            drop(done);
        });
        Self {
            label,
            program,
            limit,
            secrets,
            words,
            captured,
            input: SourceInput::new(input),
            incoming: AsyncMutex::new(Incoming { lines, garbage: 0 }),
            findings: Mutex::default(),
            capture,
        }
    }

    /// Adds to a cause what the source wrote that may explain its failure ("; its last words: …"), or nothing.
    fn remarked(&self, cause: Cause) -> Cause {
        let words = self.words.text();
        let findings = self.findings.lock();
        let (first, lines, spoke) = (findings.first.clone(), findings.lines, findings.spoke);
        drop(findings);
        let cause = match first {
            // A server that speaks in text only is often one for another transport, or a script that prints something.
            Some(first) if !spoke && !first.starts_with(['{', '[']) => {
                let after = match lines {
                    1 => "\" to standard output, and no message of MCP",
                    _ => "\" and further such lines to standard output, and no message of MCP",
                };
                cause.said("; it wrote \"", first, after)
            }
            Some(first) => cause.said("; it wrote \"", first, "\" to standard output"),
            None => cause,
        };
        if words.is_empty() { cause } else { cause.said("; its last words: ", words, "") }
    }

    /// Adds to an error which source failed, how, and what it wrote to standard error.
    pub(super) fn explain(&self, error: SourceError) -> SourceError {
        let label = &self.label;
        match error {
            SourceError::Timeout { method, seconds } => SourceError::Start(self.remarked(Cause::own(format!(
                "{label} started but did not answer `{method}` within {seconds} s; is it an MCP server that speaks \
                 over standard input and output?"
            )))),
            SourceError::Protocol(why) => SourceError::Protocol(why.under(format!("{label}: "))),
            // The way in which the program ended tells more than the place where that was noticed.
            SourceError::Closed(why) => SourceError::Closed(self.exit_reason().unwrap_or(why)),
            error => error,
        }
    }

    /// Waits until the source has ended and no more output has come for a while. A reader that was kept waiting has
    /// that time too.
    async fn fell_silent(&self) {
        self.program.wait().await;
        tokio::time::sleep(DRAIN).await;
    }

    /// Waits until the source has ended long ago, and only something that it left behind can still be writing.
    async fn outlived(&self) {
        let ended = self.program.wait().await;
        tokio::time::sleep_until(ended + LONGEST_DRAIN).await;
    }

    /// Ends the source, by force if it does not end on its own, and collects its last words.
    async fn end_program(&self) {
        if timeout(GRACE, self.program.wait()).await.is_err() {
            self.program.kill();
            // The rest is up to the kernel, which only a hung device delays.
            let _ = timeout(DRAIN, self.program.wait()).await;
        }
        self.program.has_ended();
        let mut captured = self.captured.clone();
        // An error is the awaited end of the stream, and a timeout is accepted.
        let _ = timeout(DRAIN / 2, captured.changed()).await;
    }

    fn judge(&self, incoming: &mut Incoming, line: LimitedLine) -> Option<Result<Message, TransportError>> {
        let label = &self.label;
        let text = match line {
            LimitedLine::Whole(text) if text.trim_ascii().is_empty() => return None,
            LimitedLine::Whole(text) => text,
            LimitedLine::Oversized { size, ended: true } => {
                return Some(Err(TransportError::Oversized { size, limit: self.limit }));
            }
            LimitedLine::Oversized { size, ended: false } => {
                let why = Cause::own(format!("{label} sent {size} bytes without ending the line"));
                return Some(Err(self.give_up(why)));
            }
        };
        match Message::parse(text.clone()) {
            Ok(message) => {
                self.program.received();
                incoming.garbage = 0;
                let mut findings = self.findings.lock();
                (findings.first, findings.lines, findings.spoke) = (None, 0, true);
                drop(findings);
                Some(Ok(message))
            }
            Err(error @ (MessageError::TooDeep | MessageError::TooManyValues)) => {
                Some(Err(TransportError::TooComplex(Cause::of(error).under(format!("{label}: ")))))
            }
            Err(error) => {
                tracing::debug!(command = %label, code = error.code(), "a line that is not a message was ignored");
                incoming.garbage += 1;
                let shown = || self.secrets.redacted(&text).chars().take(SHOWN_CHARS).collect::<String>();
                let mut findings = self.findings.lock();
                findings.lines += 1;
                let first = findings.first.get_or_insert_with(shown).clone();
                drop(findings);
                (incoming.garbage > MAX_GARBAGE_LINES).then(|| {
                    let why = "writes garbage to standard output, where only MCP messages are allowed";
                    let why = Cause::own(format!("{label} {why}")).said(": first line \"", first, "\"");
                    Err(self.give_up(why))
                })
            }
        }
    }

    fn give_up(&self, why: Cause) -> TransportError {
        let mut findings = self.findings.lock();
        findings.over = true;
        findings.verdict = Some(why.clone());
        drop(findings);
        self.program.kill();
        TransportError::Garbage(why)
    }
}

#[async_trait]
impl Transport for Pipe {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        let line = message.to_chunks();
        let size = line.iter().map(Bytes::len).sum();
        if size > self.limit {
            let limit = self.limit;
            return Err(TransportError::NotSent(Cause::of(MessageError::TooLarge { size, limit })));
        }
        self.program.sending();
        self.input.write(line).await.map_err(|failed| match failed {
            NotWritten::Failed(error) => error,
            NotWritten::Closed => {
                let takes_none = || Cause::own(format!("{} takes no input", self.label));
                TransportError::Closed(self.exit_reason().unwrap_or_else(takes_none))
            }
        })
    }

    async fn receive(&self) -> Option<Result<ReceivedMessage, TransportError>> {
        let mut incoming = self.incoming.lock().await;
        while !self.findings.lock().over {
            let line = tokio::select! {
                biased;
                () = self.outlived() => None,
                // A broken pipe counts as the end of the stream.
                line = incoming.lines.next() => line.unwrap_or_default(),
                () = self.fell_silent() => None,
            };
            match line {
                None => self.findings.lock().over = true,
                Some(line) => {
                    if let Some(received) = self.judge(&mut incoming, line) {
                        return Some(received.map(ReceivedMessage::from));
                    }
                }
            }
        }
        drop(incoming);
        self.end_program().await;
        None
    }

    async fn close(&self) {
        let ended = async {
            self.input.close().await;
            self.program.wait().await
        };
        if timeout(GRACE, ended).await.is_err() {
            self.program.terminate();
        }
        self.end_program().await;
    }

    fn exit_reason(&self) -> Option<Cause> {
        let findings = self.findings.lock();
        if findings.verdict.is_some() {
            return findings.verdict.clone();
        }
        let over = findings.over;
        drop(findings);
        let exit_description =
            self.program.exit_description().or_else(|| over.then(|| "closed its standard output".to_owned()))?;
        Some(self.remarked(Cause::own(format!("{} {exit_description}", self.label))))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.program.kill();
        self.capture.abort();
    }
}
