//! Attacks on other processes, and on what this one inherited.

use std::fs::{self, File};
use std::io;

use crate::attack::{AttackArguments, Probe};
use crate::raw::{Word, call, in_child};

/// The variables that the broker itself gives every source.
const GIVEN: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

pub(crate) fn environment(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let canary = std::env::vars().filter(|(_, value)| arguments.is_in(value.as_bytes())).count();
    let more: Vec<_> = std::env::vars().map(|(name, _)| name).filter(|name| !GIVEN.contains(&&**name)).collect();
    vec![
        Probe::new("a secret of whoever started it", canary > 0, format!("{canary} variables")),
        Probe::new("a variable that is not listed", !more.is_empty(), more.join(" ")),
    ]
}

pub(crate) fn environments(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let read = others().filter_map(|pid| fs::read(format!("/proc/{pid}/environ")).ok());
    let seen = read.filter(|bytes| arguments.is_in(bytes)).count();
    let visible =
        others().filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| arguments.is_in(&line)));
    vec![
        Probe::new("`/proc/PID/environ` of others", seen > 0, format!("{seen} with the secret")),
        Probe::new("`/proc/PID/cmdline` of others", visible.count() > 0, format!("{} processes", others().count())),
    ]
}

/// Returns all visible processes except this one.
fn others() -> impl Iterator<Item = u32> {
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).filter(|pid| *pid != std::process::id())
}

pub(crate) fn descriptors(_: &AttackArguments<'_>) -> Vec<Probe> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let more: Vec<_> = open
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| !to.ends_with("fd")))
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|number| *number > 2)
        .collect();
    vec![Probe::new("a descriptor above 2", !more.is_empty(), format!("{more:?}"))]
}

/// Returns the targets: the process that started this one, another one of the same user, and process 1 of the machine
/// or the cell.
fn targets(arguments: &AttackArguments<'_>) -> Vec<(&'static str, i32)> {
    let parent = std::os::unix::process::parent_id();
    let number = |pid: u64| i32::try_from(pid).unwrap_or(i32::MAX);
    vec![
        ("its parent", number(parent.into())),
        ("the user's process", number(arguments.number("decoy"))),
        ("process 1", 1),
    ]
}

pub(crate) fn trace(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let mut probes = Vec::new();
    for (whom, pid) in targets(arguments) {
        let seize = || call(libc::SYS_ptrace, [0x4206_i32.into(), pid.into(), 0_i32.into(), 0_i32.into()]);
        probes.push(Probe::of(format!("ptrace of {whom}"), in_child(seize)));
        probes.push(Probe::of(format!("memory of {whom}"), in_child(|| read_memory(pid))));
    }
    probes
}

/// Reads a mapped page of another process, at an address from its own memory map.
fn read_memory(pid: i32) -> io::Result<i64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let start = maps.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok()).unwrap_or(0x40_0000);
    let mut bytes = [0_u8; 8];
    let mut here = [std::ptr::from_mut(&mut bytes) as usize, bytes.len()];
    let mut there = [start, bytes.len()];
    let one = Word::from(1_i32);
    let words = [pid.into(), Word::from(&mut here), one, Word::from(&mut there), one, 0_i32.into()];
    call(libc::SYS_process_vm_readv, words)
}

pub(crate) fn take_descriptors(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let take = |pid: i32| {
        let process = call(libc::SYS_pidfd_open, [pid.into(), 0_i32.into()])?;
        let process = i32::try_from(process).unwrap_or_default();
        call(libc::SYS_pidfd_getfd, [process.into(), 0_i32.into(), 0_i32.into()])
    };
    let probe = |(whom, pid)| Probe::of(format!("a descriptor of {whom}"), in_child(|| take(pid)));
    targets(arguments).into_iter().map(probe).collect()
}

pub(crate) fn walk(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    let mut probes = Vec::new();
    for (whom, pid) in targets(arguments) {
        let at = |file: &str| format!("/proc/{pid}/{file}");
        probes.push(Probe::of(format!("`mem` of {whom}"), File::options().read(true).write(true).open(at("mem"))));
        for link in ["exe", "cwd"] {
            probes.push(Probe::of(format!("`{link}` of {whom}"), fs::read_link(at(link))));
        }
        for folder in ["root", "fd"] {
            probes.push(Probe::of(format!("`{folder}` of {whom}"), fs::read_dir(at(folder))));
        }
    }
    probes
}

pub(crate) fn signal(arguments: &AttackArguments<'_>) -> Vec<Probe> {
    // A signal that does no harm, and is really sent.
    let signal = |pid: i32| call(libc::SYS_kill, [pid.into(), libc::SIGCONT.into()]);
    let whom = [("the user's process", arguments.number("decoy")), ("the broker", arguments.number("broker"))];
    let known = whom.into_iter().filter(|(_, pid)| *pid > 0);
    known.map(|(whom, pid)| Probe::of(whom, signal(i32::try_from(pid).unwrap_or(i32::MAX)))).collect()
}
