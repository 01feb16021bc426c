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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    Usage { cpu: TICK * (ticks(11) + ticks(12)), peak_bytes: peak.unwrap_or(0) * 1024 }
}

/// Returns the fields after the name, which may contain spaces: state, parent, and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}
