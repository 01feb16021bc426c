//! The way of a source's requests to the agent: through the call that asks, or through the session.

use super::*;
use crate::call::SessionId;
use crate::protocol::{Method, Request};
use crate::source::CallEvent;

/// A session whose agent answers each request with its method, if it listens.
struct Agent {
    session: SessionId,
    listens: bool,
}

#[async_trait::async_trait]
impl SourceClient for Agent {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.session)
    }
    fn capabilities(&self) -> Json {
        Json::empty_object()
    }
    fn log_level(&self) -> Option<Json> {
        None
    }
    async fn notify(&self, _: &str, _: Notification) {}
    fn listens(&self) -> bool {
        self.listens
    }
    async fn request(&self, _: &str, request: Request) -> Answer {
        Answer::Result(Json::of(&json!({ "of the session": request.method.to_string() })))
    }
}

/// A connection of one session, and its source.
struct Connected {
    link: Arc<McpConnection>,
    far: Far,
    client: Arc<dyn SourceClient>,
}

impl Connected {
    async fn new(listens: bool) -> Self {
        let client: Arc<dyn SourceClient> = Arc::new(Agent { session: SessionId::new(), listens });
        let (link, far) = owned(&client).await;
        Self { link: Arc::new(link), far, client }
    }

    /// Begins a call, and returns it as the source has heard it, with the messages that come to its caller.
    async fn call(&mut self) -> (Value, mpsc::Receiver<CallEvent>) {
        let (out, events) = mpsc::channel(4);
        let (link, client) = (Arc::clone(&self.link), Arc::clone(&self.client));
        let params = Json::parse(r#"{"name":"a"}"#).unwrap();
        tokio::spawn(async move {
            let (events, deadline) = (CallEventSender::new(None, out), CallDeadline::of(Duration::from_secs(60)));
            link.call(&Method::ToolsCall, &params, &client, events, deadline).await
        });
        (self.far.hear("tools/call").await, events)
    }

    async fn ask(&self, method: &str) {
        self.far.say(json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": {} })).await;
    }
}

/// Answers the question that came through a call, as its agent does.
async fn answer_through(events: &mut mpsc::Receiver<CallEvent>) {
    let Some(CallEvent::Request(asked)) = events.recv().await else { panic!("nothing was asked") };
    asked.reply.send(Answer::Result(json_of_the_call())).unwrap();
}

fn json_of_the_call() -> Json {
    Json::of(&json!({ "of the call": true }))
}

#[tokio::test]
async fn a_question_goes_through_the_one_open_call_and_roots_through_the_session() {
    let mut connected = Connected::new(true).await;
    let (_call, mut events) = connected.call().await;
    connected.ask("elicitation/create").await;
    answer_through(&mut events).await;
    assert_eq!(connected.far.heard.recv().await.unwrap()["result"], json!({ "of the call": true }));
    // The end of a call that has nothing to do with the roots would withdraw them.
    connected.ask("roots/list").await;
    assert_eq!(connected.far.heard.recv().await.unwrap()["result"], json!({ "of the session": "roots/list" }));
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn a_question_that_may_be_of_either_call_does_not_depend_on_one_of_them() {
    let mut connected = Connected::new(true).await;
    let (_first, mut events) = connected.call().await;
    let (_second, mut newer) = connected.call().await;
    connected.ask("elicitation/create").await;
    let answered = connected.far.heard.recv().await.unwrap();
    assert_eq!(answered["result"], json!({ "of the session": "elicitation/create" }));
    assert!(events.try_recv().is_err() && newer.try_recv().is_err());
}

#[tokio::test]
async fn every_question_goes_through_a_call_where_the_agent_listens_to_nothing_else() {
    let mut connected = Connected::new(false).await;
    let (_first, _events) = connected.call().await;
    let (_second, mut newer) = connected.call().await;
    for method in ["roots/list", "elicitation/create"] {
        connected.ask(method).await;
        answer_through(&mut newer).await;
        assert_eq!(connected.far.heard.recv().await.unwrap()["result"], json!({ "of the call": true }));
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_that_may_have_asked_times_out_while_the_agent_thinks() {
    let mut connected = Connected::new(false).await;
    let (first, _events) = connected.call().await;
    let (_second, mut newer) = connected.call().await;
    connected.ask("elicitation/create").await;
    let Some(CallEvent::Request(asked)) = newer.recv().await else { panic!("nothing was asked") };
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(connected.far.heard.try_recv().is_err(), "no call is cancelled");
    asked.reply.send(Answer::Result(json_of_the_call())).unwrap();
    connected.far.heard.recv().await.unwrap();
    connected.far.answer(&first, json!({})).await;
}
