//! The reduced tier.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use portcullis_jail::{CellSpec, LaunchSpec, Mount, Network, StartedCell, Tier};
use rustix::process::{Pid, Signal, kill_process};

use crate::sight::{EVERY_KIND, kinds_of_sockets};
use crate::{As, STUBBORN, assert_gone, beneath, each, output, refusal, shell, standing, start};

/// Returns the launch of a shell in the reduced tier, which only an ordinary user can use.
fn reduced(home: &Path, script: &str) -> LaunchSpec {
    let mut launch = shell(script);
    launch.cell = CellSpec { tier: Tier::Reduced, home: home.to_owned(), ..CellSpec::default() };
    launch.cell.mounts = ["/usr", "/etc/ld.so.cache"].map(Mount::read).into();
    launch.directory = home.to_owned();
    launch
}

fn is_root(who: As) -> bool {
    who == As::Oneself && rustix::process::geteuid().is_root()
}

#[test]
fn the_reduced_tier_restricts_files_and_denies_the_network() {
    each(|who| {
        let folder = who.folder();
        let script = "echo mine > file; cat file; cat /etc/passwd; ls /; echo no > /tmp/no; ls -x /proc/$$/fd; \
                      exec 3<>/dev/tcp/127.0.0.1/9";
        let mut launch = reduced(folder.path(), script);
        launch.program = "/usr/bin/bash".into();
        if is_root(who) {
            assert!(refusal(&launch).to_string().contains("ordinary user"));
            return;
        }
        let (said, _) = output(&launch);
        assert!(said.starts_with("mine\n"), "{said}");
        for refused in ["/etc/passwd: Permission", "directory '/': Permission", "/tmp/no: Permission", "socket: "] {
            assert!(said.contains(refused), "{refused}: {said}");
        }
        launch.cell.network = Network::Listeners(Vec::new());
        assert!(refusal(&launch).to_string().contains("gives no network"));
    });
}

#[test]
fn a_reduced_cell_that_writes_nowhere_changes_neither_modes_nor_times_outside() {
    each(|who| {
        if is_root(who) {
            return;
        }
        let (home, outside) = (who.folder(), who.folder());
        let secret = outside.path().join("id_ed25519");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let about = || fs::metadata(&secret).map(|about| (about.mode(), about.mtime(), about.size())).unwrap();
        let before = about();
        let script =
            "echo mine > file; chmod 644 \"$0\"; touch -d @1 \"$0\"; truncate -s 0 \"$0\"; touch file; cat file";
        let mut launch = reduced(home.path(), script);
        launch.arguments.push(secret.clone().into());
        let (said, _) = output(&launch);
        assert_eq!(about(), before, "{said}");
        assert!(said.starts_with("mine\n") && said.contains("Operation not permitted"), "{said}");
    });
}

#[test]
fn no_kind_of_socket_can_be_connected_to_a_daemon_in_the_reduced_tier() {
    each(|who| {
        if is_root(who) {
            return;
        }
        let folder = who.folder();
        let mut launch = reduced(folder.path(), "");
        launch.program = "/usr/bin/perl".into();
        launch.arguments = vec!["-e".into(), EVERY_KIND.into()];
        assert_eq!(kinds_of_sockets(&launch), ["netlink 2", "netlink 3", "pair 1", "pair 5"]);
    });
}

#[test]
fn every_process_ends_with_the_connection_in_the_reduced_tier() {
    each(|who| {
        if is_root(who) {
            return;
        }
        let folder = who.folder();
        let mut started = start(&reduced(folder.path(), STUBBORN));
        started.control.ready(drop).unwrap();
        let inside = standing(&mut started);
        drop(started.control);
        assert_eq!(started.process.wait().unwrap().signal(), Some(9));
        assert_gone(&inside);
    });
}

/// A chain of processes, as long as the user's limit allows. Its last process makes the next one as soon as another has
/// ended, and all others keep the processors busy. Each new last process prints `up` once the limit is reached. All end
/// after 90 seconds, should nobody end them.
const CHAIN: &str = r#"$| = 1; $end = $^T + 90; while (time < $end) {
    my $child = fork;
    1 while $child && time < $end;
    print "up\n" unless defined $child || $up++;
}"#;

#[test]
fn a_source_that_forks_as_fast_as_it_is_killed_ends_with_the_connection_in_the_reduced_tier() {
    each(|who| {
        if is_root(who) {
            return;
        }
        let folder = who.folder();
        let mut launch = reduced(folder.path(), "");
        launch.program = "/usr/bin/perl".into();
        launch.arguments = vec!["-e".into(), CHAIN.into()];
        launch.cell.limits.processes = 16;
        let StartedCell { mut process, control, output, .. } = start(&launch);
        control.ready(drop).unwrap();
        let mut lines = BufReader::new(output).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        let (launcher, inside) = (process.id(), beneath(process.id()));
        drop(control);
        let (tell, ended) = mpsc::channel();
        std::thread::spawn(move || tell.send(process.wait()));
        let Ok(status) = ended.recv_timeout(Duration::from_secs(60)) else {
            let left = beneath(launcher);
            kill_process(Pid::from_raw(launcher.cast_signed()).unwrap(), Signal::KILL).unwrap();
            panic!("these are left: {left:?}");
        };
        assert_eq!(status.unwrap().signal(), Some(9));
        assert_gone(&inside);
    });
}

#[test]
fn what_the_user_runs_beside_it_does_not_count_against_it() {
    each(|who| {
        if is_root(who) {
            return;
        }
        let beside: Vec<_> =
            (0..30).map(|_| std::process::Command::new("sleep").arg("1000").spawn().unwrap()).collect();
        let folder = who.folder();
        let mut launch = reduced(folder.path(), "for n in 1 2 3; do sleep 0 & done; wait; echo done; ulimit -u 2>&1");
        launch.cell.limits.processes = 20;
        let (said, _) = output(&launch);
        for mut process in beside {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert!(said.starts_with("done\n"), "{said}");
    });
}
