//! Results that are too large for an agent: kept for it, and read in parts as a resource.
//!
//! The URI of a part consists of a random identifier and a number. It leads somewhere only among the results of the
//! caller that got it, and the broker answers it before any source is looked for: a source that imitates such a URI
//! gets nothing, and gives nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::request::SessionRequest;
use crate::digest::hex;
use crate::protocol::{Answer, Json, RpcError};
use crate::shared_limit::{LimitShare, PrincipalRoom};
use crate::sync::Mutex;

/// The beginning of the URI of a part. No exposed URI of a source with a prefix begins like this.
const PREFIX: &str = "portcullis-result:";

/// The largest number of results that are kept for one caller. The oldest go first.
const MAX_RESULTS_OF_CALLER: usize = 64;

/// The most bytes of the results that are kept for one caller. The oldest go first.
const MAX_BYTES_OF_CALLER: usize = 64 * 1024 * 1024;

/// The most bytes of the results that are kept for all callers. By the rule of
/// [`SharedLimit`](crate::shared_limit::SharedLimit) a single principal gets half of that, in all of its sessions. A
/// result beyond that is not kept.
pub(super) const MAX_BYTES_OF_ALL: u64 = 512 * 1024 * 1024;

/// The time for which a result can be read: long enough for an agent that comes back to it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The results that are kept for one caller.
pub(super) struct KeptResults(Arc<Mutex<CallerResults>>);

struct CallerResults {
    /// The results, the oldest first.
    results: Vec<KeptResult>,
    /// The bytes of all of them.
    share: LimitShare,
    /// The task that waits for the next result to expire.
    sweep: Option<AbortHandle>,
}

struct KeptResult {
    id: String,
    text: Box<str>,
    /// Where each part begins.
    starts: Vec<usize>,
    until: Instant,
}

impl CallerResults {
    fn bytes(&self) -> usize {
        self.results.iter().map(|result| result.text.len()).sum()
    }

    fn drop_expired(&mut self) {
        let now = Instant::now();
        self.results.retain(|result| result.until > now);
        self.share.shrink(self.bytes() as u64);
    }
}

impl Drop for CallerResults {
    fn drop(&mut self) {
        if let Some(sweep) = &self.sweep {
            sweep.abort();
        }
    }
}

/// Drops each result when it expires, until none is left: another caller may need the room.
async fn sweep(kept: Weak<Mutex<CallerResults>>) {
    loop {
        let next = {
            let Some(kept) = kept.upgrade() else { return };
            let mut kept = kept.lock();
            kept.drop_expired();
            let next = kept.results.first().map(|oldest| oldest.until);
            if next.is_none() {
                kept.sweep = None;
            }
            next
        };
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
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
    /// Makes results that take their memory from this room.
    pub(super) fn new(room: &PrincipalRoom) -> Self {
        Self(Arc::new(Mutex::new(CallerResults { results: Vec::new(), share: room.empty_share(), sweep: None })))
    }

    /// Keeps a result in parts of at most this many bytes in JSON, and returns its identifier. `None` if there is no
    /// room; then the earlier results stay.
    pub(super) fn keep(&self, text: String, part_bytes: usize) -> Option<String> {
        let bytes = text.len();
        if bytes > MAX_BYTES_OF_CALLER {
            return None;
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let (id, starts) = (hex(&random), starts(&text, part_bytes));
        let mut kept = self.0.lock();
        kept.drop_expired();
        let (mut evicted, mut held) = (0, kept.bytes());
        for oldest in kept.results.iter().map(|result| result.text.len()) {
            if kept.results.len() - evicted < MAX_RESULTS_OF_CALLER && held + bytes <= MAX_BYTES_OF_CALLER {
                break;
            }
            (evicted, held) = (evicted + 1, held - oldest);
        }
        let whole = (held + bytes) as u64;
        if !kept.share.grow_to(whole) {
            return None;
        }
        kept.results.drain(..evicted);
        kept.share.shrink(whole);
        let until = Instant::now() + LIFETIME;
        kept.results.push(KeptResult { id: id.clone(), text: text.into_boxed_str(), starts, until });
        if kept.sweep.is_none() {
            kept.sweep = Some(tokio::spawn(sweep(Arc::downgrade(&self.0))).abort_handle());
        }
        Some(id)
    }

    /// Forgets all results.
    pub(super) fn clear(&self) {
        let mut kept = self.0.lock();
        kept.results.clear();
        kept.drop_expired();
    }

    /// Returns a part by its number, from 1. `None` if it was never kept for this caller, or is no longer.
    pub(super) fn part(&self, id: &str, number: usize) -> Option<ResultPart> {
        let mut kept = self.0.lock();
        kept.drop_expired();
        let KeptResult { text, starts, .. } = kept.results.iter().find(|result| result.id == id)?;
        let start = *starts.get(number.checked_sub(1)?)?;
        let end = starts.get(number).copied().unwrap_or(text.len());
        Some(ResultPart { text: text.get(start..end)?.to_owned(), of: starts.len() })
    }
}

/// Returns where the parts of a text begin; no part takes more than `part_bytes` in JSON.
fn starts(text: &str, part_bytes: usize) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = part_end(text, 0, part_bytes);
    while end < text.len() {
        starts.push(end);
        end = part_end(text, end, part_bytes);
    }
    starts
}

/// Returns the end of the part of a text that begins at `start` and takes at most this many bytes in a JSON string. It
/// has one character at least.
pub(super) fn part_end(text: &str, start: usize, part_bytes: usize) -> usize {
    let rest = text.as_bytes().get(start..).unwrap_or_default();
    let mut bytes = 0;
    let beyond = rest.iter().position(|byte| {
        bytes += bytes_in_json(*byte);
        bytes > part_bytes
    });
    let end = beyond.map_or(text.len(), |at| text.floor_char_boundary(start + at));
    if end > start { end } else { text.ceil_char_boundary(start + 1) }
}

/// Returns the bytes that a byte of a text takes in a JSON string, as `serde_json` writes it.
fn bytes_in_json(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..b' ' => 6,
        _ => 1,
    }
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
            .and_then(|(id, number)| session.agent_side.continuations.results.part(id, number.parse().ok()?));
        let Some(ResultPart { text, .. }) = found else { return Err(session.no_resource("unknown-resource", uri)) };
        let content = json!({ "uri": uri, "mimeType": "text/plain", "text": text });
        Ok(Answer::Result(Json::of(&json!({ "contents": [content], "ttlMs": 0, "cacheScope": "private" }))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::principal::Principal;
    use crate::shared_limit::SharedLimit;

    fn results_within(limit: &Arc<SharedLimit>, principal: &str) -> KeptResults {
        KeptResults::new(&PrincipalRoom::new(limit, &Principal::established(principal)))
    }

    fn results() -> KeptResults {
        results_within(&SharedLimit::new(MAX_BYTES_OF_ALL), "token:a")
    }

    fn part(kept: &KeptResults, id: &str, number: usize) -> Option<String> {
        kept.part(id, number).map(|part| part.text)
    }

    #[tokio::test]
    async fn parts_are_no_larger_than_asked_end_with_a_character_and_make_the_whole() {
        let kept = results();
        let text = "aé€😀".repeat(50);
        let id = kept.keep(text.clone(), 7).unwrap();
        let of = kept.part(&id, 1).unwrap().of;
        let parts: Vec<_> = (1..=of).map(|number| part(&kept, &id, number).unwrap()).collect();
        assert!(parts.iter().all(|part| (1..=7).contains(&part.len())), "{parts:?}");
        assert_eq!(parts.concat(), text);
        assert_eq!((part(&kept, &id, 0), part(&kept, &id, of + 1)), (None, None));
    }

    #[test]
    fn a_part_is_measured_as_it_is_written() {
        for text in ["plain text", "\"\\\n\r\t\u{8}\u{c}", "\u{0}\u{1b}\u{7f}\u{85}", "é€😀"] {
            let text = text.repeat(40);
            let starts = starts(&text, 12);
            let ends = starts.iter().skip(1).copied().chain([text.len()]);
            for (start, end) in starts.iter().zip(ends) {
                let written = serde_json::to_string(&text[*start..end]).unwrap().len() - 2;
                assert!((1..=12).contains(&written), "{written} bytes of {:?}", &text[*start..end]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_kept_for_its_caller_alone_and_for_an_hour() {
        let (kept, other) = (results(), results());
        let id = kept.keep("secret".to_owned(), 100).unwrap();
        assert_eq!(part(&other, &id, 1), None);
        tokio::time::advance(LIFETIME - Duration::from_secs(1)).await;
        assert_eq!(part(&kept, &id, 1).as_deref(), Some("secret"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(part(&kept, &id, 1), None);
    }

    #[tokio::test]
    async fn the_oldest_results_make_room_and_what_is_too_large_is_not_kept() {
        let kept = results();
        let ids: Vec<_> = (0..=MAX_RESULTS_OF_CALLER).map(|n| kept.keep(n.to_string(), 10).unwrap()).collect();
        let there: Vec<_> = ids.iter().map(|id| part(&kept, id, 1).is_some()).collect();
        assert_eq!(
            (there.iter().filter(|there| **there).count(), there.first()),
            (MAX_RESULTS_OF_CALLER, Some(&false))
        );
        assert_eq!(kept.keep("x".repeat(MAX_BYTES_OF_CALLER + 1), 10), None);
        let large = kept.keep("x".repeat(MAX_BYTES_OF_CALLER - 2), 1 << 20).unwrap();
        assert!(part(&kept, &large, 64).is_some() && part(&kept, ids.last().unwrap(), 1).is_some());
        let larger = kept.keep("x".repeat(MAX_BYTES_OF_CALLER), 1 << 20).unwrap();
        assert!(part(&kept, &larger, 1).is_some() && part(&kept, &large, 1).is_none());
    }

    #[tokio::test]
    async fn a_result_for_which_others_leave_no_room_takes_the_place_of_no_earlier_one() {
        let used = 4 * MAX_RESULTS_OF_CALLER;
        let limit = SharedLimit::new(2 * used as u64 + 2);
        let kept = results_within(&limit, "token:a");
        let ids: Vec<_> = (0..MAX_RESULTS_OF_CALLER).map(|_| kept.keep("text".to_owned(), 10).unwrap()).collect();
        assert_eq!(kept.keep("longer".to_owned(), 10), None);
        assert!(ids.iter().all(|id| part(&kept, id, 1).is_some()), "nothing has gone");
        let last = kept.keep("words".to_owned(), 10).unwrap();
        assert!(part(&kept, &last, 1).is_some() && part(&kept, &ids[0], 1).is_none(), "the oldest made room");
        assert_eq!(kept.0.lock().share.count(), used as u64 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_principal_leaves_room_for_the_results_of_others_and_expired_ones_leave_theirs() {
        let limit = SharedLimit::new(400);
        let [first, second, other] = ["token:a", "token:a", "token:b"].map(|name| results_within(&limit, name));
        let keep = |kept: &KeptResults| kept.keep("x".repeat(100), 100);
        assert!(keep(&first).is_some() && keep(&second).is_some());
        assert_eq!(keep(&second), None, "all sessions of a principal share its part");
        assert!(keep(&other).is_some());
        assert_eq!(keep(&other), None);
        // The sessions of the first principal do nothing more.
        tokio::time::sleep(LIFETIME + Duration::from_millis(1)).await;
        assert!(first.0.lock().results.is_empty() && first.0.lock().sweep.is_none());
        assert!(keep(&other).is_some() && keep(&other).is_some());
        drop(other);
        assert!(keep(&first).is_some() && keep(&first).is_some(), "a session that ends leaves its room");
    }
}
