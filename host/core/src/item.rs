//! Items: the things that a source offers.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::digest::Digest;
use crate::metrics::SeriesLink;
use crate::name::SourceName;
use crate::protocol::{Json, Method};

/// The name of a source's instructions to the model, and the member that holds their text.
const INSTRUCTIONS: &str = "instructions";

/// The longest scheme of a URI that records have.
const MAX_SCHEME: usize = 12;

/// The kind of an [`Item`]. It is serialised as the word that [`as_str`](Self::as_str) returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// A tool, which a model calls.
    Tool,
    /// A prompt, which a person picks.
    Prompt,
    /// A resource, which an application reads.
    Resource,
    /// A template, which is a family of resources under one URI template.
    Template,
    /// The source itself, for requests that are about none of the above.
    Source,
}

impl ItemKind {
    /// Returns the word that the ledger and messages use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Source => "source",
        }
    }

    /// Returns the method that lists items of this kind. For a source itself, which no method lists, its name is empty.
    #[must_use]
    pub fn list_method(self) -> Method {
        match self {
            Self::Tool => Method::ToolsList,
            Self::Prompt => Method::PromptsList,
            Self::Resource => Method::ResourcesList,
            Self::Template => Method::ResourcesTemplatesList,
            Self::Source => Method::from(""),
        }
    }

    /// Returns the method that uses an item of this kind. Policies see it when the item is about to be shown.
    #[must_use]
    pub fn use_method(self) -> Method {
        match self {
            Self::Tool => Method::ToolsCall,
            Self::Prompt => Method::PromptsGet,
            Self::Resource | Self::Template => Method::ResourcesRead,
            Self::Source => Method::from(""),
        }
    }

    /// Returns the notification that a list of items of this kind has changed.
    pub fn changed_method(self) -> Method {
        match self {
            Self::Tool | Self::Source => Method::NotificationsToolsListChanged,
            Self::Prompt => Method::NotificationsPromptsListChanged,
            Self::Resource | Self::Template => Method::NotificationsResourcesListChanged,
        }
    }

    /// Returns the member of a list result that holds the items.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Source => "",
        }
    }

    /// Returns the member that names the item, in a definition and in the parameters of a request.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt | Self::Source => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

/// One thing that a source offers: a tool, a prompt, a resource, a template.
#[derive(Debug, Clone)]
pub struct Item {
    /// The kind of the item.
    pub kind: ItemKind,
    /// The source that offers it.
    pub source: SourceName,
    /// The group under which the item is offered, if it is a tool of a group's member.
    pub group: Option<SourceName>,
    /// The name, URI or URI template at the source; empty for the source itself.
    pub name: Arc<str>,
    /// The name, URI or URI template that the agent sees.
    pub exposed: Arc<str>,
    /// The definition from the source, byte for byte.
    pub definition: Json,
    /// The digest of the definition's canonical form.
    pub digest: Digest,
    /// The hints that the source gives.
    pub hints: ToolAnnotations,
    /// The tags of the source.
    pub tags: Arc<[String]>,
    /// The counters of its calls.
    pub series_link: SeriesLink,
    /// The definition under the exposed name, which the sessions that show the item share.
    pub exposed_definition: ExposedDefinition,
}

/// An item's definition under its exposed name, which is made at its first use. A clone makes its own: it may be part
/// of an item with other names.
#[derive(Debug, Default)]
pub struct ExposedDefinition(OnceLock<Json>);

impl Clone for ExposedDefinition {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Returns a URI that is somebody's own words as records have it: its scheme, since the rest is payload.
#[must_use]
pub fn recorded_uri(uri: &str) -> String {
    let scheme = uri.split(':').next().unwrap_or_default();
    // A scheme is a word, and nothing else that a caller could mean to tell.
    let is_word = scheme.len() <= MAX_SCHEME && scheme.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_word && scheme.len() < uri.len() { format!("{scheme}:…") } else { "…".to_owned() }
}

impl Item {
    /// Returns a source's instructions to the model as an item that can be judged and accepted like a definition.
    #[must_use]
    pub fn of_instructions(source: &SourceName, tags: &[String], text: &str) -> Self {
        let definition = Json::of(&serde_json::json!({ INSTRUCTIONS: text }));
        let exposed = format!("{source} ({INSTRUCTIONS})");
        let item = Self::unlisted((source, tags), ItemKind::Source, INSTRUCTIONS, &exposed);
        let digest = Digest::of_json(&definition).unwrap_or(item.digest);
        Self { digest, definition, ..item }
    }

    /// Returns a source's instructions to the model, if the item is that.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        self.definition.get_str(INSTRUCTIONS).filter(|_| self.kind == ItemKind::Source)
    }

    /// Returns the definition under its exposed name; everything else is unchanged, byte for byte.
    #[must_use]
    pub fn exposed_definition(&self) -> Json {
        if self.exposed == self.name {
            return self.definition.clone();
        }
        let renamed = || self.definition.with(self.kind.key(), &Json::of(&&*self.exposed)).unwrap_or_else(Json::null);
        self.exposed_definition.0.get_or_init(renamed).clone()
    }

    /// Returns the item for a source itself, for requests that concern no particular item.
    #[must_use]
    pub fn of_source(source: &SourceName, tags: &[String]) -> Self {
        Self::unlisted((source, tags), ItemKind::Source, "", source.as_str())
    }

    /// Returns a resource that the source did not list: one that matches a template, or one that the source keeps
    /// unlisted.
    #[must_use]
    pub fn unlisted_resource(source: &SourceName, tags: &[String], uri: &str, exposed: &str) -> Self {
        Self::unlisted((source, tags), ItemKind::Resource, uri, exposed)
    }

    /// Returns a tool with only its names known: the one at its source, and the one that the agent sees.
    #[must_use]
    pub fn unlisted_tool(source: &SourceName, name: &str, exposed: &str) -> Self {
        Self::unlisted((source, &[]), ItemKind::Tool, name, exposed)
    }

    fn unlisted((source, tags): (&SourceName, &[String]), kind: ItemKind, name: &str, exposed: &str) -> Self {
        let definition = Json::empty_object();
        Self {
            kind,
            source: source.clone(),
            group: None,
            name: name.into(),
            exposed: exposed.into(),
            digest: Digest::of(definition.as_bytes()),
            definition,
            hints: ToolAnnotations::default(),
            tags: tags.into(),
            series_link: SeriesLink::default(),
            exposed_definition: ExposedDefinition::default(),
        }
    }

    /// Reports whether the item is a resource that no list names: its URI consists of the caller's own words.
    #[must_use]
    pub fn is_unlisted(&self) -> bool {
        self.kind == ItemKind::Resource && self.definition == Json::empty_object()
    }

    /// Returns the name at the source as records have it: of an unlisted URI only the scheme, since the rest is payload.
    #[must_use]
    pub fn recorded_name(&self) -> Cow<'_, str> {
        if self.is_unlisted() { Cow::Owned(recorded_uri(&self.name)) } else { Cow::Borrowed(&self.name) }
    }

    /// Returns the name that the agent sees as records have it: see [`Item::recorded_name`].
    #[must_use]
    pub fn recorded_exposed(&self) -> Cow<'_, str> {
        match self.exposed.strip_suffix(&*self.name) {
            _ if !self.is_unlisted() => Cow::Borrowed(&self.exposed),
            Some(prefix) => Cow::Owned(format!("{prefix}{}", self.recorded_name())),
            None => self.recorded_name(),
        }
    }

    /// Returns the name under which agents know the provider of the item: the group, if there is one, or else the
    /// source.
    #[must_use]
    pub fn offered_by(&self) -> &SourceName {
        self.group.as_ref().unwrap_or(&self.source)
    }

    /// Reports whether both tools take the same arguments: their `inputSchema` is equal in canonical form. Only then
    /// may one be called instead of the other, which a caller was shown.
    #[must_use]
    pub fn accepts_same_arguments(&self, other: &Self) -> bool {
        let schema = |item: &Self| {
            let schema = item.definition.get("inputSchema").unwrap_or_else(Json::empty_object);
            Digest::of_json(&schema).ok()
        };
        self.digest == other.digest || schema(self).is_some_and(|own| schema(other) == Some(own))
    }

    /// Returns the body of the record that somebody accepted the definition.
    #[must_use]
    pub fn acceptance_record(&self, by: &str) -> serde_json::Value {
        let Self { source, kind, name, digest, .. } = self;
        serde_json::json!({ "source": source, kind.as_str(): &**name, "definition": digest, "by": by })
    }

    /// Reports whether the source listed the item.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.definition != Json::empty_object()
    }
}

/// Returns the title that a definition has for people, by its own member or by its annotations.
#[must_use]
pub fn title_of(definition: &Json) -> Option<String> {
    let titles = [definition.get_str("title"), definition.get("annotations").and_then(|hints| hints.get_str("title"))];
    titles.into_iter().flatten().find(|title| !title.is_empty())
}

/// The `ToolAnnotations` of MCP, which are claims of the source. `None` if the source makes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// The annotation `readOnlyHint`.
    #[serde(rename = "readOnlyHint")]
    pub read_only: Option<bool>,
    /// The annotation `destructiveHint`.
    #[serde(rename = "destructiveHint")]
    pub destructive: Option<bool>,
    /// The annotation `idempotentHint`.
    #[serde(rename = "idempotentHint")]
    pub idempotent: Option<bool>,
    /// The annotation `openWorldHint`.
    #[serde(rename = "openWorldHint")]
    pub open_world: Option<bool>,
}

impl ToolAnnotations {
    /// Reads the annotations of a definition. A definition without readable annotations claims nothing.
    pub fn of(definition: &Json) -> Self {
        // Malformed annotations claim nothing, and without a claim no risk is lowered.
        definition.get("annotations").and_then(|json| json.read().ok()).unwrap_or_default()
    }

    /// Returns the claims in words for people, such as "only reads" and "destructive".
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let claims = [
            (self.read_only == Some(true), "only reads"),
            (self.claim_destructive(), "destructive"),
            (self.idempotent == Some(true), "idempotent"),
            (self.open_world == Some(true), "open world"),
        ];
        claims.into_iter().filter_map(|(is_claimed, word)| is_claimed.then_some(word))
    }

    /// Reports whether the tool may destroy something or reach beyond its source. MCP's default is yes, unless the
    /// source denies it.
    #[must_use]
    pub fn may_do_harm(self) -> bool {
        let destructive = self.destructive.unwrap_or(true) && self.read_only != Some(true);
        destructive || self.open_world.unwrap_or(true)
    }

    /// Reports whether the source itself says that the tool may destroy something.
    #[must_use]
    pub fn claim_destructive(self) -> bool {
        self.destructive == Some(true) && self.read_only != Some(true)
    }

    /// Reports whether the source itself says that the tool is dangerous.
    #[must_use]
    pub fn raise_risk(self) -> bool {
        self.claim_destructive() || self.open_world == Some(true)
    }

    /// Reports whether the source states that the tool only reads, without contradicting this.
    #[must_use]
    pub fn claim_harmless(self) -> bool {
        self.read_only == Some(true) && self.destructive != Some(true) && self.open_world != Some(true)
    }
}
