//! The life of one process and its group: started from the one thread that never ends, always reaped, killed whole.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as StdChild, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// A started process. Dropping it kills its group.
pub(super) struct Child {
    leader: Arc<Leader>,
    ended: watch::Receiver<Option<End>>,
}

/// The three ends of its standard streams.
pub(super) struct Streams {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) error: ChildStderr,
}

/// How and when a process ended.
#[derive(Clone, Copy)]
struct End {
    status: ExitStatus,
    at: Instant,
}

/// The process that leads the group. While it is not reaped its number can mean no other process.
struct Leader {
    pid: Pid,
    reaped: Mutex<bool>,
}

impl Child {
    /// Starts the command with piped streams.
    pub(super) async fn start(mut command: Command) -> io::Result<(Self, Streams)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (reply, started) = oneshot::channel();
        let spawner = spawner().ok_or_else(|| io::Error::other("cannot start the thread that starts processes"))?;
        let gone = || io::Error::other("the thread that starts processes has ended");
        spawner.send(Order { command, reply }).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }

    /// Sends a signal to the leader and its whole group. Nothing happens once the leader is reaped; its group was killed
    /// then.
    pub(super) fn signal(&self, signal: Signal) {
        self.leader.signal(signal);
    }

    /// Waits for the end, and says when it was. Cancellation safe.
    pub(super) async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        // The warden always tells before it goes.
        end.map_or_else(Instant::now, |end| end.at)
    }

    /// How it ended, if it has: "exited with status 1", "was killed by SIGKILL".
    pub(super) fn fate(&self) -> Option<String> {
        (*self.ended.borrow()).map(|end| describe(end.status))
    }

    /// Takes over a process that was just spawned.
    fn watch(mut child: StdChild) -> io::Result<(Self, Streams)> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (Some(pid), Some(input), Some(output), Some(error)) =
            (pid, child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the started process has no number or no streams"));
        };
        let leader = Arc::new(Leader { pid, reaped: Mutex::new(false) });
        let (tell, ended) = watch::channel(None);
        let warden = Arc::clone(&leader);
        // A thread, not a task: it must do its work although the runtime is going down.
        let started = std::thread::Builder::new().name("portcullis-warden".to_owned()).spawn(move || {
            // Whoever listened may be gone.
            let _ = tell.send(Some(End { status: warden.reap(child), at: Instant::now() }));
        });
        if let Err(error) = started {
            leader.signal(Signal::KILL);
            return Err(error);
        }
        Ok((Self { leader, ended }, Streams { input, output, error }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Leader {
    fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // Both: until the launcher has made its own group, only the first reaches it. Whoever is gone is no error.
            let _ = kill_process(self.pid, signal);
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Waits for the leader's end, kills what is left of its group, then takes its status.
    fn reap(&self, mut child: StdChild) -> ExitStatus {
        // Leaves it unreaped, so that its number still names its group and nobody else's.
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
        let mut reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody left is no error.
        let _ = kill_process_group(self.pid, Signal::KILL);
        *reaped = true;
        // The only error is that somebody else has taken the status, which says nothing then.
        child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0))
    }
}

struct Order {
    command: Command,
    reply: oneshot::Sender<io::Result<(Child, Streams)>>,
}

/// The one thread that starts all processes. A source is killed by the kernel when the thread that started it ends, so this
/// one must live as long as the broker.
fn spawner() -> Option<&'static std::sync::mpsc::Sender<Order>> {
    static SPAWNER: OnceLock<Option<std::sync::mpsc::Sender<Order>>> = OnceLock::new();
    let start = || {
        let (orders, queue) = std::sync::mpsc::channel::<Order>();
        let run = move || {
            for Order { mut command, reply } in queue {
                // A caller that has gone away drops the child with the answer, and so kills it.
                let _ = reply.send(command.spawn().and_then(Child::watch));
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
