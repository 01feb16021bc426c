//! Definitions of items that are called. A record of a call names the digest of its item's definition; the definition
//! itself is recorded separately, once a day, so that the digest can be resolved later, and policies can judge the call
//! again.

use std::collections::HashSet;

use portcullis_core::call::now_millis;
use portcullis_core::digest::Digest;
use portcullis_core::item::{Item, ItemKind};
use portcullis_core::sync::Mutex;

use super::Ledger;
use super::body::EventBody;
use super::record::{Event, EventKind};

/// The milliseconds of a day. Records are removed when they are old, and a day is the shortest time that they are kept.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// The largest amount of text, in bytes, that definitions take of a day's records. A source that shows another
/// definition before every call would fill the disk otherwise.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The definitions that the records of this day have.
#[derive(Debug, Default)]
pub(super) struct RecordedDefinitions(Mutex<DefinitionsOfDay>);

#[derive(Debug, Default)]
struct DefinitionsOfDay {
    /// The day, counted from the Unix epoch.
    day: u64,
    /// The number of records that were lost until now. If more are lost, a definition may be among them.
    lost: u64,
    digests: HashSet<Digest>,
    bytes: usize,
}

impl Ledger {
    /// Records the definition of an item that is called, in order with all others and without waiting, unless the chain
    /// has it from the same day (UTC). A source itself has none. A day's definitions take 64 MiB at most; further ones
    /// are left out.
    pub fn record_definition(&self, item: &Item) {
        if let Some(event) = self.inner.definitions.event(item, self.inner.health.lost_ever()) {
            self.record(event);
        }
    }
}

impl RecordedDefinitions {
    /// Returns the event that records the definition of an item, unless the records of this day have it. `lost` is the
    /// number of records that were ever lost.
    fn event(&self, item: &Item, lost: u64) -> Option<Event> {
        let is_new = item.kind != ItemKind::Source
            && self.is_new(item.digest, item.definition.as_bytes().len(), now_millis() / DAY, lost);
        is_new.then(|| {
            let body = EventBody::new()
                .with("source", item.source.as_str())
                .with(item.kind.as_str(), &*item.recorded_exposed())
                .with("name", &*item.recorded_name())
                .with("definition", item.digest)
                .with("text", item.definition.as_str());
            Event::new(EventKind::DefinitionCalled, body)
        })
    }

    fn is_new(&self, digest: Digest, bytes: usize, day: u64, lost: u64) -> bool {
        let mut known = self.0.lock();
        if known.day != day {
            *known = DefinitionsOfDay { day, lost, ..DefinitionsOfDay::default() };
        }
        if known.lost != lost {
            known.lost = lost;
            known.digests.clear();
        }
        if known.digests.contains(&digest) || known.bytes + bytes > MAX_BYTES {
            return false;
        }
        known.bytes += bytes;
        known.digests.insert(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_new_once_a_day_and_only_while_there_is_room() {
        let recorded = RecordedDefinitions::default();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        assert!(recorded.is_new(one, 100, 1, 0));
        assert!(!recorded.is_new(one, 100, 1, 0), "the day has it");
        assert!(recorded.is_new(other, MAX_BYTES - 100, 1, 0), "there is just room for it");
        assert!(!recorded.is_new(Digest::of(b"third"), 1, 1, 0), "there is no room left");
        assert!(recorded.is_new(one, 100, 2, 0), "another day");
        assert!(recorded.is_new(Digest::of(b"third"), 1, 2, 0));
        assert!(recorded.is_new(one, 100, 2, 1), "it may be the record that was lost");
        assert!(!recorded.is_new(one, 100, 2, 1));
    }
}
