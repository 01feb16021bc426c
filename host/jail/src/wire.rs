//! Messages between the broker and its launcher: a length, then the message. Descriptors travel with the first byte.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest message, in bytes. Linux takes 2 MiB of arguments and environment; the rest is for the files of a cell.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The largest number of descriptors that a message may have. The kernel takes 253.
pub(crate) const MAX_DESCRIPTORS: usize = 250;

/// Bytes of the length that comes first.
const HEAD_BYTES: usize = 4;

/// Received descriptors are closed by `exec`. On other systems the launcher closes them itself.
#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// A broken connection is an error and not a signal. On other systems `std` sets that for each of its sockets.
#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Sends a message. The descriptors stay open here.
pub(crate) fn send<T: Serialize>(socket: &UnixStream, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let payload = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let fits = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_MESSAGE_BYTES);
    let length = fits.ok_or_else(|| {
        let size = payload.len();
        io::Error::other(format!("a message of {size} bytes is over the limit of {MAX_MESSAGE_BYTES}"))
    })?;
    let bytes = [&length.to_le_bytes(), payload.as_slice()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        let count = descriptors.len();
        return Err(io::Error::other(format!("{count} descriptors are more than the limit of {MAX_DESCRIPTORS}")));
    }
    // A handled signal interrupts a socket with a timeout, and so does stopping and continuing the process. signal(7)
    let sent = retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, NO_SIGNAL))?;
    let mut socket = socket;
    socket.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Receives a message and its descriptors, which `exec` closes.
pub(crate) fn receive<T: DeserializeOwned>(socket: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut head = [0; HEAD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut head)], &mut beside, CLOSE_ON_EXEC))?.bytes;
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let mut socket = socket;
    socket.read_exact(head.get_mut(received..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload)?;
    let message = postcard::from_bytes(&payload).map_err(io::Error::other)?;
    Ok((message, descriptors))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_of_any_size_arrive_whole_with_their_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let long = vec![7_u8; 3 << 20];
        let sent = long.clone();
        let sender = std::thread::spawn(move || {
            let file = std::fs::File::open("/dev/null").unwrap();
            send(&ours, &sent, &[file.as_fd(), file.as_fd()]).unwrap();
            send(&ours, &"short", &[]).unwrap();
        });
        let (received, descriptors) = receive::<Vec<u8>>(&theirs).unwrap();
        assert_eq!((received == long, descriptors.len()), (true, 2));
        assert_eq!(receive::<String>(&theirs).unwrap().0, "short");
        sender.join().unwrap();
        assert_eq!(receive::<String>(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_length_over_the_limit_is_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(receive::<String>(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
