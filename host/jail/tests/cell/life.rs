//! Tests of how a cell begins and ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use portcullis_jail::{Launcher, RunningLauncher, StartedCell, Tier};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{STUBBORN, assert_gone, beneath, each, launcher, output, refusal, says, shell, standing, start};

#[test]
fn a_program_runs_and_its_exit_status_is_reported() {
    each(|_| {
        assert_eq!(says("read line; echo hello"), "hello\n");
        assert_eq!(output(&shell("exit 7")).1.code(), Some(7));
        assert_eq!(output(&shell("kill -TERM $$")).1.signal(), Some(15));
        assert_eq!(output(&shell("kill -KILL $$")).1.signal(), Some(9));
    });
}

#[test]
fn every_process_ends_when_the_broker_closes_the_connection() {
    each(|_| {
        let mut started = start(&shell(STUBBORN));
        started.control.ready(drop).unwrap();
        let inside = standing(&mut started);
        started.control.terminate();
        drop(started.control);
        let status = started.process.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
        assert_gone(&inside);
    });
}

#[test]
fn every_process_ends_with_the_source_and_sigterm_reaches_it() {
    each(|_| {
        let script = "trap 'echo told; exit 5' TERM; setsid sleep 1000 & echo up; while :; do read line; done";
        let mut started = start(&shell(script));
        started.control.ready(drop).unwrap();
        let mut output = BufReader::new(started.output);
        let mut said = String::new();
        output.read_line(&mut said).unwrap();
        let inside = beneath(started.process.id());
        started.control.terminate();
        assert_eq!(started.process.wait().unwrap().code(), Some(5));
        output.read_to_string(&mut said).unwrap();
        assert_eq!(said, "up\ntold\n");
        assert_gone(&inside);
    });
}

/// Starts a source through a launcher that runs this script first, and checks that the status of the source arrives.
/// The script finds the launcher proper as `$0.jail`.
fn assert_status_arrives_behind(script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("launcher");
    // A process of another test that is forked while this one has the file open for writing would keep it from being
    // executed, so another process writes it.
    let source = folder.path().join("launcher.sh");
    fs::write(&source, script).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("cp").arg(&source).arg(&path).status().unwrap().success());
    symlink(env!("CARGO_BIN_EXE_portcullis-jail"), folder.path().join("launcher.jail")).unwrap();
    let mut started = RunningLauncher::new(&Launcher::Path(path)).unwrap().start(&shell("exit 7")).unwrap();
    started.control.ready(drop).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(started.process.wait().unwrap().code(), Some(7));
}

/// Stopping a process interrupts it while it waits on a socket with a timeout, as suspending the machine does.
#[test]
fn a_broker_that_is_stopped_and_continued_keeps_waiting() {
    assert_status_arrives_behind(
        "#!/bin/sh
        sleep 0.1
        kill -STOP $PPID
        until grep -q 'State:.T' /proc/$PPID/status; do :; done
        kill -CONT $PPID
        exec \"$0.jail\" \"$@\"\n",
    );
}

/// A program that ignores SIGCHLD passes that on to programs that it executes, whose children then leave no status.
#[test]
fn a_broker_whose_parent_ignored_the_ends_of_children_learns_the_status_of_a_source() {
    assert_status_arrives_behind("#!/bin/sh\nexec /usr/bin/env --ignore-signal=CHLD \"$0.jail\" \"$@\"\n");
}

#[test]
fn a_program_that_is_no_launcher_is_refused_with_the_reason() {
    let mut running = RunningLauncher::new(&Launcher::Path("/usr/bin/true".into())).unwrap();
    let why = running.start(&shell("")).unwrap_err().to_string();
    assert!(why.contains("main_if_asked"), "{why}");
}

/// Returns the fork server: the child of this thread that is not the outermost process of the cell.
fn fork_server(started: &StartedCell) -> i32 {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let mut children = children.split_whitespace().map(|child| child.parse().unwrap());
    children.find(|&child: &i32| child.unsigned_abs() != started.process.id()).unwrap()
}

/// Reports whether a process has a text in memory that it can change.
fn remembers(process: &str, text: &[u8]) -> bool {
    let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        // A few regions cannot be read.
        memory.read_exact_at(&mut bytes, from).is_ok() && bytes.windows(text.len()).any(|window| window == text)
    })
}

#[test]
fn one_launcher_starts_many_cells_which_outlive_it_and_it_learns_nothing_of_them() {
    const SECRET: &str = "a secret of the first source";
    let mut running = RunningLauncher::new(&launcher()).unwrap();
    let mut launch = shell("read line; exit 3");
    launch.environment.push(("KEY".to_owned(), SECRET.into()));
    let mut first = running.start(&launch).unwrap();
    first.control.ready(drop).unwrap();
    assert!(remembers("self", SECRET.as_bytes()));
    assert!(!remembers(&fork_server(&first).to_string(), SECRET.as_bytes()));
    let mut second = running.start(&shell("read line; exit 4")).unwrap();
    second.control.ready(drop).unwrap();
    // The outermost processes are children of this process, so that it sees their ends.
    for outermost in [first.process.id(), second.process.id()] {
        let status = fs::read_to_string(format!("/proc/{outermost}/status")).unwrap();
        assert!(status.contains(&format!("PPid:\t{}\n", std::process::id())), "{status}");
    }
    drop(running);
    drop(first.input);
    assert_eq!(first.process.wait().unwrap().code(), Some(3));
    drop(second.input);
    assert_eq!(second.process.wait().unwrap().code(), Some(4));
}

#[test]
fn a_launcher_that_was_killed_starts_nothing_more_and_its_cells_go_on() {
    let mut running = RunningLauncher::new(&launcher()).unwrap();
    let mut started = running.start(&shell("read line; exit 5")).unwrap();
    started.control.ready(drop).unwrap();
    assert!(!running.has_ended());
    let server = Pid::from_raw(fork_server(&started)).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    waitid(WaitId::Pid(server), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let why = running.start(&shell("")).unwrap_err().to_string();
    assert!(why.contains("the launcher ended"), "{why}");
    assert!(running.has_ended());
    drop(started.input);
    assert_eq!(started.process.wait().unwrap().code(), Some(5));
}

#[test]
fn a_program_or_folder_that_is_not_in_the_cell_is_named() {
    each(|_| {
        let mut launch = shell("");
        launch.program = "/opt/server".into();
        let refused = refusal(&launch);
        assert_eq!((refused.step.as_str(), refused.errno), ("execute /opt/server", Some(2)));
        assert!(refused.to_string().contains("grant it with `read`"), "{refused}");
        let mut launch = shell("");
        launch.directory = "/srv".into();
        assert_eq!(refusal(&launch).step, "change to the folder /srv");
    });
}

#[test]
fn the_probe_says_which_tier_this_machine_gives() {
    let found = RunningLauncher::new(&launcher()).unwrap().probe();
    assert_eq!(found.best(), Some(Tier::Full), "{found:?}");
    let user = rustix::process::geteuid();
    assert_eq!(found.full.unwrap().user, if user.is_root() { 65_533 } else { user.as_raw() });
}

#[test]
fn where_namespaces_are_denied_the_probe_names_the_setting_and_offers_less() {
    let folder = tempfile::tempdir().unwrap();
    let denied = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cell/denied.sh");
    for (name, program) in [("launcher", denied.as_path()), ("jail", Path::new(env!("CARGO_BIN_EXE_portcullis-jail")))]
    {
        symlink(program, folder.path().join(name)).unwrap();
    }
    let found = RunningLauncher::new(&Launcher::Path(folder.path().join("launcher"))).unwrap().probe();
    let full = found.full.clone().unwrap_err();
    assert_eq!((full.step.as_str(), full.errno), ("namespaces", Some(28)), "{full}");
    assert_eq!(full.setting.as_deref(), Some("user.max_user_namespaces"));
    assert!(full.to_string().ends_with("run `sudo sysctl -w user.max_user_namespaces=10000`"), "{full}");
    assert!(found.bwrap.is_err());
    assert_eq!(found.best(), Some(Tier::Reduced), "{found:?}");
    assert!(found.reduced.unwrap().landlock >= 1);
}
