//! Carries state of a session from one configuration to the next: the answers of the remaining sources, and the lists
//! that the agent was shown, so that it can be notified of differences.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Session;
use super::configured::ConfiguredSession;
use super::discovery::ListResult;
use super::listing::SessionCatalog;
use super::lists::KINDS;
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::Era;

/// The lists that an agent was shown under an earlier configuration.
pub(super) struct EarlierLists {
    listings: HashMap<ItemKind, Arc<SessionCatalog>>,
    /// The lists that are out of date, by kind and source.
    stale: HashSet<(ItemKind, SourceName)>,
}

/// The sources of a session by what is known about them from the previous configuration.
#[derive(Default)]
pub(super) struct PreviousAnswers {
    /// The sources that stay, and have answered; and those that are awaited, with the cause of their absence.
    pub(super) answered: Vec<ListResult>,
    /// The sources that stay, and have not answered yet.
    pub(super) awaited: Vec<Arc<Upstream>>,
    /// The sources that must be asked.
    pub(super) unknown: Vec<Arc<Upstream>>,
}

impl ConfiguredSession {
    /// Returns what the next configuration takes over. `None` if the agent was shown nothing.
    pub(super) fn to_carry(&self) -> Option<EarlierLists> {
        let earlier = self.carried.lock().clone();
        let mut listings = earlier.as_ref().map_or_else(HashMap::new, |earlier| earlier.listings.clone());
        let tools = self.lock_tools().get().and_then(|tools| tools.clone().ok());
        listings.extend(tools.map(|tools| (ItemKind::Tool, tools)));
        listings.extend(KINDS.into_iter().filter_map(|kind| Some((kind, self.lists.now(kind)?))));
        let mut stale = self.lists.all_stale();
        stale.extend(self.refresh.running().into_iter().map(|source| (ItemKind::Tool, source)));
        stale.extend(earlier.iter().flat_map(|earlier| earlier.stale.iter().cloned()));
        (!listings.is_empty()).then_some(EarlierLists { listings, stale })
    }

    /// Sorts the sources of this session by what is known about them.
    pub(super) fn carried_answers(&self, kind: ItemKind) -> PreviousAnswers {
        let admitted = self.context.admitted(&self.caller.profile).map(|(upstream, _)| upstream);
        let carried = self.carried.lock().clone();
        let Some((carried, listing)) = carried.as_ref().and_then(|it| Some((it, it.listings.get(&kind)?))) else {
            return PreviousAnswers { unknown: admitted.collect(), ..PreviousAnswers::default() };
        };
        let mut answers = PreviousAnswers::default();
        for upstream in admitted {
            let stale = carried.stale.contains(&(kind, upstream.config.name.clone()));
            match listing.answered.iter().find(|before| Arc::ptr_eq(&before.upstream, &upstream)) {
                Some(before) if before.listed.is_ok() && !stale => answers.answered.push(before.clone()),
                Some(before) if before.listed.is_err() && !upstream.config.required => {
                    answers.answered.push(before.clone());
                    answers.awaited.push(upstream);
                }
                _ => answers.unknown.push(upstream),
            }
        }
        answers
    }

    /// Takes over from the configuration before: subscribes again for a legacy agent, and tells the agent which of the
    /// lists that it was shown are different now.
    pub(super) fn continue_from_earlier(self: &Arc<Self>) {
        let followed = self.agent_side.upstream_subscriptions.interrupt();
        if !followed.is_empty() {
            let me = Arc::clone(self);
            tokio::spawn(async move { me.follow_again(followed).await });
        }
        let (me, carried) = (Arc::clone(self), self.carried.lock().clone());
        tokio::spawn(async move {
            if let Some(carried) = carried {
                me.notify_all_differences(&carried).await;
                me.carried.lock().take();
            }
            if me.agent_side.agent.era == Era::Legacy && me.agent_side.sink.now().is_some() {
                me.follow_lists().await;
            }
        });
    }

    async fn notify_all_differences(&self, carried: &EarlierLists) {
        for kind in [ItemKind::Tool].into_iter().chain(KINDS) {
            let Some(before) = carried.listings.get(&kind) else { continue };
            match self.listing(kind).await {
                Ok(now) => drop(self.notify_difference(kind, before, &now)),
                Err(error) => tracing::debug!(error = error.message, "a list cannot be taken over"),
            }
        }
    }
}

/// Releases what the sources keep for the session, if it no longer uses them under the configuration that came after.
impl Drop for ConfiguredSession {
    fn drop(&mut self) {
        let Some(now) = self.agent_side.session().as_deref().map(Session::current) else { return };
        for (upstream, _) in self.context.admitted(&self.caller.profile) {
            let mut used = now.context.admitted(&now.caller.profile);
            if !used.any(|(other, _)| Arc::ptr_eq(&other, &upstream)) {
                upstream.source.end_session(&self.caller.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::sync::mpsc;

    use portcullis_jail::Launcher;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::NoAgent;
    use crate::broker::Broker;
    use crate::config::{Config, ConfigBuilder, SourceTable};
    use crate::protocol::Json;
    use crate::source::NativeSource;
    use crate::source::testing::{ScriptedServer, answering};
    use crate::sync::Mutex;

    /// Returns a legacy server with one prompt, which it lists when `wait` returns.
    fn prompting(wait: impl Fn() + Send + Sync + 'static) -> impl NativeSource {
        ScriptedServer(move |request: &Value| {
            let result = match request["method"].as_str().unwrap_or_default() {
                "initialize" => Some(json!({
                    "protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": { "tools": {}, "prompts": {} },
                    "serverInfo": { "name": "prompting", "version": "1" },
                })),
                "tools/list" => Some(json!({ "tools": [] })),
                "prompts/list" => {
                    wait();
                    Some(json!({ "prompts": [{ "name": "greet" }] }))
                }
                _ => None,
            };
            answering(request, result)
        })
    }

    // One thread waits for the reload.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_list_that_a_reload_overtakes_is_that_of_the_configuration_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let config = |sources: &[&str]| {
            let all = ["slow", "more"].iter().fold(Config::builder(folder.path()), |builder: ConfigBuilder, name| {
                builder.source(name, SourceTable::native(name))
            });
            all.profile("default", json!({ "sources": sources })).build().unwrap()
        };
        let (asked, is_asked) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let goes = Mutex::new(goes);
        let slow = prompting(move || {
            let _ = asked.send(());
            // Once nobody can say it, it goes on as well.
            let _ = goes.lock().recv();
        });
        let broker = Broker::builder(config(&["slow", "more"]), Launcher::SelfExec);
        let broker = broker.source("slow", slow).source("more", prompting(|| {})).build().await.unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "test").await.unwrap();
        let listing = tokio::spawn({
            let session = Arc::clone(&session);
            async move { session.list_for(ItemKind::Prompt, &Json::empty_object(), Arc::new(NoAgent)).await }
        });
        tokio::task::spawn_blocking(move || is_asked.recv()).await.unwrap().unwrap();
        broker.reload(config(&["slow"])).await.unwrap();
        drop(go);
        let listed = listing.await.unwrap().unwrap();
        assert_eq!(listed.items.len(), 1, "{:?}", listed.items);
        broker.shutdown().await;
    }
}
