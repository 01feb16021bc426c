//! Messages as lines over the standard streams of a process.
//!
//! Specification: MCP, "Transports", stdio.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portcullis_jail::{Launch, Launcher, Ready};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::child::{Child, StartError, Streams};
use super::lines::{Line, Lines};
use super::stderr::{LastWords, capture, escape};
use crate::egress::Outlet;
use crate::message::{Message, MessageError};
use crate::source::SAID;
use crate::source::transport::{Received, Transport, TransportError};

/// Lines in a row that are no messages before the source is given up. Servers print a banner; none talks on and on.
const MAX_GARBAGE_LINES: usize = 20;

/// Characters of such a line that are shown to a person.
const SHOWN_CHARS: usize = 80;

/// How many times the largest message is thrown away of one line in search of its end.
const MAX_SKIPPED: usize = 16;

/// Messages that wait to be written. Who sends more waits, as the source does not read.
const QUEUE: usize = 64;

/// How long each of the two polite ways to end (no more input, SIGTERM) may take. Twice this, and what follows the kill,
/// stay below [`CLOSE_DEADLINE`](crate::source::CLOSE_DEADLINE).
const GRACE: Duration = Duration::from_secs(1);

/// How long output that a process left behind is waited for once it has ended: others may hold the streams open.
const DRAIN: Duration = Duration::from_millis(500);

/// A running source. Dropping it kills everything in its cell.
pub(super) struct Pipe {
    /// The command, for messages to people.
    label: String,
    child: Child,
    /// The largest message, in bytes.
    limit: usize,
    words: LastWords,
    /// Closed when standard error has been read to its end.
    captured: watch::Receiver<()>,
    /// None once no more input is given.
    outgoing: Mutex<Option<mpsc::Sender<Outgoing>>>,
    incoming: AsyncMutex<Incoming>,
    /// The way out of its cell, which ends with it.
    outlet: Mutex<Option<Outlet>>,
    tasks: [JoinHandle<()>; 2],
}

/// What is done with the source's streams.
pub(super) struct Wire {
    /// The largest message, in bytes.
    pub(super) limit: usize,
    /// Where standard error goes.
    pub(super) log: PathBuf,
    /// What is blotted out of it.
    pub(super) secrets: Vec<String>,
}

/// One line to be written, and who wants to know whether it was.
type Outgoing = (Bytes, oneshot::Sender<Result<(), TransportError>>);

struct Incoming {
    lines: Lines<ChildStdout>,
    /// Lines in a row that are no messages.
    garbage: usize,
    /// The first of them.
    first: Option<String>,
    /// Nothing more is read.
    over: bool,
    /// Why the source was given up.
    verdict: Option<String>,
}

impl Pipe {
    /// Starts the source in its cell.
    pub(super) async fn start(
        launch: Launch,
        launcher: Launcher,
        label: String,
        Wire { limit, log, secrets }: Wire,
    ) -> Result<(Self, Ready), StartError> {
        let (child, Streams { input, output, error }, ready) = Child::start(launch, launcher).await?;
        let (input, error) = (ChildStdin::from_std(input)?, ChildStderr::from_std(error)?);
        let lines = Lines::new(ChildStdout::from_std(output)?, limit, limit.saturating_mul(MAX_SKIPPED));
        let words = LastWords::default();
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let (done, captured) = watch::channel(());
        let kept = words.clone();
        let tasks = [
            tokio::spawn(write(input, queue)),
            tokio::spawn(async move {
                capture(error, log, secrets, kept).await;
                drop(done);
            }),
        ];
        let incoming = AsyncMutex::new(Incoming { lines, garbage: 0, first: None, over: false, verdict: None });
        Ok((
            Self {
                label,
                child,
                limit,
                words,
                captured,
                outgoing: Mutex::new(Some(outgoing)),
                incoming,
                outlet: Mutex::default(),
                tasks,
            },
            ready,
        ))
    }

    /// Serves the network of its cell as long as it runs.
    pub(super) fn keep(&self, outlet: Option<Outlet>) {
        *self.outlet.lock().unwrap_or_else(PoisonError::into_inner) = outlet;
    }

    /// What it said that may explain why it does not work: "; its last words: …", or nothing.
    pub(super) fn remarks(&self) -> String {
        let words = self.words.text();
        let garbage = self.incoming.try_lock().ok().and_then(|incoming| incoming.first.clone());
        let [wrote, last_words, _] = SAID;
        let words = if words.is_empty() { String::new() } else { format!("{last_words}{words}") };
        garbage.map_or(words.clone(), |first| format!("{wrote}\"{first}\" to standard output{words}"))
    }

    /// Waits until the process has ended and everything it left behind had time to be read.
    async fn outlived(&self) {
        let ended = self.child.wait().await;
        tokio::time::sleep_until(ended + DRAIN).await;
    }

    /// The end: kills what does not go by itself, and hears its last words.
    async fn settle(&self) {
        if timeout(GRACE, self.child.wait()).await.is_err() {
            self.child.kill();
            // What remains is the kernel's work, which only a hung device delays.
            let _ = timeout(DRAIN, self.child.wait()).await;
        }
        self.keep(None);
        let mut captured = self.captured.clone();
        // An error is the end that is waited for; so is the end of patience.
        let _ = timeout(DRAIN / 2, captured.changed()).await;
    }

    fn judge(&self, incoming: &mut Incoming, line: Line) -> Option<Result<Message, TransportError>> {
        let label = &self.label;
        let text = match line {
            Line::Whole(text) if text.trim_ascii().is_empty() => return None,
            Line::Whole(text) => text,
            Line::Oversized { size, ended: true } => {
                return Some(Err(TransportError::Oversized { size, limit: self.limit }));
            }
            Line::Oversized { size, ended: false } => {
                return Some(Err(self.give_up(incoming, format!("{label} sent {size} bytes without ending the line"))));
            }
        };
        match Message::parse(text.clone()) {
            Ok(message) => {
                (incoming.garbage, incoming.first) = (0, None);
                Some(Ok(message))
            }
            Err(error @ MessageError::TooDeep) => Some(Err(self.give_up(incoming, format!("{label}: {error}")))),
            Err(error) => {
                tracing::debug!(command = %label, code = error.code(), "a line that is no message was ignored");
                incoming.garbage += 1;
                let shown = || escape(&String::from_utf8_lossy(&text).chars().take(SHOWN_CHARS).collect::<String>());
                let first = incoming.first.get_or_insert_with(shown).clone();
                (incoming.garbage > MAX_GARBAGE_LINES).then(|| {
                    let [.., first_line] = SAID;
                    let why = format!("{label} speaks garbage on standard output, where only MCP messages may stand{first_line}\"{first}\"");
                    Err(self.give_up(incoming, why))
                })
            }
        }
    }

    fn give_up(&self, incoming: &mut Incoming, why: String) -> TransportError {
        incoming.over = true;
        incoming.verdict = Some(why.clone());
        self.child.kill();
        TransportError::Garbage(why)
    }

    fn outgoing(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Outgoing>>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Pipe {
    async fn send(&self, message: &Message) -> Result<(), TransportError> {
        let gone =
            || TransportError::Closed(self.obituary().unwrap_or_else(|| format!("{} takes no input", self.label)));
        let queue = self.outgoing().clone().ok_or_else(gone)?;
        let mut line = Vec::from(message.to_line());
        if line.len() > self.limit {
            let (size, limit) = (line.len(), self.limit);
            return Err(TransportError::NotSent(format!(
                "message of {size} bytes is larger than the limit of {limit} bytes"
            )));
        }
        line.push(b'\n');
        let (tell, written) = oneshot::channel();
        queue.send((line.into(), tell)).await.map_err(|_| gone())?;
        written.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn receive(&self) -> Option<Result<Received, TransportError>> {
        let mut incoming = self.incoming.lock().await;
        while !incoming.over {
            let line = tokio::select! {
                biased;
                () = self.outlived() => None,
                // A broken pipe is an end like any other.
                line = incoming.lines.next() => line.unwrap_or_default(),
            };
            match line {
                None => incoming.over = true,
                Some(line) => {
                    if let Some(received) = self.judge(&mut incoming, line) {
                        return Some(received.map(Received::from));
                    }
                }
            }
        }
        drop(incoming);
        self.settle().await;
        None
    }

    async fn close(&self) {
        self.outgoing().take();
        if timeout(GRACE, self.child.wait()).await.is_err() {
            self.child.terminate();
        }
        self.settle().await;
    }

    fn obituary(&self) -> Option<String> {
        let (over, verdict) = self.incoming.try_lock().map_or((false, None), |i| (i.over, i.verdict.clone()));
        if verdict.is_some() {
            return verdict;
        }
        let fate = self.child.fate().or_else(|| over.then(|| "closed its standard output".to_owned()))?;
        Some(format!("{} {fate}{}", self.label, self.remarks()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.child.kill();
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Writes line after line until nobody has more or the source does not read.
async fn write(mut input: ChildStdin, mut queue: mpsc::Receiver<Outgoing>) {
    while let Some((line, tell)) = queue.recv().await {
        let mut left = line.as_ref();
        let broken = loop {
            match input.write(left).await {
                Ok(written) if written > 0 => left = left.get(written..).unwrap_or_default(),
                Ok(_) => break Some("it takes no more input".to_owned()),
                Err(error) => break Some(error.to_string()),
            }
            if left.is_empty() {
                break None;
            }
        };
        let stop = broken.is_some();
        let untouched = left.len() == line.len();
        let sent = match broken {
            Some(why) if untouched => {
                Err(TransportError::Closed(format!("the source does not take the message: {why}")))
            }
            // A part went out; what the source makes of it is not known.
            _ => Ok(()),
        };
        // Whoever waited may have given up.
        let _ = tell.send(sent);
        if stop {
            return;
        }
    }
}
