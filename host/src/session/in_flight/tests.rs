#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use portcullis_jail::Launcher;
use tokio::sync::{Notify, oneshot};

use super::*;
use crate::agent::Elicitation;
use crate::broker::Broker;
use crate::config::Config;
use crate::protocol::{Answer, Request};
use portcullis_core::testing::view;

/// The time after which a test assumes that something never ends. Everything here is quick otherwise.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An agent that collects its notifications, and leaves questions open.
#[derive(Default)]
struct RecordingAgent {
    told: Mutex<Vec<String>>,
    count: AtomicUsize,
    /// The channel of a source that sends its next notification as soon as one has been heard.
    chatter: Mutex<Option<mpsc::Sender<CallEvent>>>,
    asked: Notify,
    /// Says that the person has answered.
    answering: Notify,
    withdrawn: Notify,
    outlived: AtomicUsize,
}

impl AgentPeer for RecordingAgent {
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.count.fetch_add(1, Ordering::SeqCst);
            if let Some(out) = &*self.chatter.lock().unwrap() {
                out.try_send(progress("notifications/progress")).unwrap();
            }
            self.told.lock().unwrap().push(notification.method.to_string());
        })
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::None
    }

    fn request<'a>(&'a self, _: &'a crate::protocol::Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            struct Open<'a>(&'a Notify);
            impl Drop for Open<'_> {
                fn drop(&mut self) {
                    self.0.notify_one();
                }
            }
            let _open = Open(&self.withdrawn);
            self.asked.notify_one();
            self.answering.notified().await;
            Answer::Result(Json::empty_object())
        })
    }

    fn ended_before_its_questions(&self) {
        self.outlived.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a session of a broker with one source, which is never called.
async fn session(folder: &std::path::Path) -> (Broker, Arc<ConfiguredSession>, Arc<Upstream>) {
    let text = "[sources.calc]\ncomponent = \"builtin:calculator\"";
    let config = Config::parse(text, &folder.join("portcullis.toml")).unwrap();
    let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
    let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap();
    let configured = session.current();
    let upstream = configured.upstream("calc").unwrap();
    (broker, configured, upstream)
}

fn in_flight(
    upstream: &Arc<Upstream>,
    call: impl Future<Output = Outcome> + Send + 'static,
) -> (InFlightCall, mpsc::Sender<CallEvent>) {
    let (out, events) = mpsc::channel(RELAY_QUEUE);
    let about = Arc::clone(&view("{}").call);
    let open = upstream.open_calls.open();
    let wants = Wants { progress: ProgressToken::default(), log_level: None };
    let call = Box::pin(call);
    let (upstream, progress) = (Arc::clone(upstream), CallProgress::new());
    (InFlightCall { upstream, about, progress, call, span: None, events, wants, open }, out)
}

fn progress(method: &str) -> CallEvent {
    CallEvent::Notification(Notification { method: method.into(), params: None })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_talks_without_pause_is_heard_until_its_call_ends_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, upstream) = session(folder.path()).await;
    let agent = Arc::new(RecordingAgent::default());
    let peer: Arc<dyn AgentPeer> = Arc::clone(&agent) as _;
    let listener = Arc::clone(&agent);
    let (mut in_flight, out) = in_flight(&upstream, async move {
        while listener.count.load(Ordering::SeqCst) < 10 * RELAY_QUEUE {
            tokio::task::yield_now().await;
        }
        // The sender is dropped with the call, as a source drops it.
        listener.chatter.lock().unwrap().take();
        Outcome::Unknown("its time is over".into())
    });
    out.send(progress("notifications/progress")).await.unwrap();
    *agent.chatter.lock().unwrap() = Some(out);
    let carried = tokio::time::timeout(TEST_TIMEOUT, session.drive(&mut in_flight, &peer)).await;
    let Ok(DriveEnd::Ended(Outcome::Unknown(_))) = carried else { panic!("it is heard for ever") };
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_says_before_it_answers_is_told_before_the_answer_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, upstream) = session(folder.path()).await;
    let agent = Arc::new(RecordingAgent::default());
    let peer: Arc<dyn AgentPeer> = Arc::clone(&agent) as _;
    let words = ["notifications/a", "notifications/b", "notifications/c"];
    let (mut in_flight, out) = in_flight(&upstream, async { Outcome::Unknown("at once".into()) });
    for word in words {
        out.send(progress(word)).await.unwrap();
    }
    let DriveEnd::Ended(_) = session.drive(&mut in_flight, &peer).await else { panic!("nothing was asked") };
    assert_eq!(*agent.told.lock().unwrap(), words);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_goes_on_for_a_retry_tells_what_the_retry_wants() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, _, upstream) = session(folder.path()).await;
    let (mut in_flight, _out) = in_flight(&upstream, std::future::pending());
    let meta = serde_json::json!({ "progressToken": "of the retry", meta::LOG_LEVEL: "warning" });
    let retry = Json::of(&serde_json::json!({ "name": "add", "_meta": meta }));
    in_flight.go_on_for(&Params::parse(&Method::ToolsCall, retry));
    assert_eq!(in_flight.wants.progress.get(), Some(Json::of(&"of the retry")));
    assert_eq!(in_flight.wants.log_level.as_deref(), Some("warning"));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_its_source_withdraws_is_withdrawn_from_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, upstream) = session(folder.path()).await;
    let agent = Arc::new(RecordingAgent::default());
    let peer: Arc<dyn AgentPeer> = Arc::clone(&agent) as _;
    let (mut in_flight, out) = in_flight(&upstream, std::future::pending());
    let (reply, answer) = oneshot::channel();
    let request = Request { id: crate::protocol::Id::number(1), method: "vendor/ask".into(), params: None };
    out.send(CallEvent::Request(SourceRequest { request, reply })).await.unwrap();
    let withdrawn = async {
        agent.asked.notified().await;
        drop(answer);
        agent.withdrawn.notified().await;
    };
    tokio::select! {
        _ = session.drive(&mut in_flight, &peer) => panic!("the call is still open"),
        done = tokio::time::timeout(TEST_TIMEOUT, withdrawn) => assert!(done.is_ok(), "a dead question stays open"),
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_looks_like_one_of_the_protocol_is_not_put_to_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, upstream) = session(folder.path()).await;
    let peer: Arc<dyn AgentPeer> = Arc::<RecordingAgent>::default();
    for method in ["Elicitation/Create", "elicitation/create ", "sampling//createMessage", "./roots/list"] {
        let request = Request { id: crate::protocol::Id::number(1), method: method.into(), params: None };
        let Answer::Error(refusal) = session.ask(&upstream, request, &peer).await else { panic!("{method}") };
        assert!(refusal.get_str("message").unwrap().contains("cannot ask this"), "{method}: {refusal:?}");
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_a_call_that_is_answered_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, session, upstream) = session(folder.path()).await;
    for answered in [true, false] {
        let agent = Arc::new(RecordingAgent::default());
        let peer: Arc<dyn AgentPeer> = Arc::clone(&agent) as _;
        let asking = Arc::clone(&agent);
        let (mut in_flight, out) = in_flight(&upstream, async move {
            asking.asked.notified().await;
            match answered {
                true => Outcome::Answered(Answer::Result(Json::empty_object())),
                false => Outcome::Unknown("its time is over".into()),
            }
        });
        let (reply, answer) = oneshot::channel();
        let request = Request { id: crate::protocol::Id::number(1), method: "vendor/ask".into(), params: None };
        out.send(CallEvent::Request(SourceRequest { request, reply })).await.unwrap();
        let ended = session.drive(&mut in_flight, &peer).await;
        assert!(matches!(ended, DriveEnd::Ended(_)));
        agent.answering.notify_one();
        let answer = tokio::time::timeout(TEST_TIMEOUT, answer).await.unwrap();
        assert_eq!((answer.is_ok(), agent.outlived.load(Ordering::SeqCst)), (answered, usize::from(answered)));
    }
    broker.shutdown().await;
}
