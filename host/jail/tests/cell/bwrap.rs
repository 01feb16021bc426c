//! The full tier with bubblewrap. If bubblewrap is not installed, these tests say so and prove nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use portcullis_jail::{LaunchSpec, Listener, Mount, Network, Tier};

use crate::sight::check_hidden_folders;
use crate::{As, STUBBORN, assert_gone, each, output, refusal, shell, standing, start};

/// Runs a test as an ordinary user, since only those can use this tier.
fn as_ordinary(test: impl Fn(As) + Copy + Send + 'static) {
    if !Path::new("/usr/bin/bwrap").exists() {
        eprintln!("NOT TESTED: the tier full-via-bwrap, as bubblewrap is not installed (apt install bubblewrap)");
        return;
    }
    each(move |who| {
        if who == As::Oneself && rustix::process::geteuid().is_root() {
            assert!(refusal(&wrapped("")).to_string().contains("ordinary user"));
        } else {
            test(who);
        }
    });
}

fn wrapped(script: &str) -> LaunchSpec {
    let mut launch = shell(script);
    launch.cell.tier = Tier::FullViaBwrap;
    launch
}

#[test]
fn bubblewrap_confines_a_source_as_the_full_tier_does() {
    as_ordinary(|_| {
        assert_eq!(output(&wrapped("exit 7")).1.code(), Some(7));
        assert_eq!(output(&wrapped("kill -TERM $$")).1.signal(), Some(15));
        let mut launch = wrapped(
            "env | sort; ls -x /proc/$$/fd; cd /; echo *; echo /etc/* /home/*; cat /etc/own; hostname; echo no > /no; \
             grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; cat /proc/sys/user/max_user_namespaces; \
             unshare -U true; head -c 20M /dev/zero > /tmp/big; ls -s --block-size=M /tmp/big; \
             cat /proc/cmdline /proc/keys; echo silence",
        );
        launch.cell.files.push(("/etc/own".into(), b"synthetic\n".to_vec()));
        launch.cell.limits.tmp = 4 << 20;
        let (said, _) = output(&launch);
        let expected = "PATH=/usr/bin\nPWD=/home/source\n0  1  2\nbin dev etc home lib lib64 proc tmp usr\n\
                        /etc/ld.so.cache /etc/own /home/source\nsynthetic\ncell\n\
                        CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n0\n4M /tmp/big\nsilence\n";
        assert!(said.starts_with(expected), "{said}");
        for refused in ["/no: Read-only", "unshare failed: Operation not permitted", "No space left"] {
            assert!(said.contains(refused), "{refused}: {said}");
        }
    });
}

#[test]
fn a_source_in_bubblewrap_does_not_stop_its_supervisor() {
    as_ordinary(|_| {
        let mut launch = wrapped("exec perl -e \"$0\"");
        // The kernel gives the first process of a namespace no signal from inside it, whichever call asks for one.
        let calls = "my $by = getppid(); print join ' ', $by, kill('STOP', $by), kill('STOP', -1)";
        launch.arguments.push(calls.into());
        assert_eq!(output(&launch).0, "1 0 0");
    });
}

#[test]
fn a_hidden_folder_is_empty_in_bubblewrap() {
    as_ordinary(|who| check_hidden_folders(who, Tier::FullViaBwrap));
}

#[test]
fn grants_and_sockets_work_in_bubblewrap() {
    as_ordinary(|who| {
        let folder = who.folder();
        for name in ["read", "write"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut launch =
            wrapped("cd \"$0\"; ls; echo 1 > write/file; echo 2 > read/file; exec 3<>/dev/tcp/127.0.0.1/80 && cat <&3");
        launch.program = "/usr/bin/bash".into();
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.extend([Mount::read(folder.path().join("read")), Mount::write(folder.path().join("write"))]);
        launch.cell.network = Network::Listeners(vec![Listener::tcp("0.0.0.0:80".parse().unwrap())]);
        let mut started = start(&launch);
        let socket = started.control.ready(drop).unwrap().listeners.pop().unwrap();
        TcpListener::from(socket).accept().unwrap().0.write_all(b"from the broker").unwrap();
        let (mut said, mut complained) = (String::new(), String::new());
        started.output.read_to_string(&mut said).unwrap();
        started.error.read_to_string(&mut complained).unwrap();
        started.process.wait().unwrap();
        assert_eq!(said, "read\nwrite\nfrom the broker");
        assert!(complained.contains("read/file: Read-only file system"), "{complained}");
        assert_eq!(fs::read_to_string(folder.path().join("write/file")).unwrap(), "1\n");
    });
}

#[test]
fn every_process_ends_with_the_connection_in_bubblewrap() {
    as_ordinary(|_| {
        let mut started = start(&wrapped(STUBBORN));
        started.control.ready(drop).unwrap();
        let inside = standing(&mut started);
        drop(started.control);
        assert_eq!(started.process.wait().unwrap().signal(), Some(9));
        assert_gone(&inside);
    });
}
