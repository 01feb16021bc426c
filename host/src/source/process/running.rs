//! A running cell as the program behind a pipe.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;
use portcullis_jail::{BuiltCell, LaunchSpec, Launcher};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::Instant;

use crate::cell::{CellProcess, CellStartError, Recording};
use crate::egress::EgressProxy;
use crate::source::pipe::{PipeStreams, RunningProgram};
use crate::sync::Mutex;

/// The size of the pipes to and from a source, in bytes. The system gives one user 64 MiB for all pipes, and a source
/// takes a 128th of that; a pipe that nobody writes to takes no memory.
const PIPE_BYTES: usize = 256 * 1024;

/// A running cell and its egress proxy, which ends with the source.
pub(super) struct RunningCell {
    child: CellProcess,
    proxy: Mutex<Option<EgressProxy>>,
}

impl RunningCell {
    /// Starts a source in its cell, and serves the network that `serve` opens for it.
    pub(super) async fn start(
        launch: LaunchSpec,
        launcher: Launcher,
        recording: Option<Arc<Recording>>,
        serve: impl FnOnce(BuiltCell) -> io::Result<Option<EgressProxy>>,
    ) -> Result<(Self, PipeStreams), CellStartError> {
        let (child, streams, ready) = CellProcess::start(launch, launcher, recording).await?;
        let crate::cell::ChildStreams { input, output, error } = streams;
        widen(&input);
        widen(&output);
        let streams = PipeStreams {
            input: Box::new(ChildStdin::from_std(input)?),
            output: Box::new(ChildStdout::from_std(output)?),
            error: Box::new(ChildStderr::from_std(error)?),
        };
        let proxy = Mutex::new(serve(ready)?);
        Ok((Self { child, proxy }, streams))
    }
}

/// Makes room in a pipe for a part of a large message, so that the two ends do not wait for each other so often. Where
/// that is not possible, the pipe stays unchanged.
fn widen(pipe: &impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

#[async_trait]
impl RunningProgram for RunningCell {
    async fn wait(&self) -> Instant {
        self.child.wait().await
    }

    fn terminate(&self) {
        self.child.terminate();
    }

    fn kill(&self) {
        self.child.kill();
    }

    fn exit_description(&self) -> Option<String> {
        self.child.exit_description()
    }

    fn has_ended(&self) {
        self.proxy.lock().take();
    }
}
