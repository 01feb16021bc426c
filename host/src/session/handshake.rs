//! The answer to an agent's handshake: what the session offers. It is sent at once, whatever the sources do: for a
//! source that has not answered yet, its description from the last connection is used.

#[cfg(all(test, feature = "process"))]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::configured::ConfiguredSession;
use super::listing::{SessionCatalog, VisibleItem, may_see, off_sentence};
use super::offers::{OfferedPart, Unavailable, merged};
use super::{AdvertisedCapabilities, deferred};
use crate::context::Upstream;
use crate::gate::{CellEffects, risk_of};
use crate::item::{Item, ItemKind};
use crate::lockfile::Lockfile;
use crate::protocol::RpcError;

/// The longest time that a handshake waits for sources. With the broker's own work, an agent has its answer within 0.2
/// s; a source that is connected already, or that is a component, has answered by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(150);

impl ConfiguredSession {
    /// Returns what the session offers. See [`Session::offers`](super::Session::offers).
    pub(super) async fn offers(&self) -> AdvertisedCapabilities {
        let mut offers = match self.listing_in_time().await {
            Some(Ok(listing)) if !listing.is_partial() => listing.offers(self.agent_side.agent.era),
            Some(Err(_)) => return AdvertisedCapabilities::default(),
            partial => self.expected_offers(partial.and_then(Result::ok).as_deref()).await,
        };
        if (self.profile.status || self.profile.max_result.is_some())
            && let Some(all) = offers.capabilities.as_object_mut()
        {
            all.entry("resources").or_insert_with(|| json!({}));
        }
        if self.deferred(ItemKind::Tool).is_some() {
            let instructions = offers.instructions.iter().map(String::as_str);
            let instructions: Vec<_> = std::iter::once(deferred::INSTRUCTIONS).chain(instructions).collect();
            offers.instructions = Some(instructions.join("\n\n"));
        }
        offers
    }

    /// Discovers the sources in a separate task, which continues after the handshake. Returns the tools if they are
    /// there in time.
    async fn listing_in_time(&self) -> Option<Result<Arc<SessionCatalog>, RpcError>> {
        let me = self.me.upgrade()?;
        let discovery = tokio::spawn(async move { me.listing(ItemKind::Tool).await });
        self.keep_discovery(discovery.abort_handle());
        timeout(HANDSHAKE_TIMEOUT, discovery).await.ok()?.ok()
    }

    /// Returns the session's offers as far as they are known before all sources have answered. `partial` is the list
    /// without those that have failed or are slow, if there is one.
    async fn expected_offers(&self, partial: Option<&SessionCatalog>) -> AdvertisedCapabilities {
        let lock = self.context.lockfile_or_empty().await;
        let (upstreams, mut known) = (Vec::from_iter(self.upstreams()), Vec::new());
        for upstream in &upstreams {
            known.extend(upstream.described().await.map(|described| (Arc::clone(upstream), described)));
        }
        let unavailable_sources = match partial {
            Some(partial) => {
                Unavailable { missing: partial.missing(), starting: Vec::new(), off: partial.off_sentence() }
            }
            None => {
                Unavailable { off: off_sentence(&self.expected_off(&lock).await), ..unavailable_sources(&upstreams) }
            }
        };
        let parts = known.iter().map(|(upstream, described)| {
            let shown = |instructions: &&Item| {
                !upstream.quarantines(instructions, &described.tools.flags, &lock.of(instructions, upstream.identity))
            };
            let instructions = described.instructions.as_deref().filter(shown);
            OfferedPart { name: &upstream.config.name, capabilities: &described.capabilities, instructions }
        });
        let mut offers = merged(self.agent_side.agent.era, true, &unavailable_sources, parts);
        if let Value::Object(capabilities) = &mut offers.capabilities
            && known.len() < upstreams.len()
        {
            for (name, capability) in served_capabilities() {
                capabilities.entry(name).or_insert(capability);
            }
        }
        let only = upstreams.first().filter(|_| upstreams.len() == 1);
        AdvertisedCapabilities { only_era: only.and_then(|only| only.only_era()), ..offers }
    }

    /// Returns the tools that are known to be off before the sources have listed them, by their exposed names.
    async fn expected_off(&self, lock: &Lockfile) -> BTreeSet<Arc<str>> {
        let mut off = BTreeSet::new();
        for (upstream, filter) in self.context.admitted(&self.caller.profile) {
            for item in upstream.described_destructive() {
                let acceptance = lock.of(&item, upstream.identity);
                if upstream.turns_off(&item, &acceptance, &self.profile) {
                    let risk = risk_of(&item, &upstream.config, CellEffects::Possible, &acceptance);
                    let entry = VisibleItem::new(item, risk, acceptance, Arc::clone(&upstream));
                    if may_see(&self.context, &self.caller, filter, &entry).await {
                        off.insert(entry.item.exposed.clone());
                    }
                }
            }
        }
        off
    }

    fn upstreams(&self) -> impl Iterator<Item = Arc<Upstream>> {
        self.context.admitted(&self.caller.profile).map(|(upstream, _)| upstream)
    }
}

/// Returns the sources that are known to fail, and those that are starting and have never connected.
fn unavailable_sources(upstreams: &[Arc<Upstream>]) -> Unavailable<'_> {
    let (mut missing, mut starting) = (BTreeSet::new(), BTreeSet::new());
    for upstream in upstreams {
        let health = upstream.source.health();
        match health.error {
            Some(_) if !health.connected => missing.insert(upstream.config.offered_as()),
            _ if !upstream.is_described() => starting.insert(upstream.config.offered_as()),
            _ => continue,
        };
    }
    Unavailable { missing: missing.into_iter().collect(), starting: starting.into_iter().collect(), off: None }
}

/// Returns every capability that a source may have and a session serves.
fn served_capabilities() -> [(&'static str, Value); 4] {
    [
        ("prompts", json!({ "listChanged": true })),
        ("resources", json!({ "listChanged": true, "subscribe": true })),
        ("completions", json!({})),
        ("logging", json!({})),
    ]
}
