//! Results that are too large for an agent: kept for it, and read in parts as a resource.
//!
//! The URI of a part consists of a random identifier and a number. It leads somewhere only among the results of the
//! caller that got it, and the broker answers it before any source is looked for: a source that imitates such a URI
//! gets nothing, and gives nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::request::SessionRequest;
use crate::digest::hex;
use crate::protocol::{Answer, Json, RpcError};
use crate::sync::Mutex;

/// The beginning of the URI of a part. No exposed URI of a source with a prefix begins like this.
const PREFIX: &str = "portcullis-result:";

/// The largest number of results that are kept for one caller. The oldest go first.
const MAX_RESULTS_OF_CALLER: usize = 64;

/// The most bytes of the results that are kept for one caller. The oldest go first.
const MAX_BYTES_OF_CALLER: usize = 64 * 1024 * 1024;

/// The largest number of bytes that are kept for all callers of this process. A result beyond that is not kept.
const MAX_BYTES_OF_ALL: usize = 512 * 1024 * 1024;

/// The time for which a result can be read: long enough for an agent that comes back to it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The bytes that are kept for all callers.
static BYTES_OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// The results that are kept for one caller.
#[derive(Default)]
pub(super) struct KeptResults(Mutex<Vec<KeptResult>>);

struct KeptResult {
    id: String,
    text: String,
    /// Where each part begins.
    starts: Vec<usize>,
    until: Instant,
    _share: MemoryShare,
}

/// The bytes of one result in [`BYTES_OF_ALL`].
struct MemoryShare {
    bytes: usize,
    all: &'static AtomicUsize,
}

impl MemoryShare {
    /// Takes room for some bytes. `freed` bytes of what is taken already are freed next.
    fn of(bytes: usize, freed: usize, all: &'static AtomicUsize, limit: usize) -> Option<Self> {
        let added = |used: usize| used.checked_add(bytes).filter(|used| used.saturating_sub(freed) <= limit);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).ok().map(|_| Self { bytes, all })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One part of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultPart {
    pub(super) text: String,
    /// The number of parts.
    pub(super) of: usize,
}

impl KeptResults {
    /// Keeps a result in parts of at most this many bytes, and returns its identifier. `None` if there is no room; then
    /// the earlier results stay.
    pub(super) fn keep(&self, text: String, part_bytes: usize, now: Instant) -> Option<String> {
        self.keep_within(text, part_bytes, now, (&BYTES_OF_ALL, MAX_BYTES_OF_ALL))
    }

    fn keep_within(
        &self,
        text: String,
        part_bytes: usize,
        now: Instant,
        (all, limit): (&'static AtomicUsize, usize),
    ) -> Option<String> {
        let bytes = text.len();
        if bytes > MAX_BYTES_OF_CALLER {
            return None;
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let id = hex(&random);
        let mut kept = self.0.lock();
        kept.retain(|result| result.until > now);
        let (mut evicted, mut freed) = (0, 0);
        let mut held = kept.iter().map(|result| result.text.len()).sum::<usize>();
        for oldest in kept.iter().map(|result| result.text.len()) {
            if kept.len() - evicted < MAX_RESULTS_OF_CALLER && held + bytes <= MAX_BYTES_OF_CALLER {
                break;
            }
            (evicted, freed, held) = (evicted + 1, freed + oldest, held - oldest);
        }
        let share = MemoryShare::of(bytes, freed, all, limit)?;
        kept.drain(..evicted);
        let starts = starts(&text, part_bytes);
        kept.push(KeptResult { id: id.clone(), text, starts, until: now + LIFETIME, _share: share });
        Some(id)
    }

    /// Returns a part by its number, from 1. `None` if it was never kept for this caller, or is no longer.
    pub(super) fn part(&self, id: &str, number: usize, now: Instant) -> Option<ResultPart> {
        let mut kept = self.0.lock();
        kept.retain(|result| result.until > now);
        let KeptResult { text, starts, .. } = kept.iter().find(|result| result.id == id)?;
        let start = *starts.get(number.checked_sub(1)?)?;
        let end = starts.get(number).copied().unwrap_or(text.len());
        Some(ResultPart { text: text.get(start..end)?.to_owned(), of: starts.len() })
    }
}

/// Returns where the parts of a text begin: none is larger, and none ends within a character.
fn starts(text: &str, part_bytes: usize) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = part_bytes;
    while end < text.len() {
        let start = text.floor_char_boundary(end);
        starts.push(start);
        end = start + part_bytes;
    }
    starts
}

/// Returns the URI of a part.
pub(super) fn uri_of(id: &str, number: usize) -> String {
    format!("{PREFIX}{id}/{number}")
}

impl SessionRequest<'_> {
    /// Returns the URI of a `resources/read` if it is that of a part of a kept result.
    pub(super) fn kept_part(&self) -> Option<String> {
        self.session.profile.max_result?;
        self.params.uri()?.read::<String>().ok().filter(|uri| uri.starts_with(PREFIX))
    }

    /// Returns a part of a result that was kept for this caller.
    pub(super) fn read_kept_part(&self, uri: &str) -> Result<Answer, RpcError> {
        let session = self.session;
        let found = uri
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(id, number)| session.continuations.results.part(id, number.parse().ok()?, Instant::now()));
        let Some(ResultPart { text, .. }) = found else { return Err(session.no_resource("unknown-resource", uri)) };
        let content = json!({ "uri": uri, "mimeType": "text/plain", "text": text });
        Ok(Answer::Result(Json::of(&json!({ "contents": [content], "ttlMs": 0, "cacheScope": "private" }))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn part(kept: &KeptResults, id: &str, number: usize, now: Instant) -> Option<String> {
        kept.part(id, number, now).map(|part| part.text)
    }

    #[test]
    fn parts_are_no_larger_than_asked_end_with_a_character_and_make_the_whole() {
        let (kept, now) = (KeptResults::default(), Instant::now());
        let text = "aé€😀".repeat(50);
        let id = kept.keep(text.clone(), 7, now).unwrap();
        let of = kept.part(&id, 1, now).unwrap().of;
        let parts: Vec<_> = (1..=of).map(|number| part(&kept, &id, number, now).unwrap()).collect();
        assert!(parts.iter().all(|part| (1..=7).contains(&part.len())), "{parts:?}");
        assert_eq!(parts.concat(), text);
        assert_eq!((part(&kept, &id, 0, now), part(&kept, &id, of + 1, now)), (None, None));
    }

    #[test]
    fn a_result_is_kept_for_its_caller_alone_and_for_an_hour() {
        let (kept, other, now) = (KeptResults::default(), KeptResults::default(), Instant::now());
        let id = kept.keep("secret".to_owned(), 100, now).unwrap();
        assert_eq!(part(&other, &id, 1, now), None);
        assert_eq!(part(&kept, &id, 1, now + LIFETIME - Duration::from_secs(1)).as_deref(), Some("secret"));
        assert_eq!(part(&kept, &id, 1, now + LIFETIME), None);
        assert_eq!(part(&kept, &id, 1, now), None, "it is gone");
    }

    #[test]
    fn the_oldest_results_make_room_and_what_is_too_large_is_not_kept() {
        let (kept, now) = (KeptResults::default(), Instant::now());
        let ids: Vec<_> = (0..=MAX_RESULTS_OF_CALLER).map(|n| kept.keep(n.to_string(), 10, now).unwrap()).collect();
        let there: Vec<_> = ids.iter().map(|id| part(&kept, id, 1, now).is_some()).collect();
        assert_eq!(
            (there.iter().filter(|there| **there).count(), there.first()),
            (MAX_RESULTS_OF_CALLER, Some(&false))
        );
        assert_eq!(kept.keep("x".repeat(MAX_BYTES_OF_CALLER + 1), 10, now), None);
        let large = kept.keep("x".repeat(MAX_BYTES_OF_CALLER - 2), 1 << 20, now).unwrap();
        assert!(part(&kept, &large, 64, now).is_some() && part(&kept, ids.last().unwrap(), 1, now).is_some());
        let larger = kept.keep("x".repeat(MAX_BYTES_OF_CALLER), 1 << 20, now).unwrap();
        assert!(part(&kept, &larger, 1, now).is_some() && part(&kept, &large, 1, now).is_none());
    }

    #[test]
    fn a_result_for_which_others_leave_no_room_takes_the_place_of_no_earlier_one() {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let (kept, now) = (KeptResults::default(), Instant::now());
        let keep = |text: &str, limit| kept.keep_within(text.to_owned(), 10, now, (&ALL, limit));
        let ids: Vec<_> = (0..MAX_RESULTS_OF_CALLER).map(|_| keep("text", 1000).unwrap()).collect();
        let used = 4 * MAX_RESULTS_OF_CALLER;
        assert_eq!(keep("longer", used + 1), None);
        assert!(ids.iter().all(|id| part(&kept, id, 1, now).is_some()), "nothing has gone");
        let last = keep("longer", used + 2).unwrap();
        assert!(part(&kept, &last, 1, now).is_some() && part(&kept, &ids[0], 1, now).is_none(), "the oldest made room");
        assert_eq!(ALL.load(Ordering::Relaxed), used + 2);
    }

    #[test]
    fn all_callers_together_have_a_limit() {
        static ALL: AtomicUsize = AtomicUsize::new(10);
        assert!(MemoryShare::of(6, 0, &ALL, 15).is_none());
        let share = MemoryShare::of(5, 0, &ALL, 15).unwrap();
        assert_eq!(ALL.load(Ordering::Relaxed), 15);
        drop(share);
        assert_eq!(ALL.load(Ordering::Relaxed), 10, "what is no longer kept takes no room");
    }
}
