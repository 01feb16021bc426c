//! Server-sent events, as far as MCP uses them: the data of `message` events, the last id, the retry time, and the data
//! of `endpoint` events.
//!
//! Specification: HTML Living Standard, "Server-sent events", 9.2.5 and 9.2.6.

use std::time::Duration;

use bytes::Bytes;

use crate::protocol::reserve_for_message;

/// An incremental parser of one event stream. Holds at most one event.
#[derive(Debug)]
pub(super) struct SseParser {
    limit: usize,
    /// The line being read, without its end.
    line: Vec<u8>,
    /// The data of the event being read, a line feed between its lines.
    data: Option<Vec<u8>>,
    /// The type of the event being read.
    kind: Kind,
    /// The URL that messages are posted to, from an `endpoint` event (2024-11-05).
    endpoint: Option<String>,
    /// The last byte was a carriage return, so a line feed belongs to it.
    after_return: bool,
    at_start: bool,
    /// The id that the stream gave last; it becomes `last_id` when its event is complete.
    next_id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Message,
    Endpoint,
    Other,
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"" | b"message" => Self::Message,
            b"endpoint" => Self::Endpoint,
            _ => Self::Other,
        }
    }
}

/// The error that an event is larger than the limit, so that the stream cannot be read further. Holds the number of
/// bytes seen so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge(pub(super) usize);

impl SseParser {
    /// Returns a parser for a stream whose events have at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: None,
            kind: Kind::Message,
            endpoint: None,
            after_return: false,
            at_start: true,
            next_id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Returns the URL that messages are posted to, if the stream has given one.
    pub(super) fn endpoint(&self) -> Option<String> {
        self.endpoint.clone()
    }

    /// Returns the id to resume after, if the stream has given one: that of the last complete event.
    pub(super) fn last_id(&self) -> Option<&str> {
        // An empty id revokes the one before.
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns how long the server wants a client to wait before it resumes.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Takes the next bytes and returns the data of the events that they complete.
    pub(super) fn feed(&mut self, mut chunk: &[u8]) -> Result<Vec<Bytes>, TooLarge> {
        let mut complete = Vec::new();
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return)
                && let Some(rest) = chunk.strip_prefix(b"\n")
            {
                chunk = rest;
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let (part, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
            let size = self.line.len() + self.data.as_ref().map_or(0, Vec::len) + part.len();
            // The field name and the line feeds are not the message.
            if size > self.limit.saturating_add(16) {
                return Err(TooLarge(size));
            }
            reserve_for_message(&mut self.line, part.len(), self.limit.saturating_add(16));
            self.line.extend_from_slice(part);
            let Some((end, rest)) = rest.split_first() else { break };
            self.after_return = *end == b'\r';
            chunk = rest;
            complete.extend(self.end_line());
        }
        Ok(complete)
    }

    /// Starts over for a new connection, and keeps the last id and the retry time.
    pub(super) fn reconnect(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry.take());
        *self = Self { next_id: last_id.clone(), last_id, retry, ..Self::new(self.limit) };
    }

    fn end_line(&mut self) -> Option<Bytes> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let at = memchr::memchr(b':', &line).unwrap_or(line.len());
        let spaced = line.get(at + 1) == Some(&b' ');
        let start = (at + 1 + usize::from(spaced)).min(line.len());
        let (field, value) = (line.get(..at).unwrap_or_default(), line.get(start..).unwrap_or_default());
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                // Most events have one line, which may be large and is not copied.
                None => {
                    line.drain(..start);
                    self.data = Some(line);
                }
            },
            b"event" => self.kind = Kind::of(value),
            b"id" if !value.contains(&0) => self.next_id = String::from_utf8(value.to_vec()).ok(),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            // Comments, which keep the connection open, and unknown fields.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Bytes> {
        let mut data = self.data.take().unwrap_or_default();
        let kind = std::mem::take(&mut self.kind);
        self.last_id.clone_from(&self.next_id);
        if kind == Kind::Endpoint {
            self.endpoint = String::from_utf8(data).ok();
            return None;
        }
        // An event without data carries only an id to resume from.
        data.shrink_to_fit();
        (kind == Kind::Message && !data.is_empty()).then(|| Bytes::from(data))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8], step: usize) -> Vec<String> {
        let mut events = SseParser::new(1000);
        text.chunks(step)
            .flat_map(|chunk| events.feed(chunk).unwrap())
            .map(|data| String::from_utf8(data.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn every_line_end_and_every_split_gives_the_same_events() {
        for end in ["\n", "\r\n", "\r"] {
            let text =
                "\u{feff}: hello|data: {\"a\":1}||event: message|id: 7|data:x|data:  y||data: half".replace('|', end);
            for step in 1..text.len() {
                assert_eq!(all(text.as_bytes(), step), ["{\"a\":1}", "x\n y"], "{end:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn events_of_other_types_and_without_data_are_skipped() {
        let text = b"event: ping\ndata: {}\n\nid: 3\ndata:\n\nretry: 20\n\nunknown: x\ndata: ok\n\n";
        assert_eq!(all(text, 5), ["ok"]);
    }

    #[test]
    fn id_and_retry_are_kept_over_a_reconnection() {
        let mut events = SseParser::new(1000);
        events.feed(b"id: a1\nretry: 1500\ndata:\n\nretry: soon\nid: b\0c\n\nid: a2\ndata: lost").unwrap();
        events.reconnect();
        assert_eq!(events.last_id(), Some("a1"));
        assert_eq!(events.retry(), Some(Duration::from_millis(1500)));
        assert_eq!(events.feed(b"data: new\n\n").unwrap(), ["new"]);
        assert_eq!(events.last_id(), Some("a1"), "an event that did not arrive whole has to come again");
        events.feed(b"id:\n\n").unwrap();
        assert_eq!(events.last_id(), None);
    }

    #[test]
    fn an_event_beyond_the_limit_ends_the_stream_whether_in_one_line_or_many() {
        let mut events = SseParser::new(100);
        let line = format!("data: {}\n\n", "x".repeat(100));
        assert_eq!(events.feed(line.as_bytes()).unwrap().len(), 1);
        assert!(events.feed(&[b'y'; 200]).is_err());
        let mut events = SseParser::new(100);
        assert!(events.feed("data: 0123456789\n".repeat(20).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_keep_more_than_the_limit(bytes: Vec<u8>, step in 1usize..20) {
            let mut events = SseParser::new(50);
            for chunk in bytes.chunks(step) {
                if events.feed(chunk).is_err() {
                    break;
                }
                prop_assert!(events.line.len() + events.data.as_ref().map_or(0, Vec::len) <= 50 + 16 + 20);
            }
        }
    }
}
