//! The life of one cell: it is always reaped, and killed as a whole.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, mpsc};

use portcullis_jail::{BuiltCell, CellControl, CellRefusal, LaunchSpec, Launcher, OutermostProcess, StartedCell};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::recorder::Recording;
use super::spawner::{Launchers, on_spawner};

/// A started cell. Dropping it kills every process in the cell.
pub struct CellProcess {
    control: Arc<CellControl>,
    ended: watch::Receiver<Option<End>>,
}

/// The broker's ends of a source's three standard streams.
pub struct ChildStreams {
    /// Standard input.
    pub input: ChildStdin,
    /// Standard output.
    pub output: ChildStdout,
    /// Standard error.
    pub error: ChildStderr,
}

/// An error that says why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum CellStartError {
    /// The operating system cannot start it.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The launcher refuses to build the cell.
    #[error("{0}")]
    Refused(#[from] CellRefusal),
}

/// The end of a process: its status and its time.
#[derive(Clone, Copy)]
struct End {
    /// `None` if something else has reaped the process.
    status: Option<ExitStatus>,
    at: Instant,
}

impl CellProcess {
    /// Starts the source and waits until its cell is built. Dropping the future kills the started program.
    ///
    /// A cell that is recorded reports to `recording`.
    pub async fn start(
        launch: LaunchSpec,
        launcher: Launcher,
        recording: Option<Arc<Recording>>,
    ) -> Result<(Self, ChildStreams, BuiltCell), CellStartError> {
        // If the caller has gone away, the started program is dropped with the answer, which kills it.
        let start = move |launchers: &mut Launchers| Self::watch(launchers.start(&launcher, &launch)?, recording);
        let (child, streams, ready) = on_spawner(start).await??;
        let ready = ready.await.map_err(|_| io::Error::other("the thread that watches the process has ended"))??;
        Ok((child, streams, ready))
    }

    /// Asks the source to end, by SIGTERM.
    pub fn terminate(&self) {
        self.control.terminate();
    }

    /// Kills every process in the cell.
    pub fn kill(&self) {
        self.control.close();
    }

    /// Waits until every process in the cell has ended, and returns when that was. Cancellation safe.
    pub async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        // The thread that waits for the process always sends before it ends.
        end.map_or_else(Instant::now, |end| end.at)
    }

    /// Returns how the source ended, if it has: "exited with status 1", "was killed by signal 9".
    pub fn exit_description(&self) -> Option<String> {
        (*self.ended.borrow()).map(|end| describe(end.status))
    }

    /// Reports whether the source has ended with exit status 0.
    pub fn succeeded(&self) -> bool {
        (*self.ended.borrow()).is_some_and(|end| end.status.is_some_and(|status| status.success()))
    }

    /// Waits for a cell that was just started, on a separate thread.
    fn watch(started: StartedCell, recording: Option<Arc<Recording>>) -> io::Result<Begun> {
        let StartedCell { mut process, input, output, error, control } = started;
        let control = Arc::new(control);
        let (tell_ready, ready) = oneshot::channel();
        let (tell, ended) = watch::channel(None);
        let line = Arc::clone(&control);
        let (give, given) = mpsc::channel::<OutermostProcess>();
        // A thread, not a task: it must finish its work even while the runtime shuts down.
        let watch = move || {
            let Ok(mut process) = given.recv() else { return };
            let record = |listener| {
                if let Some(recording) = recording {
                    recording.listen(listener);
                }
            };
            // The receiver may be gone.
            let _ = tell_ready.send(line.ready(record));
            let status = process.wait().ok();
            let _ = tell.send(Some(End { status, at: Instant::now() }));
        };
        let watching = std::thread::Builder::new().name("cell-watcher".to_owned()).spawn(watch);
        if let Err(error) = watching {
            // This ends the cell, and nobody else would wait for it.
            drop(control);
            let _ = process.wait();
            return Err(error);
        }
        // The thread lives until it has got this.
        let _ = give.send(process);
        Ok((Self { control, ended }, ChildStreams { input, output, error }, ready))
    }
}

impl Drop for CellProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cell that was started, and a receiver that later gets whether it was built.
type Begun = (CellProcess, ChildStreams, oneshot::Receiver<Result<BuiltCell, CellRefusal>>);

fn describe(status: Option<ExitStatus>) -> String {
    match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended with an unknown status".to_owned(),
    }
}
