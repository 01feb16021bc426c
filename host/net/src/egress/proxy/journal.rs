//! The ledger's records of a source's egress attempts. The first attempt of a kind is recorded at once, and its repeats
//! later as a count, so that a flood of attempts takes few records with large numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::name::SourceName;
use portcullis_core::sync::Mutex;
use portcullis_ledger::repeats::{self, RepeatCounter};
use portcullis_ledger::{Event, EventKind};
use serde_json::json;

use super::super::EgressError;
use super::proxy_destinations::{HTTP_PORT, TLS_PORT};
use super::{Destination, MAX_CONNECTIONS, RefusedHosts};

pub(in crate::egress) use portcullis_ledger::repeats::PAUSE;

/// The largest number of bytes of a host or a reason that are shown: the length of the longest name in DNS.
const MAX_SHOWN_BYTES: usize = 253;

/// The service through which an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::egress) enum EgressService {
    Dns,
    Http,
    Tls,
    Tcp,
    Proxy,
}

impl EgressService {
    /// Returns the service that is assumed on a port.
    pub(in crate::egress) fn of(port: u16) -> Self {
        match port {
            HTTP_PORT => Self::Http,
            TLS_PORT => Self::Tls,
            _ => Self::Tcp,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Proxy => "proxy",
        }
    }
}

/// An error that says why an attempt was refused. The messages follow "refused: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::egress) enum EgressRefusal {
    #[error("not declared; add it to `network` in the source's cell if that is intended")]
    NotDeclared,
    #[error("an address that belongs to no declared name")]
    RawAddress,
    #[error(
        "a socket, whose bytes may name any host; on ports 80 and 443 a component reaches a host name through `wasi:http`"
    )]
    Socket,
    #[error("the request names another host, `{0}`")]
    OtherHost(String),
    #[error("the request names no host")]
    NoHost,
    #[error("the TLS handshake names another host, `{0}`")]
    OtherName(String),
    #[error("the TLS handshake names no host")]
    NoName,
    #[error("not a TLS handshake")]
    NotTls,
    #[error("not an HTTP/1 request")]
    NotHttp,
    #[error("more than {MAX_CONNECTIONS} connections at once")]
    Full,
    #[error("{0}")]
    Address(EgressError),
}

/// The error that is recorded for an attempt that was given up: the other side may have seen it.
const GIVEN_UP: &str = "given up before it was known whether it arrived";

/// Records a source's egress attempts. Dropping it reports the remaining counts.
pub(in crate::egress) struct EgressLog {
    source: SourceName,
    record: Box<dyn Fn(Event) + Send + Sync>,
    repeats: RepeatCounter<Attempt>,
    refused: Arc<RefusedHosts>,
    open: Mutex<OpenAttempts>,
}

/// The attempts that have begun but are not recorded yet, and the number of all that have begun.
#[derive(Default)]
struct OpenAttempts {
    attempts: BTreeMap<u64, Attempt>,
    begun: u64,
}

/// An attempt whose outcome is not known yet. If it is dropped, it is recorded as given up.
#[must_use = "what is dropped is recorded as given up"]
pub(in crate::egress) struct OpenAttempt<'a> {
    log: &'a EgressLog,
    number: u64,
}

impl OpenAttempt<'_> {
    /// Notes the outcome, unless the attempt was recorded as given up before.
    pub(in crate::egress) fn end(self, note: impl FnOnce(&EgressLog)) {
        if self.log.open.lock().attempts.remove(&self.number).is_some() {
            note(self.log);
        }
    }
}

impl Drop for OpenAttempt<'_> {
    fn drop(&mut self) {
        let given_up = self.log.open.lock().attempts.remove(&self.number);
        if let Some(attempt) = given_up {
            self.log.record_once(&attempt);
        }
    }
}

impl Drop for EgressLog {
    fn drop(&mut self) {
        self.report();
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Attempt {
    allowed: bool,
    via: EgressService,
    host: String,
    port: u16,
    why: Option<String>,
}

impl EgressLog {
    pub(in crate::egress) fn new(source: &SourceName, record: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self {
            source: source.clone(),
            record: Box::new(record),
            repeats: RepeatCounter::default(),
            refused: Arc::default(),
            open: Mutex::default(),
        }
    }

    /// Notes the hosts that are not declared in `refused`, too.
    pub(in crate::egress) fn with_refused(mut self, refused: Arc<RefusedHosts>) -> Self {
        self.refused = refused;
        self
    }

    /// Begins an attempt that may arrive although nobody waits for its outcome any more.
    pub(in crate::egress) fn begin(&self, via: EgressService, to: &Destination) -> OpenAttempt<'_> {
        let (host, port) = (to.host().to_owned(), to.port());
        let attempt = Attempt { allowed: true, via, host, port, why: Some(GIVEN_UP.to_owned()) };
        let mut open = self.open.lock();
        open.begun += 1;
        let number = open.begun;
        open.attempts.insert(number, attempt);
        OpenAttempt { log: self, number }
    }

    /// Records all attempts whose outcome is not known as given up.
    pub(in crate::egress) fn give_up(&self) {
        let open = std::mem::take(&mut self.open.lock().attempts);
        open.values().for_each(|attempt| self.record_once(attempt));
    }

    /// Notes that a connection was made.
    pub(in crate::egress) fn allowed(&self, via: EgressService, to: &Destination) {
        self.record_once(&Attempt { allowed: true, via, host: to.host().to_owned(), port: to.port(), why: None });
    }

    /// Notes that a connection to a declared destination was not made: its address was refused, or it failed.
    pub(in crate::egress) fn not_made(&self, via: EgressService, to: &Destination, error: &EgressError) {
        if let EgressError::Refused { .. } = error {
            return self.refused(via, to.host(), to.port(), &EgressRefusal::Address(error.clone()));
        }
        let why = Some(error.to_string());
        self.record_once(&Attempt { allowed: true, via, host: to.host().to_owned(), port: to.port(), why });
    }

    /// Notes that an attempt was refused. `host` is the requested host, as the source wrote it.
    pub(in crate::egress) fn refused(&self, via: EgressService, host: &str, port: u16, why: &EgressRefusal) {
        if *why == EgressRefusal::NotDeclared {
            // The port of a query is the resolver's.
            self.refused.add(host, Some(port).filter(|_| via != EgressService::Dns));
        }
        self.record_once(&Attempt { allowed: false, via, host: shown(host), port, why: Some(shown(&why.to_string())) });
    }

    fn record_once(&self, attempt: &Attempt) {
        if self.repeats.is_first(attempt) {
            (self.record)(self.event(attempt, 1));
        }
    }

    /// Reports the counted repeats after a pause, and returns the length of the next pause.
    pub(in crate::egress) fn report_and_pause(&self, pause: Duration) -> Duration {
        repeats::next_pause(pause, self.report())
    }

    /// Reports the counted repeats and resets the counts. Returns true if there was nothing to report.
    pub(in crate::egress) fn report(&self) -> bool {
        let report = self.repeats.report();
        for (attempt, repeats) in &report.repeated {
            (self.record)(self.event(attempt, *repeats));
        }
        if report.others > 0 {
            let body = json!({ "source": self.source.as_str(), "count": report.others, "reason": "too many different attempts to list" });
            (self.record)(Event::new(EventKind::EgressRefused, body));
        }
        report.is_empty()
    }

    fn event(&self, attempt: &Attempt, count: u64) -> Event {
        let Attempt { allowed, via, host, port, why } = attempt;
        let (kind, word) =
            if *allowed { (EventKind::EgressAllowed, "error") } else { (EventKind::EgressRefused, "reason") };
        let mut body = json!({
            "source": self.source.as_str(),
            "via": via.as_str(),
            "host": host,
            "port": port,
            "count": count,
        });
        if let (Some(why), Some(body)) = (why, body.as_object_mut()) {
            body.insert(word.to_owned(), json!(why));
        }
        Event::new(kind, body)
    }
}

fn shown(text: &str) -> String {
    let cut = text.floor_char_boundary(MAX_SHOWN_BYTES.min(text.len()));
    portcullis_core::escape::escape_hidden(text.get(..cut).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use portcullis_ledger::repeats::MAX_KINDS;

    use super::*;

    fn journal() -> (EgressLog, Arc<Mutex<Vec<serde_json::Value>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&told);
        let record = move |event: Event| copy.lock().unwrap().push(event.body.into());
        (EgressLog::new(&"files".parse().unwrap(), record), told)
    }

    #[test]
    fn repeats_are_counted_and_recorded_later() {
        let (journal, told) = journal();
        for _ in 0..1000 {
            journal.refused(EgressService::Dns, "evil.test", 53, &EgressRefusal::NotDeclared);
        }
        assert_eq!(told.lock().unwrap().len(), 1);
        assert!(!journal.report());
        let last = told.lock().unwrap().last().unwrap().clone();
        assert_eq!((last["host"].as_str(), last["count"].as_u64()), (Some("evil.test"), Some(999)));
        assert!(journal.report(), "nothing is told twice");
        assert_eq!(told.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_flood_of_different_names_is_a_bounded_number_of_records() {
        let count = Arc::new(AtomicUsize::new(0));
        let copy = Arc::clone(&count);
        let journal = EgressLog::new(&"files".parse().unwrap(), move |_| {
            copy.fetch_add(1, Ordering::Relaxed);
        });
        for round in 0..2 {
            for n in 0..100_000 {
                journal.refused(EgressService::Dns, &format!("{n}.evil.test"), 53, &EgressRefusal::NotDeclared);
            }
            journal.report();
            assert_eq!(count.load(Ordering::Relaxed), (round + 1) * (MAX_KINDS + 1));
        }
    }

    #[test]
    fn what_a_source_wrote_is_cut_and_made_visible() {
        let (journal, told) = journal();
        journal.refused(EgressService::Proxy, &format!("\u{1b}]0;x{}", "é".repeat(300)), 1, &EgressRefusal::NoHost);
        let body = told.lock().unwrap().first().unwrap().clone();
        let host = body["host"].as_str().unwrap();
        assert!(host.starts_with("\\u{1b}]0;x") && host.len() < 270, "{host}");
    }
}
