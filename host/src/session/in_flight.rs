//! A call in flight: meanwhile the source's notifications go to the agent, in order, and its questions are answered.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::configured::ConfiguredSession;
use super::source_client::is_severe_enough;
use crate::agent::AgentPeer;
use crate::call::{Call, CallProgress, Outcome, Params};
use crate::context::{CallCountGuard, Upstream};
use crate::gate::Permit;
use crate::protocol::{Era, Json, Method, Notification, meta};
use crate::source::{CallEvent, CallEventSender, ProgressToken, SourceClient, SourceRequest};
use crate::telemetry::{Span, Telemetry};

/// The number of messages of a source that may wait for the agent during one call before the source is slowed down.
const RELAY_QUEUE: usize = 64;

/// A call that its source has. Dropping it cancels it there.
pub(super) struct InFlightCall {
    pub(super) upstream: Arc<Upstream>,
    /// The call as the gate let it pass.
    about: Arc<Call>,
    progress: Arc<CallProgress>,
    call: BoxFuture<'static, Outcome>,
    /// The span of the call, which ends with it.
    span: Option<Span>,
    events: mpsc::Receiver<CallEvent>,
    /// The wants of the latest request that the call is for.
    wants: Wants,
    open: CallCountGuard,
}

/// The messages that a request asks for while its call is in flight.
struct Wants {
    progress: ProgressToken,
    /// The least severe log messages, of a modern agent.
    log_level: Option<String>,
}

impl Wants {
    fn log_level(params: &Params) -> Option<String> {
        params.meta().and_then(|meta| meta.get_str(meta::LOG_LEVEL))
    }
}

/// The reason why driving a call has stopped.
pub(super) enum DriveEnd {
    /// The call has ended.
    Ended(Outcome),
    /// The source has questions for a modern agent, which can be asked only by a result.
    Asked(Vec<SourceRequest>),
}

impl InFlightCall {
    /// Hands a permitted call to its source. Nothing is sent before it is driven. With `telemetry`, the source is told
    /// the call's own place in the trace, if its `context` allows that.
    pub(super) fn start(
        upstream: &Arc<Upstream>,
        permit: Permit,
        client: Arc<dyn SourceClient>,
        token: Option<Json>,
        telemetry: Option<&Telemetry>,
    ) -> Self {
        let span = telemetry.and_then(|telemetry| telemetry.calling(permit.call(), upstream.peer()));
        let permit = match &span {
            Some(span) => permit.with_trace(span),
            None => permit,
        };
        let (out, events) = mpsc::channel(RELAY_QUEUE);
        let (owned, about, progress) = (Arc::clone(upstream), permit.shared_call(), permit.progress());
        let wants = Wants { progress: ProgressToken::of(token), log_level: Wants::log_level(&about.params) };
        let sender = CallEventSender::new(wants.progress.clone(), out);
        let call = Box::pin(async move { owned.source.call(permit, &client, sender).await });
        let (upstream, open) = (Arc::clone(upstream), upstream.open_calls.open());
        Self { upstream, about, progress, call, span, events, wants, open }
    }

    /// Returns the number of bytes of the parameters, which are kept as long as the call is open.
    pub(super) fn bytes(&self) -> usize {
        self.about.params.as_json().as_bytes().len()
    }

    /// Continues for another request, which brought the agent's answers: it has its own token and log level.
    pub(super) fn go_on_for(&mut self, params: &Params) {
        self.wants.progress.set(params.progress_token());
        self.wants.log_level = Wants::log_level(params);
    }

    /// Returns the outcome, in which a failure names the access that the source's cell may lack.
    pub(super) fn explained(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Answered(answer) => Outcome::Answered(self.upstream.explained(answer, &self.open)),
            outcome => outcome,
        }
    }
}

impl ConfiguredSession {
    /// Drives a call until it ends or needs the agent.
    pub(super) async fn drive(&self, in_flight: &mut InFlightCall, peer: &Arc<dyn AgentPeer>) -> DriveEnd {
        let InFlightCall { upstream, about, progress, call, span, events, wants, open: _ } = in_flight;
        peer.handed_over(progress);
        // Boxed, as most calls ask nothing: the set has room for one question from the beginning.
        let mut asked = FuturesUnordered::<BoxFuture<'static, ()>>::new();
        let outcome = loop {
            tokio::select! {
                // The end is polled first, so that a source that talks without pause cannot keep the call open. Its
                // messages before the outcome have been handed over by then.
                biased;
                outcome = &mut *call => break outcome,
                Some(()) = asked.next(), if !asked.is_empty() => {}
                Some(event) = events.recv() => match event {
                    CallEvent::Notification(notification) => {
                        self.pass_on(upstream, about, wants, notification, peer).await
                    }
                    CallEvent::Request(question) if self.agent_side.agent.era == Era::Modern => {
                        let WaitingEvents { mut questions, notifications } = waiting_events(events);
                        questions.insert(0, question);
                        for notification in notifications {
                            self.pass_on(upstream, about, wants, notification, peer).await;
                        }
                        return DriveEnd::Asked(questions);
                    }
                    CallEvent::Request(question) => asked.push(self.answering(upstream, question, peer)),
                },
            }
        };
        for notification in waiting_events(events).notifications {
            self.pass_on(upstream, about, wants, notification, peer).await;
        }
        if let Some(span) = span.take() {
            span.ended(&outcome);
        }
        if matches!(outcome, Outcome::NotSent(_)) {
            progress.set_unsent();
        }
        // A legacy source does not state for which call it asks. It may be another one, or none.
        if matches!(outcome, Outcome::Answered(_)) && !asked.is_empty() {
            peer.ended_before_its_questions();
            tokio::spawn(async move { while asked.next().await.is_some() {} });
        }
        DriveEnd::Ended(outcome)
    }

    /// Puts a question of the source to the agent, and gives the source the answer. A question that the source has
    /// withdrawn is withdrawn from the agent, too, so that no more are open here than there.
    fn answering(
        &self,
        upstream: &Arc<Upstream>,
        question: SourceRequest,
        peer: &Arc<dyn AgentPeer>,
    ) -> BoxFuture<'static, ()> {
        let SourceRequest { request, mut reply } = question;
        let (me, upstream, peer) = (self.me.clone(), Arc::clone(upstream), Arc::clone(peer));
        Box::pin(async move {
            let Some(session) = me.upgrade() else { return };
            let answer = tokio::select! {
                answer = session.ask(&upstream, request, &peer) => answer,
                () = reply.closed() => return,
            };
            // An agent or source that gave up at this moment has dropped the other side.
            let _ = reply.send(answer);
        })
    }

    /// Passes on a notification that a source sends during a call, if the gate lets it pass.
    async fn pass_on(
        &self,
        upstream: &Upstream,
        call: &Arc<Call>,
        wants: &Wants,
        notification: Notification,
        peer: &Arc<dyn AgentPeer>,
    ) {
        if !self.wants(wants, &notification) {
            return;
        }
        if let Some(notification) = Box::pin(self.notification_for_agent(upstream, call, notification, peer)).await {
            peer.notify(notification).await;
        }
    }

    /// Reports whether the agent wants a notification. A modern agent states with each request which log messages it
    /// wants (2026-07-28, "Logging"); if it does not, it gets none.
    fn wants(&self, wants: &Wants, notification: &Notification) -> bool {
        if self.agent_side.agent.era == Era::Legacy || notification.method != Method::NotificationsMessage {
            return true;
        }
        let level = notification.params.as_ref().and_then(|params| params.get_str("level"));
        is_severe_enough(wants.log_level.as_deref(), level.as_deref())
    }
}

/// The events of a call that have arrived, of each kind in its order.
#[derive(Default)]
struct WaitingEvents {
    questions: Vec<SourceRequest>,
    notifications: Vec<Notification>,
}

/// Takes the events that have arrived.
fn waiting_events(events: &mut mpsc::Receiver<CallEvent>) -> WaitingEvents {
    let mut waiting = WaitingEvents::default();
    for event in std::iter::from_fn(|| events.try_recv().ok()).take(RELAY_QUEUE) {
        match event {
            CallEvent::Request(question) => waiting.questions.push(question),
            CallEvent::Notification(notification) => waiting.notifications.push(notification),
        }
    }
    waiting
}

#[cfg(test)]
mod tests;
