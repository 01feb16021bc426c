//! Adds hints to failures of a source that its cell may have caused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::json;

use super::Upstream;
use crate::protocol::{Answer, Json};

/// The longest part of a failure that is searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// The counts of the calls that a source has.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    open: AtomicU64,
    begun: AtomicU64,
}

/// A guard for a call that its source has.
#[derive(Debug)]
pub(crate) struct CallCountGuard {
    calls: Arc<CallCounts>,
    began: Instant,
    /// The number of calls that had begun with this one, or `None` if another was open then.
    alone_after: Option<u64>,
}

impl CallCounts {
    /// Counts a call from now until the guard is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> CallCountGuard {
        let alone = self.open.fetch_add(1, Ordering::AcqRel) == 0;
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        CallCountGuard { calls: Arc::clone(self), began: Instant::now(), alone_after: alone.then_some(begun) }
    }
}

impl CallCountGuard {
    /// Returns when the call began if no other has been open since: any refusal to the source then concerned this call.
    fn began_alone(&self) -> Option<Instant> {
        let alone = self.alone_after == Some(self.calls.begun.load(Ordering::Acquire));
        alone.then_some(self.began)
    }
}

impl Drop for CallCountGuard {
    fn drop(&mut self) {
        self.calls.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Upstream {
    /// Adds to a failed answer the access that the source's cell may lack: hosts that it was refused since the call
    /// began, and paths that the failure names. Any other answer stays unchanged. Hosts are left out if another call
    /// was open meanwhile: they may be those of another caller.
    pub(crate) fn explained(&self, answer: Answer, call: &CallCountGuard) -> Answer {
        if !self.has_process_cell() {
            return answer;
        }
        match &answer {
            Answer::Result(result) if result.get("isError").is_some_and(|flag| flag.is_true()) => {
                let mut blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
                let mut words_of_source = String::new();
                for text in blocks.iter().filter_map(|block| block.get_str("text")) {
                    words_of_source.push_str(&text);
                    words_of_source.push('\n');
                    if words_of_source.len() >= MAX_SEARCHED_BYTES {
                        break;
                    }
                }
                let Some(words) = self.missing_access(call.began_alone(), &words_of_source) else { return answer };
                blocks.push(Json::of(&json!({ "type": "text", "text": format!("[portcullis: {words}]") })));
                result.with("content", &Json::of(&blocks)).map_or(answer, Answer::Result)
            }
            Answer::Error(error) => {
                let message = error.get_str("message").unwrap_or_default();
                let Some(words) = self.missing_access(call.began_alone(), &message) else { return answer };
                error
                    .with("message", &Json::of(&format!("{message} [portcullis: {words}]")))
                    .map_or(answer, Answer::Error)
            }
            Answer::Result(_) => answer,
        }
    }

    /// Returns what the source's cell may lack, with the parts that exist outside: for people, not for agents.
    #[cfg(feature = "process")]
    pub(crate) fn missing_from_cell(&self) -> Vec<String> {
        self.process_cell.as_ref().map(|cell| cell.told()).unwrap_or_default()
    }

    #[cfg(not(feature = "process"))]
    pub(crate) fn missing_from_cell(&self) -> Vec<String> {
        Vec::new()
    }

    #[cfg(feature = "process")]
    fn has_process_cell(&self) -> bool {
        self.process_cell.is_some()
    }

    #[cfg(not(feature = "process"))]
    fn has_process_cell(&self) -> bool {
        false
    }

    #[cfg(feature = "process")]
    fn missing_access(&self, began: Option<Instant>, failure: &str) -> Option<String> {
        let missing = self.process_cell.as_ref()?.missing_access(began, failure);
        let words: Vec<String> = missing.iter().map(ToString::to_string).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Only a program has a cell that could lack something.
    #[cfg(not(feature = "process"))]
    fn missing_access(&self, _: Option<Instant>, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_host_is_told_only_to_a_call_that_was_alone() {
        let calls = Arc::new(CallCounts::default());
        let alone = calls.open();
        assert!(alone.began_alone().is_some());
        let second = calls.open();
        assert!(alone.began_alone().is_none() && second.began_alone().is_none());
        drop(second);
        assert!(alone.began_alone().is_none(), "another was open meanwhile");
        drop(alone);
        assert!(calls.open().began_alone().is_some());
    }
}
