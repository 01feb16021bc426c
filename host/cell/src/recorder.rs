//! Records the files, programs, addresses and denied system calls that a source tries, and whether its cell has them.
//!
//! The kernel asks before it carries out a recorded call, and the answer is to continue, so that the cell decides as it
//! does without a recorder; a call that every cell denies is denied. Paths are read from the memory of the source: a
//! source that changes one meanwhile spoils only its own record. An evaluated source that asks for a Unix socket gets
//! the end of a closed pipe, so that it then reveals where it would connect to; that call is denied.

#[cfg(target_os = "linux")]
mod caller;
mod usage;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use portcullis_core::sync::Mutex;
use portcullis_jail::SyscallListenerHandle;
use portcullis_ledger::{Event, EventKind};

pub use usage::CellUsage;
use usage::SeenThreads;

/// The largest number of different attempts that are kept. A language runtime makes some thousands; beyond this they
/// are only counted.
const MAX_ATTEMPTS: usize = 50_000;

/// The largest total size of their paths and names, in bytes.
const MAX_PATH_BYTES: usize = 16 << 20;

/// The shares of both for attempts to look at something, and for those to look at or read something, so that weightier
/// attempts have room.
const LOOKS_PART: (usize, usize) = (1, 2);
const READS_PART: (usize, usize) = (3, 4);

/// The largest number of attempts that wait to be looked up outside. Looks beyond it are only counted, and every other
/// call waits.
const LOOK_QUEUE: usize = 16_384;

/// The longest time that a reader waits for attempts that are being looked up outside.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// The file, address, host or system call that an attempt concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptSubject {
    /// A file, a folder or a program, by its absolute path as the source named it.
    Path(PathBuf),
    /// An address of the internet.
    Address(SocketAddr),
    /// A host by name, and the port if it is known.
    Host(String, Option<u16>),
    /// A system call, by its name.
    Call(&'static str),
}

/// The use of a [`AttemptSubject`] that is attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptAction {
    /// Checking whether the subject exists, or reading its attributes.
    Look,
    /// Reading the subject.
    Read,
    /// Creating or changing the subject.
    Write,
    /// Renaming or removing the subject, or renaming something over it: a change of the folder that it is in.
    Replace,
    /// Executing the subject.
    Execute,
    /// To connect to it, or to resolve its name.
    Connect,
    /// To make a system call that every cell denies, or to send a signal.
    Call,
}

/// The answer of a cell to an attempt: whether the cell has its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptAvailability {
    /// It is in the cell, and may be used so.
    Granted,
    /// It is neither in the cell nor outside.
    Absent,
    /// It exists outside, and not in the cell.
    Hidden,
    /// It is in the cell, and must not be changed.
    ReadOnly,
    /// It is in the cell without its folder, so that it can be neither replaced nor removed.
    Alone,
    /// The cell denies it.
    Denied,
}

/// An attempt of a source, with the number of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// The use that was attempted.
    pub action: AttemptAction,
    /// The thing that it was attempted on.
    pub subject: AttemptSubject,
    /// The answer of the cell.
    pub availability: AttemptAvailability,
    /// The number of times.
    pub count: u64,
    /// The time from the beginning of the recording to the first attempt.
    pub after: Duration,
    /// The name of the thread that first attempted it: that of its program, unless the source has chosen another.
    pub program: String,
}

/// The watched files, whose every use is recorded: by device and inode, each with the path under which it is.
type WatchedFiles = Mutex<BTreeMap<(u64, u64), PathBuf>>;

/// The record of what a source attempts, over all its starts.
#[derive(Debug)]
pub struct Recording {
    began: Instant,
    seen: Mutex<SeenAttempts>,
    watched: WatchedFiles,
    /// Notified when an attempt was looked up outside.
    looked_up: Condvar,
    /// True if the source gets stand-ins for Unix sockets.
    follows_unix_sockets: AtomicBool,
    threads: Arc<SeenThreads>,
    usage: Mutex<CellUsage>,
}

#[derive(Debug, Default)]
struct SeenAttempts {
    attempts: BTreeMap<(AttemptAction, AttemptSubject, AttemptAvailability), Times>,
    /// The bytes of all paths and names in `attempts`.
    bytes: usize,
    /// The number of attempts that are missing here.
    others: u64,
    /// The part of them for which there was no room.
    crowded_out: u64,
    /// The number of attempts that wait to be looked up outside.
    waiting: usize,
}

#[derive(Debug)]
struct Times {
    count: u64,
    after: Duration,
    program: String,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            seen: Mutex::default(),
            watched: WatchedFiles::default(),
            looked_up: Condvar::new(),
            follows_unix_sockets: AtomicBool::new(false),
            threads: Arc::default(),
            usage: Mutex::default(),
        }
    }
}

impl Recording {
    /// Returns the attempts so far, in the order of first attempts. Waits up to five seconds for pending lookups.
    #[must_use]
    pub fn attempts(&self) -> Vec<RecordedAttempt> {
        let waiting = self.looked_up.wait_timeout_while(self.seen.lock(), LOOK_WAIT, |seen| seen.waiting > 0);
        let (seen, _) = waiting.unwrap_or_else(std::sync::PoisonError::into_inner);
        let attempt = |((action, subject, availability), times): (
            &(AttemptAction, AttemptSubject, AttemptAvailability),
            &Times,
        )| {
            RecordedAttempt {
                action: *action,
                subject: subject.clone(),
                availability: *availability,
                count: times.count,
                after: times.after,
                program: times.program.clone(),
            }
        };
        let mut attempts: Vec<_> = seen.attempts.iter().map(attempt).collect();
        attempts.sort_by_key(|attempt| attempt.after);
        attempts
    }

    /// Returns the most that the source was seen to use at one time. Samples are taken some times a second, so that a
    /// shorter use may be missing.
    #[must_use]
    pub fn usage(&self) -> CellUsage {
        self.record_usage(self.threads.sample());
        *self.usage.lock()
    }

    fn record_usage(&self, used: CellUsage) {
        let mut most = self.usage.lock();
        *most = most.max(used);
    }

    /// Returns the number of attempts that are missing: too many different ones came before, or the memory of the
    /// source could not be read.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.seen.lock().others
    }

    /// Returns the number of attempts that are missing because too many others came before. A source that makes this
    /// many may hide attempts among them.
    #[must_use]
    pub fn crowded_out(&self) -> u64 {
        self.seen.lock().crowded_out
    }

    /// Watches a file: each use of it is recorded under this path, whichever link leads to it, and however much else is
    /// attempted. To be called before the source starts.
    ///
    /// # Errors
    /// If the file is not there.
    pub fn watch(&self, file: &Path) -> io::Result<()> {
        let about = file.metadata()?;
        self.watched.lock().insert((about.dev(), about.ino()), file.to_owned());
        Ok(())
    }

    /// Gives the source stand-ins for Unix sockets, so that their intended targets are recorded. They lead nowhere.
    /// Otherwise it gets none, as in a cell that is not recorded. To be called before the source starts.
    pub fn follow_unix_sockets(&self) {
        self.follows_unix_sockets.store(true, Ordering::Relaxed);
    }

    fn is_watched(&self, subject: &AttemptSubject) -> bool {
        matches!(subject, AttemptSubject::Path(path) if self.watched.lock().values().any(|known| known == path))
    }

    /// Adds one attempt.
    pub fn record(
        &self,
        action: AttemptAction,
        subject: AttemptSubject,
        availability: AttemptAvailability,
        program: String,
    ) {
        let after = self.began.elapsed();
        let mut seen = self.seen.lock();
        let bytes = match &subject {
            AttemptSubject::Path(path) => path.as_os_str().len(),
            AttemptSubject::Host(host, _) => host.len(),
            AttemptSubject::Address(_) | AttemptSubject::Call(_) => 0,
        };
        let (part, of) = match action {
            AttemptAction::Look => LOOKS_PART,
            AttemptAction::Read => READS_PART,
            _ => (1, 1),
        };
        let has_room =
            seen.attempts.len() < MAX_ATTEMPTS * part / of && seen.bytes + bytes <= MAX_PATH_BYTES * part / of;
        let key = (action, subject, availability);
        if let Some(times) = seen.attempts.get_mut(&key) {
            times.count += 1;
        } else if has_room || self.is_watched(&key.1) {
            seen.bytes += bytes;
            seen.attempts.insert(key, Times { count: 1, after, program });
        } else {
            seen.others += 1;
            seen.crowded_out += 1;
        }
    }

    /// Counts an attempt that waits no longer; `is_missing` if nothing is known about it.
    #[cfg(target_os = "linux")]
    fn finish_lookup(&self, is_missing: bool) {
        let mut seen = self.seen.lock();
        seen.waiting = seen.waiting.saturating_sub(1);
        seen.others += u64::from(is_missing);
        self.looked_up.notify_all();
    }

    /// Adds an attempt that the egress proxy recorded.
    pub(crate) fn record_egress(&self, event: &Event) {
        let availability = match event.kind {
            EventKind::EgressAllowed => AttemptAvailability::Granted,
            EventKind::EgressRefused => AttemptAvailability::Denied,
            _ => return,
        };
        let body = serde_json::Value::from(event.body.clone());
        let text = |key| body.get(key).and_then(|value| value.as_str());
        let port = body.get("port").and_then(serde_json::Value::as_u64).and_then(|port| u16::try_from(port).ok());
        // The port of a query is the resolver's.
        let port = port.filter(|_| text("via") != Some("dns"));
        if let Some(host) = text("host").filter(|host| !host.is_empty()) {
            self.record(
                AttemptAction::Connect,
                AttemptSubject::Host(host.to_owned(), port),
                availability,
                String::new(),
            );
        }
    }

    /// Listens to a cell, on a separate thread, until every process in it has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn listen(self: Arc<Self>, listener: SyscallListenerHandle) {
        let listener = portcullis_jail::SyscallListener::new(listener);
        let (to_look, looked): (SyncSender<(caller::AttemptInCell, String)>, _) = sync_channel(LOOK_QUEUE);
        let recording = Arc::clone(&self);
        let sampled = Arc::clone(&self);
        let sampler = usage::sample_until_dropped(Arc::clone(&self.threads), move |used| sampled.record_usage(used));
        let listen = move || {
            let _sampler = sampler;
            while let Ok(Some(call)) = listener.receive() {
                recording.threads.add(call.thread);
                let mut seen = caller::attempts_of(&listener, &call, &recording.watched);
                let program = seen.as_ref().map(|_| caller::thread_name(call.thread)).unwrap_or_default();
                // Before the caller continues: its next step may be to answer, after which the record is read.
                recording.seen.lock().waiting += seen.as_ref().map_or(1, Vec::len);
                let is_recorded = portcullis_jail::recorded_call(call.number).is_some();
                let reaches_service = || seen.iter().flatten().any(caller::AttemptInCell::is_unix_socket);
                let follows = recording.follows_unix_sockets.load(Ordering::Relaxed);
                if is_recorded && !(follows && reaches_service()) {
                    listener.continue_call(&call);
                } else if is_recorded || portcullis_jail::denied_call(call.number).is_some() || !follows {
                    // A call that every cell denies is here only to be recorded.
                    listener.deny(&call);
                } else if listener.stand_in_for_socket(&call) {
                    // Its later connection tells more.
                    recording.seen.lock().waiting -= seen.as_ref().map_or(1, Vec::len);
                    seen = Ok(Vec::new());
                }
                let Ok(seen) = seen else {
                    recording.finish_lookup(true);
                    continue;
                };
                for seen in seen {
                    // A mere look is dropped rather than waited for; a weightier attempt is not.
                    let sent = match seen.is_mere_look() {
                        true => to_look.try_send((seen, program.clone())),
                        false => to_look.send((seen, program.clone())).map_err(|error| TrySendError::Full(error.0)),
                    };
                    if sent.is_err() {
                        recording.seen.lock().crowded_out += 1;
                        recording.finish_lookup(true);
                    }
                }
            }
        };
        // Neither the caller nor its next call waits during the lookup outside, so that it cannot time that.
        let look = move || {
            for (seen, program) in looked {
                let (action, subject, availability) = seen.attempt();
                self.record(action, subject, availability, program);
                self.finish_lookup(false);
            }
        };
        // Without the first thread the source's calls fail, and with them its start; without the second they are
        // counted.
        let _ = std::thread::Builder::new().name("cell-recorder".to_owned()).spawn(listen);
        let _ = std::thread::Builder::new().name("cell-lookup".to_owned()).spawn(look);
    }

    /// Does nothing: cells are recorded only on Linux.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn listen(self: Arc<Self>, listener: SyscallListenerHandle) {
        drop(listener);
    }
}

#[cfg(test)]
mod tests;
