//! The subscriptions of one stream of the agent at its sources, under one configuration.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::json;
use tokio::sync::mpsc;

use super::change_receiver::{ChangeReceiver, ChangeStream};
use super::configured::ConfiguredSession;
use super::execution::{AttemptResult, AttemptStatus, Execution};
use super::listing::{SessionCatalog, VisibleItem};
use super::lost_stream::{Backoff, missed_changes};
use super::request::SessionRequest;
use super::subscription_filter::SubscriptionFilter;
use super::subscription_streams::{ChangeQueue, StreamWants};
use super::watched_resources::WatchedResources;
use crate::agent::{AgentPeer, NoAgent};
use crate::context::{DiscoveredSource, Upstream};
use crate::name::SourceName;
use crate::protocol::{Answer, Era, Json, Method};

/// The subscriptions of one stream, at all sources that can announce what it wants.
pub(super) struct StreamFeeds<'a> {
    configured: &'a ConfiguredSession,
    wants: StreamWants,
    out: ChangeQueue,
    /// The sources that have been asked, if they can announce anything.
    known: HashSet<SourceName>,
    open: FuturesUnordered<BoxFuture<'a, ()>>,
}

impl<'a> StreamFeeds<'a> {
    /// Returns the feeds of a stream that is open, without any subscription.
    pub(super) fn new(configured: &'a ConfiguredSession, wants: StreamWants, out: ChangeQueue) -> Self {
        Self { configured, wants, out, known: HashSet::new(), open: FuturesUnordered::new() }
    }

    /// Subscribes at all sources. The channel that it returns closes once all subscriptions are acknowledged or have
    /// failed. `is_continued` is true if the stream had subscriptions under another configuration.
    pub(super) fn begin(
        &mut self,
        tools: &SessionCatalog,
        watched: &[VisibleItem],
        is_continued: bool,
    ) -> mpsc::Receiver<Infallible> {
        let (unacknowledged, all_acknowledged) = mpsc::channel(1);
        for (upstream, discovered) in tools.sources() {
            let own = watched.iter().filter(|resource| resource.is_of(upstream)).cloned().collect();
            self.subscribe(upstream, discovered, own, Some(unacknowledged.clone()), is_continued);
        }
        all_acknowledged
    }

    /// Waits until the channel that [`begin`](Self::begin) returned is closed, or no subscription is left.
    pub(super) async fn all_acknowledged(&mut self, mut channel: mpsc::Receiver<Infallible>) {
        tokio::select! {
            _ = channel.recv() => {}
            () = async { while self.open.next().await.is_some() {} } => {}
        }
    }

    /// Subscribes to the lists of the sources that have arrived since.
    pub(super) fn add(&mut self, tools: &SessionCatalog) {
        for (upstream, discovered) in tools.sources() {
            if !self.known.contains(&upstream.config.name) {
                self.subscribe(upstream, discovered, Vec::new(), None, false);
            }
        }
    }

    /// Waits for the end of a subscription, for ever if there is none.
    pub(super) async fn ended(&mut self) {
        if self.open.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn subscribe(
        &mut self,
        upstream: &Arc<Upstream>,
        discovered: &DiscoveredSource,
        own: Vec<VisibleItem>,
        unacknowledged: Option<mpsc::Sender<Infallible>>,
        is_continued: bool,
    ) {
        self.known.insert(upstream.config.name.clone());
        let lists = self.wants.lists.lists_of(std::iter::once(discovered));
        for uri in own.iter().map(|resource| &resource.item.exposed) {
            match discovered.era {
                Era::Modern => self.wants.resources.add(uri),
                // The gate judges it with the request that is sent. The acknowledgement names all that were not refused
                // before it; there is room for them, because a stream asks for no more.
                Era::Legacy => _ = self.wants.resources.begin(uri),
            }
        }
        if lists == SubscriptionFilter::default() && own.is_empty() {
            return;
        }
        let stream = ChangeStream { queue: self.out.clone(), wants: self.wants.clone() };
        // Between two subscriptions at a modern source nothing is announced.
        let missed = if is_continued { missed_changes(&lists, &own) } else { Vec::new() };
        let receiver = ChangeReceiver::new(self.configured, upstream, Some(stream), unacknowledged, missed);
        let (upstream, receiver, configured) = (Arc::clone(upstream), Arc::new(receiver), self.configured);
        let feed = match discovered.era {
            Era::Modern => async move { configured.feed_of_modern(&upstream, lists, &own, receiver).await }.boxed(),
            Era::Legacy => {
                let watched = Arc::clone(&self.wants.resources);
                async move { configured.feed_of_legacy(&upstream, own, watched, receiver).await }.boxed()
            }
        };
        self.open.push(feed);
    }
}

impl ConfiguredSession {
    /// Subscribes to resources of a legacy source for as long as the future lives. Its notifications arrive by
    /// [`SourceClient::notify`](crate::source::SourceClient::notify).
    async fn feed_of_legacy(
        &self,
        upstream: &Upstream,
        own: Vec<VisibleItem>,
        watched: Arc<WatchedResources>,
        receiver: Arc<ChangeReceiver>,
    ) {
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

    /// Subscribes to lists and resources of a modern source for as long as the future lives, or until the source or the
    /// gate refuses that.
    pub(super) async fn feed_of_modern(
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
        // A stream that the source ends in good order, as before a restart, is opened again like one that was lost.
        while let Ok(AttemptResult { answer, status }) = Execution::new(request.clone(), &target, None).attempt().await
            && !(status == AttemptStatus::Answered && matches!(answer, Answer::Error(_)))
        {
            let open = receiver.lost(missed_changes(&wants, watched));
            tracing::debug!(source = %upstream.config.name, "a subscription has ended");
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
pub(super) fn named(resource: &VisibleItem) -> Json {
    Json::of(&json!({ "uri": resource.item.exposed.to_string() }))
}
