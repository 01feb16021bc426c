//! Runs a program other than a source to its end in a cell: an installer.

use std::io;
use std::time::Duration;

use portcullis_jail::{BuiltCell, LaunchSpec, Launcher};
use portcullis_net::egress::EgressProxy;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::timeout;

use super::child::{CellProcess, ChildStreams};

/// The number of bytes of a program's output that are kept, from the end: errors come last.
const KEPT_BYTES: usize = 8 * 1024;

/// Runs a program to its end, with the network that `serve` opens for it, and returns the last 8 KiB of its standard
/// output. Dropping the future kills the program.
///
/// # Errors
/// If the program was not started, did not end within the deadline, or failed. If it failed, the text ends with the
/// last of its output.
pub(crate) async fn run_to_end(
    launch: LaunchSpec,
    launcher: Launcher,
    deadline: Duration,
    serve: impl FnOnce(BuiltCell) -> io::Result<Option<EgressProxy>>,
) -> Result<String, String> {
    let (child, streams, ready) =
        CellProcess::start(launch, launcher, None).await.map_err(|error| error.to_string())?;
    let ChildStreams { input, output, error } = streams;
    drop(input);
    let proxy = serve(ready).map_err(|error| error.to_string())?;
    let streams = ChildStdout::from_std(output).and_then(|output| Ok((output, ChildStderr::from_std(error)?)));
    let (output, error) = streams.map_err(|error| error.to_string())?;
    let whole = async { tokio::join!(child.wait(), tail(output), tail(error)) };
    let Ok((_, output, error)) = timeout(deadline, whole).await else {
        return Err(format!("it did not end within {} s", deadline.as_secs()));
    };
    drop(proxy);
    match child.exit_description() {
        Some(exit_description) if child.succeeded() => {
            tracing::debug!(exit_description, "an installer has ended");
            Ok(output)
        }
        exit_description => {
            let said = if error.trim().is_empty() { output } else { error };
            Err(format!("it {}: {}", exit_description.unwrap_or_else(|| "ended".to_owned()), said.trim()))
        }
    }
}

/// Reads a stream to its end and returns its last [`KEPT_BYTES`].
async fn tail(mut stream: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read) = stream.read(&mut chunk).await {
        let Some(new) = chunk.get(..read).filter(|new| !new.is_empty()) else { break };
        kept.extend_from_slice(new);
        let over = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..over);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
