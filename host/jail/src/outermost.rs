//! The outermost process of a cell, as the broker sees it: its child, which ends after everything in the cell.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

/// The outermost process of a cell: a child of this process. Dropping it neither kills it nor waits for it.
#[derive(Debug)]
pub struct OutermostProcess {
    pid: Pid,
    /// The exit status, once it is known. The id may since belong to another process.
    status: Option<ExitStatus>,
}

impl OutermostProcess {
    /// Returns the child with this id, for which nothing else may wait.
    pub(crate) fn new(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).filter(|pid| !pid.is_init()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, status: None })
    }

    /// Returns its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended, and returns how. Blocks.
    ///
    /// # Errors
    /// If something else has waited for it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        while self.status.is_none() {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(ended) => self.status = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.status.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
