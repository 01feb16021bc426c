//! The broker's side: the specification of a launch, and the control connection to the started process.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cell::{CellSpec, Launcher, Network};
#[cfg(target_os = "linux")]
use crate::cgroup::ControlGroup;
use crate::fork_server::ForkServer;
use crate::outermost::OutermostProcess;
use crate::report::{CellRefusal, EnforcementReport};
use crate::wire;
#[cfg(not(target_os = "linux"))]
use without_cgroups::ControlGroup;

/// The first argument that makes the program act as the launcher. It is not meant to be typed.
pub(crate) const ASK: &str = "__jail";

/// The first argument that makes the program act as the launcher in a cell whose namespaces bubblewrap has made.
#[cfg(target_os = "linux")]
pub(crate) const ASK_INSIDE: &str = "__jail-inside";

/// Reports whether this first argument makes the program act as a launcher.
pub(crate) fn asks(first: Option<&OsStr>) -> bool {
    #[cfg(target_os = "linux")]
    if first == Some(OsStr::new(ASK_INSIDE)) {
        return true;
    }
    first == Some(OsStr::new(ASK))
}

/// The remedy for a launcher that ends without an answer.
pub(crate) const IS_LAUNCHER: &str = "is `portcullis::main_if_asked()` the first statement of the launcher's `main`?";

/// The byte that the broker writes to have SIGTERM sent to the source. Closing the connection kills the source instead.
pub(crate) const TERMINATE: u8 = b'T';

/// The longest time that the launcher may take to build a cell. It takes milliseconds, but a hanging network file
/// system would take for ever.
pub(crate) const BUILD_DEADLINE: Duration = Duration::from_secs(20);

impl Launcher {
    /// Returns the command that runs the launcher with this end of a connection.
    pub(crate) fn command(&self, connection: UnixStream) -> Command {
        let mut command = Command::new(self.program());
        command.arg(ASK).env_clear().stdin(OwnedFd::from(connection)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn program(&self) -> OsString {
        match self {
            // The link, not the path that it shows: it still leads to the running program after that was replaced on
            // disk.
            Self::SelfExec if cfg!(target_os = "linux") => "/proc/self/exe".into(),
            Self::SelfExec => std::env::current_exe().unwrap_or_default().into(),
            Self::Path(path) => path.into(),
        }
    }
}

/// The program to start, with its arguments, environment, directory and cell. The source gets no environment variable
/// and no descriptor that is not listed here, besides the three standard streams.
#[derive(Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The program's absolute path inside the cell. No search path is used.
    pub program: PathBuf,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(String, OsString)>,
    /// The working directory, as its path is inside the cell.
    pub directory: PathBuf,
    /// The cell: the files, hosts and resources that the source can use.
    pub cell: CellSpec,
}

/// The request for one cell. It is sent over the control connection and not on the command line, which others can read.
#[derive(Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// The broker's process id. If the broker has ended before the launcher is ready, nothing starts.
    pub(crate) parent: i32,
    /// True to take every step except the last: nothing is executed.
    pub(crate) rehearsal: bool,
    /// True if a delegated cgroup limits the cell; the file to enter it by is sent along with the streams.
    pub(crate) cgroup: bool,
    pub(crate) launch: LaunchSpec,
}

/// A launcher that runs, and that starts cells. They continue when it is dropped.
#[derive(Debug)]
pub struct RunningLauncher {
    forks: ForkServer,
}

impl RunningLauncher {
    /// Starts the launcher. Returns at once.
    ///
    /// The thread that calls this must live as long as the sources that the launcher starts: when it ends, the kernel
    /// kills them.
    ///
    /// # Errors
    /// If the launcher cannot be executed.
    pub fn new(launcher: &Launcher) -> io::Result<Self> {
        // A delegated group is taken while this process is alone in it.
        ControlGroup::prepare();
        Ok(Self { forks: ForkServer::start(launcher)? })
    }

    /// Has the launcher build the cell and become the program. Returns at once; [`CellControl::ready`] waits until the
    /// cell is built.
    ///
    /// # Errors
    /// If the launcher has ended, the launch does not fit into a message (16 MiB), or a path is not UTF-8.
    pub fn start(&mut self, launch: &LaunchSpec) -> io::Result<StartedCell> {
        self.ask(launch, false)
    }

    /// Reports whether the launcher has ended, so that it can start nothing more.
    pub fn has_ended(&mut self) -> bool {
        self.forks.has_ended()
    }

    pub(crate) fn ask(&mut self, launch: &LaunchSpec, rehearsal: bool) -> io::Result<StartedCell> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(BUILD_DEADLINE))?;
        ours.set_write_timeout(Some(BUILD_DEADLINE))?;
        let ((input, to_input), (from_output, output), (from_error, error)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        let group = ControlGroup::new(&launch.cell.limits)?;
        let open_procs_file = group.as_ref().map(ControlGroup::open_procs_file).transpose()?;
        let mut process = self.forks.outermost(theirs)?;
        let parent = i32::try_from(std::process::id()).unwrap_or_default();
        let ask = LaunchRequest { parent, rehearsal, cgroup: open_procs_file.is_some(), launch: launch.clone() };
        let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
        let passed: Vec<_> = streams.into_iter().chain(open_procs_file.as_ref().map(AsFd::as_fd)).collect();
        let sent = wire::send(&ours, &ask, &passed);
        // If the launcher does not even read, `CellControl::ready` reports that.
        if let Err(error) =
            sent.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
        {
            // It ends when its connection does.
            drop(ours);
            // The process is gone and reaped, however it ended.
            let _ = process.wait();
            return Err(error);
        }
        Ok(StartedCell {
            process,
            input: OwnedFd::from(to_input).into(),
            output: OwnedFd::from(from_output).into(),
            error: OwnedFd::from(from_error).into(),
            control: CellControl {
                socket: ours,
                listeners: launch.cell.network.listeners(),
                recorded: launch.cell.recorded,
                _group: group,
            },
        })
    }
}

impl std::fmt::Debug for LaunchSpec {
    // The environment and the arguments may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaunchSpec").field("program", &self.program).field("cell", &self.cell).finish_non_exhaustive()
    }
}

impl Network {
    /// Returns how many sockets are handed to the broker.
    pub(crate) fn listeners(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Listeners(listeners) | Self::Everywhere(listeners) => listeners.len(),
        }
    }
}

/// A cell that the launcher builds, and whose last process becomes the source.
#[derive(Debug)]
pub struct StartedCell {
    /// The outermost process. It ends after all others of the cell, with the source's exit status or by the same
    /// signal. The owner must wait for it, or it stays as a zombie.
    pub process: OutermostProcess,
    /// The source's standard input.
    pub input: ChildStdin,
    /// The source's standard output.
    pub output: ChildStdout,
    /// The source's standard error.
    pub error: ChildStderr,
    /// The control connection to the cell. Dropping it kills everything in the cell.
    pub control: CellControl,
}

/// The control connection to a running cell. The cell lives no longer than this. Wait for [`StartedCell::process`]
/// before dropping it.
#[derive(Debug)]
pub struct CellControl {
    socket: UnixStream,
    listeners: usize,
    recorded: bool,
    /// Dropped after the connection, and after the processes if they were waited for.
    _group: Option<ControlGroup>,
}

/// A cell that was built, with the source's program executed in it.
#[derive(Debug)]
pub struct BuiltCell {
    /// The mechanisms that the launcher enforces on the cell, as far as they differ between machines.
    pub enforced: EnforcementReport,
    /// The sockets of [`Network::Listeners`], in their order. They keep the cell's network alive: drop them with the
    /// source.
    pub listeners: Vec<OwnedFd>,
}

/// The descriptors of a recorded cell, of which [`SyscallListener`](crate::SyscallListener) makes a listener.
#[derive(Debug)]
pub struct SyscallListenerHandle {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no other system records cells"))]
    pub(crate) listener: OwnedFd,
    /// The connection to the cell's deputy, if it has one.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no other system records cells"))]
    pub(crate) deputy: Option<OwnedFd>,
}

impl CellControl {
    /// Waits until the cell is built and the program executed. Blocks for up to 20 seconds. To be called once. For a
    /// cell that is recorded, `record` is given the listener first: the program is executed once another thread has
    /// answered the system calls that this takes.
    ///
    /// # Errors
    /// Why the cell was refused. No code of the source has run then.
    pub fn ready(&self, record: impl FnOnce(SyscallListenerHandle)) -> Result<BuiltCell, CellRefusal> {
        if self.recorded {
            let (begun, descriptors) = self.receive::<()>()?;
            begun?;
            let mut descriptors = descriptors.into_iter();
            let listener =
                descriptors.next().map(|listener| SyscallListenerHandle { listener, deputy: descriptors.next() });
            listener.map(record);
        }
        let (built, listeners) = self.receive::<EnforcementReport>()?;
        let enforced = built?;
        if listeners.len() == self.listeners {
            Ok(BuiltCell { enforced, listeners })
        } else {
            Err(lost(format!("it handed over {} of {} sockets", listeners.len(), self.listeners)))
        }
    }

    /// Waits for one message of the launcher.
    fn receive<T: serde::de::DeserializeOwned>(&self) -> Result<(Result<T, CellRefusal>, Vec<OwnedFd>), CellRefusal> {
        wire::receive(&self.socket).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => lost(format!("no answer within {} s", BUILD_DEADLINE.as_secs())),
            _ => lost(format!("it ended without an answer ({error})")),
        })
    }

    /// Asks the source to end, by SIGTERM. A source that is gone is not an error.
    pub fn terminate(&self) {
        // Writing to a launcher that is gone is not an error, and one byte always fits.
        let _ = (&self.socket).write_all(&[TERMINATE]);
    }

    /// Kills everything in the cell, by closing the connection. A cell that is gone is not an error.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Returns the refusal for a launcher that did not answer as it should.
fn lost(cause: String) -> CellRefusal {
    CellRefusal { step: "launcher".to_owned(), cause, errno: None, setting: None, remedy: Some(IS_LAUNCHER.to_owned()) }
}

/// Cgroups exist on Linux only; elsewhere no cell has a group.
#[cfg(not(target_os = "linux"))]
mod without_cgroups {
    use std::fs::File;
    use std::io;

    use crate::cell::CellLimits;

    #[derive(Debug)]
    pub(super) enum ControlGroup {}

    impl ControlGroup {
        pub(super) fn prepare() {}

        pub(super) fn new(_: &CellLimits) -> io::Result<Option<Self>> {
            Ok(None)
        }

        pub(super) fn open_procs_file(&self) -> io::Result<File> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_launchers_own_words_make_a_program_its_launcher() {
        assert!(asks(Some(ASK.as_ref())));
        for other in [None, Some(""), Some("serve"), Some("__jail-"), Some("--__jail")] {
            assert!(!asks(other.map(OsStr::new)), "{other:?}");
        }
    }
}
