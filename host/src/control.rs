//! How the command line reaches brokers that run: a Unix socket for each, in the data folder.
//!
//! One line of JSON each way per connection. Only processes of the same user get an answer, whatever the permissions say:
//! whoever can approve calls here is the person, and the agent has no way to this socket (invariant 6).

mod client;
mod wire;

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinHandle};

pub use client::all;

/// The longest line, in bytes: a thousand open asks with their reasons fit.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;

/// How long one exchange may take, on either side. Answers come from memory.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How many connections are served at a time; the next takes the place of the oldest. A person has a few terminals, and an
/// answer takes milliseconds: what is open for longer says nothing.
const MAX_CONNECTIONS: usize = 16;

/// What the command line wants to know or do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase", tag = "request", deny_unknown_fields)]
pub enum Request {
    /// How the broker and its sources are.
    Status,
    /// The questions that wait for a person.
    Asks,
    /// The answer to one of them.
    Answer {
        /// The question's id.
        ask: String,
        /// Yes or no.
        approve: bool,
        /// How far a yes reaches; once, if it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// Who answers.
        by: String,
    },
    /// Ends a source and starts it again.
    Restart {
        /// Its configured name.
        source: String,
        /// Who wants that.
        by: String,
    },
}

/// The answer, or a text that says why there is none.
pub type Reply = Result<serde_json::Value, String>;

/// What a broker does with a request.
pub type Handler = Arc<dyn Fn(Request) -> BoxFuture<'static, Reply> + Send + Sync>;

/// Why the control socket cannot be served or reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The socket's file or folder.
    #[error("cannot {act} {path:?}: {cause}")]
    File {
        /// What was tried.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
    /// The process at the other end belongs to somebody else.
    #[error("the process at the other end belongs to user {uid}, not to this one")]
    Stranger {
        /// Its user.
        uid: u32,
    },
    /// Longer than [`MAX_LINE_BYTES`].
    #[error("message is longer than the limit of {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// No answer within [`DEADLINE`].
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Late,
    /// The other end closed, or sent what nobody understands.
    #[error("{0}")]
    Broken(String),
    /// The broker understood, and says no.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    fn file(act: &'static str, path: &Path, cause: &io::Error) -> Self {
        Self::File { act, path: path.to_owned(), cause: cause.to_string() }
    }
}

/// A served control socket. Dropping it removes the socket and ends its connections.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Serves `<data-dir>/run/<chain>.sock` (0600, in a folder of 0700) until it is closed. Must be called on a runtime.
    ///
    /// # Errors
    /// [`ControlError::File`]
    pub fn serve(data_dir: &Path, chain: &str, handler: Handler) -> Result<Self, ControlError> {
        let folder = folder(data_dir);
        let path = folder.join(format!("{chain}.sock"));
        let failed = |error: io::Error| ControlError::file("listen on", &path, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let listener = wire::with_short_path(&path, |short| UnixListener::bind(short)).map_err(failed)?;
        // From here on the socket goes when this does.
        let control = Self { path: path.clone(), task: Mutex::new(None) };
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        let task = tokio::spawn(accept(listener, handler));
        *control.task.lock() = Some(task);
        Ok(control)
    }

    /// Removes the socket and ends its connections. Idempotent.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close();
    }
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("run")
}

async fn accept(listener: UnixListener, handler: Handler) {
    // Dropped with this task, and the connections with it.
    let mut open = tokio::task::JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        while open.try_join_next().is_some() {}
        oldest_first.retain(|connection: &AbortHandle| !connection.is_finished());
        match listener.accept().await {
            Ok((stream, _)) => {
                if oldest_first.len() >= MAX_CONNECTIONS
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
                let handler = Arc::clone(&handler);
                oldest_first.push_back(open.spawn(async move {
                    if let Err(error) = tokio::time::timeout(DEADLINE, exchange(stream, handler))
                        .await
                        .unwrap_or(Err(ControlError::Late))
                    {
                        tracing::warn!(%error, "control connection");
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "control socket");
                // Out of descriptors, most likely: leave time for some to come back.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn exchange(mut stream: UnixStream, handler: Handler) -> Result<(), ControlError> {
    wire::check_peer(&stream)?;
    let reply = match wire::receive(&mut stream).await {
        Ok(line) => match serde_json::from_slice(&line) {
            Ok(request) => handler(request).await,
            Err(error) => Err(format!("not a request that this broker knows: {error}")),
        },
        Err(ControlError::TooLong) => Err(ControlError::TooLong.to_string()),
        Err(error) => return Err(error),
    };
    wire::send(&mut stream, &wire::Envelope::from(reply)).await
}

#[cfg(test)]
mod tests;
