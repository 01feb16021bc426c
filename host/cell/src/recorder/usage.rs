//! Samples the memory and the processes of a recorded cell.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux cells are recorded"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use portcullis_core::sync::Mutex;

/// The time between two samples.
const PAUSE: Duration = Duration::from_millis(200);

/// The largest number of threads that are measured. A cell allows fewer, unless it is configured otherwise.
const MAX_THREADS: usize = 16_384;

/// The lines of `/proc/PID/status` that are the memory which counts for a cell.
const HELD: [&str; 3] = ["RssAnon", "RssShmem", "VmSwap"];

/// The most that a cell was seen to use at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellUsage {
    /// The memory of all its processes together, in bytes, without the files that they map.
    pub memory: u64,
    /// The number of its threads; a process has at least one.
    pub threads: u64,
}

impl CellUsage {
    /// Returns the larger of both, for each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { memory: self.memory.max(other.memory), threads: self.threads.max(other.threads) }
    }
}

/// The threads of a cell that made a recorded call. Every process makes some while it starts.
#[derive(Debug, Default)]
pub(super) struct SeenThreads(Mutex<BTreeSet<u32>>);

impl SeenThreads {
    pub(super) fn add(&self, thread: u32) {
        let mut threads = self.0.lock();
        if threads.len() < MAX_THREADS {
            threads.insert(thread);
        }
    }

    /// Samples what the processes of these threads use now. Forgets those that have ended.
    pub(super) fn sample(&self) -> CellUsage {
        let threads = self.0.lock().clone();
        let mut processes: BTreeMap<u64, CellUsage> = BTreeMap::new();
        for thread in threads {
            match fs::read_to_string(format!("/proc/{thread}/status")) {
                Ok(status) => processes.extend(of_process(&status)),
                Err(_) => {
                    self.0.lock().remove(&thread);
                }
            }
        }
        processes.into_values().fold(CellUsage::default(), |sum, one| CellUsage {
            memory: sum.memory.saturating_add(one.memory),
            threads: sum.threads.saturating_add(one.threads),
        })
    }
}

/// Returns what a process uses, with its number, from its `status`.
fn of_process(status: &str) -> Option<(u64, CellUsage)> {
    let values: BTreeMap<&str, u64> = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(key, value)| Some((key, value.split_ascii_whitespace().next()?.parse().ok()?)))
        .collect();
    let value = |key: &str| values.get(key).copied();
    let kibibytes: u64 = HELD.into_iter().filter_map(value).sum();
    Some((value("Tgid")?, CellUsage { memory: kibibytes << 10, threads: value("Threads")? }))
}

/// Takes samples on a separate thread, until the returned guard is dropped. A thread that cannot be started takes none.
pub(super) fn sample_until_dropped(threads: Arc<SeenThreads>, note: impl Fn(CellUsage) + Send + 'static) -> Sender<()> {
    let (running, ended): (_, Receiver<()>) = channel();
    let sample = move || {
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            note(threads.sample());
        }
    };
    let _ = std::thread::Builder::new().name("cell-usage".to_owned()).spawn(sample);
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_the_seen_threads_are_counted_once() {
        let threads = SeenThreads::default();
        let own = std::process::id();
        threads.add(own);
        threads.add(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        threads.add(u32::MAX);
        let held = vec![1_u8; 64 << 20];
        let used = threads.sample();
        assert!(used.memory >= 64 << 20 && used.threads >= 2, "{used:?}");
        assert!(used.memory < 2 << 30, "each process is counted once: {used:?}");
        assert_eq!(held.len(), 64 << 20);
        assert!(!threads.0.lock().contains(&u32::MAX), "what has ended is forgotten");
    }
}
