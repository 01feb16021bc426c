//! The broker's side: what is to be started, and the line to what was started.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Launcher, Network};
#[cfg(target_os = "linux")]
use crate::cgroup::Group;
use crate::report::{Enforced, Refusal};
use crate::wire;
#[cfg(not(target_os = "linux"))]
use without_cgroups::Group;

/// The first argument that turns the program into the launcher. Nobody types it.
pub(crate) const ASK: &str = "__jail";

/// What the broker writes to ask for a polite end: the source gets SIGTERM. The end of the line kills instead.
pub(crate) const TERMINATE: u8 = b'T';

/// How long the launcher may take to build a cell. It takes milliseconds; a hanging network file system would take for ever.
const BUILD_DEADLINE: Duration = Duration::from_secs(20);

impl Launcher {
    pub(crate) fn program(&self) -> OsString {
        match self {
            // The link, not the path it shows: it still leads to the running program after that was replaced on disk.
            Self::SelfExec if cfg!(target_os = "linux") => "/proc/self/exe".into(),
            Self::SelfExec => std::env::current_exe().unwrap_or_default().into(),
            Self::Path(path) => path.into(),
        }
    }
}

/// What is to be started. A fresh value names no environment variable and no descriptor beside the three standard ones:
/// what is not listed here does not reach the source.
#[derive(Clone, Serialize, Deserialize)]
pub struct Launch {
    /// An absolute path, as it is called inside the cell; no search path is asked.
    pub program: PathBuf,
    /// Its arguments, without the program.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(String, OsString)>,
    /// The working directory, as it is called inside the cell.
    pub directory: PathBuf,
    /// What it can see, reach and spend.
    pub cell: Cell,
}

/// What the launcher is told, over its standard input and never on its command line, which others can read.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The broker: when it is gone before the launcher is ready, nothing starts.
    pub(crate) parent: i32,
    /// Every step is taken but the last: nothing is executed.
    pub(crate) rehearsal: bool,
    /// A delegated cgroup bounds the cell; the way into it stands beside the streams.
    pub(crate) cgroup: bool,
    /// The namespaces are there already, and the line to the broker stands beside the streams.
    pub(crate) inside: bool,
    pub(crate) launch: Launch,
}

impl Launch {
    /// Starts the launcher, which builds the cell and becomes the program. Returns at once; [`Control::ready`] says whether
    /// the cell was built.
    ///
    /// The thread that calls this must live as long as the source: when it ends, the kernel kills the source.
    ///
    /// # Errors
    /// If the launcher cannot be executed, or what is to be started does not fit into a message (16 MiB), or a path is not
    /// UTF-8.
    pub fn start(&self, launcher: &Launcher) -> io::Result<Started> {
        self.ask(launcher, false)
    }

    pub(crate) fn ask(&self, launcher: &Launcher, rehearsal: bool) -> io::Result<Started> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(BUILD_DEADLINE))?;
        ours.set_write_timeout(Some(BUILD_DEADLINE))?;
        let ((input, to_input), (from_output, output), (from_error, error)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        let group = Group::new(&self.cell.limits)?;
        let entrance = group.as_ref().map(Group::entrance).transpose()?;
        let mut command = Command::new(launcher.program());
        command.arg(ASK).env_clear().stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        drop(command);
        let parent = i32::try_from(std::process::id()).unwrap_or_default();
        let ask = Ask { parent, rehearsal, cgroup: entrance.is_some(), inside: false, launch: self.clone() };
        let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
        let passed: Vec<_> = streams.into_iter().chain(entrance.as_ref().map(AsFd::as_fd)).collect();
        let sent = wire::send(&ours, &ask, &passed);
        // A launcher that does not even listen is found out by whoever waits for it to be ready.
        if let Err(error) =
            sent.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
        {
            // Whether it ends by itself or by this, it is gone and reaped.
            let _ = process.kill();
            let _ = process.wait();
            return Err(error);
        }
        Ok(Started {
            process,
            input: OwnedFd::from(to_input).into(),
            output: OwnedFd::from(from_output).into(),
            error: OwnedFd::from(from_error).into(),
            control: Control { socket: ours, listeners: self.cell.network.listeners(), _group: group },
        })
    }
}

impl std::fmt::Debug for Launch {
    // The environment and the arguments may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("program", &self.program).field("cell", &self.cell).finish_non_exhaustive()
    }
}

impl Network {
    /// How many sockets are handed to the broker.
    pub(crate) fn listeners(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Listeners(listeners) => listeners.len(),
        }
    }
}

/// A launcher that was started, and soon a source.
#[derive(Debug)]
pub struct Started {
    /// The outermost process. It ends after all others of the cell, with the status of the source or by its signal. Whoever
    /// holds this must wait for it, else it stays as a zombie.
    pub process: Child,
    /// The source's standard input.
    pub input: ChildStdin,
    /// The source's standard output.
    pub output: ChildStdout,
    /// The source's standard error.
    pub error: ChildStderr,
    /// The line to the cell. Dropping it kills everything in the cell.
    pub control: Control,
}

/// The line to a running cell. The cell lives no longer than this. To be dropped after [`Started::process`] was waited for.
#[derive(Debug)]
pub struct Control {
    socket: UnixStream,
    listeners: usize,
    /// Goes after the line, and after the processes if they were waited for.
    _group: Option<Group>,
}

/// A cell that was built, with the source's program executed in it.
#[derive(Debug)]
pub struct Ready {
    /// What stands behind it.
    pub enforced: Enforced,
    /// The sockets of [`Network::Listeners`], in their order. They keep the cell's network alive: drop them with the source.
    pub listeners: Vec<OwnedFd>,
}

impl Control {
    /// Waits until the cell is built and the program executed. Blocks, 20 seconds at most. To be called once.
    ///
    /// # Errors
    /// Why it was refused. Nothing of the source has run then.
    pub fn ready(&self) -> Result<Ready, Refusal> {
        let lost = |cause: String| Refusal {
            step: "launcher".to_owned(),
            cause,
            errno: None,
            setting: None,
            remedy: Some("does the program that is its launcher call `main_if_asked` first?".to_owned()),
        };
        let (said, listeners) =
            wire::receive::<Result<Enforced, Refusal>>(&self.socket).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => lost(format!("no answer within {} s", BUILD_DEADLINE.as_secs())),
                _ => lost(format!("it ended without an answer ({error})")),
            })?;
        let enforced = said?;
        if listeners.len() == self.listeners {
            Ok(Ready { enforced, listeners })
        } else {
            Err(lost(format!("it handed over {} of {} sockets", listeners.len(), self.listeners)))
        }
    }

    /// Asks the source to end: it gets SIGTERM. A source that is gone is no error.
    pub fn terminate(&self) {
        // Nobody there is no error; one byte always fits.
        let _ = (&self.socket).write_all(&[TERMINATE]);
    }

    /// Kills everything in the cell, by hanging up. Nobody there is no error.
    pub fn hang_up(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Only Linux has them.
#[cfg(not(target_os = "linux"))]
mod without_cgroups {
    use std::fs::File;
    use std::io;

    use crate::cell::Limits;

    #[derive(Debug)]
    pub(super) enum Group {}

    impl Group {
        pub(super) fn new(_: &Limits) -> io::Result<Option<Self>> {
            Ok(None)
        }

        pub(super) fn entrance(&self) -> io::Result<File> {
            match *self {}
        }
    }
}
