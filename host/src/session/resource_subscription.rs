//! `resources/subscribe` and `resources/unsubscribe` of a legacy agent.

use super::listing::VisibleItem;
use super::request::SessionRequest;
use super::upstream_subscriptions::{Followed, MAX_FOLLOWS};
use super::watched_resources::{MAX_WATCHED, WatchedResources};
use crate::item::ItemKind;
use crate::protocol::{Answer, Era, Json, Method, RpcError};

/// A subscription that waits for its answer. Dropping it forgets one that was not answered: the agent has cancelled the
/// request.
struct Unanswered<'a> {
    watched: &'a WatchedResources,
    uri: &'a str,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.watched.settle(self.uri, false);
    }
}

impl SessionRequest<'_> {
    /// Answers the request. From then on the agent is notified of changes to the resource, or no longer.
    pub(super) async fn subscribe(self) -> Result<Answer, RpcError> {
        let (session, target) = (self.session, self.target().await?);
        let (subscriptions, uri) = (&session.agent_side.upstream_subscriptions, target.item.exposed.to_string());
        if self.method != Method::ResourcesSubscribe {
            subscriptions.watched.remove(&uri);
            return self.subscribe_at(&target).await;
        }
        if !subscriptions.watched.begin(&uri) {
            let text = format!("{MAX_WATCHED} resources are subscribed to already; unsubscribe from one of them");
            return Err(RpcError::new(RpcError::INVALID_REQUEST, text));
        }
        let unanswered = Unanswered { watched: &subscriptions.watched, uri: &uri };
        let answer = self.subscribe_at(&target).await;
        if let Some(change) = unanswered.watched.settle(&uri, matches!(answer, Ok(Answer::Result(_)))) {
            session.agent_side.sink.pass(change).await;
        }
        answer
    }

    /// Subscribes at the source, or ends that. A modern source does not know these methods: there the broker subscribes
    /// to the resource itself.
    async fn subscribe_at(self, target: &VisibleItem) -> Result<Answer, RpcError> {
        let session = self.session;
        let tools = session.listing(ItemKind::Tool).await?;
        let name = &target.upstream.config.name;
        let modern = tools
            .sources()
            .any(|(upstream, discovered)| upstream.config.name == *name && discovered.era == Era::Modern);
        if !modern {
            return self.execute_at(target).await;
        }
        match self.method {
            Method::ResourcesSubscribe => match self.admit_for_broker(target).await {
                Ok(()) if session.follow_resource(target) => {}
                Ok(()) => {
                    let text = format!(
                        "{MAX_FOLLOWS} subscriptions at sources of the modern era are open already; unsubscribe from one of \
                         them"
                    );
                    return Err(RpcError::new(RpcError::INVALID_REQUEST, text));
                }
                Err(refusal) => return Ok(refusal),
            },
            _ => session.agent_side.upstream_subscriptions.remove(&Followed::Resource(target.item.exposed.to_string())),
        }
        Ok(Answer::Result(Json::empty_object()))
    }
}
