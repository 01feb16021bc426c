//! The memory of all processes of a cell together, where no cgroup counts it.
//!
//! The limit of each process (`RLIMIT_DATA`) is for honest programs: an allocation beyond it fails. A hostile one can
//! evade it, by making pages read-only so that they no longer count, or by starting other processes. So the supervising
//! process checks the sum from time to time. seccomp denies memory that would count for no process (`seccomp.rs`).

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time between two checks. A processor fills about a gibibyte in it.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// The time after which an excess must still be there. A process that starts a program uses the memory of its parent until
/// then, as `posix_spawn` does it, and both show it as theirs.
const STARTING: Duration = Duration::from_millis(100);

/// The lines of `/proc/PID/status` that count: private and shared memory, swapped memory, and page tables.
const HELD: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"];

/// The corresponding lines of `/proc/PID/smaps_rollup`, which divides shared pages among the processes that share them.
const SHARED_OUT: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];

/// A finding about the memory of a cell, for which the cell is ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemoryExcess {
    /// All processes together hold this many bytes, more than is allowed.
    Held(u64),
    /// The memory of this living process could not be read twice in a row. It is this process itself if the processes
    /// could not be listed.
    Unreadable(i32),
}

/// Checks what the processes of this process's namespace hold.
#[derive(Default)]
pub(super) struct MemoryWatcher {
    /// The living processes whose memory could not be read at the last check. Once may be chance: a process that ends
    /// gives up its memory before it is gone.
    unread: HashSet<i32>,
}

impl MemoryWatcher {
    /// Checks once, and a second time if there is too much. To be called every [`PAUSE`].
    pub(super) fn check(&mut self, allowed: u64) -> Option<MemoryExcess> {
        let processes = Path::new("/proc");
        let found = self.check_in(processes, allowed)?;
        if let MemoryExcess::Held(_) = found {
            std::thread::sleep(STARTING);
            let again = fairly(processes);
            // A process that cannot be read now may be the one that held too much.
            return (again.held > allowed || !again.unread.is_empty()).then_some(found);
        }
        Some(found)
    }

    fn check_in(&mut self, processes: &Path, allowed: u64) -> Option<MemoryExcess> {
        let mut sum = together(processes, |task| count(&task.join("status"), &HELD));
        if sum.held > allowed {
            let fair = fairly(processes);
            sum.unread.extend(fair.unread);
            sum.held = fair.held;
        }
        let before = std::mem::replace(&mut self.unread, sum.unread);
        if let Some(process) = self.unread.intersection(&before).next() {
            return Some(MemoryExcess::Unreadable(*process));
        }
        (sum.held > allowed).then_some(MemoryExcess::Held(sum.held))
    }
}

/// Adds up what all processes hold: slower than by [`HELD`], but fair to processes that have forked. Some processes have
/// no rollup to read.
fn fairly(processes: &Path) -> Sum {
    together(processes, |task| {
        let (status, rollup) = (task.join("status"), task.join("smaps_rollup"));
        let tables = || count(&status, &["VmPTE:"]).unwrap_or_default();
        count(&rollup, &SHARED_OUT).map(|bytes| bytes + tables()).or_else(|| count(&status, &HELD))
    })
}

/// The memory of all processes together, and the processes whose memory could not be read.
#[derive(Default)]
struct Sum {
    held: u64,
    unread: HashSet<i32>,
}

/// Adds up what all processes hold. `held` reads it from the folder of a task, and returns `None` if it cannot be read
/// there.
fn together(processes: &Path, held: impl Fn(&Path) -> Option<u64>) -> Sum {
    let mut sum = Sum::default();
    let Ok(listed) = numbered(processes) else {
        sum.unread.insert(std::process::id().cast_signed());
        return sum;
    };
    for (process, folder) in listed {
        match of_process(&folder, &held) {
            Some(bytes) => sum.held = sum.held.saturating_add(bytes),
            None => drop(sum.unread.insert(process)),
        }
    }
    sum
}

/// Returns what one process holds, or `None` if it lives and that cannot be read.
fn of_process(folder: &Path, held: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    if let Some(bytes) = held(folder) {
        return Some(bytes);
    }
    // All threads share the memory. A thread that has ended shows none of it, and the first thread, which represents
    // the process, may have ended before the others.
    let mut lives = false;
    let threads = match numbered(&folder.join("task")) {
        Ok(threads) => threads,
        Err(error) => return is_gone(&error).then_some(0),
    };
    for (_, thread) in threads {
        if let Some(bytes) = held(&thread) {
            return Some(bytes);
        }
        lives |= !ends(&thread);
    }
    (!lives).then_some(0)
}

/// Reports whether a thread has ended or is about to, and so has given up its memory if it shows none. A thread that is
/// no longer there counts as living while its process has others: it may have handed over to one of them.
fn ends(thread: &Path) -> bool {
    /// `PF_EXITING` of the kernel's `sched.h`.
    const EXITING: u64 = 4;
    let Ok(stat) = fs::read_to_string(thread.join("stat")) else { return !has_threads(thread) };
    // The name in brackets may contain anything. The state follows it, and the flags come six fields later.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    matches!(state, "Z" | "X") || flags & EXITING != 0
}

/// Reports whether the process of a thread still has other threads, as far as they can be listed.
fn has_threads(thread: &Path) -> bool {
    let listed = |task: &Path| numbered(task).map_or_else(|error| !is_gone(&error), |threads| !threads.is_empty());
    thread.parent().is_some_and(listed)
}

/// Returns the entries of a folder of `/proc` that are numbers, with their paths.
fn numbered(folder: &Path) -> io::Result<Vec<(i32, PathBuf)>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<DirEntry>>>()?;
    let number = |entry: &DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    Ok(entries.iter().filter_map(number).collect())
}

/// Reports whether a folder of `/proc` could not be listed because its process is gone.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns the sum in bytes of lines such as `RssAnon: 120 kB`, or `None` if the file has none of them.
fn count(file: &Path, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kibibytes = |line: &str| -> Option<u64> {
        let mut words = line.split_ascii_whitespace();
        names.contains(&words.next()?).then(|| words.next()?.parse().ok()).flatten()
    };
    let found: Vec<u64> = text.lines().filter_map(kibibytes).collect();
    (!found.is_empty()).then(|| found.iter().sum::<u64>() << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_ways_of_counting_see_what_is_held() {
        let before = count(Path::new("/proc/self/status"), &HELD).unwrap();
        let held = vec![1_u8; 64 << 20];
        for (file, names) in [("/proc/self/status", HELD.as_slice()), ("/proc/self/smaps_rollup", &SHARED_OUT)] {
            assert!(count(Path::new(file), names).unwrap() >= 64 << 20, "{file}");
        }
        assert!(count(Path::new("/proc/self/status"), &HELD).unwrap() > before);
        assert!(matches!(
            MemoryWatcher::default().check(u64::try_from(held.len()).unwrap()),
            Some(MemoryExcess::Held(_))
        ));
        assert_eq!(count(Path::new("/proc/self/absent"), &HELD), None);
        assert_eq!(MemoryWatcher::default().check(u64::MAX), None);
    }

    #[test]
    fn a_living_process_whose_memory_cannot_be_read_is_found_at_the_second_check() {
        let own = Path::new("/proc/self");
        assert_eq!(of_process(own, |_| None), None, "it lives and says nothing");
        assert_eq!(of_process(Path::new("/proc/self/absent"), |_| None), Some(0), "it is gone");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let zombie = PathBuf::from(format!("/proc/{}", ended.id()));
        while !fs::read_to_string(zombie.join("status")).unwrap().contains("State:\tZ") {
            std::thread::yield_now();
        }
        assert_eq!(of_process(&zombie, |task| count(&task.join("status"), &HELD)), Some(0), "it has ended");
        ended.wait().unwrap();
    }

    #[test]
    fn processes_that_cannot_be_listed_twice_in_a_row_are_an_excess() {
        let (mut watcher, absent) = (MemoryWatcher::default(), Path::new("/proc/self/absent"));
        assert_eq!(watcher.check_in(absent, u64::MAX), None, "once may be chance");
        assert!(matches!(watcher.check_in(absent, u64::MAX), Some(MemoryExcess::Unreadable(_))));
    }
}
