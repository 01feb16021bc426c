//! The state of the session's sources, as a resource that an agent can read. It is served only if the profile says so,
//! and nothing else of the broker can be reached through it.

use std::collections::HashMap;

use serde_json::json;

use super::ListPage;
use super::configured::ConfiguredSession;
use super::request::SessionRequest;
use crate::catalog::{Catalog, ContestedName};
use crate::context::BrokerState;
use crate::item::ItemKind;
use crate::protocol::{Answer, Json, RpcError};

/// The URI of the resource. No source's URI is exposed as this: those have a path after the name of the source.
const URI: &str = "portcullis://status";

/// Checks that no source exposes a resource under this URI.
///
/// # Errors
/// A text that names the source.
pub(super) fn contested(catalog: &Catalog) -> Option<ContestedName> {
    catalog.get(URI).map(|item| ContestedName {
        exposed: item.exposed.clone(),
        sources: vec![item.source.clone()],
        message: format!(
            "source `{}` offers a resource `{URI}`, as the broker itself does where a profile has `status = true`; give the source \
             another `names`",
            item.source
        ),
    })
}

impl SessionRequest<'_> {
    /// Reports whether a `resources/read` reads the status.
    pub(super) fn reads_status(&self) -> bool {
        self.session.profile.status
            && self.params.uri().is_some_and(|uri| uri.read().is_ok_and(|uri: String| uri == URI))
    }
}

impl ConfiguredSession {
    /// Adds the broker's own resource to a list.
    pub(super) fn with_status(&self, kind: ItemKind, list_page: ListPage) -> ListPage {
        if kind != ItemKind::Resource || !self.profile.status {
            return list_page;
        }
        let own = Json::of(&json!({
            "uri": URI,
            "name": "status",
            "title": "Status of the tool sources",
            "description": "Which sources are connected, and how many of their tools can be called here.",
            "mimeType": "application/json",
        }));
        ListPage { items: list_page.items.iter().cloned().chain([own]).collect(), ..list_page }
    }

    /// Returns the state of the profile's sources, with the number of tools that this session sees. It holds no text of
    /// any source, and no causes.
    pub(super) async fn read_status(&self) -> Result<Answer, RpcError> {
        let listing = self.listing(ItemKind::Tool).await?;
        let mut seen: HashMap<_, usize> = HashMap::new();
        for shown in listing.items() {
            let members = shown.group.as_ref().map_or(std::slice::from_ref(shown), |group| &group.members);
            members.iter().for_each(|member| *seen.entry(&member.item.source).or_default() += 1);
        }
        let lock = self.context.lockfile_or_empty().await;
        let known = self.context.admitted(&self.caller.profile).map(|(upstream, _)| {
            let (mut health, discovered) = upstream.health(&lock);
            // Tools that the session does not see are not counted, and tools that cannot be reached cannot be called.
            health.tools_available =
                seen.get(&health.name).copied().filter(|_| health.tools_available > 0).unwrap_or(0);
            (health, discovered)
        });
        let text = Json::of(&BrokerState::of(known)).as_str().to_owned();
        let content = json!({ "uri": URI, "mimeType": "application/json", "text": text });
        Ok(Answer::Result(Json::of(&json!({ "contents": [content], "ttlMs": 0, "cacheScope": "private" }))))
    }
}
