#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::principal::Principal;
use crate::protocol::Notification;
use crate::shared_limit::SharedLimit;

fn streams() -> SessionStreams {
    SessionStreams::new(room(&SharedLimit::new(MAX_UNREAD_BYTES)))
}

fn room(limit: &Arc<SharedLimit>) -> PrincipalRoom {
    PrincipalRoom::new(limit, &Principal::established("token:a"))
}

fn message(text: &str) -> Message {
    Message::Notification(Notification { method: text.into(), params: None })
}

async fn next(reader: &mut StreamReader) -> Option<(String, String)> {
    let (id, message) = reader.next().await?;
    let Message::Notification(notification) = message else { return None };
    Some((id.to_string(), notification.method.to_string()))
}

fn expected(id: &str, text: &str) -> Option<(String, String)> {
    Some((id.to_owned(), text.to_owned()))
}

fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_stream_can_be_resumed_after_any_of_its_events() {
    let streams = streams();
    let (out, messages) = mpsc::channel(8);
    let mut reader = streams.open(Some(message("a")), messages);
    let (other, messages) = mpsc::channel(8);
    let _other = streams.open(None, messages);
    other.send(message("of another stream")).await.unwrap();
    out.send(message("b")).await.unwrap();
    assert_eq!(next(&mut reader).await, expected("1-1", "a"));
    assert_eq!(next(&mut reader).await, expected("1-2", "b"));
    drop(reader);
    out.send(message("c")).await.unwrap();
    drop(out);
    for (after, rest) in [("1-0", &["a", "b", "c"][..]), ("1-2", &["c"]), ("1-3", &[])] {
        let mut reader = streams.resume(id(after)).unwrap();
        for text in rest {
            assert_eq!(next(&mut reader).await.unwrap().1, *text, "after {after}");
        }
        assert_eq!(next(&mut reader).await, None, "after {after}");
    }
    for unknown in ["1-4", "3-0", "1-18446744073709551615"] {
        assert!(streams.resume(id(unknown)).is_none(), "{unknown}");
    }
}

#[tokio::test]
async fn a_new_reader_ends_the_previous_one() {
    let streams = streams();
    let (out, messages) = mpsc::channel(8);
    let mut first = streams.open(None, messages);
    let waiting = tokio::spawn(async move { next(&mut first).await });
    tokio::task::yield_now().await;
    let mut second = streams.resume(id("1-0")).unwrap();
    assert_eq!(waiting.await.unwrap(), None);
    out.send(message("a")).await.unwrap();
    assert_eq!(next(&mut second).await, expected("1-1", "a"));
    assert!(streams.is_read(id("1-0")));
}

#[tokio::test]
async fn a_stream_without_a_reader_blocks_no_sender_and_keeps_its_latest_messages() {
    let streams = streams();
    let (out, messages) = mpsc::channel(1);
    drop(streams.open(None, messages));
    for _ in 0..=MAX_KEPT {
        // The channel has room for one, so that each send waits until the message before it was taken.
        out.send(message("x")).await.unwrap();
    }
    out.reserve().await.unwrap();
    while streams.lock().streams[&1].kept().messages.len() < MAX_KEPT {
        tokio::task::yield_now().await;
    }
    assert!(streams.resume(id("1-0")).is_none(), "more was said than is kept");
    let mut reader = streams.resume(id("1-1")).unwrap();
    assert_eq!(next(&mut reader).await, expected("1-2", "x"));
}

#[tokio::test]
async fn what_is_too_large_to_keep_is_delivered_once() {
    let streams = streams();
    let (out, messages) = mpsc::channel(8);
    let mut reader = streams.open(None, messages);
    out.send(message(&"x".repeat(MAX_KEPT_BYTES + 1))).await.unwrap();
    assert!(next(&mut reader).await.is_some());
    drop(reader);
    assert!(streams.resume(id("1-0")).is_none());
    assert!(streams.resume(id("1-1")).is_some());
}

#[tokio::test(start_paused = true)]
async fn streams_are_forgotten_after_a_while_and_when_there_are_too_many() {
    let streams = streams();
    let mut outs = Vec::new();
    for _ in 0..MAX_UNREAD + 2 {
        let (out, messages) = mpsc::channel(1);
        outs.push(out);
        drop(streams.open(None, messages));
    }
    streams.forget_unread();
    let kept = |number: usize| streams.resume(EventId { stream: number as u64, number: 0 }).is_some();
    assert!(!kept(1) && !kept(2) && kept(3));
    outs[0].closed().await;
    tokio::time::advance(RESUME_WINDOW).await;
    streams.forget_unread();
    assert!(!kept(4) && !kept(MAX_UNREAD + 2));
    outs[MAX_UNREAD].closed().await;
}

#[tokio::test]
async fn streams_that_were_read_to_their_end_make_room_for_one_that_broke() {
    let streams = streams();
    let (out, messages) = mpsc::channel(8);
    drop(streams.open(Some(message("a")), messages));
    for _ in 0..=MAX_UNREAD {
        let (other, messages) = mpsc::channel(8);
        let mut reader = streams.open(Some(message("of another call")), messages);
        drop(other);
        while next(&mut reader).await.is_some() {}
    }
    out.send(message("b")).await.unwrap();
    drop(out);
    let mut reader = streams.resume(id("1-1")).unwrap();
    assert_eq!(next(&mut reader).await, expected("1-2", "b"));
}

#[tokio::test]
async fn what_a_caller_leaves_unread_has_a_bound_and_the_latest_of_it_is_kept() {
    // One caller gets half of it: eight messages of 100 bytes.
    let limit = SharedLimit::new(1_600);
    let text = |number: usize| message(&format!("{number:0100}"));
    let [first, second] = [0, 1].map(|_| SessionStreams::new(room(&limit)));
    let (out, messages) = mpsc::channel(8);
    drop(first.open(None, messages));
    for number in 1..=6 {
        out.send(text(number)).await.unwrap();
    }
    drop(out);
    let (out, messages) = mpsc::channel(8);
    let unread = second.open(None, messages);
    for number in 1..=6 {
        out.send(text(number)).await.unwrap();
    }
    drop((out, unread));
    let held = |count| limit.try_take(&Principal::established("token:b"), count).is_some();
    while held(401) {
        tokio::task::yield_now().await;
    }
    assert!(first.resume(id("1-0")).is_some(), "the first has kept all of its six");
    first.clear();
    drop(first);
    assert!(second.resume(id("1-3")).is_none(), "the other two messages of the second have taken the room");
    let mut latest = second.resume(id("1-4")).unwrap();
    assert_eq!(next(&mut latest).await, expected("1-5", &format!("{:0100}", 5)));
    // Messages that are read again take none of its room, nor do forgotten ones.
    while !held(800) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_caller_that_holds_more_than_what_is_free_keeps_nothing_further() {
    let limit = SharedLimit::new(1_600);
    let streams = SessionStreams::new(room(&limit));
    let _held = [("token:a", 800), ("token:b", 400)]
        .map(|(name, count)| limit.try_take(&Principal::established(name), count).unwrap());
    let (out, messages) = mpsc::channel(8);
    let unread = streams.open(None, messages);
    for number in 1..=6 {
        out.send(message(&format!("{number:0100}"))).await.unwrap();
    }
    drop((out, unread));
    while streams.resume(id("1-6")).is_none() {
        tokio::task::yield_now().await;
    }
    assert!(streams.resume(id("1-5")).is_none(), "there is no room for the last message");
}
