//! The messages of a server besides its answers, as many of them as are kept.

use portcullis_evaluate::ObservedMessage;

/// The largest size of the messages of one run that are kept, in bytes. The rest is cut.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The bytes that a message counts for besides its text, so that the number of messages has a bound, too.
const MESSAGE_BYTES: usize = 100;

/// The requests and notifications of a server in one run.
#[derive(Default)]
pub(super) struct MessageLog {
    kept: Vec<ObservedMessage>,
    /// The bytes that all messages of the run count for.
    bytes: usize,
    /// The number of messages that were not kept in full.
    cut: u64,
}

impl MessageLog {
    /// Adds as much of a message as there is room for.
    pub(super) fn add(&mut self, method: &str, mut params: String) {
        let room = MAX_KEPT_BYTES.saturating_sub(self.bytes + MESSAGE_BYTES);
        self.cut += u64::from(method.len() + params.len() > room || room == 0);
        if room == 0 {
            return;
        }
        let method = method.get(..method.floor_char_boundary(room)).unwrap_or_default().to_owned();
        params.truncate(params.floor_char_boundary(room - method.len()));
        self.bytes += MESSAGE_BYTES + method.len() + params.len();
        self.kept.push(ObservedMessage { method, params });
    }

    /// Returns the messages since the last time, and how many were not kept in full.
    pub(super) fn take(&mut self) -> (Vec<ObservedMessage>, u64) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_run_have_a_bound_in_bytes_and_in_number() {
        let mut log = MessageLog::default();
        log.add("notifications/message", r#"{"data":"a"}"#.to_owned());
        let (kept, cut) = log.take();
        assert_eq!((kept.len(), cut, kept.first().map(|kept| kept.params.as_str())), (1, 0, Some(r#"{"data":"a"}"#)));
        (0..MAX_KEPT_BYTES).for_each(|_| log.add("", String::new()));
        log.add("m", "é".repeat(MAX_KEPT_BYTES));
        let (kept, cut) = log.take();
        assert!(kept.len() <= MAX_KEPT_BYTES / MESSAGE_BYTES && cut > 0, "{} messages, {cut} cut", kept.len());
        let mut log = MessageLog::default();
        log.add("m", "é".repeat(MAX_KEPT_BYTES));
        let (kept, cut) = log.take();
        assert_eq!((kept.len(), cut), (1, 1), "its beginning is kept");
        assert!(kept.iter().all(|kept| kept.params.len() < MAX_KEPT_BYTES));
    }
}
