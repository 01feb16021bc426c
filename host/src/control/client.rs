//! The command line's side of the control sockets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::wire::{self, Envelope};
use super::{ControlError, ControlRefusal, ControlRequest, DEADLINE, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, folder};
use crate::digest::Digest;
use crate::ledger::is_live;
use crate::name::ProfileName;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::net::UnixStream;

/// Sends a request to every live broker of a data folder at the same time, and returns each broker's chain and answer,
/// oldest broker first. Sockets that dead brokers left behind are removed.
///
/// # Errors
/// [`ControlError::File`] if the folder cannot be read. A missing folder means that there is no broker.
pub async fn all(
    data_dir: &Path,
    request: &ControlRequest,
) -> Result<Vec<(String, Result<Value, ControlError>)>, ControlError> {
    let sockets = sockets(data_dir)?;
    let asked = sockets.into_iter().map(async |(chain, path)| {
        let answer = tokio::time::timeout(DEADLINE, ask(&path, request)).await;
        (chain, answer.unwrap_or(Err(ControlError::TimedOut)))
    });
    Ok(join_all(asked).await)
}

/// Sends a request to the live broker of a data folder that writes this chain, and returns its answer.
///
/// # Errors
/// [`ControlError`]; [`ControlError::Absent`] if there is no such broker any more.
pub async fn one(data_dir: &Path, chain: &str, request: &ControlRequest) -> Result<Value, ControlError> {
    let found = sockets(data_dir)?.into_iter().find(|(other, _)| other == chain);
    let (_, path) = found.ok_or_else(|| ControlError::Absent(format!("broker {chain} has ended")))?;
    tokio::time::timeout(DEADLINE, ask(&path, request)).await.unwrap_or(Err(ControlError::TimedOut))
}

/// Opens a session in a live broker of a data folder that judges calls by this configuration: the oldest such broker
/// that serves sessions to programs of this machine. Returns `None` if there is none. The stream then carries messages
/// of MCP, one per line, and the agent speaks first.
///
/// # Errors
/// [`ControlError::File`] if the folder cannot be read; [`ControlError::Refused`] if a broker with this configuration
/// refuses the session.
pub async fn open_session(
    data_dir: &Path,
    profile: &ProfileName,
    config: &Digest,
) -> Result<Option<UnixStream>, ControlError> {
    let request = ControlRequest::Session { profile: profile.clone(), config: config.to_string() };
    for (_, path) in sockets(data_dir)? {
        match tokio::time::timeout(DEADLINE, connect(&path, &request)).await {
            Ok(Ok((_, stream))) => return Ok(Some(stream)),
            Ok(Err(refused @ ControlError::Refused(_))) => return Err(refused),
            // If a broker cannot be asked, the next one is.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Ok(None)
}

fn sockets(data_dir: &Path) -> Result<Vec<(String, PathBuf)>, ControlError> {
    let folder = folder(data_dir);
    let failed = |error: io::Error| ControlError::file("read", &folder, &error);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(chain) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else { continue };
        if is_live(data_dir, chain) {
            sockets.push((chain.to_owned(), entry.path()));
        } else {
            // Another process may have removed it first.
            let _ = fs::remove_file(entry.path());
        }
    }
    sockets.sort();
    Ok(sockets)
}

async fn ask(path: &Path, request: &ControlRequest) -> Result<Value, ControlError> {
    connect(path, request).await.map(|(answer, _)| answer)
}

/// Connects to a broker and makes one request. Returns its answer and the connection.
async fn connect(path: &Path, request: &ControlRequest) -> Result<(Value, UnixStream), ControlError> {
    let failed = |error: io::Error| ControlError::file("connect to", path, &error);
    let mut stream = wire::connect(path).map_err(failed)?;
    wire::check_peer(&stream)?;
    wire::send(&mut stream, request, MAX_REQUEST_BYTES).await?;
    let line = wire::receive(&mut stream, MAX_REPLY_BYTES).await?;
    match serde_json::from_slice(&line) {
        Ok(Envelope::Ok(value)) => Ok((value, stream)),
        Ok(Envelope::Refused(ControlRefusal::Absent(text))) => Err(ControlError::Absent(text)),
        Ok(Envelope::Refused(ControlRefusal::Error(text))) => Err(ControlError::Refused(text)),
        Err(error) => Err(ControlError::Broken(format!("not an answer that this version knows: {error}"))),
    }
}
