//! What the launcher does, in order. Single-threaded; nothing here returns to the caller's program.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use crate::Asked;

/// Why the source was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("started with a command line that the broker did not write")]
    Asked,
    #[error("the broker ended before its source had started")]
    Orphan,
    #[error("the environment holds {0:?}, which is not listed for this source")]
    Environment(OsString),
    #[error("step `{step}` failed: {error}")]
    Step { step: &'static str, error: io::Error },
    #[error("cannot execute {program:?}: {error}")]
    Execute { program: OsString, error: io::Error },
}

impl Failure {
    /// As shells do: 127 where there is no such program, 126 for the rest.
    pub(crate) fn status(&self) -> i32 {
        match self {
            Self::Execute { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

pub(crate) fn run(asked: &Asked) -> Failure {
    match strip_and_execute(asked) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn strip_and_execute(asked: &Asked) -> Result<Infallible, Failure> {
    step("close descriptors", close_descriptors())?;
    step("own session", setsid().map(drop).map_err(Into::into))?;
    step("die with the broker", set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into))?;
    // The broker may have ended before the line above, and then the signal will never come.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(asked.parent) {
        return Err(Failure::Orphan);
    }
    step("no new privileges", no_new_privileges())?;
    reset_signals();
    only_listed(std::env::vars_os().map(|(name, _)| name), &asked.environment)?;
    step("change directory", std::env::set_current_dir(&asked.directory))?;
    // Replaces this process; returns only if it could not. Also empties the signal mask.
    let error = Command::new(&asked.program).args(&asked.arguments).exec();
    Err(Failure::Execute { program: asked.program.clone(), error })
}

fn step(step: &'static str, done: io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| Failure::Step { step, error })
}

/// Closes everything above standard error.
#[cfg(target_os = "linux")]
fn close_descriptors() -> io::Result<()> {
    // SAFETY: no memory is passed. This process is single-threaded and has opened nothing itself, so no object that owns a
    // descriptor above 2 exists that could use or close it later.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes everything above standard error.
#[cfg(not(target_os = "linux"))]
fn close_descriptors() -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65_536);
    for descriptor in 3..libc::c_int::try_from(limit.min(65_536)).unwrap_or(libc::c_int::MAX) {
        // SAFETY: no memory is passed. This process is single-threaded and has opened nothing itself, so no object that
        // owns the descriptor exists; closing one that is not open is an error that changes nothing.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// From here on no setuid program raises the privileges of this process or its children.
#[cfg(target_os = "linux")]
fn no_new_privileges() -> io::Result<()> {
    // SAFETY: takes integers only, and sets a flag of this process that nothing in it depends on.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Only Linux has the flag.
#[cfg(not(target_os = "linux"))]
fn no_new_privileges() -> io::Result<()> {
    Ok(())
}

/// Signals that the broker or whoever started it ignores (Rust programs ignore SIGPIPE, `nohup` SIGHUP) would stay
/// ignored in the source: dispositions of "ignore" survive `exec`.
fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: sets the default action and installs no handler, so no code of ours runs in signal context. Numbers that
        // cannot be set (SIGKILL, SIGSTOP, those of the C library) are refused and change nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn only_listed(present: impl Iterator<Item = OsString>, listed: &[OsString]) -> Result<(), Failure> {
    for name in present {
        if !listed.iter().any(|allowed| allowed.as_os_str() == AsRef::<OsStr>::as_ref(&name)) {
            return Err(Failure::Environment(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_listed_stops_the_start() {
        let present = || ["PATH", "HOME"].map(OsString::from).into_iter();
        assert!(only_listed(present(), &["HOME".into(), "PATH".into(), "MORE".into()]).is_ok());
        assert!(matches!(only_listed(present(), &["PATH".into()]), Err(Failure::Environment(name)) if name == "HOME"));
    }

    #[test]
    fn the_status_tells_a_missing_program_from_the_rest() {
        let execute = |kind: io::ErrorKind| Failure::Execute { program: "x".into(), error: kind.into() };
        assert_eq!(execute(io::ErrorKind::NotFound).status(), 127);
        assert_eq!(execute(io::ErrorKind::PermissionDenied).status(), 126);
        assert_eq!(Failure::Orphan.status(), 126);
    }
}
