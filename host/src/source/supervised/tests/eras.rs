//! The eras in which connections are made, and the sessions that share them.

use super::*;
use crate::protocol::Era;

fn agent(era: Era) -> Arc<dyn SourceClient> {
    RecordingClient::of(Some(era)).client()
}

/// Returns the methods by which connections were begun since the last time.
fn begun(bench: &Bench) -> Vec<String> {
    std::mem::take(&mut *bench.world.begun.lock().unwrap())
}

const INITIALIZE: &str = "initialize";
const DISCOVER: &str = "server/discover";

#[tokio::test(start_paused = true)]
async fn agents_of_each_era_share_a_connection_in_their_own() {
    let bench = Bench::new(&[Mood::Both]);
    for (era, methods) in [
        (Era::Legacy, &[INITIALIZE][..]),
        (Era::Modern, &[DISCOVER][..]),
        (Era::Legacy, &[][..]),
        (Era::Modern, &[][..]),
    ] {
        assert_eq!(text(bench.call(&agent(era)).await), "ok");
        assert_eq!(begun(&bench), methods, "{era:?}");
    }
    assert_eq!(text(bench.call(&no_client()).await), "ok");
    assert_eq!(
        (begun(&bench).len(), bench.source.only_era()),
        (0, None),
        "a client without a session uses the newest era"
    );
    bench.source.close().await;
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_agent_has_a_connection_of_its_own_where_the_source_keeps_something_for_it() {
    let bench = Bench::new(&[Mood::BothWithLogs]);
    let (one, two) = (agent(Era::Legacy), agent(Era::Legacy));
    for client in [&one, &two, &one, &two] {
        assert_eq!(text(bench.call(client).await), "ok");
    }
    assert_eq!(begun(&bench), [INITIALIZE, INITIALIZE]);
    assert_eq!(text(bench.call(&agent(Era::Modern)).await), "ok");
    assert_eq!(begun(&bench), [DISCOVER]);
}

#[tokio::test(start_paused = true)]
async fn a_source_of_the_newest_era_alone_has_one_connection_for_all() {
    let bench = Bench::new(&[Mood::Modern]);
    assert_eq!(text(bench.call(&agent(Era::Legacy)).await), "ok");
    assert_eq!(begun(&bench), [INITIALIZE, DISCOVER], "on one connection");
    for era in [Era::Modern, Era::Legacy] {
        assert_eq!(text(bench.call(&agent(era)).await), "ok");
    }
    assert_eq!((begun(&bench).len(), bench.source.only_era()), (0, Some(Era::Modern)));
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_of_the_older_era_alone_has_one_connection_for_all_once_the_newest_was_tried() {
    let bench = Bench::new(&[Mood::Well]);
    assert_eq!(text(bench.call(&agent(Era::Legacy)).await), "ok");
    assert_eq!(bench.source.only_era(), None);
    let (modern, legacy) = (agent(Era::Modern), agent(Era::Legacy));
    for client in [&modern, &legacy, &modern] {
        assert_eq!(text(bench.call(client).await), "ok");
    }
    assert_eq!((begun(&bench), bench.source.only_era()), (vec![INITIALIZE.to_owned(); 2], Some(Era::Legacy)));
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 1, "the connection that was made to find out has ended");
}

#[tokio::test(start_paused = true)]
async fn the_configured_era_is_the_only_one_that_is_spoken() {
    for (era, method) in [(Era::Legacy, INITIALIZE), (Era::Modern, DISCOVER)] {
        for lifecycle in [ConnectionReuse::Warm, ConnectionReuse::PerCall] {
            let bench = Bench::with(&[Mood::Both], |supervision| {
                (supervision.era, supervision.lifecycle) = (Some(era), lifecycle)
            });
            for agents in [Era::Legacy, Era::Modern] {
                assert_eq!(text(bench.call(&agent(agents)).await), "ok");
            }
            let all = begun(&bench);
            assert!(all.iter().all(|begun| begun == method), "{era:?}, {lifecycle:?}: {all:?}");
            assert_eq!(bench.source.only_era(), Some(era));
        }
    }
    let bench = Bench::with(&[Mood::Modern], |supervision| supervision.era = Some(Era::Legacy));
    assert!(
        matches!(bench.call(&agent(Era::Legacy)).await, Outcome::NotSent(_)),
        "and what it does not speak is an error"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_for_one_call_is_made_in_the_era_of_its_agent() {
    let bench = Bench::with(&[Mood::Both], |supervision| supervision.lifecycle = ConnectionReuse::PerCall);
    for (era, method) in [(Era::Legacy, INITIALIZE), (Era::Modern, DISCOVER)] {
        assert_eq!(text(bench.call(&agent(era)).await), "ok");
        assert_eq!(begun(&bench), [method]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_eager_source_keeps_its_shared_connection_and_closes_the_idle_one_of_legacy_agents() {
    let minute = Duration::from_secs(60);
    let bench = Bench::with(&[Mood::Both], |supervision| (supervision.idle, supervision.eager) = (minute, true));
    bench.source.discover(&no_client()).await.unwrap();
    assert_eq!(text(bench.call(&agent(Era::Legacy)).await), "ok");
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 2);
    tokio::time::sleep(minute * 3).await;
    assert_eq!(bench.world.open.load(Ordering::SeqCst), 1);
}
