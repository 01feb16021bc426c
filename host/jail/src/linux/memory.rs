//! What the processes of a cell hold together, where no cgroup counts it.
//!
//! The limit of each process (`RLIMIT_DATA`) is what an honest program meets: it hears that there is no more. It is no bound for
//! a hostile one, which can make pages read-only so that they count no longer, or start others. So whoever keeps the cell looks
//! from time to time. seccomp denies what would count for no process (`seccomp.rs`).

use std::fs;
use std::path::Path;

use rustix::event::Timespec;

/// How often it is looked: in this time a processor fills about a gibibyte.
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// What counts, in `/proc/PID/status`: memory of its own and shared, on the disk too, and the tables for it.
const HELD: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"];

/// The same in `/proc/PID/smaps_rollup`, where pages that several processes share count for each in part.
const SHARED_OUT: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];

/// The bytes that all processes in this process's namespace hold, if they are more than allowed.
pub(super) fn beyond(allowed: u64) -> Option<u64> {
    let fast = together(|process| count(&process.join("status"), &HELD).unwrap_or_default());
    if fast <= allowed {
        return None;
    }
    // Slower, and fair to those that have forked.
    let fair = together(|process| {
        let shared_out = count(&process.join("smaps_rollup"), &SHARED_OUT);
        let tables = count(&process.join("status"), &["VmPTE:"]).unwrap_or_default();
        // Some cannot be looked at so closely.
        shared_out.map_or_else(|| count(&process.join("status"), &HELD).unwrap_or_default(), |bytes| bytes + tables)
    });
    (fair > allowed).then_some(fair)
}

fn together(held: impl Fn(&Path) -> u64) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    numbered.map(|process| held(&process.path())).sum()
}

/// The sum of some lines such as `RssAnon:     120 kB`; None if the file cannot be read.
fn count(file: &Path, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kibibytes = |line: &str| -> Option<u64> {
        let mut words = line.split_ascii_whitespace();
        names.contains(&words.next()?).then(|| words.next()?.parse().ok()).flatten()
    };
    Some(text.lines().filter_map(kibibytes).sum::<u64>() << 10)
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
        assert!(beyond(u64::try_from(held.len()).unwrap()).is_some());
        assert_eq!(count(Path::new("/proc/self/absent"), &HELD), None);
        assert_eq!(beyond(u64::MAX), None);
    }
}
