//! Gathers the offers of all sources, with the scanner's findings, for people who decide what to accept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::{Broker, BuildError};
use crate::call::SessionId;
use crate::context::{Context, FlaggedDefinition, Upstream};
use crate::item::{Item, ItemKind};
use crate::name::{ProfileName, SourceName};
use crate::protocol::{Answer, Json, Notification, Request};
use crate::source::{NoClient, SourceClient, SourceError};

/// The kinds that a source may list besides tools.
const OTHER_KINDS: [ItemKind; 3] = [ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];

/// Everything that one source offers.
#[derive(Debug, Clone, Default)]
pub struct SourceDefinitions {
    /// The tools, prompts, resources and templates, and the source's instructions as an item of the kind
    /// [`ItemKind::Source`].
    pub items: Vec<Arc<Item>>,
    /// The kinds that the source did not list, and why.
    pub list_errors: Vec<(ItemKind, SourceError)>,
}

impl SourceDefinitions {
    /// Returns the items of one kind.
    pub fn of_kind(&self, kind: ItemKind) -> impl Iterator<Item = &Arc<Item>> {
        self.items.iter().filter(move |item| item.kind == kind)
    }
}

impl Broker {
    /// Discovers every configured source in parallel, and lists its items of every kind. A source fails as a whole only
    /// if its tools cannot be listed.
    #[doc(hidden)]
    pub async fn definitions(&self) -> BTreeMap<SourceName, Result<SourceDefinitions, SourceError>> {
        let context = self.inner.context();
        let all = join_all(context.upstreams.values().map(|upstream| everything(&context, upstream))).await;
        context.upstreams.keys().cloned().zip(all).collect()
    }

    /// Returns the definitions of a source in which the scanner found something, as far as they were listed, and the
    /// consequence for each.
    ///
    /// # Errors
    /// [`BuildError::Lock`] if the lock file is damaged.
    #[doc(hidden)]
    pub fn flagged(&self, source: &SourceName) -> Result<Vec<FlaggedDefinition>, BuildError> {
        let context = self.inner.context();
        let lock = context.lock.current_blocking()?;
        Ok(context.upstreams.get(source).map_or_else(Vec::new, |upstream| upstream.flagged(&lock)))
    }

    /// Returns the tools of a source that are neither shown nor called until a person accepts them, as the source calls
    /// them destructive: by their exposed names, as far as they were listed.
    ///
    /// # Errors
    /// [`BuildError::Lock`] if the lock file is damaged.
    #[doc(hidden)]
    pub fn off_tools(&self, source: &SourceName) -> Result<BTreeSet<Arc<str>>, BuildError> {
        let context = self.inner.context();
        let lock = context.lock.current_blocking()?;
        Ok(context.upstreams.get(source).map(|upstream| context.off_tools(upstream, &lock)).unwrap_or_default())
    }
}

fn capability_of(kind: ItemKind) -> &'static str {
    if kind == ItemKind::Prompt { "prompts" } else { "resources" }
}

/// A client that only wants to see what a source offers under a profile: some components keep something for each.
struct ProfileClient(Option<ProfileName>);

impl SourceClient for ProfileClient {
    fn session(&self) -> Option<&SessionId> {
        None
    }

    fn profile(&self) -> Option<&ProfileName> {
        self.0.as_ref()
    }

    fn capabilities(&self) -> Json {
        NoClient.capabilities()
    }

    fn log_level(&self) -> Option<Json> {
        None
    }

    fn notify<'a>(&'a self, source: &'a str, notification: Notification) -> BoxFuture<'a, ()> {
        NoClient.notify(source, notification)
    }

    fn request<'a>(&'a self, source: &'a str, request: Request) -> BoxFuture<'a, Answer> {
        NoClient.request(source, request)
    }
}

/// Returns what a source offers, under the first profile that may use it.
pub(super) async fn everything(context: &Context, upstream: &Upstream) -> Result<SourceDefinitions, SourceError> {
    let may_use =
        |profile: &&ProfileName| context.admitted(profile).any(|(it, _)| it.config.name == upstream.config.name);
    let profile = context.profiles.keys().find(may_use).cloned();
    let no_client: Arc<dyn SourceClient> = Arc::new(ProfileClient(profile));
    let met = upstream.discover(&no_client).await?;
    let mut offered = SourceDefinitions {
        items: met.tools.items.iter().cloned().chain(met.instructions.clone()).collect(),
        list_errors: Vec::new(),
    };
    // A source that opens a connection for each request is not asked in vain.
    let declares = |capability: &str| met.capabilities.get(capability).is_some();
    for kind in OTHER_KINDS.into_iter().filter(|kind| declares(capability_of(*kind))) {
        match upstream.list(&no_client, kind).await {
            Ok(listed) => offered.items.extend(listed.items.iter().cloned()),
            Err(error) => offered.list_errors.push((kind, error)),
        }
    }
    Ok(offered)
}
