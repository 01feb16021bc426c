//! The broker's side of the fork server: one launcher that makes a copy of itself for each cell. A copy shares its
//! memory with the others as long as it does not change it, and costs less time than executing the program again.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;

use crate::cell::Launcher;
use crate::launch::{BUILD_DEADLINE, IS_LAUNCHER};
use crate::outermost::OutermostProcess;
use crate::wire;

/// A launcher that runs and makes copies of itself. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ForkServer {
    process: Child,
    connection: UnixStream,
}

/// The fork server's answer: the id of the copy, or the error number of the kernel.
pub(crate) type Forked = Result<i32, i32>;

impl ForkServer {
    pub(crate) fn start(launcher: &Launcher) -> io::Result<Self> {
        let (connection, theirs) = UnixStream::pair()?;
        connection.set_read_timeout(Some(BUILD_DEADLINE))?;
        connection.set_write_timeout(Some(BUILD_DEADLINE))?;
        Ok(Self { process: launcher.command(theirs).spawn()?, connection })
    }

    /// Makes the outermost process of a cell. It is a child of this process, and reads its request from `control`.
    pub(crate) fn outermost(&mut self, control: UnixStream) -> io::Result<OutermostProcess> {
        let sent = wire::send(&self.connection, &(), &[control.as_fd()]);
        // The launcher alone may hold it from here on, so that its end shows.
        drop(control);
        let answered = sent.and_then(|()| wire::receive::<Forked>(&self.connection));
        let (forked, _) = answered.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                // It has closed its end, so it is ending if it has not ended. `has_ended` is to know it from here on.
                let _ = self.process.kill();
                let _ = self.process.wait();
                io::Error::other(format!("the launcher ended without an answer: {IS_LAUNCHER}"))
            }
            _ => error,
        })?;
        forked.map_err(io::Error::from_raw_os_error).and_then(OutermostProcess::new)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        // A process that cannot be waited for is gone.
        self.process.try_wait().map_or(true, |ended| ended.is_some())
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // The cells are its siblings, and stay. It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
