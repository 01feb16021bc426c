//! Lost streams of changes: the pauses between the attempts to open one again, and the changes that may have been missed
//! meanwhile.

use std::time::Duration;

use serde_json::json;

use super::listing::VisibleItem;
use super::subscription_filter::SubscriptionFilter;
use crate::protocol::{Json, Method, Notification};

/// The pause before a lost stream is opened again. It doubles with each attempt, which passes the gate and is recorded,
/// as the first was.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// The longest pause before a lost stream is opened again. A stream that was open for as long begins with the shortest.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The pauses before a stream is opened again.
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(INITIAL_BACKOFF)
    }
}

impl Backoff {
    /// Returns the pause after the loss of a stream that was open for some time.
    pub(super) fn after(&mut self, open: Duration) -> Duration {
        let pause = if open < MAX_BACKOFF { self.0 } else { INITIAL_BACKOFF };
        self.0 = (pause * 2).min(MAX_BACKOFF);
        pause
    }
}

/// Returns the changes that a source could have announced over a stream for these lists and resources. Nobody knows
/// which of them came while the stream was lost: an agent that reads an unchanged item again loses nothing, and one
/// that is not told would keep outdated data for ever, because its own stream continues.
pub(super) fn missed_changes(lists: &SubscriptionFilter, watched: &[VisibleItem]) -> Vec<Notification> {
    let of_lists = [
        (lists.tools, Method::NotificationsToolsListChanged),
        (lists.prompts, Method::NotificationsPromptsListChanged),
        (lists.resources, Method::NotificationsResourcesListChanged),
    ];
    let of_lists = of_lists.into_iter().filter(|(wanted, _)| *wanted);
    let of_lists = of_lists.map(|(_, method)| Notification { method: method.to_owned(), params: None });
    let of_resources = watched.iter().map(|resource| Notification {
        method: Method::NotificationsResourcesUpdated.to_owned(),
        params: Some(Json::of(&json!({ "uri": &*resource.item.exposed }))),
    });
    of_lists.chain(of_resources).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use futures_util::future::BoxFuture;
    use portcullis_jail::Launcher;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::mpsc;

    use super::*;
    use crate::agent::{AgentPeer, Elicitation};
    use crate::broker::Broker;
    use crate::config::{Config, SourceTable};
    use crate::protocol::Answer;
    use crate::source::testing::{ScriptedServer, answering};
    use crate::source::{NativeSource, nobody_to_ask};

    #[test]
    fn pauses_grow_until_a_stream_has_lasted() {
        let mut backoff = Backoff::default();
        let short = MAX_BACKOFF - Duration::from_secs(1);
        let pauses: Vec<_> = (0..8).map(|_| backoff.after(short).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let days = Duration::from_secs(200_000);
        assert_eq!([days, short, short].map(|open| backoff.after(open).as_secs()), [1, 2, 4]);
    }

    /// The way in which a server ends its first stream of changes.
    #[derive(Debug, Clone, Copy)]
    enum End {
        /// With its connection.
        Lost,
        /// In good order, as before a restart.
        Completed,
    }

    /// Returns a modern server whose first stream of changes ends. It announces nothing.
    fn forgetful(end: End) -> impl NativeSource {
        let streams = AtomicU32::new(0);
        ScriptedServer(move |request: &serde_json::Value| {
            let id = &request["id"];
            let result = match request["method"].as_str().unwrap_or_default() {
                "server/discover" => Some(json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {
                        "tools": {}, "prompts": { "listChanged": true }, "resources": { "subscribe": true }
                    },
                })),
                "tools/list" => Some(json!({ "tools": [] })),
                "resources/list" => Some(json!({ "resources": [{ "uri": "mem://a", "name": "a" }] })),
                "resources/templates/list" => Some(json!({ "resourceTemplates": [] })),
                "subscriptions/listen" => {
                    let meta = json!({ "io.modelcontextprotocol/subscriptionId": id });
                    let params = json!({ "notifications": request["params"]["notifications"], "_meta": meta });
                    let method = "notifications/subscriptions/acknowledged";
                    let end = (streams.fetch_add(1, Ordering::SeqCst) == 0).then(|| match end {
                        End::Lost => json!(null),
                        End::Completed => json!({ "id": id, "result": { "resultType": "complete" } }),
                    });
                    return [json!({ "method": method, "params": params })].into_iter().chain(end).collect();
                }
                _ => None,
            };
            answering(request, result)
        })
    }

    /// An agent that keeps its notifications.
    struct Listening(mpsc::UnboundedSender<Notification>);

    impl AgentPeer for Listening {
        fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
            let _ = self.0.send(notification);
            Box::pin(async {})
        }

        fn request_id(&self) -> Option<Json> {
            Some(Json::of(&1))
        }

        fn elicitation(&self) -> Elicitation {
            Elicitation::None
        }

        fn request<'a>(&'a self, _: &'a Method, _: Option<Json>) -> BoxFuture<'a, Answer> {
            Box::pin(async { nobody_to_ask() })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_may_have_changed_while_a_stream_was_lost_counts_as_changed() {
        for end in [End::Lost, End::Completed] {
            let folder = tempfile::tempdir().unwrap();
            let source = SourceTable::native("forgetful");
            let config = Config::builder(folder.path()).source("far", source).build().unwrap();
            let broker = Broker::builder(config, Launcher::SelfExec).source("forgetful", forgetful(end));
            let broker = broker.build().await.unwrap();
            let session =
                broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap();
            let (heard, mut hears) = mpsc::unbounded_channel();
            let uri = "portcullis://far/mem://a";
            let wanted = json!({ "notifications": { "promptsListChanged": true, "resourceSubscriptions": [uri] } });
            let listening = tokio::spawn({
                let session = Arc::clone(&session);
                let peer: Arc<dyn AgentPeer> = Arc::new(Listening(heard));
                async move { session.request("subscriptions/listen", Json::of(&wanted), peer).await }
            });
            let mut next = async || hears.recv().await.unwrap();
            assert_eq!(next().await.method, Method::NotificationsSubscriptionsAcknowledged);
            assert_eq!(next().await.method, Method::NotificationsPromptsListChanged, "{end:?}");
            let updated = next().await;
            assert_eq!(updated.method, Method::NotificationsResourcesUpdated);
            assert_eq!(updated.params.unwrap().get_str("uri").as_deref(), Some(uri));
            listening.abort();
            broker.shutdown().await;
        }
    }
}
