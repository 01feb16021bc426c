#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;

#[test]
fn every_address_that_messages_name_is_read() {
    let name =
        |port: u16, last: u8| [&INET.to_ne_bytes()[..], &port.to_be_bytes(), &[192, 0, 2, last], &[0; 8]].concat();
    let names = [name(53, 1), name(4711, 2), name(4711, 2)];
    let mut headers = vec![0_u8; 4 * 64];
    // The third names none: its socket is connected.
    for (at, name) in [0, 1, 3].into_iter().zip(&names) {
        headers[at * 64..at * 64 + 8].copy_from_slice(&(name.as_ptr() as u64).to_ne_bytes());
        headers[at * 64 + 8..at * 64 + 12].copy_from_slice(&16_u32.to_ne_bytes());
    }
    let memory = File::open("/proc/self/mem").unwrap();
    let named = |count| {
        let named = message_destinations(&memory, headers.as_ptr() as u64, count);
        let text = |named: &SocketAddress| match named {
            SocketAddress::Internet(address) => address.to_string(),
            SocketAddress::Unix(name) => name.display().to_string(),
        };
        named.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(named(4), ["192.0.2.1:53", "192.0.2.2:4711"]);
    assert_eq!(named(1), ["192.0.2.1:53"]);
    assert_eq!(named(0), Vec::<String>::new());
}

#[test]
fn the_name_of_a_unix_socket_is_read_whether_it_has_a_file_or_not() {
    let memory = File::open("/proc/self/mem").unwrap();
    let named = |name: &[u8]| {
        let bytes = [&UNIX.to_ne_bytes()[..], name].concat();
        address(&memory, bytes.as_ptr() as u64, bytes.len() as u64)
    };
    let unix = |name: &str| Some(SocketAddress::Unix(name.into()));
    assert_eq!(named(b"/run/docker.sock\0\0\0"), unix("/run/docker.sock"));
    assert_eq!(named(b"/run/docker.sock"), unix("/run/docker.sock"), "the last byte may be missing");
    assert_eq!(named(b"\0dbus\0more"), unix("@dbus"));
    assert_eq!(named(&[b'x'; 108]), unix(&"x".repeat(108)));
    assert_eq!(named(b""), None, "an address without a name leads nowhere");
    let own = std::process::id();
    assert_eq!(absolute_socket_path(own, Path::new("a/../b")), std::env::current_dir().unwrap().join("b"));
    assert_eq!(absolute_socket_path(own, Path::new("@b")), Path::new("@b"));
}
