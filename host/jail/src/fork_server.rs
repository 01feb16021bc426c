//! The broker's side of the fork server: one launcher that makes a copy of itself for each cell. A copy shares its
//! memory with the others as long as it does not change it, and costs less time than executing the program again.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use crate::cell::Launcher;
use crate::launch::IS_LAUNCHER;
use crate::outermost::OutermostProcess;
use crate::wire;

/// The longest time that the launcher may take to answer. To start and to copy itself takes it milliseconds; a program
/// whose `main` does not become the launcher never answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

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
        Self::start_within(launcher, ANSWER_DEADLINE)
    }

    fn start_within(launcher: &Launcher, deadline: Duration) -> io::Result<Self> {
        let (connection, theirs) = UnixStream::pair()?;
        connection.set_read_timeout(Some(deadline))?;
        connection.set_write_timeout(Some(deadline))?;
        Ok(Self { process: launcher.command(theirs).spawn()?, connection })
    }

    /// Makes the outermost process of a cell. It is a child of this process, and reads its request from `control`.
    pub(crate) fn outermost(&mut self, control: UnixStream) -> io::Result<OutermostProcess> {
        let sent = wire::send(&self.connection, &(), &[control.as_fd()]);
        // From here on only the launcher may hold it, so that its end shows.
        drop(control);
        let answered = sent.and_then(|()| wire::receive::<Forked>(&self.connection));
        let (forked, _) = answered.map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                    "the launcher ended without an answer"
                }
                io::ErrorKind::WouldBlock => "the launcher does not answer",
                _ => return error,
            };
            // It is ending, or does something else. `has_ended` is to know it from here on.
            let _ = self.process.kill();
            let _ = self.process.wait();
            io::Error::other(format!("{what}: {IS_LAUNCHER}"))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_that_does_not_become_the_launcher_is_ended_and_the_error_names_the_call() {
        let folder = tempfile::tempdir().unwrap();
        // A process of another test that is forked while this one has the file open for writing would keep it from
        // being executed, so another process writes it.
        let (source, program) = (folder.path().join("endless.sh"), folder.path().join("endless"));
        std::fs::write(&source, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(std::process::Command::new("cp").arg(&source).arg(&program).status().unwrap().success());
        let mut forks = ForkServer::start_within(&Launcher::Path(program), Duration::from_millis(50)).unwrap();
        assert!(!forks.has_ended());
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let error = forks.outermost(theirs).unwrap_err().to_string();
        assert!(error.contains("does not answer: is `portcullis::main_if_asked()` the first statement"), "{error}");
        assert!(forks.has_ended());
    }
}
