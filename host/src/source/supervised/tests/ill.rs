//! Sources that answer nothing, and who does not wait for them.

use super::*;
use crate::source::supervised::machine::TIMEOUTS;

/// As many calls as raise a doubt, which all run out of time.
async fn doubtful_calls(bench: &Bench, session: &Arc<dyn SourceClient>) {
    let calls = join_all((0..TIMEOUTS).map(|_| bench.call(session))).await;
    assert!(calls.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_answers_neither_requests_nor_a_ping_is_ended_and_made_anew() {
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    let session = Ear::new().client();
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
    let session = Ear::new().client();
    for _ in 0..2 {
        doubtful_calls(&bench, &session).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.world.states(), ["starting", "ready", "degraded", "ready", "degraded", "ready"]);
    assert_eq!(bench.world.tried.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_their_agents_give_up_late_count_as_time_outs() {
    let bench = Bench::with(&[Mood::Mute, Mood::Well], |supervision| supervision.timeout = Duration::from_secs(3600));
    let session = Ear::new().client();
    for patience in [1, 1, 1, 1, 20, 20, 20] {
        let _ = tokio::time::timeout(Duration::from_secs(patience), bench.call(&session)).await;
        let doubted = bench.world.states().contains(&"degraded".to_owned());
        assert!(!doubted, "a person may change their mind");
    }
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_waits_for_no_source_that_is_known_to_be_ill() {
    let at_once = async |bench: &Bench| {
        let begun = Instant::now();
        let looked = bench.source.discover(&Ear::new().client()).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "{looked:?}");
        looked
    };
    // Between two attempts, and while one is made.
    let bench = Bench::new(&[Mood::Dies, Mood::Late]);
    let session = Ear::new().client();
    bench.call(&session).await;
    assert!(at_once(&bench).await.is_err());
    bench.comes_to(&["starting", "ready", "backing-off", "starting"]).await;
    assert!(at_once(&bench).await.is_err());
    bench.comes_to(&["starting", "ready", "backing-off", "starting", "ready"]).await;
    assert!(at_once(&bench).await.is_ok());

    // While it is asked whether it lives.
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    doubtful_calls(&bench, &session).await;
    bench.comes_to(&["starting", "ready", "degraded"]).await;
    let why = at_once(&bench).await.unwrap_err().to_string();
    assert!(why.contains("3 requests in a row unanswered"), "{why}");
    bench.comes_to(&["starting", "ready", "degraded", "backing-off", "starting", "ready"]).await;
    assert!(at_once(&bench).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_due_is_a_chance_for_whoever_looks() {
    let bench = Bench::new(&[Mood::Dies, Mood::Well]);
    bench.call(&nobody()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.status(), Status::BackingOff, "nobody wanted it");
    assert!(bench.source.discover(&Ear::new().client()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_source_is_ended_and_made_anew_whatever_it_was_like() {
    let patience = Duration::from_secs(8);
    let bench = Bench::new(&[Mood::Mute, Mood::Well]);
    let session = Ear::new().client();
    bench.source.discover(&session).await.unwrap();
    let call = bench.call(&session);
    let restarted = async {
        tokio::task::yield_now().await;
        bench.source.restart("restarted by a test", patience).await
    };
    let (lost, restarted) = tokio::join!(call, restarted);
    assert!(matches!(lost, Outcome::Unknown(_)), "{lost:?}");
    assert_eq!(restarted, Ok(Status::Ready));
    assert_eq!(bench.world.states(), ["starting", "ready", "idle", "starting", "ready"]);
    assert_eq!(bench.world.records.lock().unwrap()[2]["cause"], "restarted by a test");
    assert_eq!(text(bench.call(&session).await), "ok");

    // In the middle of a pause, and in the middle of an attempt.
    for until in [&["starting", "ready", "backing-off"][..], &["starting", "ready", "backing-off", "starting"]] {
        let bench = Bench::new(&[Mood::Dies, Mood::Late]);
        bench.call(&session).await;
        bench.comes_to(until).await;
        assert_eq!(bench.source.restart("again", patience).await, Ok(Status::Ready));
        assert_eq!(bench.world.open.load(Ordering::SeqCst), 1);
    }

    let idle = Bench::new(&[Mood::Well]);
    assert_eq!(idle.source.restart("again", patience).await, Ok(Status::Idle));
    assert!(idle.world.tried.lock().unwrap().is_empty(), "what nobody needs is not started");
    idle.source.close().await;
    assert!(idle.source.restart("again", patience).await.is_err());
}
