//! Calls of processes: those that fail, take too long, are dropped or report progress, and the processes that they
//! leave.

use super::*;
use crate::source::ProgressToken;
use futures_util::future::BoxFuture;

#[tokio::test]
async fn an_oversized_answer_fails_its_call_and_names_the_size() {
    let bench = Bench::new("big-line");
    let bytes = crate::protocol::MAX_MESSAGE_BYTES + 1;
    match bench.call("big", json!({ "bytes": bytes })).await {
        Outcome::Unknown(why) => assert!(why.contains("over the limit of 67108864 bytes"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.text("add", json!({ "a": 1, "b": 1 })).await, "2", "the connection goes on");
}

#[tokio::test]
async fn a_crash_makes_the_call_unknown_and_the_next_one_works() {
    let bench = Bench::new("exit-mid-call");
    match bench.call("echo", json!({})).await {
        Outcome::Unknown(why) => {
            assert!(why.contains("exited with status 101") && why.contains("the worst moment"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.source.discover(&no_client()).await.is_ok(), "started again");

    let bench = Bench::new("echo");
    assert!(matches!(bench.call("exit", json!({})).await, Outcome::Unknown(_)));
    assert_eq!(bench.text("add", json!({ "a": 1, "b": 1 })).await, "2");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_unknown_and_cancelled() {
    let mut bench = Bench::new("hang-call");
    bench.source.tune().timeout = Duration::from_secs(1);
    bench.source.discover(&no_client()).await.unwrap();
    assert!(
        matches!(bench.call("echo", json!({})).await, Outcome::Unknown(why) if why.contains("no answer to `tools/call`"))
    );
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_source_and_the_next_one_works() {
    let bench = Bench::new("echo");
    bench.source.discover(&no_client()).await.unwrap();
    tokio::select! {
        biased;
        hung = bench.call("hang", json!({})) => panic!("{hung:?}"),
        // The source reads its calls in their order, so it has the other one.
        sum = bench.text("add", json!({ "a": 1, "b": 1 })) => assert_eq!(sum, "2"),
    }
    // The cancellation may be sent shortly after this call, so it is asked for again until it has arrived.
    let cancelled = async { while bench.text("cancelled", json!({})).await == "[]" {} };
    tokio::time::timeout(Duration::from_secs(60), cancelled).await.unwrap();
}

#[tokio::test]
async fn progress_keeps_its_order_and_the_callers_token() {
    let bench = Bench::new("echo");
    let (out, mut progress) = tokio::sync::mpsc::channel(2);
    let token = Json::parse(&br#""t\u006fken""#[..]).unwrap();
    let events = CallEventSender::new(ProgressToken::of(Some(token.clone())), out);
    let no_client = no_client();
    let call = bench.source.call(permit("slow", json!({ "steps": 100 })), &no_client, events);
    let seen = async {
        let mut seen = Vec::new();
        while let Some(CallEvent::Notification(notification)) = progress.recv().await {
            let params = notification.params.unwrap();
            assert_eq!(params.get("progressToken").as_ref(), Some(&token), "byte for byte");
            assert_eq!(params.get_str("vendor").as_deref(), Some("kept"));
            seen.push(params.get("progress").unwrap().read::<u64>().unwrap());
        }
        seen
    };
    let (outcome, seen) = tokio::join!(call, seen);
    assert!(matches!(outcome, Outcome::Answered(Answer::Result(_))), "{outcome:?}");
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_source_that_ignores_everything_is_killed_with_its_children() {
    for drop_it in [false, true] {
        let mut bench = Bench::new("ignores-term");
        bench.source.discover(&no_client()).await.unwrap();
        assert!(bench.alive());
        if drop_it {
            bench.source = Bench::new("echo").source;
        } else {
            tokio::time::timeout(crate::limits::CLOSE_DEADLINE * 3, bench.source.close()).await.unwrap();
            bench.gone_within(crate::limits::CLOSE_DEADLINE).await;
        }
        bench.gone().await;
    }
}

#[tokio::test]
async fn a_discovery_that_is_given_up_leaves_no_process() {
    let bench = Bench::new("ignores-term");
    let file = bench.dir.path().join("open/started");
    let started = async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It runs until the discovery is dropped below.
        assert!(bench.alive());
    };
    let no_client = no_client();
    tokio::select! {
        biased;
        () = started => {}
        found = bench.source.discover(&no_client) => drop(found),
    }
    bench.source.close().await;
    bench.gone().await;
}

#[tokio::test]
async fn a_tool_whose_definition_has_changed_is_not_called() {
    // This source describes its tools differently each time it lists them.
    let bench = Bench::new("rug-pull");
    let called =
        async |described| bench.source.call(permit_for("echo", described, json!({})), &no_client(), silent()).await;
    let refused = |outcome, why: &str| match outcome {
        Outcome::NotSent(text) => assert!(text.contains(why), "{text}"),
        other => panic!("{other:?}"),
    };
    bench.source.discover(&no_client()).await.unwrap();
    assert!(matches!(called("version 1").await, Outcome::Answered(_)));
    // Another client lists the tools.
    bench.source.discover(&no_client()).await.unwrap();
    refused(called("version 1").await, "has changed its definition");
    assert!(matches!(called("version 2").await, Outcome::Answered(_)));
    refused(bench.call("erase", json!({})).await, "no longer offers it");
    // A new connection is a new process: its count begins again, and version 2 is not the one that it has listed.
    let exit = permit_for("exit", "version 2", json!({}));
    assert!(matches!(bench.source.call(exit, &no_client(), silent()).await, Outcome::Unknown(_)));
    refused(called("version 2").await, "has changed its definition");
}

/// A session whose agent declares these capabilities.
struct Peer(SessionId, Data);

impl SourceClient for Peer {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.0)
    }

    fn capabilities(&self) -> Json {
        Json::of(&self.1)
    }

    fn log_level(&self) -> Option<Json> {
        None
    }

    fn notify<'a>(&'a self, _: &'a str, _: crate::protocol::Notification) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request<'a>(&'a self, _: &'a str, _: crate::protocol::Request) -> BoxFuture<'a, Answer> {
        Box::pin(async move { crate::source::nobody_to_ask() })
    }
}

#[tokio::test]
async fn each_session_has_its_own_connection_where_it_must() {
    let bench = Bench::new("echo");
    let peer = |declared: Data| -> Arc<dyn SourceClient> { Arc::new(Peer(SessionId::new(), declared)) };
    // Identifies the process by its start time.
    let born = async |peer: &Arc<dyn SourceClient>| {
        let outcome = bench.source.call(permit("look", json!({})), peer, silent()).await;
        let Outcome::Answered(Answer::Result(result)) = outcome else { panic!("{outcome:?}") };
        let result: Data = result.read().unwrap();
        let seen: Data = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        seen["born"].as_u64().unwrap()
    };
    let (asked, other) = (peer(json!({ "elicitation": {} })), peer(json!({ "roots": {} })));
    let (plain, quiet) = (peer(json!({})), peer(json!({})));
    let (first, second, shared) = (born(&asked).await, born(&other).await, born(&plain).await);
    assert_eq!(std::collections::HashSet::from([first, second, shared]).len(), 3);
    assert_eq!(
        (born(&asked).await, born(&quiet).await),
        (first, shared),
        "kept, and shared by sessions that declare nothing"
    );
    bench.source.end_session(asked.session().unwrap());
    assert_ne!(born(&asked).await, first, "it ended with its session");
    assert_eq!(
        (born(&other).await, born(&plain).await),
        (second, shared),
        "the end of a session does not affect others"
    );
    bench.source.close().await;
}
