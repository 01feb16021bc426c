//! The ledger's records of what the sources of a session list, and of how that changes.
//!
//! A source can change its lists all the time, and needs no call for it. So the first record of a kind is complete, and
//! a later one is short. Those that follow soon after another become one, and how many there were is a number in it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::call::SessionId;
use crate::ledger::repeats::{self, PAUSE};
use crate::ledger::{Event, EventKind, Ledger};
use crate::sync::Mutex;

/// The most that a later record has of the items of one member, such as the names that were added, in bytes: some 150
/// names, or 30 definitions. A source with a new list every minute fills 40 MB a day with it at most.
const MAX_ITEMS_BYTES: usize = 4 * 1024;

/// Records what the sources of one session list. Dropping it records the remaining counts.
pub(super) struct ListRecorder {
    me: Weak<Self>,
    ledger: Ledger,
    run: SessionId,
    state: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// By the kind of record and its subject: a source, or a kind of items.
    known: HashMap<(EventKind, String), KnownList>,
    /// True while a task waits to record the counts.
    is_awaited: bool,
}

/// A list that has a record.
struct KnownList {
    recorded: Instant,
    /// The records that came since, as one.
    counted: MergedRecord,
}

/// Several records as one.
#[derive(Default)]
struct MergedRecord {
    count: u64,
    body: Map<String, Value>,
    /// The number of items for which there was no room.
    left_out: u64,
}

impl ListRecorder {
    pub(super) fn new(ledger: &Ledger, run: &SessionId) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), ledger: ledger.clone(), run: run.clone(), state: Mutex::default() })
    }

    /// Records something about the list of a source, or of the session. `about` names it.
    pub(super) fn record(&self, kind: EventKind, about: &str, body: Value) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(known) = state.known.get_mut(&(kind, about.to_owned())) else {
            let known = KnownList { recorded: now, counted: MergedRecord::default() };
            state.known.insert((kind, about.to_owned()), known);
            return self.write(kind, body);
        };
        known.counted.add(body);
        if known.counted.count == 1 && now.duration_since(known.recorded) >= PAUSE {
            known.recorded = now;
            let body = std::mem::take(&mut known.counted).into_body();
            return self.write(kind, body);
        }
        if !std::mem::replace(&mut state.is_awaited, true) {
            tokio::spawn(report_later(self.me.clone()));
        }
    }

    /// Records the counts.
    pub(super) fn report(&self) {
        self.write_counted(&mut self.state.lock());
    }

    /// Records the counts, for the task that waits. Returns true if there was nothing: the task then ends, and the next
    /// record that is counted begins another.
    fn report_or_end(&self) -> bool {
        let mut state = self.state.lock();
        let is_quiet = self.write_counted(&mut state) == 0;
        state.is_awaited = !is_quiet;
        is_quiet
    }

    /// Writes a record for each list for which something was counted. Returns how many.
    fn write_counted(&self, lists: &mut Lists) -> usize {
        let now = Instant::now();
        let mut written = 0;
        for ((kind, _), known) in &mut lists.known {
            if known.counted.count > 0 {
                known.recorded = now;
                self.write(*kind, std::mem::take(&mut known.counted).into_body());
                written += 1;
            }
        }
        written
    }

    fn write(&self, kind: EventKind, body: Value) {
        self.ledger.record(Event::new(kind, body).in_run(&self.run));
    }
}

impl Drop for ListRecorder {
    fn drop(&mut self) {
        self.report();
    }
}

/// Records the counts, after pauses of a minute to an hour, until nothing more comes.
async fn report_later(recorder: Weak<ListRecorder>) {
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(recorder) = recorder.upgrade() else { return };
        if recorder.report_or_end() {
            return;
        }
        pause = repeats::next_pause(pause, false);
    }
}

impl MergedRecord {
    /// Adds a record: the new items of members that are lists, and the latest value of the others.
    fn add(&mut self, body: Value) {
        self.count += 1;
        let Value::Object(body) = body else { return };
        for (key, value) in body {
            match value {
                Value::Array(items) => self.add_items(key, items),
                // The part that the record itself left out.
                Value::Number(further) if key == "further" => self.left_out += further.as_u64().unwrap_or(0),
                value => drop(self.body.insert(key, value)),
            }
        }
    }

    fn add_items(&mut self, key: String, items: Vec<Value>) {
        let Value::Array(kept) = self.body.entry(key).or_insert_with(|| json!([])) else { return };
        let mut room = MAX_ITEMS_BYTES.saturating_sub(kept.iter().map(|item| item.to_string().len()).sum());
        for item in items {
            if kept.contains(&item) {
                continue;
            }
            let size = item.to_string().len();
            if size > room {
                self.left_out += 1;
                continue;
            }
            room -= size;
            kept.push(item);
        }
    }

    fn into_body(self) -> Value {
        let Self { count, mut body, left_out } = self;
        if count > 1 {
            body.insert("repeats".to_owned(), json!(count));
        }
        if left_out > 0 {
            body.insert("left_out".to_owned(), json!(left_out));
        }
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use std::time::Duration;

    use super::*;
    use crate::digest::Digest;
    use crate::ledger::{ChainStart, LedgerReader, RecordFilter};

    /// Returns the bodies of all records of changes.
    async fn changes(ledger: &Ledger, folder: &std::path::Path) -> Vec<Value> {
        ledger.flush().await.unwrap();
        let filter = RecordFilter { kind: Some("list.changed".to_owned()), ..RecordFilter::default() };
        let found = LedgerReader::open(folder).unwrap().tail(usize::MAX, &filter).unwrap();
        found.into_iter().map(|entry| entry.record.body).collect()
    }

    #[tokio::test]
    async fn a_list_that_changes_all_the_time_is_a_bounded_number_of_short_records() {
        let dir = tempfile::tempdir().unwrap();
        let started = ChainStart { version: "0".to_owned(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(dir.path(), started).await.unwrap();
        let recorder = ListRecorder::new(&ledger, &SessionId::new());
        let names = |n: u64| (0..200).map(move |item| json!(format!("tool-{n}-{item}-{}", "x".repeat(40))));
        let change = |n: u64| {
            let (added, removed) = (names(n).collect::<Vec<_>>(), names(n - 1).collect::<Vec<_>>());
            recorder.record(
                EventKind::ListChanged,
                "tool",
                json!({ "added": added, "removed": removed, "changed": [] }),
            );
        };
        tokio::time::pause();
        let seconds = 1000;
        for second in 1..=seconds {
            change(second);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        drop(recorder);
        tokio::time::resume();
        let found = changes(&ledger, dir.path()).await;
        assert!((4..=8).contains(&found.len()), "{}", found.len());
        assert_eq!(found[0]["added"].as_array().unwrap().len(), 200, "the first is whole");
        let counted: u64 = found.iter().map(|body| body["repeats"].as_u64().unwrap_or(1)).sum();
        assert_eq!(counted, seconds);
        for body in found.iter().skip(1) {
            assert!(body.to_string().len() < 3 * MAX_ITEMS_BYTES, "{}", body.to_string().len());
            assert!(body["added"][0].is_string() && body["left_out"].as_u64().unwrap() > 200);
        }
    }

    #[tokio::test]
    async fn changes_that_follow_soon_are_recorded_together_and_a_later_one_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let started = ChainStart { version: "0".to_owned(), config: Digest::of(b""), key: None };
        let ledger = Ledger::open(dir.path(), started).await.unwrap();
        let recorder = ListRecorder::new(&ledger, &SessionId::new());
        let change = |added: &str, removed: &str| {
            let body = json!({ "added": [added], "removed": [removed], "changed": [], "count": added.len() });
            recorder.record(EventKind::ListChanged, "tool", body);
        };
        tokio::time::pause();
        change("a", "0");
        change("b", "a");
        change("cc", "b");
        change("b", "a");
        tokio::time::sleep(PAUSE * 3).await;
        change("d", "cc");
        tokio::time::resume();
        let expected = [
            json!({ "added": ["a"], "removed": ["0"], "changed": [], "count": 1 }),
            json!({ "added": ["b", "cc"], "removed": ["a", "b"], "changed": [], "count": 1, "repeats": 3 }),
            json!({ "added": ["d"], "removed": ["cc"], "changed": [], "count": 1 }),
        ];
        assert_eq!(changes(&ledger, dir.path()).await, expected);
    }
}
