//! Connections that belong to one session each: made at first use, closed when idle, and closed to make room for
//! others.

use futures_util::future::BoxFuture;
use serde_json::{Value as Data, json};

use super::*;
use crate::call::Params;
use crate::protocol::{Answer, Json, Method, Notification, Request};
use crate::source::supervised::session_slots::REUSE_FROM;

/// The connections that sessions may have by default, and those of one principal.
const MAX_OWN: usize = 256;
const MAX_OF_ONE: usize = 192;

/// A session of a principal, which declares capabilities.
struct Peer {
    session: SessionId,
    principal: &'static str,
    declared: Data,
}

impl SourceClient for Peer {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.session)
    }

    fn principal(&self) -> &str {
        self.principal
    }

    fn capabilities(&self) -> Json {
        Json::of(&self.declared)
    }

    fn log_level(&self) -> Option<Json> {
        None
    }

    fn notify<'a>(&'a self, _: &'a str, _: Notification) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request<'a>(&'a self, _: &'a str, _: Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move { crate::source::nobody_to_ask() })
    }
}

fn session(principal: &'static str, declared: Data) -> Arc<dyn SourceClient> {
    Arc::new(Peer { session: SessionId::new(), principal, declared })
}

fn plain() -> Arc<dyn SourceClient> {
    session("ann", json!({}))
}

fn tried(bench: &Bench) -> usize {
    bench.world.tried.lock().unwrap().len()
}

fn open(bench: &Bench) -> u64 {
    bench.world.open.load(Ordering::SeqCst)
}

/// Sends a request of the protocol that is not a tool call.
async fn ask(bench: &Bench, client: &Arc<dyn SourceClient>, method: &str, params: Data) -> Outcome {
    let call = Call::clone(shown("a tool").call());
    let item = crate::item::Item { kind: ItemKind::Source, ..crate::item::Item::clone(&call.item) };
    let method = Method::from(method);
    let params = Params::parse(&method, Json::of(&params));
    let call = Call { method, params, item: item.into(), ..call };
    bench.source.call(Permit::unchecked(call.into()), client, silent()).await
}

#[tokio::test(start_paused = true)]
async fn sessions_that_only_list_have_no_connection_of_their_own() {
    let bench = Bench::new(&[Mood::Keeps]);
    let first = plain();
    bench.source.discover(&first).await.unwrap();
    assert_eq!(tried(&bench), 1, "the first session keeps the connection that it made");
    let sessions: Vec<_> = (0..1000).map(|_| plain()).collect();
    for session in &sessions {
        assert_eq!(bench.source.discover(session).await.unwrap().tools.items.len(), 1);
        bench.source.list(session, ItemKind::Tool).await.unwrap();
    }
    assert_eq!(tried(&bench), 2, "the others list over a shared one");
    assert_eq!(text(bench.call(&sessions[0]).await), "ok");
    assert_eq!(tried(&bench), 3, "a session that calls has its own");
}

/// Makes a crowd of sessions that declare capabilities, each of which has connected to the source.
async fn crowd(bench: &Bench) -> Vec<Arc<dyn SourceClient>> {
    bench.source.discover(&plain()).await.unwrap();
    let crowd: Vec<_> = (0..REUSE_FROM).map(|_| asks("ann")).collect();
    for client in &crowd {
        bench.source.discover(client).await.unwrap();
    }
    assert_eq!(tried(bench), 1 + REUSE_FROM, "each has connected by itself");
    crowd
}

fn asks(principal: &'static str) -> Arc<dyn SourceClient> {
    session(principal, json!({ "elicitation": {} }))
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_a_list_is_reused_for_sessions_that_declare_the_same_capabilities() {
    let bench = Bench::new(&[Mood::Well]);
    let _crowd = crowd(&bench).await;
    let before = tried(&bench);
    let abandoned: Vec<_> = (0..1000).map(|_| asks("ann")).collect();
    for client in &abandoned {
        bench.source.discover(client).await.unwrap();
    }
    assert_eq!(tried(&bench), before);
    bench.source.discover(&session("ann", json!({ "roots": {} }))).await.unwrap();
    assert_eq!(tried(&bench), before + 1, "a source may list other tools for other capabilities");
    bench.source.discover(&asks("bob")).await.unwrap();
    assert_eq!(tried(&bench), before + 2, "another principal has no crowd");
    tokio::time::sleep(Duration::from_secs(61)).await;
    bench.source.discover(&asks("ann")).await.unwrap();
    assert_eq!(tried(&bench), before + 3, "an old list is not reused");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_has_changed_is_not_reused() {
    let bench = Bench::new(&[Mood::Well]);
    let _crowd = crowd(&bench).await;
    let before = tried(&bench);
    bench.source.state.counters.changes.fetch_add(1, Ordering::Relaxed);
    bench.source.discover(&asks("ann")).await.unwrap();
    assert_eq!(tried(&bench), before + 1);
}

#[tokio::test(start_paused = true)]
async fn abandoned_sessions_do_not_keep_others_out() {
    let bench = Bench::new(&[Mood::Keeps]);
    let abandoned: Vec<_> = (0..MAX_OWN + 100).map(|_| plain()).collect();
    for session in &abandoned {
        assert_eq!(text(bench.call(session).await), "ok");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let most = u64::try_from(MAX_OF_ONE).unwrap();
    assert_eq!(open(&bench), most, "the others were closed to make room");
    let last = abandoned.last().unwrap();
    let before = tried(&bench);
    assert_eq!(text(bench.call(last).await), "ok");
    assert_eq!(tried(&bench), before, "the last ones are open");
    assert_eq!(text(bench.call(&abandoned[0]).await), "ok", "and the first comes back when it is used");
    assert_eq!(tried(&bench), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_has_as_many_connections_as_its_configuration_says() {
    for (max_connections, expected) in [(4, 3), (1, 1)] {
        let bench = Bench::with(&[Mood::Keeps], |supervision| supervision.max_connections = max_connections);
        let sessions: Vec<_> = (0..6).map(|_| plain()).collect();
        for session in &sessions {
            assert_eq!(text(bench.call(session).await), "ok");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(open(&bench), expected, "three quarters for one caller, and at least one");
        if max_connections > 1 {
            assert_eq!(text(bench.call(&session("bob", json!({}))).await), "ok");
            assert_eq!(open(&bench), expected + 1, "there is room for another caller");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_caller_cannot_take_all_connections_even_with_calls_in_flight() {
    let bench = Bench::with(&[Mood::KeepsBusy], |supervision| supervision.timeout = Duration::from_secs(3000));
    let sessions: Vec<_> = (0..MAX_OF_ONE).map(|_| plain()).collect();
    let mut calls = Vec::new();
    for session in &sessions {
        bench.source.discover(session).await.unwrap();
        let mut call = Box::pin(bench.call(session));
        let begun = bench.world.calls.load(Ordering::SeqCst);
        while bench.world.calls.load(Ordering::SeqCst) == begun {
            assert!(futures_util::poll!(&mut call).is_pending());
            tokio::task::yield_now().await;
        }
        calls.push(call);
    }
    match bench.call(&plain()).await {
        Outcome::NotSent(why) => assert!(why.contains("in use by the sessions of one caller"), "{why}"),
        other => panic!("{other:?}"),
    }
    let other = session("bob", json!({}));
    assert!(matches!(ask(&bench, &other, "logging/setLevel", json!({ "level": "info" })).await, Outcome::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn the_caller_with_the_most_connections_gives_one_up_first() {
    let bench = Bench::new(&[Mood::Keeps]);
    let many: Vec<_> = (0..MAX_OF_ONE).map(|_| plain()).collect();
    let few: Vec<_> = (0..MAX_OWN - MAX_OF_ONE).map(|_| session("bob", json!({}))).collect();
    // The connections of the principal with few are the ones that were unused for the longest time.
    for session in few.iter().chain(&many) {
        bench.call(session).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(text(bench.call(&session("eve", json!({}))).await), "ok");
    let before = tried(&bench);
    for session in &few {
        bench.call(session).await;
    }
    assert_eq!(tried(&bench), before);
    bench.call(&many[0]).await;
    assert_eq!(tried(&bench), before + 1, "it was closed for the new one");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_of_a_session_is_closed_and_the_next_gets_its_log_level() {
    let minute = Duration::from_secs(60);
    let bench = Bench::with(&[Mood::Keeps], |supervision| supervision.idle = minute);
    let session = plain();
    ask(&bench, &session, "logging/setLevel", json!({ "level": "debug" })).await;
    tokio::time::sleep(minute * 2).await;
    assert_eq!((open(&bench), bench.status()), (0, SourceStatus::Idle));
    bench.world.asked.lock().unwrap().clear();
    assert_eq!(text(bench.call(&session).await), "ok");
    assert_eq!(*bench.world.asked.lock().unwrap(), ["logging/setLevel", "tools/call"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_a_subscription_stays_until_its_place_is_needed_and_is_then_restored() {
    let minute = Duration::from_secs(60);
    let bench = Bench::with(&[Mood::Keeps], |supervision| supervision.idle = minute);
    let follows = plain();
    let uri = json!({ "uri": "mem://a" });
    ask(&bench, &follows, "resources/subscribe", uri.clone()).await;
    tokio::time::sleep(minute * 10).await;
    assert_eq!(open(&bench), 1, "it waits for changes");
    // When places are needed it is closed after those that hold nothing, and its subscription is restored.
    let crowd: Vec<_> = (0..MAX_OF_ONE - 1).map(|_| plain()).collect();
    for session in &crowd {
        bench.call(session).await;
    }
    let before = tried(&bench);
    bench.call(&plain()).await;
    ask(&bench, &follows, "resources/subscribe", uri.clone()).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(tried(&bench), before + 1, "one that held nothing was closed for the new one");
    for session in &crowd {
        ask(&bench, session, "resources/subscribe", uri.clone()).await;
    }
    ask(&bench, &plain(), "resources/subscribe", uri.clone()).await;
    bench.world.asked.lock().unwrap().clear();
    assert_eq!(text(bench.call(&follows).await), "ok");
    assert_eq!(*bench.world.asked.lock().unwrap(), ["resources/subscribe", "tools/call"]);
    // A subscription that was ended does not keep the connection.
    for session in crowd.iter().chain([&follows]) {
        ask(&bench, session, "resources/unsubscribe", uri.clone()).await;
    }
    bench.source.end_session(follows.session().unwrap());
    assert!(bench.source.state.own().get(follows.session().unwrap()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_connection_was_idle_is_notified_over_the_shared_one() {
    let minute = Duration::from_secs(60);
    let bench = Bench::with(&[Mood::Keeps], |supervision| supervision.idle = minute);
    let recorder = RecordingClient::new();
    let client = recorder.client();
    bench.call(&client).await;
    tokio::time::sleep(minute * 2).await;
    let changed = Notification { method: "notifications/tools/list_changed".into(), params: None };
    bench.source.state.shared.subscribers.notify(&"test".parse().unwrap(), &changed).await;
    assert_eq!(recorder.received(), ["notifications/tools/list_changed"]);
}
