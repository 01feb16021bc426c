//! Records what a source tries: files, programs, addresses and denied system calls, and whether its cell has them.
//!
//! The kernel asks before it carries a recorded call out, and the answer is always to go on, so that the cell decides as
//! it does without a recorder. What a path is, is read from the memory of the source: a source that changes it meanwhile
//! spoils its record and nothing else.

#[cfg(target_os = "linux")]
mod caller;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::sync::Mutex;
use portcullis_ledger::{Event, EventKind};

/// The largest number of different attempts that are kept, and of the bytes of their paths. A language runtime makes
/// some thousands; beyond this they are only counted.
const MAX_ATTEMPTS: usize = 50_000;
const MAX_PATH_BYTES: usize = 16 << 20;

/// The object of an attempt: a path, an address, a host or a system call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A file, a folder or a program, by its absolute path as the source named it.
    Path(PathBuf),
    /// An address of the internet.
    Address(SocketAddr),
    /// A host by name, and the port if it is known.
    Host(String, Option<u16>),
    /// A system call, by its name.
    Call(&'static str),
}

/// The kind of an attempt on a [`Subject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// To look whether it exists, and at its attributes.
    Look,
    /// To read it.
    Read,
    /// To make, change or remove it.
    Write,
    /// To execute it.
    Execute,
    /// To connect to it, or to resolve its name.
    Connect,
    /// To make a system call that every cell denies, or to send a signal.
    Call,
}

/// The availability of what was attempted: whether the cell has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Availability {
    /// It is in the cell, and may be used so.
    Granted,
    /// It is neither in the cell nor outside.
    Absent,
    /// It exists outside, and not in the cell.
    Hidden,
    /// It is in the cell, and must not be changed.
    ReadOnly,
    /// The cell denies it.
    Denied,
}

/// An attempt that a source has made, once or several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// The kind of the attempt.
    pub action: Action,
    /// On what.
    pub subject: Subject,
    /// The availability of the subject in the cell.
    pub availability: Availability,
    /// The number of times that the attempt was made.
    pub count: u64,
    /// The time from the beginning of the recording to the first attempt.
    pub after: Duration,
    /// The name of the program that first attempted it.
    pub program: String,
}

/// A record of what a source attempts, over all its starts. Cheap to share.
#[derive(Debug)]
pub struct Recording {
    began: Instant,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    attempts: BTreeMap<(Action, Subject, Availability), Times>,
    /// The bytes of all paths and names in `attempts`.
    bytes: usize,
    /// Attempts beyond [`MAX_ATTEMPTS`].
    others: u64,
}

#[derive(Debug)]
struct Times {
    count: u64,
    after: Duration,
    program: String,
}

impl Default for Recording {
    fn default() -> Self {
        Self { began: Instant::now(), seen: Mutex::default() }
    }
}

impl Recording {
    /// Returns what was attempted so far, in the order of first attempts.
    #[must_use]
    pub fn attempts(&self) -> Vec<RecordedAttempt> {
        let seen = self.seen.lock();
        let attempt =
            |((action, subject, availability), times): (&(Action, Subject, Availability), &Times)| RecordedAttempt {
                action: *action,
                subject: subject.clone(),
                availability: *availability,
                count: times.count,
                after: times.after,
                program: times.program.clone(),
            };
        let mut attempts: Vec<_> = seen.attempts.iter().map(attempt).collect();
        attempts.sort_by_key(|attempt| attempt.after);
        attempts
    }

    /// Returns the number of attempts that were not kept, because too many different ones came before.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.seen.lock().others
    }

    /// Adds one attempt.
    pub fn note(&self, action: Action, subject: Subject, availability: Availability, program: impl FnOnce() -> String) {
        let after = self.began.elapsed();
        let mut seen = self.seen.lock();
        let bytes = match &subject {
            Subject::Path(path) => path.as_os_str().len(),
            Subject::Host(host, _) => host.len(),
            Subject::Address(_) | Subject::Call(_) => 0,
        };
        let key = (action, subject, availability);
        if let Some(times) = seen.attempts.get_mut(&key) {
            times.count += 1;
        } else if seen.attempts.len() < MAX_ATTEMPTS && seen.bytes + bytes <= MAX_PATH_BYTES {
            seen.bytes += bytes;
            seen.attempts.insert(key, Times { count: 1, after, program: program() });
        } else {
            seen.others += 1;
        }
    }

    /// Adds an attempt that the egress proxy recorded.
    pub(crate) fn note_egress(&self, event: &Event) {
        let availability = match event.kind {
            EventKind::EgressAllowed => Availability::Granted,
            EventKind::EgressRefused => Availability::Denied,
            _ => return,
        };
        let text = |key| event.body.get(key).and_then(|value| value.as_str());
        let port = event.body.get("port").and_then(serde_json::Value::as_u64).and_then(|port| u16::try_from(port).ok());
        // The port of a query is the resolver's.
        let port = port.filter(|_| text("via") != Some("dns"));
        if let Some(host) = text("host").filter(|host| !host.is_empty()) {
            self.note(Action::Connect, Subject::Host(host.to_owned(), port), availability, String::new);
        }
    }

    /// Listens to a cell, on a thread of its own, until every process in it has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn listen(self: Arc<Self>, listener: OwnedFd) {
        let listener = portcullis_jail::SyscallListener::new(listener);
        let listen = move || {
            while let Ok(Some(call)) = listener.receive() {
                let seen = caller::seen(&listener, &call);
                let program = seen.as_ref().map(|_| caller::program(call.thread)).unwrap_or_default();
                if portcullis_jail::recorded_call(call.number).is_some() {
                    listener.go_on(&call);
                } else {
                    // A call that every cell denies is here only to be recorded.
                    listener.deny(&call);
                }
                // The caller does not wait while the world outside is looked at, and so cannot time that.
                if let Some((action, subject, availability)) = seen.map(caller::Seen::attempt) {
                    self.note(action, subject, availability, || program);
                }
            }
        };
        // Without the thread the source's calls fail, and with them its start.
        let _ = std::thread::Builder::new().name("cell-recorder".to_owned()).spawn(listen);
    }

    /// Only Linux cells are recorded, so none is ever listened to elsewhere.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn listen(self: Arc<Self>, listener: OwnedFd) {
        drop(listener);
    }
}
