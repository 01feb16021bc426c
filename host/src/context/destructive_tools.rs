//! Tools that are off: their own source calls them destructive, and no person has accepted them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Upstream};
use crate::config::{Destructive, ProfileConfig};
use crate::item::{Item, ItemKind};
use crate::lockfile::{Acceptance, Lockfile};

impl Upstream {
    /// Reports whether a profile neither shows nor calls a tool until a person has accepted it. In a cell that can
    /// neither write nor reach a network there is nothing to destroy.
    pub(crate) fn turns_off(&self, item: &Item, acceptance: &Acceptance, profile: &ProfileConfig) -> bool {
        let claims = item.kind == ItemKind::Tool && item.hints.claim_destructive();
        profile.destructive == Destructive::Off && claims && *acceptance == Acceptance::Unknown && !self.is_harmless()
    }
}

impl Context {
    /// Returns the tools that a source listed last and that are off under a profile which would show them, by their
    /// exposed names.
    pub(crate) fn off_tools(&self, upstream: &Upstream, lock: &Lockfile) -> BTreeSet<Arc<str>> {
        let tools = upstream.last_tools();
        let is_off = |item: &Item| {
            let acceptance = lock.of(item, upstream.identity);
            self.profiles.values().any(|profile| {
                let admits = profile.filters.get(&upstream.config.name).is_some_and(|filter| filter.admits(item));
                admits && upstream.turns_off(item, &acceptance, &profile.config)
            })
        };
        tools.iter().filter(|item| is_off(item)).map(|item| item.exposed.clone()).collect()
    }
}
