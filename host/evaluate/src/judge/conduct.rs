//! The conduct of a source on the machine: programs, persistence, escapes, services, delays.

use std::path::Path;
use std::time::Duration;

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject, decides_what_starts};

use super::SelfDescription;
use crate::finding::{
    DELAY, DENIED_CALL, ESCAPE, FAILED_RUN, FLOODED, FindingLevel, FindingList, PERSISTENCE, PROGRAM, SLOW, UNIX_SOCKET,
};
use crate::observation::{Condition, Observation};

/// The duration from which a call is reported as long.
const LONG_CALL: Duration = Duration::from_secs(5);

/// Folders of the system from which something is started later.
const SYSTEM_STARTERS: [&str; 9] = [
    "/etc/cron",
    "/etc/profile",
    "/etc/systemd",
    "/etc/init.d",
    "/etc/ld.so.preload",
    "/usr/local/bin",
    "/usr/bin",
    "/var/spool/cron",
    "/etc/rc.local",
];

/// System calls that serve to get out, or into another process.
const ESCAPES: [&str; 24] = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "fsopen",
    "open_by_handle_at",
    "mknod",
    "mknodat",
    "setns",
    "bpf",
    "keyctl",
    "add_key",
    "request_key",
    "kexec_load",
    "init_module",
    "finit_module",
    "iopl",
    "ioperm",
];

/// Paths that belong to the machine outside a cell.
const OUTSIDE: [&str; 7] = [
    "/proc/1/root",
    "/proc/1/environ",
    "/proc/1/cwd",
    "/proc/1/mem",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/dev/mem",
];

/// Sockets that give any program that talks to them the whole machine or its keys.
const SERVICES: [&str; 8] = [
    "docker.sock",
    "podman.sock",
    "containerd.sock",
    "crio.sock",
    "snapd.socket",
    "system_bus_socket",
    "S.gpg-agent",
    "ssh-agent",
];

/// Sockets that the C library itself connects to, for the names of users and hosts and for the system's log.
const NAME_SERVICES: [&str; 6] = [
    "nscd/socket",
    "avahi-daemon/socket",
    "sss/pipes/nss",
    "systemd/userdb/io.systemd.DynamicUser",
    "systemd/resolve/io.systemd.Resolve",
    "dev/log",
];

/// Programs that run given commands, or fetch data.
const TOOLS: [&str; 16] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "curl",
    "wget",
    "nc",
    "ncat",
    "socat",
    "ssh",
    "scp",
    "crontab",
    "systemctl",
    "at",
    "osascript",
    "powershell",
];

pub(super) fn judge(run: &Observation, declared: &SelfDescription, findings: &mut FindingList) {
    // The beginning of its name identifies a service.
    let is_named =
        |service: &&str| service.split(['.', '_', '-']).next().is_some_and(|word| declared.text.contains(word));
    let named: Vec<&str> = SERVICES.into_iter().filter(is_named).collect();
    let makes_sockets = run.attempts.iter().any(|attempt| attempt.subject == AttemptSubject::Call("socket"));
    for attempt in &run.attempts {
        let evidence = format!("{} did, {}", attempt.program, run.at(attempt.after));
        let mut add = |rule, level, subject: &str| findings.add(rule, level, subject, Some(run.condition), &evidence);
        match &attempt.subject {
            // The C library makes one for every name that it looks up.
            AttemptSubject::Call(name) if *name == "socket" => {}
            AttemptSubject::Call(name) if *name == "kill" => add(DENIED_CALL, FindingLevel::Note, "kill"),
            AttemptSubject::Call(name) if ESCAPES.contains(name) => add(ESCAPE, FindingLevel::High, name),
            // Browsers build their sandbox with it.
            AttemptSubject::Call(name) if *name == "unshare" => add(ESCAPE, FindingLevel::Warning, name),
            AttemptSubject::Call(name) => add(DENIED_CALL, FindingLevel::Note, name),
            AttemptSubject::Path(path) => {
                let shown = path.display().to_string();
                if OUTSIDE.iter().any(|outside| path.starts_with(outside)) && attempt.action != AttemptAction::Look {
                    add(ESCAPE, FindingLevel::High, &shown);
                } else if attempt.action == AttemptAction::Connect
                    && NAME_SERVICES.iter().any(|known| path.ends_with(known))
                {
                    add(UNIX_SOCKET, FindingLevel::Note, &shown);
                } else if let Some(service) = SERVICES.iter().find(|service| path.ends_with(service)) {
                    let level = match attempt.action {
                        // Where it gets no socket, looking for a service and asking for a socket is as far as it gets.
                        AttemptAction::Look if !makes_sockets => FindingLevel::Note,
                        _ if named.contains(service) => FindingLevel::Warning,
                        _ => FindingLevel::High,
                    };
                    add(UNIX_SOCKET, level, &shown);
                } else if attempt.action == AttemptAction::Connect {
                    add(UNIX_SOCKET, FindingLevel::Warning, &shown);
                } else if matches!(attempt.action, AttemptAction::Write | AttemptAction::Replace)
                    && starts_later(path, &run.home)
                    && !run.is_work_at(path, attempt.after)
                {
                    add(PERSISTENCE, FindingLevel::High, &shown);
                } else if attempt.action == AttemptAction::Execute
                    && is_there(attempt.availability)
                    && !run.programs.contains(path)
                {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    let level = if TOOLS.contains(&name.as_str()) { FindingLevel::Warning } else { FindingLevel::Note };
                    add(PROGRAM, level, &name);
                }
            }
            AttemptSubject::Address(_) | AttemptSubject::Host(..) => {}
        }
    }
    if run.missed > 0 {
        let evidence = format!("{} attempts, messages and answers", run.missed);
        findings.add(FLOODED, FindingLevel::Warning, "the record of a run", Some(run.condition), &evidence);
    }
    // Only there each tool is called often.
    for (tool, count) in run.skipped.iter().filter(|_| run.condition == Condition::Baseline) {
        let evidence = format!("{count} planned calls");
        findings.add(SLOW, FindingLevel::Warning, &format!("tool {tool}"), Some(run.condition), &evidence);
    }
    for call in run.calls.iter().filter(|call| call.took >= LONG_CALL) {
        let evidence = format!("{} s", call.took.as_secs());
        findings.add(DELAY, FindingLevel::Note, &format!("tool {}", call.tool), Some(run.condition), &evidence);
    }
}

/// Finds runs that failed although the first did not. Without a network or its variables, an honest source may fail.
pub(super) fn failures(observations: &[Observation], findings: &mut FindingList) {
    let [first, others @ ..] = observations else { return };
    for run in others.iter().filter(|_| first.failure.is_none()) {
        let Some(failure) = &run.failure else { continue };
        let level = if run.condition == Condition::Bare { FindingLevel::Note } else { FindingLevel::Warning };
        findings.add(FAILED_RUN, level, "a run", Some(run.condition), failure);
    }
}

/// Reports whether the program is in the cell, or would be outside.
fn is_there(availability: AttemptAvailability) -> bool {
    matches!(availability, AttemptAvailability::Granted | AttemptAvailability::Hidden | AttemptAvailability::Denied)
}

/// Reports whether something is started from a path later.
fn starts_later(path: &Path, home: &Path) -> bool {
    let hooks = path.components().any(|part| part.as_os_str() == ".git")
        && path.components().any(|part| part.as_os_str() == "hooks");
    hooks
        || decides_what_starts(path, home)
        || SYSTEM_STARTERS.iter().any(|known| path.to_string_lossy().starts_with(known))
}
