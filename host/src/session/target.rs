//! The target of a request: the item that its parameters name, of those that the session may use.

use std::sync::Arc;

use serde_json::json;

use super::configured::ConfiguredSession;
use super::listing::{SessionCatalog, VisibleItem, may_see};
use super::request::SessionRequest;
use super::shortened;
use super::tasks::{has_tasks, lists_tasks};
use super::tool_refresh::removed;
use crate::call::{Params, Risk};
use crate::catalog::{ItemFilter, ResolvedUri, exposed_uri, resolve_uri};
use crate::config::Naming;
use crate::context::{DiscoveredSource, Upstream};
use crate::gate::risk_of;
use crate::item::{Item, ItemKind};
use crate::lockfile::Acceptance;
use crate::protocol::{Era, Json, Method, RpcError};

/// The `_meta` key by which a request that names no item names its source.
pub(super) const META_SOURCE: &str = "portcullis/source";

/// Reports whether a request names the source that it is for.
pub(super) fn names_source(params: &Params) -> bool {
    params.meta().is_some_and(|meta| meta.get(META_SOURCE).is_some())
}

impl SessionRequest<'_> {
    /// Returns the item that the request is about, once the sources have sent their lists. An item that is hidden from
    /// the session and one that does not exist look the same.
    pub(super) async fn target(&self) -> Result<VisibleItem, RpcError> {
        let (session, token) = (self.session, self.params.progress_token());
        session.report_installations_during(token, &*self.peer, |source| session.uses(source), self.found()).await
    }

    /// Returns the session's tools, once the sources have listed them.
    pub(super) async fn listed(&self) -> Result<Arc<SessionCatalog>, RpcError> {
        let (session, token) = (self.session, self.params.progress_token());
        let listed = session.listing(ItemKind::Tool);
        session.report_installations_during(token, &*self.peer, |source| session.uses(source), listed).await
    }

    async fn found(&self) -> Result<VisibleItem, RpcError> {
        let Self { session, params, .. } = self;
        match &self.method {
            Method::ToolsCall => session.named(ItemKind::Tool, params.name(), "params.name").await,
            Method::PromptsGet => session.named(ItemKind::Prompt, params.name(), "params.name").await,
            Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                session.resource(params.uri(), "params.uri").await
            }
            Method::CompletionComplete => session.completed(params.as_json().get("ref")).await,
            Method::TasksGet | Method::TasksResult | Method::TasksCancel | Method::TasksUpdate => self.task().await,
            Method::TasksList => self.source().await,
            // A reserved method counts only in the exact spelling of the protocol, as a source may be lenient.
            method if method.is_reserved() => {
                let text = format!(
                    "no method {:?}: the protocol has none of that name, and reserves names that look like its own",
                    shortened(method.as_str())
                );
                let error = session.record_rejection("unknown-method", ItemKind::Source, "", &text);
                Err(RpcError { code: RpcError::METHOD_NOT_FOUND, ..error })
            }
            _ => self.source().await,
        }
    }

    /// Returns the source of a request that names no item: the one that the caller names, or the only one there is.
    pub(super) async fn source(&self) -> Result<VisibleItem, RpcError> {
        let Self { session, method, params, .. } = self;
        let tools = session.listing(ItemKind::Tool).await?;
        let serves = |discovered: &DiscoveredSource| match method {
            Method::TasksList => lists_tasks(&discovered.capabilities),
            _ => !method.is_of_tasks() || has_tasks(&discovered.capabilities),
        };
        let candidates = || tools.sources().filter(|(_, discovered)| serves(discovered)).map(|(upstream, _)| upstream);
        let named = params.meta().and_then(|meta| meta.get_str(META_SOURCE));
        let found = match &named {
            Some(name) => candidates().find(|upstream| upstream.config.name.as_str() == name),
            None => candidates().next().filter(|_| candidates().count() == 1),
        };
        let Some(upstream) = found.cloned() else {
            let code = if named.is_some() { "unknown-source" } else { "unknown-method" };
            let text = format!(
                "method {:?} is not served here; if it is one of a source's own, name the source in `_meta` as {META_SOURCE:?}",
                shortened(method.as_str())
            );
            let error = session.record_rejection(code, ItemKind::Source, named.as_deref().unwrap_or_default(), &text);
            return Err(RpcError { code: RpcError::METHOD_NOT_FOUND, ..error });
        };
        let item = Arc::new(upstream.whole_item());
        // A task was begun by a call that passed the gate; a caller that knows its id continues it.
        let continues = method.is_of_tasks();
        let risk = if continues {
            Risk::Harmless
        } else {
            risk_of(&item, &upstream.config, upstream.cell_effects(), &Acceptance::Unknown)
        };
        Ok(VisibleItem::new(item, risk, Acceptance::Unknown, upstream))
    }
}

impl ConfiguredSession {
    /// Returns the item that a `completion/complete` is about.
    async fn completed(&self, about: Option<Json>) -> Result<VisibleItem, RpcError> {
        let part = |key| about.as_ref().and_then(|about| about.get(key));
        match about.as_ref().and_then(|about| about.get_str("type")).as_deref() {
            Some("ref/prompt") => self.named(ItemKind::Prompt, part("name").as_ref(), "params.ref.name").await,
            Some("ref/resource") => self.template(part("uri").as_ref()).await,
            _ => Err(self.invalid("`params.ref.type` must be `ref/prompt` or `ref/resource`")),
        }
    }

    fn invalid(&self, text: &str) -> RpcError {
        self.record_rejection("invalid-params", ItemKind::Source, "", text)
    }

    async fn named(&self, kind: ItemKind, name: Option<&Json>, shown: &str) -> Result<VisibleItem, RpcError> {
        let Some(name) = name.and_then(|name| name.read::<String>().ok()) else {
            return Err(self.record_rejection("invalid-params", kind, "", &format!("`{shown}` must be a string")));
        };
        let listing = self.listing(kind).await?;
        if let Some(found) = listing.get(&name) {
            return Ok(found.clone());
        }
        if listing.has_removed(&name) && !listing.hides(&name) {
            let text = removed(kind, &shortened(&name));
            return Err(self
                .record_rejection("tool-removed", kind, &name, &text)
                .with_data(json!({ "code": "tool-removed" })));
        }
        if let Some(why) = listing.why_absent(&name) {
            let error = self.record_rejection("not-sent", kind, &name, &why);
            return Err(RpcError { code: RpcError::INTERNAL, ..error }.with_data(json!({ "code": "not-sent" })));
        }
        if listing.is_off(&name) {
            let text = format!(
                "tool `{name}` is off because its source calls it destructive; to turn it on, run `portcullis lock accept {name}`"
            );
            return Err(self.record_rejection("tool-off", kind, &name, &text).with_data(json!({ "code": "tool-off" })));
        }
        let code = if listing.hides(&name) { "not-visible".to_owned() } else { format!("unknown-{}", kind.as_str()) };
        Err(self.record_rejection(&code, kind, &name, &format!("unknown {} {:?}", kind.as_str(), shortened(&name))))
    }

    /// Returns a template by its exposed form, or a resource by its URI, as some clients complete the URI of a
    /// resource.
    async fn template(&self, uri: Option<&Json>) -> Result<VisibleItem, RpcError> {
        let text = uri.and_then(|uri| uri.read::<String>().ok()).unwrap_or_default();
        match self.listing(ItemKind::Template).await?.get(&text) {
            Some(found) => Ok(found.clone()),
            None => self.resource(uri, "params.ref.uri").await,
        }
    }

    /// Returns the resource of a URI, even if its source did not list it: servers need not list what a template
    /// describes.
    pub(super) async fn resource(&self, uri: Option<&Json>, shown: &str) -> Result<VisibleItem, RpcError> {
        let Some(uri) = uri.and_then(|uri| uri.read::<String>().ok()) else {
            return Err(self.record_rejection(
                "invalid-params",
                ItemKind::Resource,
                "",
                &format!("`{shown}` must be a string"),
            ));
        };
        let listing = self.listing(ItemKind::Resource).await?;
        if let Some(found) = listing.get(&uri) {
            return Ok(found.clone());
        }
        if listing.hides(&uri) {
            return Err(self.no_resource("not-visible", &uri));
        }
        let Some((upstream, own)) = self.resource_source(&uri).await? else {
            return Err(self.no_resource("unknown-resource", &uri));
        };
        let exposed = exposed_uri(&upstream.config.name, &upstream.config.names, &own);
        let item = Arc::new(Item::unlisted_resource(&upstream.config.name, &upstream.config.tags, &own, &exposed));
        let risk = risk_of(&item, &upstream.config, upstream.cell_effects(), &Acceptance::Unknown);
        let found = VisibleItem::new(item, risk, Acceptance::Unknown, upstream);
        match self.filter_of(&found.upstream) {
            Some(filter) if may_see(&self.context, &self.caller, filter, &found).await => Ok(found),
            _ => Err(self.no_resource("not-visible", &uri)),
        }
    }

    pub(super) fn no_resource(&self, code: &str, uri: &str) -> RpcError {
        let error = self.record_rejection(code, ItemKind::Resource, uri, "resource not found");
        let code = if self.agent_side.agent.era == Era::Modern {
            RpcError::INVALID_PARAMS
        } else {
            RpcError::RESOURCE_NOT_FOUND
        };
        RpcError { code, ..error }.with_data(serde_json::json!({ "uri": shortened(uri) }))
    }

    fn filter_of(&self, upstream: &Upstream) -> Option<&ItemFilter> {
        let mut admitted = self.context.admitted(&self.caller.profile);
        admitted.find(|(other, _)| other.config.name == upstream.config.name).map(|(_, filter)| filter)
    }

    /// Returns the source that an unlisted URI leads to, and the URI there. Among sources that keep their URIs
    /// unchanged, it is the one with the template that fits best, else the only one that has resources.
    async fn resource_source(&self, uri: &str) -> Result<Option<(Arc<Upstream>, String)>, RpcError> {
        let tools = self.listing(ItemKind::Tool).await?;
        let with_resources = || {
            tools
                .sources()
                .filter(|(_, discovered)| discovered.capabilities.get("resources").is_some())
                .map(|(up, _)| up)
        };
        let plain = || with_resources().filter(|upstream| upstream.config.names == Naming::Plain);
        if let ResolvedUri::Source(name, own) = resolve_uri(uri) {
            let found = with_resources().find(|upstream| upstream.config.name.as_str() == name);
            return Ok(found.filter(|up| up.config.names != Naming::Plain).map(|up| (up.clone(), own.to_owned())));
        }
        let templates = self.listing(ItemKind::Template).await?;
        let fixed = |entry: &&VisibleItem| entry.item.name.split('{').next().unwrap_or_default().len();
        let fits = |entry: &&VisibleItem| {
            let start = entry.item.name.split('{').next().unwrap_or_default();
            entry.upstream.config.names == Naming::Plain && uri.starts_with(start)
        };
        let of_template = templates.items().filter(fits).max_by_key(fixed).map(|entry| &entry.upstream);
        let only = || plain().next().filter(|_| plain().count() == 1);
        Ok(of_template.or_else(only).map(|upstream| (upstream.clone(), uri.to_owned())))
    }
}
