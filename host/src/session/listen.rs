//! `subscriptions/listen` (2026-07-28): one stream of changes for the agent, fed by all its sources.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::Session;
use super::change_receiver::{ChangeReceiver, ChangeStream};
use super::configured::ConfiguredSession;
use super::execution::{AttemptResult, AttemptStatus, Execution};
use super::listing::{SessionCatalog, VisibleItem};
use super::lost_stream::{Backoff, missed_changes};
use super::request::SessionRequest;
use super::subscription_filter::{SubscriptionFilter, announces_updates};
use super::subscription_streams::{ChangeQueue, QueuedChange, StreamWants};
use super::upstream_subscriptions::Followed;
use super::watched_resources::WatchedResources;
use crate::agent::{AgentPeer, NoAgent};
use crate::config::ToolListUpdates;
use crate::context::{DiscoveredSource, Upstream};
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
        let mut before: Option<mpsc::Receiver<QueuedChange>> = None;
        loop {
            let configured = configurations.borrow_and_update().clone();
            let tools = configured.listing(ItemKind::Tool).await?;
            let mut wants = asked.lists_of(tools.sources().map(|(_, discovered)| discovered));
            // A source that could not be discovered may be there later; only the broker can announce that change.
            wants.tools |= asked.tools && tools.is_partial();
            let watched = configured.watched(&asked.updates, &tools, peer).await;
            let wants = StreamWants::of_lists(wants);
            let (out, mut changes) = listeners.open(wants.clone());
            let (mut feeds, mut all_acknowledged) = configured.feeds(&tools, &wants, &watched, &out);
            let subscribed = async {
                tokio::select! {
                    _ = all_acknowledged.recv() => {}
                    () = async { while feeds.next().await.is_some() {} } => {}
                }
            };
            acknowledge_once(before.take(), &wants, subscribed, &id, peer).await;
            loop {
                tokio::select! {
                    Some(change) = changes.recv() => peer.notify(marked(change.notification, &id)).await,
                    // If the stream of one source ends, the others continue.
                    Some(()) = feeds.next(), if !feeds.is_empty() => {}
                    () = ended(&mut over) => return Ok(completed(&id)),
                    _ = configurations.changed() => break,
                }
            }
            before = Some(changes);
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
    /// Subscribes a legacy agent to changes of its modern sources' lists.
    pub(super) async fn follow_lists(&self) {
        let Ok(tools) = self.listing(ItemKind::Tool).await else { return };
        let lists = SubscriptionFilter { tools: true, prompts: true, resources: true, ..SubscriptionFilter::default() };
        let can = |discovered: &DiscoveredSource| {
            lists.lists_of(std::iter::once(discovered)) != SubscriptionFilter::default()
        };
        for (upstream, _) in tools.sources().filter(|(_, discovered)| discovered.era == Era::Modern && can(discovered))
        {
            self.follow_lists_of(upstream);
        }
    }

    fn follow_lists_of(&self, upstream: &Arc<Upstream>) {
        let tools = upstream.config.discovery == ToolListUpdates::Live;
        let lists = SubscriptionFilter { tools, prompts: true, resources: true, updates: Vec::new() };
        self.follow(Followed::Lists(upstream.config.name.clone()), upstream, lists, Vec::new());
    }

    pub(super) fn follow_resource(&self, resource: &VisibleItem) {
        let followed = Followed::Resource(resource.item.exposed.to_string());
        self.follow(followed, &resource.upstream, SubscriptionFilter::default(), vec![resource.clone()]);
    }

    /// Subscribes to what the agent was subscribed to under another configuration, as far as it may see it under this
    /// one: each resource passes the gate again.
    pub(super) async fn follow_again(&self, followed: Vec<Followed>) {
        for followed in followed {
            match followed {
                Followed::Lists(source) => {
                    self.upstream(source.as_str()).iter().for_each(|upstream| self.follow_lists_of(upstream));
                }
                Followed::Resource(uri) => {
                    let params = Json::of(&json!({ "uri": uri }));
                    let again = SessionRequest::new(self, Method::ResourcesSubscribe, params, Arc::new(NoAgent));
                    let subscribed = again.subscribe().await;
                    tracing::debug!(ok = subscribed.is_ok(), "subscribed again");
                }
            }
        }
    }

    /// Subscribes to a modern source on behalf of a legacy agent.
    fn follow(
        &self,
        followed: Followed,
        upstream: &Arc<Upstream>,
        lists: SubscriptionFilter,
        watched: Vec<VisibleItem>,
    ) {
        let Some(session) = self.me.upgrade() else { return };
        let upstream = Arc::clone(upstream);
        let following = tokio::spawn(async move {
            let receiver = Arc::new(ChangeReceiver::new(&session, &upstream, None, None));
            session.feed_of_modern(&upstream, lists, &watched, receiver).await;
        });
        self.agent_side.upstream_subscriptions.add(followed, following.abort_handle());
    }

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

    /// Returns the subscriptions of one stream, at all sources that can announce what it wants, and a channel that
    /// closes once all of them are acknowledged or have failed.
    fn feeds<'a>(
        &'a self,
        tools: &'a SessionCatalog,
        wants: &StreamWants,
        watched: &[VisibleItem],
        out: &ChangeQueue,
    ) -> (FuturesUnordered<impl Future<Output = ()> + use<'a>>, mpsc::Receiver<Infallible>) {
        let (unacknowledged, all_acknowledged) = mpsc::channel(1);
        let feeds = tools.sources().filter_map(|(upstream, discovered)| {
            let lists = wants.lists.lists_of(std::iter::once(discovered));
            let own = watched.iter().filter(|resource| resource.is_of(upstream)).cloned().collect::<Vec<_>>();
            for uri in own.iter().map(|resource| &resource.item.exposed) {
                match discovered.era {
                    Era::Modern => wants.resources.add(uri),
                    // The gate judges it with the request that is sent. The acknowledgement names all that were not
                    // refused before it; there is room for them, because a stream asks for no more.
                    Era::Legacy => _ = wants.resources.begin(uri),
                }
            }
            let resources = Arc::clone(&wants.resources);
            let stream = ChangeStream { queue: out.clone(), wants: wants.clone() };
            let part = Some(unacknowledged.clone());
            let receiver = Arc::new(ChangeReceiver::new(self, upstream, Some(stream), part));
            let is_asked = lists != SubscriptionFilter::default() || !own.is_empty();
            is_asked.then(|| self.feed(upstream, discovered.era, lists, own, resources, receiver))
        });
        (feeds.collect(), all_acknowledged)
    }

    /// Subscribes to lists and resources of one source for as long as the future lives. Notifications of a legacy
    /// source arrive by [`SourceClient::notify`](crate::source::SourceClient::notify).
    async fn feed(
        &self,
        upstream: &Arc<Upstream>,
        era: Era,
        lists: SubscriptionFilter,
        own: Vec<VisibleItem>,
        watched: Arc<WatchedResources>,
        receiver: Arc<ChangeReceiver>,
    ) {
        if era == Era::Modern {
            return self.feed_of_modern(upstream, lists, &own, receiver).await;
        }
        let _subscribed = Subscribed::begin(self, own.clone());
        for resource in &own {
            let peer: Arc<dyn AgentPeer> = Arc::clone(&receiver) as _;
            let request = SessionRequest::new(self, Method::ResourcesSubscribe, named(resource), peer);
            let answer = request.execute_at(resource).await;
            let is_taken = matches!(answer, Ok(Answer::Result(_)));
            tracing::debug!(source = %upstream.config.name, is_taken, "subscribed");
            if let Some(change) = watched.settle(&resource.item.exposed, is_taken) {
                receiver.notify(change).await;
            }
        }
        receiver.acknowledge();
        std::future::pending().await
    }

    async fn feed_of_modern(
        &self,
        upstream: &Arc<Upstream>,
        lists: SubscriptionFilter,
        watched: &[VisibleItem],
        receiver: Arc<ChangeReceiver>,
    ) {
        let target = VisibleItem::whole_source(upstream);
        let updates = watched.iter().map(|resource| resource.item.name.to_string()).collect();
        let wants = SubscriptionFilter { updates, ..lists };
        let params = Json::empty_object().with("notifications", &wants.to_json()).unwrap_or_else(Json::empty_object);
        let peer: Arc<dyn AgentPeer> = Arc::clone(&receiver) as _;
        let request = SessionRequest::new(self, Method::SubscriptionsListen, params, peer);
        let mut backoff = Backoff::default();
        // A stream that ended because the connection was lost is opened again, one that the source ended is not.
        while let Ok(AttemptResult { status: AttemptStatus::NotSent | AttemptStatus::Unknown, .. }) =
            Execution::new(request.clone(), &target, None).attempt().await
        {
            let open = receiver.lost(missed_changes(&wants, watched));
            tracing::debug!(source = %upstream.config.name, "a subscription was lost");
            tokio::time::sleep(backoff.after(open)).await;
        }
    }
}

/// The subscriptions of one stream at a legacy source. Dropping them ends them.
struct Subscribed {
    session: Weak<ConfiguredSession>,
    resources: Vec<VisibleItem>,
}

impl Subscribed {
    fn begin(session: &ConfiguredSession, resources: Vec<VisibleItem>) -> Self {
        resources
            .iter()
            .for_each(|resource| session.agent_side.upstream_subscriptions.stream_began(&resource.item.exposed));
        Self { session: session.me.clone(), resources }
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        // The connection ends with its session, and so do its subscriptions.
        let Some(session) = self.session.upgrade().filter(|session| !session.agent_side.ended()) else { return };
        let mut resources = std::mem::take(&mut self.resources);
        resources.retain(|resource| session.agent_side.upstream_subscriptions.stream_ended(&resource.item.exposed));
        // Under another configuration the stream continues, and subscribes again to what it may still watch.
        if session.agent_side.session().is_none_or(|whole| !Arc::ptr_eq(&whole.current(), &session)) {
            return;
        }
        tokio::spawn(async move {
            for resource in resources {
                let (method, peer) = (Method::ResourcesUnsubscribe, Arc::new(NoAgent));
                let request = SessionRequest::new(&session, method, named(&resource), peer);
                let ended = request.execute_at(&resource).await;
                tracing::debug!(ok = ended.is_ok(), "unsubscribed");
            }
        });
    }
}

/// Returns the parameters that name a resource as the agent does.
fn named(resource: &VisibleItem) -> Json {
    Json::of(&json!({ "uri": resource.item.exposed.to_string() }))
}

/// Tells the agent which changes will be announced, once the sources have confirmed. A stream that continues under
/// another configuration has already done so, and instead passes on messages from the queue `before` that are still
/// wanted.
async fn acknowledge_once(
    before: Option<mpsc::Receiver<QueuedChange>>,
    wants: &StreamWants,
    subscribed: impl Future<Output = ()>,
    id: &Json,
    peer: &Arc<dyn AgentPeer>,
) {
    let Some(mut queued) = before else {
        let _ = tokio::time::timeout(ACKNOWLEDGEMENT_TIMEOUT, subscribed).await;
        return peer.notify(marked(acknowledged(wants), id)).await;
    };
    while let Ok(change) = queued.try_recv() {
        if wants.takes(&change.notification) {
            peer.notify(marked(change.notification, id)).await;
        }
    }
}

/// Returns the notification that names the changes that will be announced to an agent.
fn acknowledged(wants: &StreamWants) -> Notification {
    let params = Json::empty_object().with("notifications", &wants.to_json());
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
