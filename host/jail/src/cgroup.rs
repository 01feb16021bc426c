//! A delegated cgroup, if there is one: limits for all processes of a cell together. cgroups(7), version 2.
//!
//! `systemd-run --user --scope --property Delegate=yes portcullis …` starts the broker in one. The broker then moves
//! itself into a child group, since a group with limited children may hold no process, and makes a sibling group for
//! each cell.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::cell::CellLimits;

/// The controllers that a delegated cgroup must have. If one is missing, only the weaker limits of each process apply.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The launcher's own processes, which are in the group too, with the threads of a deputy.
const HELPERS: u32 = 6;

/// The period of `cpu.max` in microseconds: the kernel's default.
const PERIOD: u32 = 100_000;

/// The cgroup that was delegated to this process.
struct Delegated {
    folder: PathBuf,
    made: AtomicU32,
    /// Groups that could not be removed yet, since processes that were killed in them had not quite ended.
    left: Mutex<Vec<PathBuf>>,
}

/// Returns the delegated cgroup, if there is one. The first call looks for it and moves this process into a child
/// group.
fn delegated() -> Option<&'static Delegated> {
    static FOUND: OnceLock<Option<Delegated>> = OnceLock::new();
    FOUND.get_or_init(|| own_folder().and_then(Delegated::at)).as_ref()
}

/// Returns the folder of this process's own cgroup.
fn own_folder() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(Path::new(mount.split(' ').nth(4)?).join(own))
}

impl Delegated {
    /// Returns `None` if the group lacks a controller, cannot be changed by this process, or holds other processes.
    fn at(folder: PathBuf) -> Option<Self> {
        let listed = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
        let has = |wanted: &&str| listed.split_whitespace().any(|listed| listed == *wanted);
        let inside = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
        let own = std::process::id().to_string();
        if !CONTROLLERS.iter().all(has) || inside.lines().any(|process| process != own) {
            return None;
        }
        let broker = folder.join("broker");
        match fs::create_dir(&broker) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        set(&broker, "cgroup.procs", "0").ok()?;
        let enabled = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        if set(&folder, "cgroup.subtree_control", &enabled).is_err() {
            // Moves back to where it was. An empty child group that cannot be removed does no harm.
            let _ = set(&folder, "cgroup.procs", "0");
            let _ = fs::remove_dir(&broker);
            return None;
        }
        Some(Self { folder, made: AtomicU32::new(0), left: Mutex::default() })
    }

    /// Makes the group of one cell.
    fn group(&self, limits: &CellLimits) -> io::Result<ControlGroup> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).retain(|left| remove(left).is_err());
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("cell-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = ControlGroup { folder };
        let folder = &group.folder;
        set(folder, "memory.max", &limits.memory.to_string())?;
        // Swapped memory would come on top of the limit. A machine without swap has no such file.
        let _ = set(folder, "memory.swap.max", "0");
        // If only one process were killed, the source would be left half alive.
        set(folder, "memory.oom.group", "1")?;
        set(folder, "pids.max", &limits.processes.saturating_add(HELPERS).to_string())?;
        if let Some(processors) = limits.cpu {
            let quota = (processors * f64::from(PERIOD)).ceil();
            set(folder, "cpu.max", &format!("{quota} {PERIOD}"))?;
        }
        Ok(group)
    }
}

/// The group of one cell. Dropping it removes the group, or leaves that to the next cell if a process in it has not
/// quite ended.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Takes the delegated cgroup, if there is one. Must be called before the first process is started: this process
    /// must be alone in it.
    pub(crate) fn prepare() {
        delegated();
    }

    /// Makes the group of a new cell. Returns `None` if no cgroup was delegated.
    pub(crate) fn new(limits: &CellLimits) -> io::Result<Option<Self>> {
        delegated().map(|delegated| delegated.group(limits)).transpose()
    }

    /// Opens the file by which processes enter the group: a process that writes `0` to it enters.
    pub(crate) fn open_procs_file(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        if remove(&self.folder).is_err()
            && let Some(delegated) = delegated()
        {
            delegated.left.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.folder));
        }
    }
}

/// Removes a group that holds no process. One that is already gone is not an error.
fn remove(group: &Path) -> io::Result<()> {
    fs::remove_dir(group).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn set(folder: &Path, name: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(folder.join(name))?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Makes a folder as the kernel shows a cgroup, with the files that the kernel would make in a child group.
    fn fake(controllers: &str, processes: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("broker")).unwrap();
        let files = [("cgroup.controllers", controllers), ("cgroup.procs", processes), ("cgroup.subtree_control", "")];
        for (name, text) in files.into_iter().chain([("broker/cgroup.procs", "")]) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_cgroup_is_used_only_with_all_controllers_and_no_other_process() {
        let own = std::process::id();
        let there = |controllers, processes: &str| Delegated::at(fake(controllers, processes).path().into()).is_some();
        assert!(there("cpuset cpu io memory pids", &format!("{own}\n")));
        assert!(there("cpu memory pids", ""), "its processes are in the group of an earlier broker");
        assert!(!there("memory pids", ""), "no processors");
        assert!(!there("cpu memory pids", &format!("{own}\n1\n")), "somebody else's too");
        assert!(Delegated::at("/nowhere".into()).is_none());
    }

    #[test]
    fn the_broker_leaves_its_cgroup_before_it_enables_controllers() {
        let folder = fake("cpu memory pids", "");
        Delegated::at(folder.path().into()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("broker/cgroup.procs"), "0");
        assert_eq!(read("cgroup.subtree_control"), "+cpu +memory +pids");
    }
}
