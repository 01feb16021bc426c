//! Witnesses: sends each signed checkpoint of the ledger to places that a writer of the ledger should not be able to
//! change. A checkpoint that a witness cannot take is sent again, and blocks nothing: a later checkpoint covers all
//! that an earlier one did.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use rustix::fs::OFlags;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::git_witness;
use super::syslog::{SyslogMessage, SyslogSender, SyslogSeverity};
use crate::call::now_millis;
use crate::config::WitnessConfig;
use crate::egress::shown;
use crate::http_receiver::HttpReceiver;
use crate::ledger::{Ledger, SignedCheckpoint};
use crate::receivers::{Receiver, ReceiverKind, Receivers};

/// The pause before a checkpoint is sent again, unless a newer one comes first.
const PAUSE: Duration = Duration::from_secs(60);

/// The longest wait at the end for witnesses to take the last checkpoint.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks that send checkpoints, each with the name of its witness. Dropping them ends them.
#[derive(Debug)]
pub(super) struct WitnessTasks(Vec<(String, AbortOnDropHandle<()>)>);

/// A place that keeps checkpoints.
enum Witness {
    File(PathBuf),
    Server(HttpReceiver),
    /// A git repository.
    Git(PathBuf),
    Syslog(SyslogSender),
}

impl WitnessTasks {
    /// Starts to send the checkpoints of a ledger, and reports the outcomes to `reported`. A witness that cannot be
    /// used is reported and left out.
    pub(super) fn start(witnesses: &[WitnessConfig], ledger: &Ledger, reported: &Receivers) -> Self {
        let mut tasks = Vec::new();
        for config in witnesses {
            let reported = reported.add(ReceiverKind::Witness, &shown_name(config));
            match Witness::new(config) {
                Ok(witness) => {
                    let name = reported.name().to_owned();
                    let task = tokio::spawn(send_all(witness, reported, ledger.signed_checkpoints()));
                    tasks.push((name, AbortOnDropHandle::new(task)));
                }
                Err(error) => {
                    reported.failed(&error);
                    tracing::warn!(witness = reported.name(), error, "a witness of the ledger gets no checkpoints");
                }
            }
        }
        Self(tasks)
    }

    /// Waits until the witnesses have the last checkpoint, once the ledger is closed, for a few seconds at most.
    pub(super) async fn finish(self) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        for (witness, task) in self.0 {
            if timeout_at(deadline, task).await.is_err() {
                tracing::warn!(witness, "a witness of the ledger did not take the last checkpoint in time");
            }
        }
    }
}

/// Sends each checkpoint to a witness until there will be no more. Failures are reported once, until one is taken.
async fn send_all(witness: Witness, reported: Receiver, mut signed: watch::Receiver<Option<SignedCheckpoint>>) {
    while signed.changed().await.is_ok() {
        loop {
            let Some(checkpoint) = signed.borrow_and_update().clone() else { break };
            let Err(error) = witness.send(&checkpoint).await else {
                if reported.succeeded() > 0 {
                    tracing::warn!(witness = reported.name(), "a witness takes checkpoints of the ledger again");
                }
                break;
            };
            if reported.failed(&error) {
                tracing::warn!(witness = reported.name(), error, "a witness does not take checkpoints of the ledger");
            }
            // The end of the ledger ends the pause too: then this is the last attempt.
            if let Ok(Err(_)) = timeout(PAUSE, signed.changed()).await {
                let _ = witness.send(&checkpoint).await;
                return;
            }
        }
    }
}

impl Witness {
    fn new(config: &WitnessConfig) -> Result<Self, String> {
        Ok(match config {
            WitnessConfig::File(path) => Self::File(path.clone()),
            WitnessConfig::Server(url) => Self::Server(HttpReceiver::new(url.clone())?),
            WitnessConfig::Git(repository) => Self::Git(repository.clone()),
            WitnessConfig::Syslog(address) => Self::Syslog(SyslogSender::new(address.clone())),
        })
    }

    async fn send(&self, checkpoint: &SignedCheckpoint) -> Result<(), String> {
        let note = checkpoint.note().to_owned();
        match self {
            Self::File(path) => {
                // A disk that never answers holds one thread, and not another one for each attempt.
                let path = path.clone();
                let added = tokio::task::spawn_blocking(move || add(&path, &note)).await;
                added.map_err(io::Error::other).flatten().map_err(|error| error.to_string())
            }
            Self::Git(repository) => {
                let (repository, checkpoint) = (repository.clone(), checkpoint.clone());
                let added = tokio::task::spawn_blocking(move || git_witness::add(&repository, &checkpoint)).await;
                added.map_err(|error| error.to_string()).flatten()
            }
            Self::Syslog(sender) => sender.send(&[checkpoint_message(note)]).await,
            Self::Server(server) => {
                let plain = HeaderValue::from_static("text/plain; charset=utf-8");
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, plain)]);
                server.post(headers, HeaderMap::new(), note.into()).await
            }
        }
    }
}

/// Returns the name of a witness, safe to show.
fn shown_name(config: &WitnessConfig) -> String {
    match config {
        WitnessConfig::File(path) => path.display().to_string(),
        WitnessConfig::Server(url) => shown(url),
        WitnessConfig::Git(repository) => format!("git:{}", repository.display()),
        WitnessConfig::Syslog(address) => address.to_string(),
    }
}

/// Returns the message with a checkpoint. As JSON, its line feeds survive receivers that keep lines.
fn checkpoint_message(note: String) -> SyslogMessage {
    let text = json!({ "checkpoint": note }).to_string();
    SyslogMessage { at: now_millis(), severity: SyslogSeverity::Info, id: "checkpoint".to_owned(), text }
}

/// Adds a checkpoint to a file, after an empty line, in one write: several brokers may add to it.
fn add(path: &Path, note: &str) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let text = if file.metadata()?.len() == 0 { note.to_owned() } else { format!("\n{note}") };
    file.write_all(text.as_bytes())?;
    file.sync_data()
}
