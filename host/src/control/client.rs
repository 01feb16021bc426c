//! The command line's side of the control sockets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::wire::{self, Envelope};
use super::{ControlError, ControlRefusal, ControlRequest, DEADLINE, folder};
use crate::ledger::is_live;
use futures_util::future::join_all;
use serde_json::Value;

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
    let failed = |error: io::Error| ControlError::file("connect to", path, &error);
    let mut stream = wire::connect(path).map_err(failed)?;
    wire::check_peer(&stream)?;
    wire::send(&mut stream, request).await?;
    let line = wire::receive(&mut stream).await?;
    match serde_json::from_slice(&line) {
        Ok(Envelope::Ok(value)) => Ok(value),
        Ok(Envelope::Refused(ControlRefusal::Absent(text))) => Err(ControlError::Absent(text)),
        Ok(Envelope::Refused(ControlRefusal::Error(text))) => Err(ControlError::Refused(text)),
        Err(error) => Err(ControlError::Broken(format!("not an answer that this version knows: {error}"))),
    }
}
