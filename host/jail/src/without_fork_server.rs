//! The stand-in for the fork server on systems other than Linux, which cannot make a child of another process: the
//! launcher is executed for each cell.

use std::io;
use std::os::unix::net::UnixStream;

use crate::cell::Launcher;
use crate::outermost::OutermostProcess;

#[derive(Debug)]
pub(crate) struct ForkServer {
    launcher: Launcher,
}

impl ForkServer {
    pub(crate) fn start(launcher: &Launcher) -> io::Result<Self> {
        Ok(Self { launcher: launcher.clone() })
    }

    pub(crate) fn outermost(&mut self, control: UnixStream) -> io::Result<OutermostProcess> {
        let started = self.launcher.command(control).spawn()?;
        i32::try_from(started.id()).map_err(io::Error::other).and_then(OutermostProcess::new)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        false
    }
}
