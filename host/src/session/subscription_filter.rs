//! The changes that an agent subscribes to, and those that a source can announce.

use std::collections::HashSet;

use serde_json::json;

use super::watched_resources::MAX_WATCHED;
use crate::context::DiscoveredSource;
use crate::item::ItemKind;
use crate::protocol::{Json, Method, Notification, RpcError};

/// The changes that an agent subscribes to, or the broker at a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SubscriptionFilter {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    /// The URIs of the resources to watch: exposed ones for an agent, its own ones for a source.
    pub(super) updates: Vec<String>,
}

impl SubscriptionFilter {
    pub(super) fn of(params: &Json) -> Result<Self, RpcError> {
        let filter = params.get("notifications").filter(Json::is_object);
        let filter = filter
            .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, "`params.notifications` must be an object"))?;
        let on = |key| filter.get(key).is_some_and(|flag| flag.is_true());
        let mut updates: Vec<String> =
            filter.get("resourceSubscriptions").and_then(|uris| uris.read().ok()).unwrap_or_default();
        let mut seen = HashSet::new();
        updates.retain(|uri| seen.insert(uri.clone()));
        // Further ones are left out of the list of watched resources that the agent gets.
        updates.truncate(MAX_WATCHED);
        Ok(Self {
            tools: on("toolsListChanged"),
            prompts: on("promptsListChanged"),
            resources: on("resourcesListChanged"),
            updates,
        })
    }

    /// Returns the changes of lists, of those in the filter, that these sources can announce.
    pub(super) fn lists_of<'a>(&self, sources: impl Iterator<Item = &'a DiscoveredSource>) -> Self {
        let mut can = Self::default();
        for discovered in sources {
            can.tools |= self.tools && announces(discovered, ItemKind::Tool);
            can.prompts |= self.prompts && announces(discovered, ItemKind::Prompt);
            can.resources |= self.resources && announces(discovered, ItemKind::Resource);
        }
        can
    }

    /// Reports whether all changes of lists that another filter has are among these.
    pub(super) fn has_lists(&self, other: &Self) -> bool {
        let has = |own: bool, wanted: bool| own || !wanted;
        has(self.tools, other.tools) && has(self.prompts, other.prompts) && has(self.resources, other.resources)
    }

    /// Reports whether a change of a list is one of these.
    pub(super) fn takes(&self, notification: &Notification) -> bool {
        match &notification.method {
            Method::NotificationsToolsListChanged => self.tools,
            Method::NotificationsPromptsListChanged => self.prompts,
            Method::NotificationsResourcesListChanged => self.resources,
            _ => false,
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let mut filter = serde_json::Map::new();
        for (key, on) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if on {
                filter.insert(key.to_owned(), json!(true));
            }
        }
        if !self.updates.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), json!(self.updates));
        }
        Json::of(&filter)
    }
}

/// Reports whether a source says that it announces changes of its resources.
pub(super) fn announces_updates(discovered: &DiscoveredSource) -> bool {
    declares(discovered, "resources", "subscribe")
}

/// Reports whether a source says that it announces changes of its list of this kind.
pub(super) fn announces(discovered: &DiscoveredSource, kind: ItemKind) -> bool {
    let capability = match kind {
        ItemKind::Tool => "tools",
        ItemKind::Prompt => "prompts",
        ItemKind::Resource | ItemKind::Template | ItemKind::Source => "resources",
    };
    declares(discovered, capability, "listChanged")
}

fn declares(discovered: &DiscoveredSource, of: &str, key: &str) -> bool {
    let flag = discovered.capabilities.get(of).and_then(|capability| capability.get(key));
    flag.is_some_and(|flag| flag.is_true())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn change(method: &str, params: &'static str) -> Notification {
        Notification { method: method.into(), params: Some(Json::parse(params).unwrap()) }
    }

    #[test]
    fn a_stream_takes_what_it_asked_for_and_nothing_else() {
        let params = r#"{"notifications":{"promptsListChanged":true,"resourceSubscriptions":["a:b"]}}"#;
        let wants = SubscriptionFilter::of(&Json::parse(params).unwrap()).unwrap();
        assert!(wants.takes(&change("notifications/prompts/list_changed", "{}")));
        assert_eq!(wants.updates, ["a:b"]);
        assert!(!wants.takes(&change("notifications/tools/list_changed", "{}")));
        assert!(!wants.takes(&change("notifications/message", "{}")));
        assert!(SubscriptionFilter::of(&Json::empty_object()).is_err());
        let back = Json::empty_object().with("notifications", &wants.to_json()).unwrap();
        assert_eq!(SubscriptionFilter::of(&back).unwrap(), wants);
    }
}
