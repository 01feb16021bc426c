//! The life of one cell: started from the one thread that never ends, always reaped, killed whole.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, OnceLock};

use portcullis_jail::{Control, Launch, Launcher, Ready, Refusal, Started};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// A started cell. Dropping it kills everything in it.
pub(crate) struct Child {
    control: Arc<Control>,
    ended: watch::Receiver<Option<End>>,
}

/// The three ends of its standard streams.
pub(crate) struct Streams {
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
    pub(crate) error: ChildStderr,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// How and when a process ended.
#[derive(Clone, Copy)]
struct End {
    status: ExitStatus,
    at: Instant,
}

impl Child {
    /// Starts the source in its cell, and waits until it is built. Dropping the future kills what was started.
    pub(crate) async fn start(launch: Launch, launcher: Launcher) -> Result<(Self, Streams, Ready), StartError> {
        let (reply, started) = oneshot::channel();
        let spawner = spawner().ok_or_else(|| io::Error::other("cannot start the thread that starts processes"))?;
        let gone = || io::Error::other("the thread that starts processes has ended");
        spawner.send(Order { launch, launcher, reply }).map_err(|_| gone())?;
        let (child, streams, ready) = started.await.map_err(|_| gone())??;
        let ready = ready.await.map_err(|_| gone())??;
        Ok((child, streams, ready))
    }

    /// Asks the source to end: SIGTERM.
    pub(crate) fn terminate(&self) {
        self.control.terminate();
    }

    /// Ends everything in the cell.
    pub(crate) fn kill(&self) {
        self.control.hang_up();
    }

    /// Waits for the end of everything in the cell, and says when it was. Cancellation safe.
    pub(crate) async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        // The warden always tells before it goes.
        end.map_or_else(Instant::now, |end| end.at)
    }

    /// How it ended, if it has: "exited with status 1", "was killed by SIGKILL".
    pub(crate) fn fate(&self) -> Option<String> {
        (*self.ended.borrow()).map(|end| describe(end.status))
    }

    /// Whether it has ended as programs do that were successful.
    pub(crate) fn succeeded(&self) -> bool {
        (*self.ended.borrow()).is_some_and(|end| end.status.success())
    }

    /// Takes over a cell that was just started.
    fn watch(started: Started) -> io::Result<Begun> {
        let Started { mut process, input, output, error, control } = started;
        let control = Arc::new(control);
        let (tell_ready, ready) = oneshot::channel();
        let (tell, ended) = watch::channel(None);
        let line = Arc::clone(&control);
        // A thread, not a task: it must do its work although the runtime is going down.
        let watch = move || {
            // Whoever listened may be gone.
            let _ = tell_ready.send(line.ready());
            // The only error is that somebody else has taken the status, which says nothing then.
            let status = process.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
            let _ = tell.send(Some(End { status, at: Instant::now() }));
        };
        std::thread::Builder::new().name("portcullis-warden".to_owned()).spawn(watch)?;
        Ok((Self { control, ended }, Streams { input, output, error }, ready))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What was begun, and word to come whether its cell was built.
type Begun = (Child, Streams, oneshot::Receiver<Result<Ready, Refusal>>);

struct Order {
    launch: Launch,
    launcher: Launcher,
    reply: oneshot::Sender<io::Result<Begun>>,
}

/// The one thread that starts all processes. A source is killed by the kernel when the thread that started it ends, so this
/// one must live as long as the broker.
fn spawner() -> Option<&'static std::sync::mpsc::Sender<Order>> {
    static SPAWNER: OnceLock<Option<std::sync::mpsc::Sender<Order>>> = OnceLock::new();
    let start = || {
        let (orders, queue) = std::sync::mpsc::channel::<Order>();
        let run = move || {
            for Order { launch, launcher, reply } in queue {
                // A caller that has gone away drops the child with the answer, and so kills it.
                let _ = reply.send(launch.start(&launcher).and_then(Child::watch));
            }
        };
        std::thread::Builder::new().name("portcullis-spawner".to_owned()).spawn(run).ok()?;
        Some(orders)
    };
    SPAWNER.get_or_init(start).as_ref()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
