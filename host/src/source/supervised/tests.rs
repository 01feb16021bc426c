#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

//! Tests with a source in memory and a paused clock, which advances when every task waits.

mod eras;
mod ill;
mod session_slots;
mod soak;
mod world;

use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::machine::{COOL_DOWN, STABLE};
use super::*;
use crate::call::{Call, GroupAttempt};
use crate::config::ConcurrencyConfig;
use crate::source::testing::{RecordingClient, no_client, silent, text};
use world::{Bench, Mood, shown};

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_and_only_the_call_in_flight_fails() {
    let bench = Bench::new(&[Mood::Dies, Mood::Well]);
    let session = RecordingClient::new().client();
    let lost = bench.call(&session).await;
    assert!(matches!(lost, Outcome::Unknown(_)), "it may have acted: {lost:?}");
    assert_eq!(text(bench.call(&session).await), "ok");
    assert_eq!(bench.world.calls.load(Ordering::SeqCst), 2, "nothing was replayed");
    assert_eq!(bench.world.states(), ["starting", "ready", "backing-off", "starting", "ready"]);
    assert_eq!(bench.source.health().error_count, 1);
    bench.source.close().await;
    assert_eq!(bench.status(), SourceStatus::Stopped);
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_waits_for_the_connection_within_its_deadline() {
    let moods = [Mood::Dies, Mood::Absent, Mood::Absent, Mood::Well];
    let bench = Bench::new(&moods);
    let session = RecordingClient::new().client();
    bench.call(&session).await;
    assert_eq!(text(bench.call(&session).await), "ok", "it waited for three attempts");
    assert_eq!(bench.world.tried.lock().unwrap().len(), 4);

    let bench = Bench::with(&moods, |supervision| supervision.timeout = Duration::from_secs(2));
    bench.call(&session).await;
    let begun = Instant::now();
    match bench.call(&session).await {
        Outcome::NotSent(why) => assert!(why.contains("not ready for the call within 2 s; nothing was sent"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(bench.world.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_turn_or_for_a_connection_is_known_to_be_unsent() {
    let places = Some(ConcurrencyConfig { concurrency: 1, queue: 1 });
    let bench = Bench::with(&[Mood::Mute], |supervision| {
        supervision.concurrency = ConcurrencyLimit::new(&supervision.name, places);
    });
    let session = RecordingClient::new().client();
    let (first, second) = (shown("a tool"), shown("a tool"));
    let (is_first, is_second) = (first.progress(), second.progress());
    let mut calling = bench.source.call(first, &session, silent());
    let mut waiting = bench.source.call(second, &session, silent());
    assert!((&mut calling).now_or_never().is_none() && is_first.is_unsent(), "it is being connected");
    assert!((&mut waiting).now_or_never().is_none() && is_second.is_unsent(), "its turn has not come");
    let sent = tokio::time::timeout(Duration::from_secs(1), &mut calling).await;
    assert!(sent.is_err() && !is_first.is_unsent(), "{sent:?}");
    assert!(is_second.is_unsent());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_turn_and_for_its_answer_within_one_time() {
    let places = Some(ConcurrencyConfig { concurrency: 1, queue: 1 });
    let bench = Bench::with(&[Mood::Mute], |supervision| {
        (supervision.timeout, supervision.concurrency) =
            (Duration::from_secs(10), ConcurrencyLimit::new(&supervision.name, places));
    });
    let session = RecordingClient::new().client();
    let late = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let begun = Instant::now();
        let outcome = bench.call(&session).await;
        assert_eq!(begun.elapsed().as_secs(), 10, "6 s in the queue, 4 s at the source");
        outcome
    };
    let (first, second) = tokio::join!(bench.call(&session), late);
    assert!(matches!(first, Outcome::Unknown(_)) && matches!(second, Outcome::Unknown(_)), "{first:?} {second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_before_its_connection_stands_is_not_sent() {
    let bench = Bench::with(&[Mood::Late], |supervision| {
        (supervision.timeout, supervision.lifecycle) = (Duration::from_secs(3), ConnectionReuse::PerCall);
    });
    let begun = Instant::now();
    match bench.call(&RecordingClient::new().client()).await {
        Outcome::NotSent(why) => assert!(why.contains("not ready for the call within 3 s"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((begun.elapsed().as_secs(), bench.world.calls.load(Ordering::SeqCst)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_another_source_can_take_does_not_wait_for_one_that_is_down() {
    let bench = Bench::new(&[Mood::Dies, Mood::Absent, Mood::Well]);
    let session = RecordingClient::new().client();
    let attempt = |others| {
        let call = Call { attempt: Some(GroupAttempt { number: 1, others }), ..Call::clone(shown("a tool").call()) };
        bench.source.call(Permit::unchecked(call.into()), &session, silent())
    };
    assert!(matches!(attempt(true).await, Outcome::Unknown(_)));
    let begun = Instant::now();
    assert!(matches!(attempt(true).await, Outcome::NotSent(_)));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(text(attempt(false).await), "ok", "the last one waits");
    assert_eq!(text(attempt(true).await), "ok", "the source has recovered");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_stays_away_is_left_alone_and_comes_back_by_itself() {
    let mut moods = vec![Mood::Dies];
    moods.extend([Mood::Absent; 5]);
    moods.extend([Mood::Absent, Mood::Well]);
    let bench = Bench::new(&moods);
    let recorder = RecordingClient::new();
    let session = recorder.client();
    bench.call(&session).await;
    match bench.call(&session).await {
        Outcome::NotSent(why) => {
            assert!(why.contains("nobody is there; 5 attempts to reconnect have failed"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.status(), SourceStatus::Failed);
    let tries = bench.world.tried.lock().unwrap().len();
    assert!(matches!(bench.call(&session).await, Outcome::NotSent(_)), "at once");
    assert_eq!(bench.world.tried.lock().unwrap().len(), tries, "the circuit is open");
    tokio::time::sleep(COOL_DOWN * 2 + Duration::from_secs(1)).await;
    assert_eq!(bench.status(), SourceStatus::Ready);
    let pauses = bench.world.tried();
    for (pause, longest) in pauses.iter().zip([500, 1000, 2000, 4000, 8000, 60_000, 60_000]) {
        assert!(*pause <= longest + 1 && *pause * 4 + 4 >= longest * 3, "{pauses:?}");
    }
    assert_eq!(pauses.len(), 7);
    assert_eq!(text(bench.call(&session).await), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_no_session_uses_is_not_reconnected() {
    let bench = Bench::new(&[Mood::Dies, Mood::Well]);
    bench.call(&no_client()).await;
    tokio::time::sleep(STABLE * 10).await;
    assert_eq!(bench.world.tried.lock().unwrap().len(), 1);
    assert_eq!(bench.status(), SourceStatus::BackingOff);
    assert_eq!(text(bench.call(&no_client()).await), "ok");

    let eager = Bench::with(&[Mood::Dies, Mood::Well], |supervision| supervision.eager = true);
    eager.call(&no_client()).await;
    eager.comes_to(&["starting", "ready", "backing-off", "starting", "ready"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_never_connected_fails_at_once() {
    let bench = Bench::new(&[Mood::Absent]);
    let session = RecordingClient::new().client();
    let begun = Instant::now();
    assert!(bench.source.discover(&session).await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(matches!(bench.call(&session).await, Outcome::NotSent(_)));
    assert!(begun.elapsed() <= Duration::from_secs(1), "one attempt more");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_could_not_list_a_source_is_notified_when_it_connects() {
    let bench = Bench::new(&[Mood::Absent, Mood::Absent, Mood::Well]);
    let (recorder, gone) = (RecordingClient::new(), RecordingClient::new());
    assert!(bench.source.discover(&recorder.client()).await.is_err());
    assert!(bench.source.discover(&gone.client()).await.is_err());
    bench.source.end_session(&gone.session);
    bench.comes_to(&["starting", "backing-off", "starting", "backing-off", "starting", "ready"]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(recorder.received(), ["notifications/tools/list_changed"]);
    assert_eq!(gone.received(), [""; 0], "a session that has ended is told nothing");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_notified_of_a_reconnected_source_only_if_its_tools_have_changed() {
    let bench = Bench::new(&[Mood::Dies, Mood::Dies, Mood::Changed]);
    let recorder = RecordingClient::new();
    let session = recorder.client();
    bench.call(&session).await;
    bench.call(&session).await;
    assert_eq!(recorder.received(), [""; 0], "it came back with the same tools");
    match bench.call(&session).await {
        Outcome::NotSent(why) => assert!(why.contains("has changed its definition"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(recorder.received(), ["notifications/tools/list_changed"; 2], "it came back, and was not called");
    assert!(matches!(bench.source.call(shown("another"), &session, silent()).await, Outcome::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_opened_anew_and_the_call_goes_through() {
    let bench = Bench::new(&[Mood::Forgets, Mood::Well]);
    let begun = Instant::now();
    assert_eq!(text(bench.call(&RecordingClient::new().client()).await), "ok");
    assert_eq!(begun.elapsed(), Duration::ZERO, "an expired session is not a failure, and there is no pause");
    assert_eq!(bench.world.states(), ["starting", "ready", "idle", "starting", "ready"]);
    assert_eq!(bench.source.health().error_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_source_that_has_forgotten_the_session_is_repeated_over_a_new_one() {
    let bench = Bench::new(&[Mood::Forgets, Mood::Well]);
    bench.source.discover(&RecordingClient::new().client()).await.unwrap();
    bench.source.discover(&RecordingClient::new().client()).await.unwrap();
    let bench = Bench::new(&[Mood::Forgets, Mood::Well]);
    bench.source.discover(&RecordingClient::new().client()).await.unwrap();
    bench.source.list(&RecordingClient::new().client(), ItemKind::Tool).await.unwrap();
    assert_eq!(bench.world.states(), ["starting", "ready", "idle", "starting", "ready"]);

    let bench = Bench::new(&[Mood::Deaf, Mood::Well]);
    let session = RecordingClient::new().client();
    bench.source.discover(&session).await.unwrap();
    bench.source.notify(shown("a tool"), &session).await.unwrap();
    assert_eq!(bench.world.told.load(Ordering::SeqCst), 1, "what was never sent is sent once");
    let bench = Bench::new(&[Mood::Deaf]);
    bench.source.discover(&session).await.unwrap();
    assert!(bench.source.notify(shown("a tool"), &session).await.is_err(), "it is not repeated for ever");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_forgets_every_session_is_left_alone() {
    let bench = Bench::new(&[Mood::Forgets]);
    let session = RecordingClient::new().client();
    for _ in 0..20 {
        assert!(matches!(bench.call(&session).await, Outcome::NotSent(_)));
    }
    assert_eq!(bench.status(), SourceStatus::Failed);
    let tries = bench.world.tried.lock().unwrap().len();
    assert!(tries <= 7, "{tries} connections");
    assert!(bench.source.health().error.unwrap().contains("session expired"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_made_again_when_needed() {
    let minute = Duration::from_secs(60);
    let bench = Bench::with(&[Mood::Well], |supervision| supervision.idle = minute);
    let session = RecordingClient::new().client();
    bench.call(&session).await;
    tokio::time::sleep(minute - Duration::from_secs(1)).await;
    bench.call(&session).await;
    tokio::time::sleep(minute - Duration::from_secs(1)).await;
    assert_eq!(bench.status(), SourceStatus::Ready, "the last use counts");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((bench.status(), bench.world.open.load(Ordering::SeqCst)), (SourceStatus::Idle, 0));
    assert_eq!(text(bench.call(&session).await), "ok");

    let eager = Bench::with(&[Mood::Well], |supervision| (supervision.idle, supervision.eager) = (minute, true));
    eager.call(&session).await;
    tokio::time::sleep(minute * 10).await;
    assert_eq!(eager.status(), SourceStatus::Ready, "an eager source stays");
}

#[tokio::test(start_paused = true)]
async fn remote_sources_are_pinged_and_given_up_when_silent_and_others_are_not() {
    let remote = |supervision: &mut SupervisionConfig| supervision.remote = true;
    let bench = Bench::with(&[Mood::Mute, Mood::Well], remote);
    let session = RecordingClient::new().client();
    bench.source.discover(&session).await.unwrap();
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
    assert_eq!(bench.source.health().last_ping, None);
    let errors = bench.source.health().error_count;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(bench.source.health().last_ping.is_some());
    assert_eq!((bench.source.health().error_count, bench.status()), (errors, SourceStatus::Ready));

    let local = Bench::new(&[Mood::Mute]);
    local.source.discover(&session).await.unwrap();
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!(local.status(), SourceStatus::Ready);
    local.source.ping().await;
    assert_eq!(local.status(), SourceStatus::Degraded, "when somebody asks");
}

#[tokio::test(start_paused = true)]
async fn closing_lets_calls_end_that_are_almost_done() {
    for (mood, done) in [(Mood::Slow, true), (Mood::Mute, false)] {
        let bench = Bench::new(&[mood]);
        let session = RecordingClient::new().client();
        bench.source.discover(&session).await.unwrap();
        let closed = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            bench.source.close().await;
        };
        let begun = Instant::now();
        let (outcome, ()) = tokio::join!(bench.call(&session), closed);
        assert_eq!(matches!(outcome, Outcome::Answered(_)), done, "{mood:?}: {outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Unknown(_)), !done, "{mood:?}: {outcome:?}");
        assert!(begun.elapsed() <= DRAIN_DEADLINE + Duration::from_millis(2));
        assert!(matches!(bench.call(&session).await, Outcome::NotSent(_)), "and nothing is begun any more");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_no_longer_for_a_connection_that_was_given_up_with_a_call_open() {
    let long = Duration::from_secs(3600);
    let bench = Bench::with(&[Mood::Mute], |supervision| (supervision.timeout, supervision.remote) = (long, true));
    let session = RecordingClient::new().client();
    bench.source.discover(&session).await.unwrap();
    let begun = Instant::now();
    let closed = async {
        bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
        let given_up = Instant::now();
        bench.source.close().await;
        given_up.elapsed()
    };
    let (outcome, closed) = tokio::join!(bench.call(&session), closed);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(closed <= DRAIN_DEADLINE + Duration::from_millis(10), "{closed:?}");
    assert!(begun.elapsed() < long, "and the call ends with it");
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_connection_of_its_own_that_is_given_up_is_cancelled_at_its_source() {
    let bench = Bench::with(&[Mood::Mute], |supervision| supervision.lifecycle = ConnectionReuse::PerCall);
    let session = RecordingClient::new().client();
    let mut call = Box::pin(bench.call(&session));
    for _ in 0..1000 {
        assert!(futures_util::poll!(&mut call).is_pending());
        tokio::task::yield_now().await;
    }
    drop(call);
    bench.source.close().await;
    let world = &bench.world;
    assert_eq!([&world.calls, &world.told, &world.open].map(|count| count.load(Ordering::SeqCst)), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn with_a_connection_for_each_call_nothing_is_kept() {
    let bench = Bench::with(&[Mood::Dies, Mood::Well], |supervision| supervision.lifecycle = ConnectionReuse::PerCall);
    let session = RecordingClient::new().client();
    assert!(matches!(bench.call(&session).await, Outcome::Unknown(_)));
    for _ in 0..2 {
        assert_eq!(text(bench.call(&session).await), "ok");
    }
    bench.source.discover(&session).await.unwrap();
    bench.source.close().await;
    assert_eq!(bench.world.tried.lock().unwrap().len(), 4);
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_with_a_connection_each_wait_for_a_place_until_their_time_is_over() {
    let bench = Bench::with(&[Mood::Well], |supervision| {
        (supervision.lifecycle, supervision.max_connections) = (ConnectionReuse::PerCall, 1);
    });
    let session = RecordingClient::new().client();
    for _ in 0..3 {
        assert_eq!(text(bench.call(&session).await), "ok", "the place is free once the connection before is closed");
    }
    let bench = Bench::with(&[Mood::Mute], |supervision| {
        (supervision.lifecycle, supervision.max_connections) = (ConnectionReuse::PerCall, 1);
    });
    let mut held = Box::pin(bench.call(&session));
    while bench.world.calls.load(Ordering::SeqCst) == 0 {
        assert!(futures_util::poll!(&mut held).is_pending());
        tokio::task::yield_now().await;
    }
    match bench.call(&session).await {
        Outcome::NotSent(why) => assert!(why.contains("1 calls have a connection to this source already"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_principal_takes_its_share_of_the_connections_for_one_use_and_no_more() {
    let places = super::single_use::SingleUsePlaces::new(4);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(places.take("ann").await);
    }
    let mut waiting = Box::pin(places.take("ann"));
    assert!(futures_util::poll!(&mut waiting).is_pending(), "ann has three of four");
    let of_bob = places.take("bob").await;
    let mut of_eve = Box::pin(places.take("eve"));
    assert!(futures_util::poll!(&mut of_eve).is_pending(), "all four are taken");
    drop(of_bob);
    let _of_eve = of_eve.await;
    held.pop();
    let _fourth = waiting.await;
}
