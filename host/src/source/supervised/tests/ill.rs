//! Sources that do not answer, and the callers that do not wait for them.

use super::*;
use crate::source::supervised::machine::MAX_TIMEOUTS;

/// Makes as many calls that time out as cause the source to be sent a ping.
async fn doubtful_calls(bench: &Bench, session: &Arc<dyn SourceClient>) {
    let calls = join_all((0..MAX_TIMEOUTS).map(|_| bench.call(session))).await;
    assert!(calls.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_answers_neither_requests_nor_a_ping_is_ended_and_restarted() {
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    let session = RecordingClient::new().client();
    doubtful_calls(&bench, &session).await;
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 1, "the silent one has ended");
    assert_eq!(text(bench.call(&session).await), "ok");
    let records = bench.world.records.lock().unwrap();
    let cause = records[3]["cause"].as_str().unwrap();
    assert!(cause.contains("3 requests in a row had no answer in time; no answer to `ping` within 10 s"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_answers_a_ping_is_slow_and_is_left_alone() {
    let bench = Bench::new(&[Mood::Busy]);
    let session = RecordingClient::new().client();
    for _ in 0..2 {
        doubtful_calls(&bench, &session).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.world.states(), ["starting", "ready", "degraded", "ready", "degraded", "ready"]);
    assert_eq!(bench.world.tried.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_their_agents_give_up_late_count_as_timeouts() {
    let bench = Bench::with(&[Mood::Mute, Mood::Well], |supervision| supervision.timeout = Duration::from_secs(3600));
    let session = RecordingClient::new().client();
    for limit in [1, 1, 1, 1, 20, 20, 20] {
        let _ = tokio::time::timeout(Duration::from_secs(limit), bench.call(&session)).await;
        let doubted = bench.world.states().contains(&"degraded".to_owned());
        assert!(!doubted, "a person may change their mind");
    }
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
}

#[tokio::test(start_paused = true)]
async fn listing_does_not_wait_for_a_source_that_is_known_to_be_unavailable() {
    let at_once = async |bench: &Bench| {
        let begun = Instant::now();
        let looked = bench.source.discover(&RecordingClient::new().client()).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "{looked:?}");
        looked
    };
    // Between two attempts, and while one is made.
    let bench = Bench::new(&[Mood::Dies, Mood::Late]);
    let session = RecordingClient::new().client();
    bench.call(&session).await;
    assert!(at_once(&bench).await.is_err());
    bench.comes_to(&["starting", "ready", "backing-off", "starting"]).await;
    assert!(at_once(&bench).await.is_err());
    bench.comes_to(&["starting", "ready", "backing-off", "starting", "ready"]).await;
    assert!(at_once(&bench).await.is_ok());

    // While the source is being pinged.
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    doubtful_calls(&bench, &session).await;
    bench.comes_to(&["starting", "ready", "degraded"]).await;
    let why = at_once(&bench).await.unwrap_err().to_string();
    assert!(why.contains("3 requests in a row unanswered"), "{why}");
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
    assert!(at_once(&bench).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn listing_waits_for_an_attempt_that_is_due() {
    let bench = Bench::new(&[Mood::Dies, Mood::Well]);
    bench.call(&no_client()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.status(), SourceStatus::BackingOff, "no session used it");
    assert!(bench.source.discover(&RecordingClient::new().client()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_restart_ends_the_source_and_starts_it_again_in_every_state() {
    let limit = Duration::from_secs(8);
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    let session = RecordingClient::new().client();
    bench.source.discover(&session).await.unwrap();
    let call = bench.call(&session);
    let restarted = async {
        tokio::task::yield_now().await;
        bench.source.restart("restarted by a test", limit).await
    };
    let (lost, restarted) = tokio::join!(call, restarted);
    assert!(matches!(lost, Outcome::Unknown(_)), "{lost:?}");
    assert_eq!(restarted, Ok(SourceStatus::Ready));
    assert_eq!(bench.world.states(), ["starting", "ready", "idle", "starting", "ready"]);
    assert_eq!(bench.world.records.lock().unwrap()[2]["cause"], "restarted by a test");
    assert_eq!(text(bench.call(&session).await), "ok");

    // During a pause, and during an attempt.
    for until in [&["starting", "ready", "backing-off"][..], &["starting", "ready", "backing-off", "starting"]] {
        let bench = Bench::new(&[Mood::Dies, Mood::Late]);
        bench.call(&session).await;
        bench.comes_to(until).await;
        assert_eq!(bench.source.restart("again", limit).await, Ok(SourceStatus::Ready));
        assert_eq!(bench.world.open.load(Ordering::SeqCst), 1);
    }

    let idle = Bench::new(&[Mood::Well]);
    assert_eq!(idle.source.restart("again", limit).await, Ok(SourceStatus::Idle));
    assert!(idle.world.tried.lock().unwrap().is_empty(), "an idle source is not started");
    idle.source.close().await;
    assert!(idle.source.restart("again", limit).await.is_err());
}
