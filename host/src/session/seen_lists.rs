//! The lists of prompts, resources and templates in the information flow: they hold names and texts of the sources, and
//! get the labels of results. Tools are none of it: the scanner looks at their definitions, and a changed one is noticed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::configured::ConfiguredSession;
use super::listing::SessionCatalog;
use crate::call::{Call, Params, Risk};
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::lockfile::Acceptance;
use crate::protocol::Json;
use crate::provenance::TracedCall;

impl ConfiguredSession {
    /// Keeps the items of a list that the agent is given, but for those that a person has accepted. It is done once for
    /// each list, and again once what the session has seen was cleared.
    pub(super) fn keep_list(&self, listing: &SessionCatalog, kind: ItemKind) {
        if kind == ItemKind::Tool {
            return;
        }
        let flow = &self.agent_side.continuations.flow;
        // Held until everything is kept, so that no call comes before.
        let mut seen = listing.seen.lock();
        if seen.replace(flow.times_cleared()) == Some(flow.times_cleared()) {
            return;
        }
        let mut by_source: BTreeMap<_, (&Arc<Upstream>, Vec<Json>)> = BTreeMap::new();
        for shown in listing.items().filter(|shown| shown.acceptance != Acceptance::Accepted) {
            let (_, items) = by_source.entry(&shown.item.source).or_insert_with(|| (&shown.upstream, Vec::new()));
            items.push(shown.definition());
        }
        for (upstream, items) in by_source.into_values() {
            let source = upstream.flow_to_agent();
            if source.labels.is_empty() {
                continue;
            }
            if !self.context.gate.reads_flow() {
                return flow.miss();
            }
            let (method, item) = (kind.list_method(), Arc::new(upstream.whole_item()));
            let params = Params::parse(&method, Json::empty_object());
            let call = Call::new(&method, params, &self.caller, item, Risk::Harmless);
            TracedCall::new(flow, source, &call).keep_message(&Json::of(&items));
        }
    }
}
