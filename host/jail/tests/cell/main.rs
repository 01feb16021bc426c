//! Cells with the real launcher, started by the user who runs the tests and, if that is root, by an ordinary user too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::LazyLock;

use portcullis_jail::{CellRefusal, CellSpec, LaunchSpec, Launcher, Mount, RunningLauncher, StartedCell};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tempfile::TempDir;

mod bwrap;
mod life;
mod names;
mod recorded;
mod reduced;
mod sight;
mod spend;

/// The user who starts the launcher.
#[derive(Debug, Clone, Copy, PartialEq)]
enum As {
    /// The user who runs the tests.
    Oneself,
    /// User 4242, who owns only what a test gives them.
    Ordinary,
}

impl As {
    /// Makes a folder that only this user can enter.
    fn folder(self) -> TempDir {
        tempfile::Builder::new().prefix("jail-").permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap()
    }
}

/// Runs a test as each user that this process can become.
fn each(test: impl Fn(As) + Copy + Send + 'static) {
    test(As::Oneself);
    if rustix::process::geteuid().is_root() {
        // Credentials are per thread, and this thread starts the launcher.
        let ordinary = move || {
            // Only the user who runs the tests can make the copy.
            LazyLock::force(&COPY);
            set_thread_groups(&[]).unwrap();
            let (user, group) = (Uid::from_raw(4242), Gid::from_raw(4242));
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            test(As::Ordinary);
        };
        std::thread::spawn(ordinary).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Returns the launch of a shell, with what it needs to run.
fn shell(script: &str) -> LaunchSpec {
    let mut cell = CellSpec::default();
    cell.mounts.push(Mount::read("/usr"));
    for name in ["bin", "lib", "lib64"] {
        cell.links.push((Path::new("/").join(name), Path::new("usr").join(name)));
    }
    cell.mounts.push(Mount::read("/etc/ld.so.cache"));
    LaunchSpec {
        program: "/usr/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("PATH".to_owned(), "/usr/bin".into())],
        directory: "/home/source".into(),
        cell,
    }
}

/// A copy of the launcher that every user can execute, as the build folder may be closed to ordinary users.
struct LauncherCopy {
    path: PathBuf,
    /// Closes when this process ends, and then another one removes the copy. A test that has become an ordinary user
    /// cannot.
    _lives: ChildStdin,
}

static COPY: LazyLock<LauncherCopy> = LazyLock::new(|| {
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap().keep();
    // Copied by another process: a child that this process is just starting must not inherit a descriptor for writing,
    // with which the copy could not be executed.
    let made = Command::new("cp").arg(env!("CARGO_BIN_EXE_portcullis-jail")).arg(folder.join("jail")).status();
    assert!(made.unwrap().success());
    // In the background, as tests look for the launcher among the children of this process.
    let removes = "exec 3<&0; { cat <&3; rm -r -- \"$0\"; } >/dev/null 2>&1 &";
    let mut remover = Command::new("sh").args(["-c", removes]).arg(&folder).stdin(Stdio::piped()).spawn().unwrap();
    let lives = remover.stdin.take().unwrap();
    assert!(remover.wait().unwrap().success());
    LauncherCopy { path: folder.join("jail"), _lives: lives }
});

fn launcher() -> Launcher {
    Launcher::Path(COPY.path.clone())
}

fn start(launch: &LaunchSpec) -> StartedCell {
    RunningLauncher::new(&launcher()).unwrap().start(launch).unwrap()
}

/// Returns what a program wrote, and how it ended.
fn output(launch: &LaunchSpec) -> (String, ExitStatus) {
    let mut started = start(launch);
    started.control.ready(drop).unwrap_or_else(|refusal| panic!("{refusal}"));
    drop(started.input);
    let (mut said, mut complained) = (String::new(), String::new());
    started.output.read_to_string(&mut said).unwrap();
    started.error.read_to_string(&mut complained).unwrap();
    (said + &complained, started.process.wait().unwrap())
}

fn says(script: &str) -> String {
    output(&shell(script)).0
}

fn refusal(launch: &LaunchSpec) -> CellRefusal {
    let mut started = start(launch);
    let refusal = started.control.ready(drop).unwrap_err();
    assert_eq!(started.process.wait().unwrap().code(), Some(126));
    refusal
}

/// Returns the processes beneath this one, at any depth.
fn beneath(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let children: Vec<u32> = children.split_whitespace().map(|child| child.parse().unwrap()).collect();
    children.iter().copied().chain(children.iter().flat_map(|&child| beneath(child))).collect()
}

/// A shell with two daemons, each in its own session. All ignore SIGTERM, and each daemon prints `up` when it runs.
const STUBBORN: &str =
    "trap '' TERM HUP INT; for n in 1 2; do setsid sh -c 'echo up; sleep 1000' & done; cat; sleep 1000";

/// Waits until the daemons of [`STUBBORN`] run. Returns the processes beneath its launcher.
fn standing(started: &mut StartedCell) -> Vec<u32> {
    let mut lines = BufReader::new(&mut started.output).lines();
    assert_eq!([(); 2].map(|()| lines.next().unwrap().unwrap()), ["up", "up"]);
    beneath(started.process.id())
}

/// Checks that none of the processes exists, not even as a zombie.
fn assert_gone(processes: &[u32]) {
    assert!(processes.len() >= 3, "{processes:?}");
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process} is there");
    }
}
