//! Denies what would keep the process that supervises the cell from its work: a lower priority, another processor, and
//! signals.

use std::io;

use super::{Filter, all, differs, is};
use crate::linux::sys::group_of;

/// Denies to change how the supervising process is scheduled. Programs may change that of their own threads.
pub(super) fn scheduling(supervisor: i32) -> io::Result<Filter> {
    let mut denied = Filter::new();
    for call in
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr]
    {
        denied.insert(call, vec![all([is(0, supervisor)?])?]);
    }
    // For one process, for a group of processes, and for all of a user.
    for (call, [process, group, user]) in [
        (libc::SYS_setpriority, [libc::PRIO_PROCESS, libc::PRIO_PGRP, libc::PRIO_USER].map(|which| which as i32)),
        (libc::SYS_ioprio_set, [1, 2, 3]),
    ] {
        let mut rules = vec![all([is(0, process)?, is(1, supervisor)?])?, all([is(0, user)?])?];
        if let Some(its_group) = group_of(supervisor) {
            rules.push(all([is(0, group)?, is(1, its_group)?])?);
        }
        denied.insert(call, rules);
    }
    Ok(denied)
}

/// Denies signals to the supervising process, whether alone or with others. Programs may ask whether it lives.
pub(super) fn signals(supervisor: i32) -> io::Result<Filter> {
    let to = |number: i32| all([is(0, number.cast_unsigned())?, differs(1, 0)?]);
    let mut by_kill = vec![to(supervisor)?, to(-1)?];
    if let Some(its_group) = group_of(supervisor) {
        by_kill.push(to(-its_group)?);
    }
    let mut denied = Filter::new();
    denied.insert(libc::SYS_kill, by_kill);
    for call in [libc::SYS_tgkill, libc::SYS_tkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        denied.insert(call, vec![all([is(0, supervisor)?])?]);
    }
    denied.insert(libc::SYS_pidfd_open, vec![all([is(0, supervisor)?])?]);
    Ok(denied)
}
