//! Processes, and the resources that they use.

use std::fs;
use std::process::Child;
use std::time::Duration;

/// One clock tick, the unit of the times in `/proc/PID/stat` on every Linux: 1/USER_HZ.
const TICK: Duration = Duration::from_millis(10);

/// A process that is killed on drop.
pub(crate) struct Program(pub(crate) Child);

/// The resources that processes have used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) peak_bytes: u64,
    /// The times that a thread of the process gave up its processor, voluntarily or not.
    pub(crate) switches: u64,
    /// The system calls that write: to sockets, pipes and files. Those that send to a socket do not count.
    pub(crate) writes: u64,
}

impl Program {
    pub(crate) fn usage(&self) -> Usage {
        usage(self.0.id())
    }

    /// Returns what the children of this process have used.
    pub(crate) fn usage_of_children(&self) -> Usage {
        let own = self.0.id().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let children = pids.filter(|pid| stat(*pid).is_some_and(|fields| fields.get(1) == Some(&own)));
        children.map(usage).fold(Usage::default(), |all, one| Usage {
            cpu: all.cpu + one.cpu,
            peak_bytes: all.peak_bytes + one.peak_bytes,
            switches: all.switches + one.switches,
            writes: all.writes + one.writes,
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn usage(pid: u32) -> Usage {
    let fields = stat(pid).unwrap_or_default();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let peak = number(&format!("/proc/{pid}/status"), "VmHWM:");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let switches = threads.map(|thread| {
        let status = thread.path().join("status").display().to_string();
        number(&status, "voluntary_ctxt_switches:") + number(&status, "nonvoluntary_ctxt_switches:")
    });
    Usage {
        cpu: TICK * (ticks(11) + ticks(12)),
        peak_bytes: peak * 1024,
        switches: switches.sum(),
        writes: number(&format!("/proc/{pid}/io"), "syscw:"),
    }
}

/// Returns the number after a word that begins a line of a file, or 0.
fn number(file: &str, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(word)?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(0)
}

/// Returns the fields after the name, which may contain spaces: state, parent, and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}
