//! The filters with a listener: calls that wait until another process has answered them. A source has one at most.

use std::io;
use std::os::fd::OwnedFd;

use seccompiler::SeccompAction;

use super::super::performed::{CHANGING_FLAGS, PERFORMED, PERFORMED_HERE};
use super::super::recorded::{RECORDED, RECORDED_HERE};
use super::super::sys;
use super::{Filter, all, always_denied, has, is, with_action};

/// Installs a filter that has the listener decide about the recorded calls, and about those that are always denied.
/// Returns the listener. Needs `no_new_privs`.
pub(in super::super) fn record() -> io::Result<OwnedFd> {
    let mut filter = always_denied();
    filter.extend(RECORDED.iter().chain(RECORDED_HERE).map(|call| (call.number, Vec::new())));
    filter.insert(libc::SYS_socket, vec![all([is(0, libc::AF_UNIX)?])?]);
    install(filter)
}

/// Installs a filter that has the deputy perform what makes, changes or removes a file. Returns its listener. Needs
/// `no_new_privs`.
pub(in super::super) fn install_deputy_filter() -> io::Result<OwnedFd> {
    let mut filter = Filter::new();
    for &(call, flags) in PERFORMED.iter().chain(PERFORMED_HERE) {
        let rules = match flags {
            Some(argument) => {
                CHANGING_FLAGS.map(|flag| all([has(argument, flag)?])).into_iter().collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        filter.insert(call, rules);
    }
    install(filter)
}

fn install(filter: Filter) -> io::Result<OwnedFd> {
    // The library has no name for this action; an action that no other rule has is used in its place.
    let (stand_in, notify) = (SeccompAction::Trace(1), libc::SECCOMP_RET_USER_NOTIF);
    let mut program = with_action(filter, stand_in.clone())?;
    for step in program.iter_mut().filter(|step| u32::from(step.code) == libc::BPF_RET | libc::BPF_K) {
        if step.k == u32::from(stand_in.clone()) {
            step.k = notify;
        }
    }
    sys::install_with_listener(&program)
}
