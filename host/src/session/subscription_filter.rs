//! The changes that an agent subscribes to, and those that a source can announce.

use serde_json::json;

use crate::catalog::exposed_uri;
use crate::context::{DiscoveredSource, Upstream};
use crate::protocol::{Json, Method, Notification, RpcError};

/// The changes that an agent subscribes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SubscriptionFilter {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    /// Exposed URIs.
    pub(super) updates: Vec<String>,
}

impl SubscriptionFilter {
    pub(super) fn of(params: &Json) -> Result<Self, RpcError> {
        let filter = params.get("notifications").filter(|filter| filter.as_bytes().starts_with(b"{"));
        let filter = filter
            .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, "`params.notifications` must be an object"))?;
        let on = |key| filter.get(key).is_some_and(|flag| flag.as_str() == "true");
        let updates = filter.get("resourceSubscriptions").and_then(|uris| uris.read().ok()).unwrap_or_default();
        Ok(Self {
            tools: on("toolsListChanged"),
            prompts: on("promptsListChanged"),
            resources: on("resourcesListChanged"),
            updates,
        })
    }

    /// Returns the part of the filter that these sources can serve.
    pub(super) fn served_by<'a>(&self, sources: impl Iterator<Item = &'a DiscoveredSource>) -> Self {
        let mut can = Self::default();
        for met in sources {
            let flag = |of: &str, key: &str| {
                let flag = met.capabilities.get(of).and_then(|capability| capability.get(key));
                flag.is_some_and(|flag| flag.as_str() == "true")
            };
            can.tools |= self.tools && flag("tools", "listChanged");
            can.prompts |= self.prompts && flag("prompts", "listChanged");
            can.resources |= self.resources && flag("resources", "listChanged");
            if flag("resources", "subscribe") {
                can.updates.clone_from(&self.updates);
            }
        }
        can
    }

    /// Returns the part of the filter that one source can serve, under its own names.
    pub(super) fn at(&self, upstream: &Upstream, met: &DiscoveredSource) -> Self {
        let prefix = exposed_uri(&upstream.config.name, &upstream.config.names, "");
        let own = self.updates.iter().filter_map(|uri| uri.strip_prefix(&prefix));
        Self { updates: own.map(ToOwned::to_owned).collect(), ..self.clone() }.served_by(std::iter::once(met))
    }

    pub(super) fn takes(&self, notification: &Notification) -> bool {
        match &notification.method {
            Method::NotificationsToolsListChanged => self.tools,
            Method::NotificationsPromptsListChanged => self.prompts,
            Method::NotificationsResourcesListChanged => self.resources,
            Method::NotificationsResourcesUpdated => {
                let uri = notification.params.as_ref().and_then(|params| params.get_str("uri"));
                uri.is_some_and(|uri| self.updates.contains(&uri))
            }
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
        assert!(wants.takes(&change("notifications/resources/updated", r#"{"uri":"a:b"}"#)));
        assert!(!wants.takes(&change("notifications/resources/updated", r#"{"uri":"a:c"}"#)));
        assert!(!wants.takes(&change("notifications/tools/list_changed", "{}")));
        assert!(!wants.takes(&change("notifications/message", "{}")));
        assert!(SubscriptionFilter::of(&Json::empty_object()).is_err());
        let back = Json::empty_object().with("notifications", &wants.to_json()).unwrap();
        assert_eq!(SubscriptionFilter::of(&back).unwrap(), wants);
    }
}
