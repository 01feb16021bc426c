//! The way of a source's requests to the agent: through a call that may have asked, or through the session.

use super::*;
use crate::protocol::{Method, RpcError};
use crate::source::{CallEvent, ProgressToken};

/// A connection of one session, and its source.
struct Connected {
    link: Arc<McpConnection>,
    far: Far,
    client: Arc<dyn SourceClient>,
}

/// A call as its agent sees it.
struct Called {
    request: Value,
    token: ProgressToken,
    events: mpsc::Receiver<CallEvent>,
    outcome: JoinHandle<Outcome>,
}

impl Connected {
    async fn new(agent: Agent) -> Self {
        let client: Arc<dyn SourceClient> = Arc::new(agent);
        let (link, far) = owned(&client).await;
        Self { link: Arc::new(link), far, client }
    }

    async fn call(&mut self) -> Called {
        let (out, events) = mpsc::channel(4);
        let (link, client) = (Arc::clone(&self.link), Arc::clone(&self.client));
        let params = Json::parse(r#"{"name":"a"}"#).unwrap();
        let token = ProgressToken::of(Some(Json::of(&"first")));
        let sender = CallEventSender::new(token.clone(), out);
        let outcome = tokio::spawn(async move {
            let deadline = CallDeadline::of(Duration::from_secs(60));
            link.call(&Method::ToolsCall, &params, &client, sender, deadline).await
        });
        Called { request: self.far.hear("tools/call").await, token, events, outcome }
    }

    async fn ask(&self, method: &str) {
        self.far.say(json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": {} })).await;
    }

    /// Returns the answer to a request of the source; it may first hear that a call was cancelled.
    async fn answer(&mut self) -> Value {
        loop {
            let heard = self.far.heard.recv().await.unwrap();
            if heard["method"] != "notifications/cancelled" {
                return heard;
            }
        }
    }
}

impl Called {
    async fn asked(&mut self) -> crate::source::SourceRequest {
        let Some(CallEvent::Request(asked)) = self.events.recv().await else { panic!("nothing was asked") };
        asked
    }

    /// Gives the call up, as when its agent cancels it.
    async fn give_up(self) {
        self.outcome.abort();
        let _ = self.outcome.await;
    }
}

fn of_the_call() -> Answer {
    Answer::Result(Json::of(&json!({ "of the call": true })))
}

#[tokio::test]
async fn a_question_whose_call_is_given_up_is_asked_again_through_another_that_may_have_asked() {
    let mut connected = Connected::new(Agent::answering()).await;
    let mut older = connected.call().await;
    let mut newer = connected.call().await;
    connected.ask("elicitation/create").await;
    let asked = newer.asked().await;
    newer.give_up().await;
    drop(asked);
    older.asked().await.reply.send(of_the_call()).unwrap();
    assert_eq!(connected.answer().await["result"], json!({ "of the call": true }));

    connected.ask("elicitation/create").await;
    let asked = older.asked().await;
    older.give_up().await;
    drop(asked);
    assert_eq!(connected.answer().await["error"]["code"], RpcError::METHOD_NOT_FOUND, "no call is left");
}

#[tokio::test]
async fn a_request_for_the_roots_belongs_to_no_call_and_is_put_to_the_session_when_calls_are_given_up() {
    let mut connected = Connected::new(Agent::answering()).await;
    let mut call = connected.call().await;
    connected.ask("roots/list").await;
    let asked = call.asked().await;
    call.give_up().await;
    drop(asked);
    assert_eq!(connected.answer().await["result"], json!({ "of the session": "roots/list" }));
    connected.ask("roots/list").await;
    assert_eq!(connected.answer().await["result"], json!({ "of the session": "roots/list" }));
}

#[tokio::test(start_paused = true)]
async fn no_call_that_may_have_asked_times_out_while_the_agent_thinks() {
    let mut connected = Connected::new(Agent::answering()).await;
    let older = connected.call().await;
    let mut newer = connected.call().await;
    connected.ask("elicitation/create").await;
    let asked = newer.asked().await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(connected.far.heard.try_recv().is_err(), "no call is cancelled");
    asked.reply.send(of_the_call()).unwrap();
    connected.far.heard.recv().await.unwrap();
    connected.far.answer(&older.request, json!({})).await;
    assert!(matches!(older.outcome.await.unwrap(), Outcome::Answered(_)));
}

#[tokio::test]
async fn a_withdrawal_that_crosses_its_answer_ends_no_call_that_happens_to_have_the_same_number() {
    let mut connected = Connected::new(Agent::answering()).await;
    let called = connected.call().await;
    let number = called.request["id"].clone();
    let withdrawn = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": number } });
    connected.far.say(withdrawn).await;
    connected.far.answer(&called.request, json!({})).await;
    assert!(matches!(called.outcome.await.unwrap(), Outcome::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_source_that_has_ended_are_withdrawn() {
    let Connected { link, far, client: _client } = Connected::new(Agent::thinking()).await;
    let free = || link.shared.request_room.available_permits();
    let all = free();
    far.say(json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {} })).await;
    let turns = async || {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    };
    turns().await;
    assert!(free() < all, "the question is open");
    drop(far);
    turns().await;
    assert_eq!(free(), all, "nobody takes its answer any more");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_agent_is_away_loses_notifications_and_no_question() {
    let mut connected = Connected::new(Agent::answering()).await;
    let mut called = connected.call().await;
    for _ in 0..8 {
        let log = json!({ "level": "info", "data": "still here" });
        connected.far.say(json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": log })).await;
    }
    connected.ask("elicitation/create").await;
    // The broker has waited for the agent once, and the question waits for room.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut told = 0;
    let asked = loop {
        match called.events.recv().await.unwrap() {
            CallEvent::Notification(_) => told += 1,
            CallEvent::Request(asked) => break asked,
        }
    };
    assert_eq!(told, 4, "what found room");
    asked.reply.send(of_the_call()).unwrap();
    assert_eq!(connected.answer().await["result"], json!({ "of the call": true }));
}

#[tokio::test]
async fn progress_has_the_token_of_the_latest_request_that_the_call_is_for() {
    let mut connected = Connected::new(Agent::answering()).await;
    let mut called = connected.call().await;
    for token in ["first", "of the retry"] {
        called.token.set(Some(Json::of(&token)));
        let progress = json!({ "progressToken": called.request["id"], "progress": 1 });
        connected.far.say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress })).await;
        let Some(CallEvent::Notification(told)) = called.events.recv().await else { panic!("nothing was told") };
        assert_eq!(told.params.unwrap().get_str("progressToken").as_deref(), Some(token));
    }
}

#[tokio::test]
async fn a_notification_that_looks_like_one_of_the_protocol_is_not_passed_on() {
    let mut connected = Connected::new(Agent::answering()).await;
    let mut called = connected.call().await;
    for method in ["notifications/Cancelled", "notifications//cancelled", "notifications/cancelled "] {
        let params = json!({ "requestId": 1 });
        connected.far.say(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }
    connected.far.answer(&called.request, json!({})).await;
    assert!(matches!(called.outcome.await.unwrap(), Outcome::Answered(_)));
    assert!(called.events.try_recv().is_err());
}
