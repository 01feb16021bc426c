//! Tests of what a source sees and reaches.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;

use portcullis_jail::{LaunchSpec, Listener, Mount, Network, Tier};

use crate::{As, each, output, refusal, says, shell, start};

#[test]
fn it_sees_a_root_of_its_own_and_nothing_behind_it() {
    each(|_| {
        assert_eq!(says("cd /; echo *"), "bin dev etc home lib lib64 proc tmp usr\n");
        assert_eq!(says("ls /etc /home /tmp"), "/etc:\nld.so.cache\n\n/home:\nsource\n\n/tmp:\n");
        assert_eq!(says("cd /dev; echo *"), "fd full null random shm stderr stdin stdout urandom zero\n");
        assert_eq!(says("echo /proc/[0-9]*"), "/proc/1 /proc/2\n", "no process of the machine");
        assert_eq!(says("hostname; id -u; id -G"), "cell\n1000\n1000\n");
        assert_eq!(says("cat /proc/1/environ; ls /proc/1/root /proc/1/fd").matches("Permission denied").count(), 3);
        let own = says("readlink /proc/self/ns/*");
        for namespace in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
            let outside = fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
            assert!(!own.contains(outside.to_str().unwrap()), "{namespace} is shared");
        }
    });
}

#[test]
fn proc_shows_no_more_of_the_machine_than_programs_need() {
    each(|_| {
        let said =
            says("cd /proc; cat cmdline interrupts keys modules softirqs; head -c 6 meminfo; echo; echo 1 > self/comm");
        assert!(said.starts_with("MemTot\n"), "{said}");
        assert!(said.contains("cannot create self/comm"), "{said}");
    });
}

#[test]
fn what_is_public_is_what_everybody_may_read_also_if_the_broker_is_root() {
    each(|who| {
        let folder = who.folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("open", 0o644), ("closed", 0o600)] {
            fs::write(folder.path().join(name), name).unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let seen = |mount| {
            let mut launch = shell("cd \"$0\"; cat open closed");
            launch.arguments.push(folder.path().into());
            launch.cell.mounts.push(mount);
            output(&launch).0
        };
        assert_eq!(seen(Mount::read(folder.path())), "openclosed", "as its owner could");
        let public = seen(Mount::public(folder.path()));
        match who == As::Oneself && rustix::process::geteuid().is_root() {
            true => assert!(public.starts_with("open") && public.contains("closed: Permission denied"), "{public}"),
            false => assert_eq!(public, "openclosed", "the owner is who it runs as"),
        }
    });
}

#[test]
fn it_has_no_privilege_and_can_get_none() {
    each(|_| {
        // Not through the shell, which sets up signals for its children.
        let mut launch = shell("");
        (launch.program, launch.arguments) = ("/usr/bin/cat".into(), vec!["/proc/self/status".into()]);
        let (status, _) = output(&launch);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"));
        assert_eq!(field("SigBlk:"), "0000000000000000");
        // Signals 32 and 33 belong to the C library, which does not let them be changed.
        assert_eq!(u64::from_str_radix(field("SigIgn:"), 16).unwrap() & !(0b11 << 31), 0);
        let said = says(
            "unshare -U true; mount -t tmpfs x /tmp; /usr/sbin/chroot /tmp; echo 1 > /proc/sys/kernel/core_pattern",
        );
        for refused in ["unshare failed: Operation not permitted", "mount: ", "cannot change root", "cannot create"] {
            assert!(said.contains(refused), "{refused}: {said}");
        }
        assert_eq!(says("cat /proc/sys/user/max_user_namespaces"), "0\n");
    });
}

#[test]
fn environment_and_descriptors_are_what_is_listed() {
    let careless = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    each(|_| {
        let mut launch = shell("env | sort; ls -x /proc/$$/fd");
        launch.environment.push(("KEY".to_owned(), "a secret".into()));
        let (said, _) = output(&launch);
        assert_eq!(said, "KEY=a secret\nPATH=/usr/bin\nPWD=/home/source\n0  1  2\n");
    });
}

#[test]
fn the_standard_streams_can_be_opened_by_their_names() {
    each(|_| {
        let script =
            "echo hello > /dev/stderr; echo hello >> /dev/stdout; echo hello > /proc/self/fd/2; read line < /dev/stdin";
        assert_eq!(says(script), "hello\nhello\nhello\n");
    });
}

#[test]
fn secrets_stand_on_no_command_line_and_in_no_environment_outside() {
    let mut launch = shell("read line");
    launch.environment.push(("KEY".to_owned(), "a secret of the source".into()));
    launch.arguments.push("an argument of the source".into());
    let mut started = start(&launch);
    started.control.ready(drop).unwrap();
    let launcher = format!("/proc/{}", started.process.id());
    let seen = [fs::read(format!("{launcher}/cmdline")).unwrap(), fs::read(format!("{launcher}/environ")).unwrap()];
    assert!(!String::from_utf8_lossy(&seen.concat()).contains("of the source"));
    drop(started.input);
    started.process.wait().unwrap();
}

#[test]
fn a_read_only_path_in_a_writable_folder_cannot_be_changed_moved_or_removed() {
    each(|who| {
        let folder = who.folder();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/lock"), "as it was").unwrap();
        fs::write(at("kept.toml"), "as it was").unwrap();
        let mut launch = shell(
            "cd \"$0\"; for name in kept.toml kept/lock; do echo no > $name; rm -f $name; ln -f $name other; done; \
             mv kept.toml moved; mv kept moved; rmdir kept; echo no > kept/new; echo no > new; mv new kept.toml; \
             cat kept.toml kept/lock; cat new",
        );
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.push(Mount::write(folder.path()));
        launch.cell.mounts.extend([Mount::read(at("kept.toml")), Mount::read(at("kept"))]);
        let (said, _) = output(&launch);
        assert!(said.contains("as it wasas it was"), "{said}");
        for kept in ["kept.toml", "kept/lock"] {
            assert_eq!(fs::read_to_string(at(kept)).unwrap(), "as it was", "{kept}: {said}");
        }
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| ["kept", "kept.toml", "new"].iter().any(|known| name == known)), "{left:?}");
        assert!(!at("kept/new").exists());
    });
}

#[test]
fn a_hidden_folder_is_empty_and_stays_so_in_what_may_be_read_and_written() {
    each(|who| check_hidden_folders(who, Tier::Full));
}

/// Checks what a source finds in hidden folders, and that one that is missing is not made.
pub(crate) fn check_hidden_folders(who: As, tier: Tier) {
    let folder = who.folder();
    let at = |name: &str| folder.path().join(name);
    let hidden = ["read/deep/kept", "write/kept", "write/inner/kept"];
    for name in hidden {
        fs::create_dir_all(at(name)).unwrap();
        fs::write(at(name).join("secret"), "what the source must not see").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(at(name).with_file_name("beside"), "seen ").unwrap();
    }
    let mut launch = shell(
        "cd \"$0\"; for at in read/deep write write/inner; do cat $at/beside $at/kept/secret; ls -A $at/kept; \
         echo no > $at/kept/new; mkdir $at/kept/new; chmod 777 $at/kept; rmdir $at/kept; mv $at/kept $at/moved; done; \
         mv write/inner write/moved; cat write/moved/beside write/moved/kept/secret",
    );
    launch.arguments.push(folder.path().into());
    launch.cell.tier = tier;
    launch.cell.mounts.extend([Mount::read(at("read")), Mount::write(at("write"))]);
    launch.cell.hidden = hidden.map(at).into();
    let (said, _) = output(&launch);
    assert_eq!((said.matches("seen ").count(), said.contains("must not see")), (4, false), "{said}");
    for name in ["read/deep/kept", "write/kept", "write/moved/kept"] {
        let left: Vec<_> = fs::read_dir(at(name)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["secret"], "{name}: {said}");
    }
    launch.cell.hidden = vec![at("write/missing")];
    let refused = refusal(&launch).to_string();
    assert!(refused.contains("write/missing") && !at("write/missing").exists(), "{refused}");
}

#[test]
fn what_is_granted_can_be_used_as_its_owner_could_and_no_more() {
    each(|who| {
        let folder = who.folder();
        let at = |name: &str| folder.path().join(name);
        for (name, mode) in [("read", 0o700), ("write", 0o700), ("write/inner", 0o700)] {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for file in ["read/file", "write/file", "write/inner/file", "beside"] {
            fs::write(at(file), file).unwrap();
            fs::set_permissions(at(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut launch = shell(
            "cd \"$0\"; cat read/file write/file; echo; \
             echo no > read/file; echo no > write/inner/file; rm -f write/inner/file; cat beside; \
             echo changed > write/file; mkdir write/new; echo made > write/new/file; rm -rf read/new; ls",
        );
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.extend([
            // The order of the entries does not matter.
            Mount::read(at("write/inner")),
            Mount::write(at("write")),
            Mount::read(at("read")),
        ]);
        let (said, _) = output(&launch);
        assert!(said.starts_with("read/filewrite/file\nread\nwrite\n"), "{said}");
        assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
        assert!(said.contains("beside: No such file"), "{said}");
        assert_eq!(fs::read_to_string(at("write/file")).unwrap(), "changed\n");
        let made = fs::metadata(at("write/new/file")).unwrap();
        assert_eq!(made.uid(), fs::metadata(folder.path()).unwrap().uid(), "what it makes is its user's");
        assert_eq!(fs::read_to_string(at("write/inner/file")).unwrap(), "write/inner/file");
    });
}

#[test]
fn a_grant_that_leads_elsewhere_is_refused_with_the_reason() {
    each(|who| {
        let folder = who.folder();
        let link = folder.path().join("link");
        symlink("/etc", &link).unwrap();
        let granting = |mount| {
            let mut launch = shell("");
            launch.cell.mounts.push(mount);
            refusal(&launch).to_string()
        };
        let why = granting(Mount::read(&link));
        assert!(why.contains("link has a symbolic link in it; write /etc"), "{why}");
        let why = granting(Mount::read(link.join("passwd")));
        assert!(why.contains("has a symbolic link in it"), "{why}");
        let why = granting(Mount::write(folder.path().join("missing")));
        assert!(why.contains("missing does not exist; create it"), "{why}");
        let why = granting(Mount::read("relative"));
        assert!(why.contains("relative is not absolute"), "{why}");
        let why = granting(Mount::read("/"));
        assert!(why.contains("cannot be granted"), "{why}");
    });
}

#[test]
fn a_source_reaches_only_the_sockets_that_the_broker_gets() {
    each(|_| {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        let script = |port| format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3");
        let bash = |port| {
            let mut launch = shell(&script(port));
            launch.program = "/usr/bin/bash".into();
            launch
        };
        assert!(output(&bash(port)).0.contains("Connection refused"));

        let [web, names, other]: [SocketAddr; 3] =
            ["0.0.0.0:80", "127.0.0.1:53", "[::1]:8080"].map(|address| address.parse().unwrap());
        let mut launch = bash(80);
        launch.cell.network = Network::Listeners(vec![Listener::tcp(web), Listener::udp(names), Listener::tcp(other)]);
        let mut started = start(&launch);
        let mut sockets = started.control.ready(drop).unwrap().listeners.into_iter();
        let listener = TcpListener::from(sockets.next().unwrap());
        assert_eq!(UdpSocket::from(sockets.next().unwrap()).local_addr().unwrap(), names);
        assert_eq!(TcpListener::from(sockets.next().unwrap()).local_addr().unwrap(), other);
        listener.accept().unwrap().0.write_all(b"from the broker").unwrap();
        let mut said = String::new();
        started.output.read_to_string(&mut said).unwrap();
        assert_eq!(said, "from the broker");
        started.process.wait().unwrap();
    });
}

#[test]
fn where_every_address_is_the_cells_own_every_connection_reaches_the_broker() {
    each(|_| {
        let mut launch = shell("exec 3<>/dev/tcp/93.184.215.14/80 && echo from the source >&3");
        launch.program = "/usr/bin/bash".into();
        launch.cell.network = Network::Everywhere(vec![Listener::tcp("0.0.0.0:80".parse().unwrap())]);
        let mut started = start(&launch);
        let listener = TcpListener::from(started.control.ready(drop).unwrap().listeners.remove(0));
        started.process.wait().unwrap();
        // Whatever connected waits now.
        listener.set_nonblocking(true).unwrap();
        let mut stream = listener.accept().unwrap().0;
        assert_eq!(stream.local_addr().unwrap().to_string(), "93.184.215.14:80");
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "from the source\n");
    });
}

#[test]
fn where_every_address_is_the_cells_own_every_datagram_reaches_the_broker() {
    each(|_| {
        let mut launch = shell("echo from the source > /dev/udp/93.184.215.14/4711");
        launch.program = "/usr/bin/bash".into();
        launch.cell.network = Network::Everywhere(vec![Listener::every_udp()]);
        let mut started = start(&launch);
        let socket = UdpSocket::from(started.control.ready(drop).unwrap().listeners.remove(0));
        started.process.wait().unwrap();
        // Whatever was sent waits now.
        socket.set_nonblocking(true).unwrap();
        let mut packet = [0; 100];
        let size = socket.recv(&mut packet).unwrap();
        let (header, content) = packet.split_at(28);
        assert!(header.starts_with(&[0x45]) && header.get(16..20) == Some(&[93, 184, 215, 14]), "{header:?}");
        assert!(content.starts_with(b"from the source\n") && size == 28 + 16);
    });
}

#[test]
fn a_source_cannot_make_a_setuid_or_setgid_program() {
    each(|who| {
        let folder = who.folder();
        let script = "cd \"$0\"; cp /usr/bin/true .; for mode in u+s g+s 4755 2755; do chmod $mode true; done; \
                      perl -e 'use Fcntl; for (04755, 02755) { print sysopen(F, \"new$_\", O_CREAT | O_WRONLY, $_) ? 1 : 0 }'; \
                      perl -e 'use Fcntl; print sysopen(F, \"true\", O_RDONLY, 07777) ? 1 : 0'; chmod 1755 true";
        let mut launch = shell(script);
        launch.arguments.push(folder.path().into());
        launch.cell.mounts.push(Mount::write(folder.path()));
        let (said, _) = output(&launch);
        assert!(said.starts_with("001"), "{said}");
        assert_eq!(said.matches("Operation not permitted").count(), 4, "{said}");
        let mode = fs::metadata(folder.path().join("true")).unwrap().mode();
        assert_eq!(mode & 0o7000, 0o1000, "{mode:o}");
    });
}

#[test]
fn a_daemon_in_a_granted_folder_cannot_be_reached() {
    each(|who| {
        let folder = who.folder();
        let path = folder.path().join("daemon");
        let daemon = UnixDatagram::bind(&path).unwrap();
        daemon.set_nonblocking(true).unwrap();
        let script = "use Socket; my $to = pack_sockaddr_un($ARGV[0]); \
                      print socket(S, AF_UNIX, SOCK_DGRAM, 0) ? 1 : 0; print socket(S, AF_UNIX, SOCK_STREAM, 0) ? 1 : 0; \
                      print socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) ? (connect(A, $to) && send(A, 'x', 0)) : 0; \
                      print socketpair(A, B, AF_UNIX, SOCK_RAW, 0) ? (connect(A, $to) && send(A, 'x', 0)) : 0; \
                      print socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) ? (connect(A, $to) || 0) : 'none'; \
                      print socket(S, AF_INET, SOCK_STREAM, 262) ? 1 : 0; print socket(S, AF_INET, SOCK_STREAM, 0) ? 1 : 0;";
        let mut launch = shell("");
        launch.program = "/usr/bin/perl".into();
        launch.arguments = vec!["-e".into(), script.into(), path.into()];
        launch.cell.mounts.push(Mount::write(folder.path()));
        assert_eq!(output(&launch).0, "0000001");
        assert!(daemon.recv(&mut [0]).is_err());
    });
}

/// A script that tries to make sockets of every kind from 0 to 15 with all flags, and prints the family and the kind of
/// each success.
pub(crate) const EVERY_KIND: &str = r#"
    use Socket qw(:DEFAULT SOCK_CLOEXEC SOCK_NONBLOCK);
    for my $flags (0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK) {
        for my $kind (0 .. 15) {
            print "pair $kind\n" if socketpair(A, B, AF_UNIX, $kind | $flags, 0);
            print "unix $kind\n" if socket(S, AF_UNIX, $kind | $flags, 0);
            print "inet $kind\n" if socket(S, AF_INET, $kind | $flags, 0);
            print "inet6 $kind\n" if socket(S, AF_INET6, $kind | $flags, 0);
            print "netlink $kind\n" if socket(S, 16, $kind | $flags, 0);
        }
    }
"#;

/// Returns what [`EVERY_KIND`] prints, sorted and without repetitions.
pub(crate) fn kinds_of_sockets(launch: &LaunchSpec) -> Vec<String> {
    let (said, status) = output(launch);
    assert!(status.success(), "{said}");
    let mut kinds: Vec<String> = said.lines().map(str::to_owned).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn no_kind_of_socket_can_be_connected_to_a_daemon() {
    each(|_| {
        let mut launch = shell("");
        launch.program = "/usr/bin/perl".into();
        launch.arguments = vec!["-e".into(), EVERY_KIND.into()];
        let expected = ["inet 1", "inet 2", "inet6 1", "inet6 2", "netlink 2", "netlink 3", "pair 1", "pair 5"];
        assert_eq!(kinds_of_sockets(&launch), expected);
    });
}
