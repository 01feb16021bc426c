//! The launcher that becomes a source's process, and the cell around it.
//!
//! The broker never starts a source itself. It starts this launcher, a fresh and single-threaded process, which drops
//! everything that it could have inherited. A copy of it builds the cell, and then becomes the source by `exec`.
//! [`RunningLauncher`] and [`LaunchSpec`] are the broker's side: the process to start, and its [`CellSpec`].
//! [`main_if_asked`] is the launcher's side. [`CellControl`] is the connection between the broker and one cell: when it
//! closes, everything in the cell is killed.
//!
//! Without the feature `launch` nothing can be started; only the types that describe cells are left.
#![cfg_attr(feature = "launch", expect(clippy::disallowed_methods, reason = "this is where processes are started"))]

mod cell;
#[cfg(all(feature = "launch", target_os = "linux"))]
mod cgroup;
#[cfg(feature = "launch")]
#[cfg_attr(not(target_os = "linux"), path = "without_fork_server.rs")]
mod fork_server;
#[cfg(feature = "launch")]
mod launch;
mod names;
#[cfg(feature = "launch")]
mod outermost;
#[cfg(feature = "launch")]
mod probe;
mod report;
#[cfg(all(feature = "launch", any(target_os = "macos", test)))]
mod seatbelt;
#[cfg(all(feature = "launch", any(target_os = "linux", target_os = "macos")))]
mod step;
#[cfg(feature = "launch")]
mod wire;

#[cfg(all(feature = "launch", not(any(target_os = "linux", target_os = "macos"))))]
mod elsewhere;
#[cfg(all(feature = "launch", target_os = "linux"))]
mod linux;
#[cfg(all(feature = "launch", target_os = "macos"))]
mod macos;

pub use cell::{CellLimits, CellSpec, Launcher, Listener, Mount, MountAccess, Network, SocketProtocol, Tier, USER};
#[cfg(all(feature = "launch", not(any(target_os = "linux", target_os = "macos"))))]
use elsewhere::run;
#[cfg(feature = "launch")]
pub use launch::{BuiltCell, CellControl, LaunchSpec, RunningLauncher, StartedCell, SyscallListenerHandle};
#[cfg(all(feature = "launch", target_os = "linux"))]
use linux::run;
#[cfg(all(feature = "launch", target_os = "linux"))]
pub use linux::{Operation, RecordedSyscall, Syscall, SyscallListener, denied_call, recorded_call};
#[cfg(all(feature = "launch", target_os = "macos"))]
use macos::run;
pub use names::folded_name;
#[cfg(feature = "launch")]
pub use outermost::OutermostProcess;
pub use report::{CellRefusal, EnforcementReport, ProbeReport};

/// Becomes the source if the program was started as the launcher, and then never returns. Otherwise does nothing.
///
/// Must be the first statement of `main`, before any thread is started or any descriptor opened. A step that fails is
/// reported to the broker; the process then ends with status 126.
#[cfg(feature = "launch")]
pub fn main_if_asked() {
    let asked = std::env::args_os().nth(1);
    let is_asked = |word: &str| asked.as_deref() == Some(std::ffi::OsStr::new(word));
    if is_asked(launch::ASK) {
        std::process::exit(run());
    }
    #[cfg(target_os = "linux")]
    if is_asked(launch::ASK_INSIDE) {
        std::process::exit(linux::run_inside());
    }
}

/// Reports whether the program was started as the launcher. It then has no other task, and its `main` should have
/// called [`main_if_asked`], which does not return.
#[cfg(feature = "launch")]
#[must_use]
pub fn was_asked() -> bool {
    launch::asks(std::env::args_os().nth(1).as_deref())
}
