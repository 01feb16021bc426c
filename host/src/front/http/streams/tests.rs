#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::protocol::Notification;

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
    let streams = SessionStreams::default();
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
    let streams = SessionStreams::default();
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
    let streams = SessionStreams::default();
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
    let streams = SessionStreams::default();
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
    let streams = SessionStreams::default();
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
    let streams = SessionStreams::default();
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
