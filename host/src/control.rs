//! The channel from the command line to running brokers: a Unix socket for each broker, in the data folder.
//!
//! Each connection carries one line of JSON in each direction; one that asked for a session then carries MCP. Only
//! processes of the same user get an answer, whatever the permissions of the socket: a process that can approve calls
//! here acts as the person, and the agent has no way to this socket (invariant 6).

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

use crate::digest::Digest;
use crate::item::ItemKind;
use crate::name::ProfileName;

pub use client::{all, one, open_session};

/// The longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// The longest reply, in bytes: some 40,000 definitions that are compared with the lock file. Lists of questions are
/// much shorter, and large arguments are read in parts.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// The longest time that one exchange may take, on either side. Answers come from memory.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The largest number of connections that are served at a time; one more replaces the oldest. A person has a few
/// terminals, and an answer takes milliseconds, so a connection that stays open for longer is an idle one.
const MAX_CONNECTIONS: usize = 16;

/// A request from the command line.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase", tag = "request", deny_unknown_fields)]
pub enum ControlRequest {
    /// Reads the state of the broker and of its sources.
    Status,
    /// Lists the questions that wait for a person. A question that is too large for the list is cut, and marked as cut.
    Questions,
    /// Reads one of these questions in parts; the reply to each request is a part of the text of its arguments.
    Show {
        /// The question's id.
        question: String,
        /// The byte of the text at which the part begins. The rest of the question comes with the part that begins
        /// at 0.
        from: usize,
    },
    /// Answers one of these questions.
    Answer {
        /// The question's id.
        question: String,
        /// True to approve the call, false to refuse it.
        approve: bool,
        /// The scope of an approval; once, if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// The time at which an approval ends, in milliseconds since the Unix epoch, if the person chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
        /// The name of the user who answers.
        by: String,
    },
    /// Ends a source and starts it again.
    Restart {
        /// The source's configured name.
        source: String,
        /// The name of the user who asks for the restart.
        by: String,
    },
    /// Clears what a session has seen, for policies about information flow.
    Clear {
        /// The session's identifier.
        session: String,
        /// The name of the user who clears it.
        by: String,
    },
    /// Opens a session. After the reply the connection carries messages of MCP, one per line, until one end closes it.
    Session {
        /// The profile of the session.
        profile: ProfileName,
        /// The digest of the configuration that must judge the calls.
        config: String,
    },
    /// Compares what the sources list with the lock file; the reply is a
    /// [`LockComparison`](crate::broker::LockComparison).
    Definitions {
        /// The kind of item to return in full, besides tools.
        kind: ItemKind,
    },
    /// Accepts definitions into the lock file, as they were listed last.
    Accept {
        /// The source's configured name.
        source: String,
        /// The kind that is listed for it, besides tools and what was flagged.
        kind: ItemKind,
        /// The definitions.
        definitions: Vec<ListedDefinition>,
        /// The name of the user who accepts them.
        by: String,
    },
}

/// One definition that a source lists. A tool and a prompt can be the same text, and then have the same digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ListedDefinition {
    /// The kind of the item.
    pub kind: ItemKind,
    /// The digest of the definition.
    pub digest: Digest,
}

/// The answer, or why there is none.
pub type ControlReply = Result<serde_json::Value, ControlRefusal>;

/// The reason why a broker refuses a request, as a message for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlRefusal {
    /// The request is about a source or a question that this broker does not have. Another one may.
    Absent(String),
    /// The request was understood and refused.
    Error(String),
}

/// The broker behind a control socket. Its method returns a box for the reason that
/// [`AgentPeer`](crate::agent::AgentPeer) gives.
pub trait ControlHandler: Send + Sync {
    /// Carries out a request.
    fn answer(&self, request: ControlRequest) -> BoxFuture<'_, ControlReply>;

    /// Takes over a connection whose [`ControlRequest::Session`] was answered with a yes.
    fn connected(&self, connection: LocalConnection);
}

/// A connection of a program of the same user that carries messages of MCP, one per line.
#[derive(Debug)]
pub struct LocalConnection {
    /// The connection.
    pub stream: UnixStream,
    /// The profile of its session.
    pub profile: ProfileName,
}

/// An error in serving or reaching a control socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The socket's file or folder cannot be used.
    #[error("cannot {act} {path:?}: {cause}")]
    File {
        /// The action that failed, as a verb.
        act: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error message.
        cause: String,
    },
    /// The process at the other end belongs to another user.
    #[error("the process at the other end belongs to user {uid}, not to this one")]
    Stranger {
        /// The id of that user.
        uid: u32,
    },
    /// The message is longer than [`MAX_REQUEST_BYTES`] or [`MAX_REPLY_BYTES`].
    #[error("message is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// No answer came within [`DEADLINE`].
    #[error("no answer within {} s", DEADLINE.as_secs())]
    TimedOut,
    /// The other end closed the connection, or sent something that cannot be understood.
    #[error("{0}")]
    Broken(String),
    /// The request is about a source or a question that the broker does not have.
    #[error("{0}")]
    Absent(String),
    /// The broker understood the request and refused it.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    fn file(act: &'static str, path: &Path, cause: &io::Error) -> Self {
        Self::File { act, path: path.to_owned(), cause: cause.to_string() }
    }
}

/// A control socket that is being served. Dropping it removes the socket and ends its connections.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ControlSocket {
    /// Serves `<data-dir>/run/<chain>.sock` (0600, in a folder of 0700) until it is closed. Must be called on a Tokio
    /// runtime.
    ///
    /// # Errors
    /// [`ControlError::File`]
    pub fn serve(data_dir: &Path, chain: &str, broker: Arc<dyn ControlHandler>) -> Result<Self, ControlError> {
        let folder = folder(data_dir);
        let path = folder.join(format!("{chain}.sock"));
        let failed = |error: io::Error| ControlError::file("listen on", &path, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let listener = wire::with_short_path(&path, |short| UnixListener::bind(short)).map_err(failed)?;
        // From here on, dropping `control` removes the socket.
        let control = Self { path: path.clone(), task: Mutex::new(None) };
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        let task = tokio::spawn(accept(listener, broker));
        *control.task.lock() = Some(task);
        Ok(control)
    }

    /// Removes the socket and ends its connections. Idempotent.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        // The socket may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.close();
    }
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("run")
}

async fn accept(listener: UnixListener, broker: Arc<dyn ControlHandler>) {
    // Dropped with this task, which ends the connections.
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
                let broker = Arc::clone(&broker);
                oldest_first.push_back(open.spawn(async move {
                    if let Err(error) = tokio::time::timeout(DEADLINE, exchange(stream, broker))
                        .await
                        .unwrap_or(Err(ControlError::TimedOut))
                    {
                        tracing::warn!(%error, "control connection");
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "control socket");
                // Most likely there are no descriptors left: wait for some to be freed.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn exchange(mut stream: UnixStream, broker: Arc<dyn ControlHandler>) -> Result<(), ControlError> {
    wire::check_peer(&stream)?;
    let mut session = None;
    let reply = match wire::receive(&mut stream, MAX_REQUEST_BYTES).await {
        Ok(line) => match serde_json::from_slice(&line) {
            Ok(request) => {
                if let ControlRequest::Session { profile, .. } = &request {
                    session = Some(profile.clone());
                }
                broker.answer(request).await
            }
            Err(error) => Err(ControlRefusal::Error(format!("not a request that this broker knows: {error}"))),
        },
        Err(error @ ControlError::TooLong(_)) => Err(ControlRefusal::Error(error.to_string())),
        Err(error) => return Err(error),
    };
    let session = session.filter(|_| reply.is_ok());
    match wire::send(&mut stream, &wire::Envelope::from(reply), MAX_REPLY_BYTES).await {
        // Without a reply, the requester could not tell this broker from one that has ended.
        Err(error @ ControlError::TooLong(_)) => {
            let refusal = ControlRefusal::Error(format!("the reply is too long: {error}"));
            return wire::send(&mut stream, &wire::Envelope::Refused(refusal), MAX_REPLY_BYTES).await;
        }
        sent => sent?,
    }
    if let Some(profile) = session {
        broker.connected(LocalConnection { stream, profile });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
