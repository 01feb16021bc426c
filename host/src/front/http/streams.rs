//! The event streams of one legacy session, which an agent can resume where they broke.
//!
//! The id of an event is its stream and its place in it. A stream's latest messages are kept, so that a GET that names
//! the last event that arrived gets all later ones, including future ones: no event twice, and none of another stream.
//! Specification: MCP 2025-11-25, "Streamable HTTP: Resumability and Redelivery".

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::protocol::Message;
use crate::shared_limit::{LimitShare, PrincipalRoom};
use crate::sync::{Mutex, MutexGuard};

/// The largest part of a stream's latest messages that is kept, in bytes and in messages. Progress and logs of a long
/// call fit; a result that is larger than that cannot be delivered twice.
const MAX_KEPT_BYTES: usize = 1024 * 1024;
const MAX_KEPT: usize = 256;

/// The most bytes of messages that streams without a reader keep, of all callers together. By the rule of [`SharedLimit`]
/// one caller gets half of that. A stream for which there is no room keeps its latest messages as far as they fit.
pub(crate) const MAX_UNREAD_BYTES: u64 = 128 * 1024 * 1024;

/// The largest number of streams without a reader that are kept for one session: an agent that loses its connection can
/// resume that many.
const MAX_UNREAD: usize = 16;

/// The time for which a stream without a reader can be resumed. A laptop that changes networks is back by then.
pub(crate) const RESUME_WINDOW: Duration = Duration::from_secs(2 * 60);

/// The id of an event: the number of its stream in the session, and its own number in the stream, from 1 on. Number 0
/// is the position before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId {
    stream: u64,
    number: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream, self.number)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (stream, number) = text.split_once('-').ok_or(())?;
        Ok(Self { stream: stream.parse().map_err(drop)?, number: number.parse().map_err(drop)? })
    }
}

/// The streams of one session.
pub(crate) struct SessionStreams {
    table: Mutex<StreamTable>,
    room: PrincipalRoom,
}

#[derive(Default)]
struct StreamTable {
    last: u64,
    streams: BTreeMap<u64, Arc<Stream>>,
}

impl SessionStreams {
    pub(crate) fn new(room: PrincipalRoom) -> Self {
        Self { table: Mutex::default(), room }
    }

    /// Opens a stream of `first` and then of the messages from `messages`, and returns its reader.
    pub(crate) fn open(&self, first: Option<Message>, messages: mpsc::Receiver<Message>) -> StreamReader {
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        let mut kept = LatestMessages::default();
        first.into_iter().for_each(|message| kept.push(message));
        let (messages, reader) = (tokio::sync::Mutex::new(messages), watch::Sender::new(0));
        let room = self.room.clone();
        let stream = Arc::new(Stream { number, messages, kept: Mutex::new(kept), reader, room });
        open.streams.insert(number, stream.clone());
        open.forget_unread();
        StreamReader::begin(stream, 1)
    }

    /// Resumes a stream after an event, and ends its previous reader. Returns `None` if the stream is gone, or if the
    /// event that comes next is not kept.
    pub(crate) fn resume(&self, after: EventId) -> Option<StreamReader> {
        let stream = self.lock().streams.get(&after.stream).cloned()?;
        let next = after.number.checked_add(1)?;
        let known = stream.kept().can_begin_at(next);
        known.then(|| StreamReader::begin(stream, next))
    }

    /// Reports whether a stream has a reader.
    pub(crate) fn is_read(&self, id: EventId) -> bool {
        self.lock().streams.get(&id.stream).is_some_and(|stream| stream.kept().unread_since.is_none())
    }

    /// Forgets a stream and ends its reader.
    pub(crate) fn forget(&self, id: EventId) {
        self.lock().streams.remove(&id.stream).as_deref().map(Stream::end);
    }

    /// Forgets the streams that have been without a reader for too long.
    pub(crate) fn forget_unread(&self) {
        self.lock().forget_unread();
    }

    /// Forgets all streams.
    pub(crate) fn clear(&self) {
        for stream in std::mem::take(&mut self.lock().streams).into_values() {
            stream.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock()
    }
}

impl StreamTable {
    /// Forgets the streams that have been without a reader for too long. If there are too many, those are forgotten
    /// first that were read to their end, and then those without a reader for longest.
    fn forget_unread(&mut self) {
        let unread = |stream: &Arc<Stream>| {
            let kept = stream.kept();
            Some((!kept.read_to_end, kept.unread_since?, stream.number))
        };
        let mut unread: Vec<_> = self.streams.values().filter_map(unread).collect();
        unread.sort();
        let too_many = unread.len().saturating_sub(MAX_UNREAD);
        for (at, (_, since, number)) in unread.into_iter().enumerate() {
            if at < too_many || since.elapsed() >= RESUME_WINDOW {
                self.streams.remove(&number).as_deref().map(Stream::end);
            }
        }
    }
}

/// One stream of a session.
struct Stream {
    number: u64,
    messages: tokio::sync::Mutex<mpsc::Receiver<Message>>,
    kept: Mutex<LatestMessages>,
    /// The number of readers that the stream has had. A reader that is not the latest one ends.
    reader: watch::Sender<u64>,
    room: PrincipalRoom,
}

/// The latest messages of a stream.
#[derive(Default)]
struct LatestMessages {
    messages: VecDeque<Message>,
    bytes: usize,
    /// The number of messages of the stream that are no longer kept.
    dropped: u64,
    /// Since when the stream has no reader, if it has none.
    unread_since: Option<Instant>,
    /// True once a reader has got the last message.
    read_to_end: bool,
    /// The part of the caller's room that the messages take while there is no reader.
    share: Option<LimitShare>,
}

impl LatestMessages {
    fn push(&mut self, message: Message) {
        self.bytes += message.payload_len();
        self.messages.push_back(message);
    }

    /// Drops messages that exceed the limits, but none from the event `next` on.
    fn trim(&mut self, next: u64) {
        while self.bytes > MAX_KEPT_BYTES || self.messages.len() > MAX_KEPT {
            if self.dropped + 1 >= next {
                break;
            }
            self.drop_first();
        }
    }

    /// Drops messages that exceed the limits or the caller's room.
    fn fit(&mut self, room: &PrincipalRoom) {
        self.trim(u64::MAX);
        let mut share = self.share.take().unwrap_or_else(|| room.empty_share());
        while self.bytes as u64 > share.count() && !share.grow(self.bytes as u64 - share.count()) {
            self.drop_first();
        }
        share.shrink(self.bytes as u64);
        self.share = Some(share);
    }

    fn drop_first(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.payload_len();
            self.dropped += 1;
        }
    }

    /// Returns the event of that number for its reader: `Some(None)` if it has not come yet, `None` if it is no longer
    /// kept.
    fn take(&mut self, number: u64) -> Option<Option<Message>> {
        let at = number.checked_sub(self.dropped + 1)?;
        let message = self.messages.get(usize::try_from(at).ok()?).cloned();
        self.trim(if message.is_some() { number + 1 } else { number });
        Some(message)
    }

    fn can_begin_at(&self, number: u64) -> bool {
        let end = self.dropped + self.messages.len() as u64 + 1;
        (self.dropped + 1..=end).contains(&number)
    }
}

impl Stream {
    /// Waits for one more message and keeps it. Returns `None` at the end. Cancellation safe: a message that was
    /// received is kept.
    async fn receive(&self) -> Option<()> {
        let message = self.messages.lock().await.recv().await?;
        self.kept().push(message);
        Some(())
    }

    /// Ends the present reader, or the task that keeps messages while there is none. Returns the number of the next
    /// reader.
    fn end(&self) -> u64 {
        let mut turn = 0;
        self.reader.send_modify(|last| {
            *last += 1;
            turn = *last;
        });
        turn
    }

    fn kept(&self) -> MutexGuard<'_, LatestMessages> {
        self.kept.lock()
    }
}

/// The reader of a stream. When it is dropped, the stream waits for another.
pub(crate) struct StreamReader {
    stream: Arc<Stream>,
    turn: u64,
    next: u64,
}

impl StreamReader {
    fn begin(stream: Arc<Stream>, next: u64) -> Self {
        let turn = {
            // The previous reader takes this lock when it is dropped, and so cannot mark the stream as unread any more.
            let mut kept = stream.kept();
            (kept.unread_since, kept.share) = (None, None);
            stream.end()
        };
        Self { stream, turn, next }
    }

    /// Returns the id after which the rest of the stream can be had.
    pub(crate) fn position(&self) -> EventId {
        EventId { stream: self.stream.number, number: self.next - 1 }
    }

    /// Returns the next event, or `None` at the end or when another reader has taken over. Cancellation safe.
    pub(crate) async fn next(&mut self) -> Option<(EventId, Message)> {
        loop {
            let next = self.stream.kept().take(self.next)?;
            if let Some(message) = next {
                self.next += 1;
                return Some((self.position(), message));
            }
            let mut readers = self.stream.reader.subscribe();
            tokio::select! {
                biased;
                _ = readers.wait_for(|last| *last != self.turn) => return None,
                received = self.stream.receive() => {
                    if received.is_none() {
                        self.stream.kept().read_to_end = true;
                        return None;
                    }
                }
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let (stream, turn) = (self.stream.clone(), self.turn);
        {
            let mut kept = stream.kept();
            if *stream.reader.borrow() != turn {
                return;
            }
            kept.unread_since = Some(Instant::now());
            kept.fit(&stream.room);
        }
        // The call that sends into the stream continues, and must not wait for a reader that may never come.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let mut readers = stream.reader.subscribe();
            let keep = async {
                while stream.receive().await.is_some() {
                    stream.kept().fit(&stream.room);
                }
            };
            tokio::select! {
                biased;
                _ = readers.wait_for(|last| *last != turn) => {}
                () = keep => {}
            }
        });
    }
}

#[cfg(test)]
mod tests;
