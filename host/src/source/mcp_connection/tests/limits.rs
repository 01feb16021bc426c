//! Limits on what a source can make a connection keep, and for how long.

use tokio::time::sleep;

use super::*;
use crate::limits::MAX_DEFINITION_BYTES;
use crate::protocol::{Id, Response, RpcError};
use crate::source::{CallEvent, ProgressToken};

fn question(id: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {} })
}

#[tokio::test(start_paused = true)]
async fn the_open_requests_of_a_source_are_limited_and_have_different_ids() {
    let client: Arc<dyn SourceClient> = Arc::new(Agent::thinking());
    let (link, mut far) = owned(&client).await;
    let most = route::SOURCE_REQUESTS_KIB / route::MIN_REQUEST_KIB;
    let free = || link.shared.request_room.available_permits() / route::MIN_REQUEST_KIB;
    for _ in 0..3 {
        far.say(question("same")).await;
    }
    for _ in 0..2 {
        let refused = far.heard.recv().await.unwrap();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("same"), &json!(-32600)), "{refused}");
    }
    assert_eq!(free(), most - 1, "the first is open, and the others take no room");
    for number in 1..most {
        far.say(question(&number.to_string())).await;
    }
    far.say(question("one more")).await;
    let refused = far.heard.recv().await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("one more"), &json!(-32603)), "{refused}");
    far.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "same" } })).await;
    while free() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    far.say(question("same")).await;
    far.say(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
    assert_eq!(far.heard.recv().await.unwrap()["id"], "p", "a request that was cancelled may be sent again");
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_source_that_reads_no_answers_are_no_longer_put_to_the_agent() {
    let client = RecordingClient::new().client();
    let (link, far) = owned(&client).await;
    for number in 0..200 {
        far.say(question(&number.to_string())).await;
    }
    // The time passes only when every task waits: then no more will be answered.
    sleep(Duration::from_secs(1)).await;
    let open = link.shared.pending().source_requests.len();
    assert!(open > 200 - 4 * request_turns::MAX_ASKED_AT_ONCE, "{} were put to the agent and answered", 200 - open);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_of_a_source_are_put_to_the_agent_at_once_than_there_are_turns() {
    let agent: Arc<dyn SourceClient> = Arc::new(Agent::thinking());
    let (link, mut far) = owned(&agent).await;
    for number in 0..request_turns::MAX_ASKED_AT_ONCE + 4 {
        far.say(question(&number.to_string())).await;
    }
    far.say(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
    assert_eq!(far.heard.recv().await.unwrap()["id"], "p", "none is refused");
    while link.shared.request_turns.at_once.available_permits() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(link.shared.pending().source_requests.len(), request_turns::MAX_ASKED_AT_ONCE + 4);
    // One that is withdrawn makes room for the next.
    far.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "0" } })).await;
    while link.shared.pending().source_requests.len() > request_turns::MAX_ASKED_AT_ONCE + 3 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(link.shared.request_turns.at_once.available_permits(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_source_has_a_limit_in_bytes() {
    let agent: Arc<dyn SourceClient> = Arc::new(Agent::thinking());
    let (_link, mut far) = owned(&agent).await;
    let text = "x".repeat(route::MAX_SOURCE_REQUEST_BYTES);
    far.say(json!({ "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": { "text": text } }))
        .await;
    let refused = far.heard.recv().await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("q"), &json!(RpcError::INVALID_PARAMS)));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_slow_pages_times_out_as_a_whole() {
    let (link, mut far) = linked().await;
    let serve = async {
        for page in 0.. {
            let list = far.hear("tools/list").await;
            sleep(Duration::from_secs(20)).await;
            far.answer(&list, json!({ "tools": [{ "name": page.to_string() }], "nextCursor": page })).await;
        }
    };
    let late = tokio::select! {
        listed = link.discover() => listed.unwrap_err(),
        () = serve => panic!("the list is read for ever"),
    };
    assert_eq!(late, SourceError::Timeout { method: "tools/list".to_owned(), seconds: 45 });

    let (transport, mut far) = fake_transport();
    let serve = async {
        let request = far.hear("initialize").await;
        sleep(Duration::from_secs(29)).await;
        far.answer(&request, initialized("2025-06-18")).await;
        far.hear("notifications/initialized").await;
        far.hear("tools/list").await;
        std::future::pending().await
    };
    let deadlines = HandshakeDeadlines { probe: None, ..HandshakeDeadlines::default() };
    let late = tokio::select! {
        opened = McpConnection::open(transport, deadlines, config()) => opened.err().unwrap(),
        () = serve => panic!("the list is awaited for ever"),
    };
    assert_eq!(late, SourceError::Timeout { method: "tools/list".to_owned(), seconds: 45 });
}

#[tokio::test(start_paused = true)]
async fn a_log_level_that_is_not_answered_delays_one_call_by_a_second_and_no_other() {
    let (transport, mut far) = fake_transport();
    let serve = async {
        let request = far.hear("initialize").await;
        let mut said = initialized("2025-06-18");
        said["capabilities"]["logging"] = json!({});
        far.answer(&request, said).await;
        far.hear("notifications/initialized").await;
        let list = far.hear("tools/list").await;
        far.answer(&list, json!({ "tools": [] })).await;
    };
    let deadlines = HandshakeDeadlines { probe: None, ..HandshakeDeadlines::default() };
    let (opened, ()) = tokio::join!(McpConnection::open(transport, deadlines, config()), serve);
    let link = Arc::new(opened.unwrap().0);
    let four = Duration::from_secs(4);
    let params = Json::parse(r#"{"name":"a","_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#).unwrap();
    let call = async || {
        link.call(&crate::protocol::Method::ToolsCall, &params, &no_client(), silent(), CallDeadline::of(four)).await
    };
    let begun = Instant::now();
    let silence = async {
        far.hear("logging/setLevel").await;
        // The cancellation of the request for the level may come before the call.
        let mut sent = Vec::new();
        while sent.len() < 2 {
            if far.heard.recv().await.unwrap()["method"] == "tools/call" {
                sent.push(begun.elapsed().as_secs());
            }
        }
        sent
    };
    let (outcome, _, waited) = tokio::join!(call(), call(), tokio::time::timeout(four * 2, silence));
    let waited = waited.expect("a call is never sent");
    assert!(matches!(outcome, Outcome::Unknown(why) if why.contains("within 4 s")), "all of it, not what was left");
    assert_eq!((waited, begun.elapsed().as_secs()), (vec![0, 1], 4), "the second call waits for nothing");
    let next = async { while far.heard.recv().await.unwrap()["method"] != "tools/call" {} };
    let begun = Instant::now();
    let (outcome, ()) = tokio::join!(call(), async {
        next.await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    });
    assert!(matches!(outcome, Outcome::Unknown(_)));
    let over = link
        .call(&crate::protocol::Method::ToolsCall, &params, &no_client(), silent(), CallDeadline::of(Duration::ZERO))
        .await;
    assert!(matches!(over, Outcome::NotSent(why) if why.contains("nothing was sent")));
}

#[tokio::test]
async fn what_a_source_says_about_itself_has_a_limit_in_bytes() {
    let (transport, mut far) = fake_transport();
    let serve = async {
        let request = far.hear("initialize").await;
        let mut said = initialized("2025-06-18");
        said["instructions"] = json!("x".repeat(1 << 20));
        far.answer(&request, said).await;
    };
    let deadlines = HandshakeDeadlines { probe: None, ..HandshakeDeadlines::default() };
    let (opened, ()) = tokio::join!(McpConnection::open(transport, deadlines, config()), serve);
    let why = opened.err().unwrap().to_string();
    assert!(why.contains("more than 1048576 bytes"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_list_has_a_limit_in_bytes_whatever_its_pages_hold() {
    let (link, mut far) = linked().await;
    let serve = async {
        for page in 0.. {
            let list = far.hear("tools/list").await;
            assert!(page < 2, "the list is over its limit after two pages");
            let filler = "x".repeat(33 << 20);
            far.answer(&list, json!({ "tools": [{ "name": "a" }], "filler": filler, "nextCursor": page })).await;
        }
    };
    let refused = tokio::select! {
        listed = link.discover() => listed.unwrap_err(),
        () = serve => panic!("the list is read for ever"),
    };
    assert!(refused.to_string().contains("list of tools has more than 67108864 bytes"), "{refused}");
}

#[tokio::test]
async fn a_list_keeps_its_items_and_not_the_pages_that_they_came_with() {
    let (link, mut far) = linked().await;
    let page = json!({ "tools": [{ "name": "a" }], "note": "small", "filler": "x".repeat(MAX_DEFINITION_BYTES) });
    let held = Arc::new(());
    let released = Arc::downgrade(&held);
    let serve = async {
        let list = far.hear("tools/list").await;
        let id = Some(Id::number(list["id"].as_u64().unwrap()));
        let answer = Answer::Result(Json::of(&page).held_with(held));
        far.say.send(Ok(Message::Response(Response { id, answer }))).await.unwrap();
    };
    let (discovery, ()) = tokio::join!(link.discover(), serve);
    let tools = discovery.unwrap().tools;
    assert_eq!((tools.items.len(), tools.other_members), (1, None), "what is large beside the items is not kept");
    assert_eq!(released.strong_count(), 0, "nothing keeps the page");
}

#[tokio::test]
async fn a_list_asks_nobody() {
    let (link, mut far) = linked().await;
    let question = json!({ "portcullis-approval": { "method": "elicitation/create", "params": {} } });
    let serve = async {
        let list = far.hear("tools/list").await;
        let page = json!({ "tools": [{ "name": "a" }], "note": 1, "INPUTREQUESTS": question });
        far.answer(&list, page).await;
    };
    let (discovery, ()) = tokio::join!(link.discover(), serve);
    let tools = discovery.unwrap().tools;
    assert_eq!((tools.items.len(), tools.other_members), (1, None));
}

#[tokio::test(start_paused = true)]
async fn large_notifications_of_a_call_wait_for_room_and_huge_ones_are_dropped() {
    let (link, mut far) = linked().await;
    let (out, mut said) = mpsc::channel(64);
    let events = CallEventSender::new(ProgressToken::default(), out);
    let (shared, client) = (Arc::clone(&link), RecordingClient::new().client());
    let params = Json::parse(r#"{"name":"a"}"#).unwrap();
    let waiting = tokio::spawn(async move {
        let deadline = CallDeadline::of(Duration::from_secs(60));
        shared.call(&Method::ToolsCall, &params, &client, events, deadline).await
    });
    let request = far.hear("tools/call").await;
    let log = |bytes: usize| json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": "x".repeat(bytes) } });
    far.say(log(1 << 20)).await;
    for _ in 0..4 {
        far.say(log(300 << 10)).await;
    }
    far.say(json!({ "jsonrpc": "2.0", "id": "sync", "method": "ping" })).await;
    while far.heard.recv().await.unwrap()["id"] != "sync" {}
    let mut taken = Vec::new();
    while let Ok(CallEvent::Notification(notification)) = said.try_recv() {
        taken.push(notification.params.unwrap().as_bytes().len());
    }
    assert!(taken.len() == 3 && taken.iter().all(|size| *size < 400 << 10), "{taken:?}");
    far.answer(&request, json!({})).await;
    assert!(matches!(waiting.await.unwrap(), Outcome::Answered(_)));
}
