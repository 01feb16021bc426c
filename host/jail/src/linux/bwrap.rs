//! The full tier with the help of bubblewrap, for systems that allow namespaces to bubblewrap only. Bubblewrap builds
//! the root and executes this launcher in it, which does the rest: sockets, Landlock, seccomp, limits, and supervising
//! the cell.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{
    DumpableBehavior, Signal, geteuid, getpid, set_child_subreaper, set_dumpable_behavior,
    set_parent_process_death_signal,
};

use super::full::{end_as, start_and_keep, wait_for, watch};
use super::grants::open_path;
use super::reduced::kill_descendants;
use super::root::{DEVICE_LINKS, DEVICES, limit_the_kernel, masked};
use super::source::SourceStreams;
use super::sys::{Fork, fork};
use super::{network, refuse};
use crate::cell::{CellSpec, MountAccess};
use crate::launch::{ASK_INSIDE, LaunchRequest};
use crate::report::CellRefusal;
use crate::step::{StepExt, refused};
use crate::wire;

/// The paths at which systems install bubblewrap. No search path is used, since the whole cell depends on this program.
const PROGRAMS: [&str; 3] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// The launcher's path inside.
const SELF: &str = "/.portcullis-jail";

/// The first byte that the launcher inside sends: from here on it reports to the broker itself.
const INSIDE: u8 = b'I';

/// Starts bubblewrap and waits for its end.
pub(super) fn run(ask: &LaunchRequest, control: &UnixStream, streams: SourceStreams) -> Result<i32, CellRefusal> {
    if geteuid().is_root() {
        let remedy = "start the broker as an ordinary user, or allow root the namespaces";
        return Err(refused("bubblewrap", "it cannot make grants of root usable for another user", remedy));
    }
    let program = PROGRAMS.into_iter().map(Path::new).find(|program| program.exists()).ok_or_else(|| {
        refused("bubblewrap", format_args!("there is no {}", PROGRAMS.join(" or ")), "install bubblewrap")
    })?;
    let (arguments, opened) = arguments(&ask.launch.cell)?;
    let (line, theirs) = UnixStream::pair().step("pipe")?;
    let (complaint, stderr) = io::pipe().step("pipe")?;
    set_child_subreaper(Some(getpid())).step("adopt what is left behind")?;
    let first = match fork().step("fork")? {
        Fork::Child => {
            let Err(error) = execute(program, &arguments, &opened, theirs, stderr);
            let refusal = refused("bubblewrap", format_args!("{}: {error}", program.display()), "reinstall it");
            std::process::exit(refuse(control, refusal))
        }
        Fork::Parent(first) => first,
    };
    drop((opened, theirs, stderr));
    // It holds the source's secrets, and ends by the source's own signal.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide memory")?;
    hand_over(ask, control, streams, &line, complaint)?;
    watch(first, control).step("watch the cell")?;
    let status = wait_for(first, line);
    // Bubblewrap does not wait for the first process of its namespaces, whose end makes the kernel kill the others.
    kill_descendants();
    Ok(end_as(status))
}

/// Sends the launcher inside all that it needs, and waits until it runs.
fn hand_over(
    ask: &LaunchRequest,
    control: &UnixStream,
    SourceStreams { input, output, error }: SourceStreams,
    mut line: &UnixStream,
    mut complaint: io::PipeReader,
) -> Result<(), CellRefusal> {
    let passed = [input.as_fd(), output.as_fd(), error.as_fd(), control.as_fd()];
    let mut word = [0];
    let sent = wire::send(line, ask, &passed).and_then(|()| line.read_exact(&mut word));
    if sent.is_ok() && word == [INSIDE] {
        return Ok(());
    }
    let mut said = String::new();
    // If bubblewrap's error output cannot be read, there is nothing to show.
    let _ = complaint.read_to_string(&mut said);
    let remedy =
        "does this system allow bubblewrap user namespaces? `bwrap --unshare-all --ro-bind / / true` must work";
    Err(refused("bubblewrap", said.trim(), remedy))
}

fn execute(
    program: &Path,
    arguments: &[OsString],
    opened: &[OwnedFd],
    line: UnixStream,
    stderr: io::PipeWriter,
) -> io::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for descriptor in opened {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
    }
    let mut command = Command::new(program);
    command.args(arguments).arg("--").args([SELF, ASK_INSIDE]).env_clear();
    command.stdin(OwnedFd::from(line)).stdout(std::process::Stdio::null()).stderr(stderr);
    Err(command.exec())
}

/// Returns the cell as arguments of bubblewrap, and the descriptors that they name.
fn arguments(cell: &CellSpec) -> Result<(Vec<OsString>, Vec<OwnedFd>), CellRefusal> {
    let mut words: Vec<OsString> = Vec::new();
    let mut say = |said: &[&OsStr]| words.extend(said.iter().map(|&word| word.to_owned()));
    let mut opened = Vec::new();
    // All capabilities in its namespaces, for the launcher inside, which drops them. The user id stays the same: for
    // another one, bubblewrap would nest a second user namespace, without rights over the network.
    for word in ["--unshare-all", "--unshare-user", "--die-with-parent", "--hostname", "cell", "--cap-add", "ALL"] {
        say(&[word.as_ref()]);
    }
    // The launcher inside is the first process of its namespace, which no process in there can stop.
    say(&["--as-pid-1".as_ref()]);
    say(&["--proc", "/proc"].map(OsStr::new));
    for device in DEVICES.map(|name| Path::new("/dev").join(name)) {
        say(&["--dev-bind".as_ref(), device.as_os_str(), device.as_os_str()]);
    }
    for path in masked() {
        say(&["--dev-bind".as_ref(), "/dev/null".as_ref(), path.as_os_str()]);
    }
    let size = cell.limits.tmp.to_string();
    for (path, mode) in [(Path::new("/tmp"), "1777"), (Path::new("/dev/shm"), "1777"), (&cell.home, "0700")] {
        say(&["--perms", mode, "--size", &size, "--tmpfs"].map(OsStr::new));
        say(&[path.as_os_str()]);
    }
    let own = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step("open the launcher")?;
    let mut bind = |opened_at: OwnedFd, path: &OsStr, access: MountAccess, say: &mut dyn FnMut(&[&OsStr])| {
        let flag = if access == MountAccess::Write { "--bind-fd" } else { "--ro-bind-fd" };
        say(&[flag.as_ref(), opened_at.as_raw_fd().to_string().as_ref(), path]);
        opened.push(opened_at);
    };
    bind(own, SELF.as_ref(), MountAccess::Read, &mut say);
    let mut mounts: Vec<_> = cell.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.path.components().count());
    for mount in mounts {
        bind(open_path(&mount.path)?, mount.path.as_os_str(), mount.access, &mut say);
    }
    for path in &cell.hidden {
        // Bubblewrap would make a folder that is missing.
        open_path(path)?;
        say(&["--perms".as_ref(), "0555".as_ref(), "--tmpfs".as_ref(), path.as_os_str()]);
        say(&["--remount-ro".as_ref(), path.as_os_str()]);
    }
    for (path, content) in &cell.files {
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|file| filled(file, content))
            .step(format_args!("make {}", path.display()))?;
        say(&["--ro-bind-data".as_ref(), file.as_raw_fd().to_string().as_ref(), path.as_os_str()]);
        opened.push(file);
    }
    let links = cell.links.iter().map(|(path, target)| (path.as_path(), target.as_path()));
    for (path, target) in
        DEVICE_LINKS.map(|(path, target)| (Path::new(path), Path::new(target))).into_iter().chain(links)
    {
        say(&["--symlink".as_ref(), target.as_os_str(), path.as_os_str()]);
    }
    say(&["--remount-ro", "/"].map(OsStr::new));
    Ok((words, opened))
}

fn filled(file: OwnedFd, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(file);
    file.write_all(content)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Runs the launcher inside, which does what bubblewrap does not.
pub(super) fn inside(
    ask: &LaunchRequest,
    control: &UnixStream,
    streams: SourceStreams,
    mut line: UnixStream,
) -> Result<i32, CellRefusal> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with bubblewrap")?;
    // A deputy may read the memory of its descendants only, if the machine is strict (Yama).
    set_child_subreaper(Some(getpid())).step("adopt what is left behind")?;
    line.write_all(&[INSIDE]).step("tell the launcher outside")?;
    // A security policy for bubblewrap may deny this; it then denies nested namespaces itself, and so does seccomp.
    let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let _ = proc.and_then(|proc| limit_the_kernel(&proc));
    let listeners = network::listeners(&ask.launch.cell.network)?;
    let status = start_and_keep(ask, control, streams, listeners, outside_user())?;
    let raw = status.map_or(libc::SIGKILL, |status| status.as_raw());
    // The outer launcher ends as the source did; bubblewrap's own status tells less.
    let _ = line.write_all(&raw.to_ne_bytes());
    Ok(end_as(raw))
}

/// Returns the id that this user has outside the namespace.
fn outside_user() -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().nth(1).and_then(|user| user.parse().ok()).unwrap_or_default()
}
