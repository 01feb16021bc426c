//! `subscriptions/listen` (2026-07-28): one stream of changes for the agent, fed by all its sources.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::Session;
use super::configured::ConfiguredSession;
use super::listing::{SessionCatalog, VisibleItem};
use super::request::SessionRequest;
use super::stream_feeds::{StreamFeeds, named};
use super::subscription_filter::{SubscriptionFilter, announces_updates};
use super::subscription_streams::{QueuedChange, StreamWants};
use crate::agent::AgentPeer;
use crate::item::ItemKind;
use crate::protocol::{Answer, Era, Json, Method, Notification, RpcError, meta};
use crate::telemetry::Span;

/// The longest time that the agent's acknowledgement waits for those of the sources. A change that a source makes
/// before it has subscribed is lost; a source that never acknowledges does not hold up the others.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// A `subscriptions/listen` that an agent has sent.
pub(super) struct OpenedSubscription {
    params: Json,
    peer: Arc<dyn AgentPeer>,
    span: Option<Span>,
}

impl Session {
    /// Tells the agent of changes until the agent goes or the session ends, under each configuration in turn. Dropping
    /// the future ends the subscriptions at the sources too.
    pub(super) async fn listen(&self, opened: OpenedSubscription) -> Answer {
        let OpenedSubscription { params, peer, span } = opened;
        let answer = self.stream_changes(&params, &peer).await.unwrap_or_else(Answer::from);
        if let Some(span) = span {
            span.answered(&answer);
        }
        answer
    }

    async fn stream_changes(&self, params: &Json, peer: &Arc<dyn AgentPeer>) -> Result<Answer, RpcError> {
        let Some(id) = peer.request_id() else {
            return Err(RpcError::new(RpcError::INVALID_REQUEST, "there is no stream that could carry a subscription"));
        };
        let asked = SubscriptionFilter::of(params)?;
        let listeners = &self.agent_side.listeners;
        let (mut configurations, mut over) = (self.current.subscribe(), listeners.over.subscribe());
        let mut arrivals = listeners.arrivals.subscribe();
        // What was acknowledged, and the queue of the configuration before.
        let mut before: Option<(SubscriptionFilter, mpsc::Receiver<QueuedChange>)> = None;
        loop {
            let configured = configurations.borrow_and_update().clone();
            let tools = configured.listing(ItemKind::Tool).await?;
            let lists = match tools.is_partial() {
                // A source that could not be discovered may be there later.
                true => SubscriptionFilter { updates: Vec::new(), ..asked.clone() },
                false => asked.lists_of(tools.sources().map(|(_, discovered)| discovered)),
            };
            // The agent takes no other changes than those that were acknowledged, and learns of more if it listens again.
            let so_far = before.as_ref().map(|(acknowledged, _)| acknowledged);
            if so_far.is_some_and(|acknowledged| !acknowledged.has_lists(&lists)) {
                return Ok(completed(&id));
            }
            let updates = &so_far.unwrap_or(&asked).updates;
            let watched = configured.watched(updates, &tools, peer).await;
            let wants = StreamWants::of_lists(lists);
            let (out, mut changes) = listeners.open(wants.clone());
            let mut feeds = StreamFeeds::new(&configured, wants.clone(), out);
            let unacknowledged = feeds.begin(&tools, &watched, before.is_some());
            let acknowledged = match before {
                None => {
                    let all = feeds.all_acknowledged(unacknowledged);
                    let _ = tokio::time::timeout(ACKNOWLEDGEMENT_TIMEOUT, all).await;
                    let filter = wants.filter();
                    peer.notify(marked(acknowledged(&filter), &id)).await;
                    filter
                }
                Some((acknowledged, queued)) => {
                    pass_queued(queued, &wants, &id, peer).await;
                    acknowledged
                }
            };
            loop {
                tokio::select! {
                    Some(change) = changes.recv() => peer.notify(marked(change.notification, &id)).await,
                    // If the stream of one source ends, the others continue.
                    () = feeds.ended() => {}
                    () = ended(&mut over) => return Ok(completed(&id)),
                    _ = configurations.changed() => break,
                    Ok(()) = arrivals.changed() => feeds.add(&*configured.listing(ItemKind::Tool).await?),
                }
            }
            before = Some((acknowledged, changes));
        }
    }
}

impl SessionRequest<'_> {
    /// Returns the subscription that the request opens, with its own span for the collector.
    pub(super) fn into_subscription(mut self) -> OpenedSubscription {
        let span = self.trace();
        OpenedSubscription { params: self.params.as_json().clone(), peer: self.peer, span }
    }
}

impl ConfiguredSession {
    /// Returns the resources of these exposed URIs that the session may see and whose sources announce changes of them.
    /// Each other one is recorded as a request that was refused. A modern source is asked about all resources by one
    /// request, so each of them passes the gate here.
    async fn watched(&self, uris: &[String], tools: &SessionCatalog, peer: &Arc<dyn AgentPeer>) -> Vec<VisibleItem> {
        let watched = uris.iter().map(async |uri| {
            let named = "params.notifications.resourceSubscriptions";
            let resource = self.resource(Some(&Json::of(uri)), named).await.ok()?;
            let mut sources = tools.sources().filter(|(upstream, _)| resource.is_of(upstream));
            let (_, discovered) = sources.find(|(_, discovered)| announces_updates(discovered))?;
            (discovered.era == Era::Legacy || self.may_subscribe(&resource, peer).await).then_some(resource)
        });
        futures_util::future::join_all(watched).await.into_iter().flatten().collect()
    }

    /// Reports whether the gate lets the agent subscribe to a resource of a modern source.
    async fn may_subscribe(&self, resource: &VisibleItem, peer: &Arc<dyn AgentPeer>) -> bool {
        let request = SessionRequest::new(self, Method::ResourcesSubscribe, named(resource), Arc::clone(peer));
        request.admit_for_broker(resource).await.is_ok()
    }
}

/// Passes on the changes that waited in the queue of a stream which continues under another configuration, and that are
/// still wanted.
async fn pass_queued(
    mut queued: mpsc::Receiver<QueuedChange>,
    wants: &StreamWants,
    id: &Json,
    peer: &Arc<dyn AgentPeer>,
) {
    while let Ok(change) = queued.try_recv() {
        if wants.takes(&change.notification) {
            peer.notify(marked(change.notification, id)).await;
        }
    }
}

/// Returns the notification that names the changes that will be announced to an agent.
fn acknowledged(changes: &SubscriptionFilter) -> Notification {
    let params = Json::empty_object().with("notifications", &changes.to_json());
    Notification { method: Method::NotificationsSubscriptionsAcknowledged.to_owned(), params }
}

/// Returns the result of a subscription that ends in good order.
fn completed(id: &Json) -> Answer {
    let done = Json::of(&json!({ "resultType": "complete" }));
    let meta = Json::empty_object().with(meta::SUBSCRIPTION_ID, id);
    Answer::Result(meta.and_then(|meta| done.with("_meta", &meta)).unwrap_or(done))
}

async fn ended(over: &mut watch::Receiver<bool>) {
    // An error means that the session has ended, too.
    let _ = over.wait_for(|over| *over).await;
}

/// Returns a notification marked with the subscription that the agent's request `id` opened.
fn marked(notification: Notification, id: &Json) -> Notification {
    let params = notification.params.unwrap_or_else(Json::empty_object);
    let meta = params.get("_meta").unwrap_or_else(Json::empty_object).with(meta::SUBSCRIPTION_ID, id);
    let params = meta.and_then(|meta| params.with("_meta", &meta)).unwrap_or(params);
    Notification { params: Some(params), ..notification }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::session::change_receiver::unmarked;

    fn change(method: &str, params: &'static str) -> Notification {
        Notification { method: method.into(), params: Some(Json::parse(params).unwrap()) }
    }

    #[test]
    fn each_change_says_which_stream_it_is_of() {
        let updated = || change("notifications/resources/updated", r#"{"uri":"a:b","_meta":{"x":1}}"#);
        let params = marked(updated(), &Json::of(&"l")).params.unwrap();
        assert_eq!(params.as_str(), r#"{"uri":"a:b","_meta":{"x":1,"io.modelcontextprotocol/subscriptionId":"l"}}"#);
        let plain = unmarked(Notification { params: Some(params), ..updated() });
        assert_eq!(plain.params.unwrap().as_str(), r#"{"uri":"a:b","_meta":{"x":1}}"#);
    }
}
