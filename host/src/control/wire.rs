//! The lines, peers and paths of control sockets.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::{ControlError, ControlRefusal, ControlReply};

/// The longest path that fits into a socket address on Linux, in bytes, without the final zero.
const MAX_ADDRESS_BYTES: usize = 107;

/// A reply on the wire.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Envelope {
    Ok(serde_json::Value),
    #[serde(untagged)]
    Refused(ControlRefusal),
}

impl From<ControlReply> for Envelope {
    fn from(reply: ControlReply) -> Self {
        match reply {
            Ok(value) => Self::Ok(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// Calls `work` with `path`, or with another path to the same place if that is too long for a socket address.
pub(super) fn with_short_path<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().as_bytes().len() <= MAX_ADDRESS_BYTES {
        return work(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return work(path) };
    // Stays open until `work` is done: the short path begins with this descriptor.
    let folder = File::open(folder)?;
    work(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Connects to a socket. It does not wait: a listener that does not accept connections and has a full backlog is an
/// error.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    with_short_path(path, |short| Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(short)?)?))?;
    UnixStream::from_std(socket.into())
}

/// Returns an error unless the process at the other end belongs to the same user.
pub(super) fn check_peer(stream: &UnixStream) -> Result<(), ControlError> {
    let peer = stream
        .peer_cred()
        .map_err(|error| ControlError::Broken(format!("cannot identify the process at the other end: {error}")))?;
    if peer.uid() == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(ControlError::Stranger { uid: peer.uid() })
    }
}

/// Reads one line of at most `limit` bytes and returns it without its line feed.
pub(super) async fn receive(stream: &mut UnixStream, limit: usize) -> Result<Vec<u8>, ControlError> {
    let mut line = Vec::new();
    let read = BufReader::new(stream).take(limit as u64 + 1).read_until(b'\n', &mut line).await;
    read.map_err(|error| ControlError::Broken(format!("connection lost: {error}")))?;
    match line.pop() {
        Some(b'\n') => Ok(line),
        Some(_) if line.len() >= limit => Err(ControlError::TooLong(limit)),
        _ => Err(ControlError::Broken("connection closed before the end of the line".into())),
    }
}

/// Writes a message as one line of at most `limit` bytes.
pub(super) async fn send(
    stream: &mut UnixStream,
    message: &impl serde::Serialize,
    limit: usize,
) -> Result<(), ControlError> {
    let mut line = serde_json::to_vec(message).map_err(|error| ControlError::Broken(error.to_string()))?;
    if line.len() > limit {
        return Err(ControlError::TooLong(limit));
    }
    line.push(b'\n');
    let lost = |error: io::Error| ControlError::Broken(format!("connection lost: {error}"));
    stream.write_all(&line).await.map_err(lost)?;
    stream.flush().await.map_err(lost)
}
