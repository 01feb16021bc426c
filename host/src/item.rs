//! One thing that a source offers.

use std::sync::Arc;

use crate::digest::Digest;
use crate::metrics::Tally;
use crate::name::SourceName;
use crate::protocol::{Json, Method};

/// What an [`Item`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ItemKind {
    /// Called by a model.
    Tool,
    /// Picked by a person.
    Prompt,
    /// Read by an application.
    Resource,
    /// A family of resources under one URI template.
    Template,
    /// The source itself, for whatever is about none of the above.
    Source,
}

impl ItemKind {
    /// The word that the ledger and messages use.
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

    /// The method that lists such items. No method lists a source itself: its name is empty then.
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

    /// The method that uses such an item, as policies are told of it when it is about to be shown.
    #[must_use]
    pub fn use_method(self) -> Method {
        match self {
            Self::Tool => Method::ToolsCall,
            Self::Prompt => Method::PromptsGet,
            Self::Resource | Self::Template => Method::ResourcesRead,
            Self::Source => Method::from(""),
        }
    }

    /// Returns the notification that says that a list of such items has changed.
    pub(crate) fn changed_method(self) -> Method {
        match self {
            Self::Tool | Self::Source => Method::NotificationsToolsListChanged,
            Self::Prompt => Method::NotificationsPromptsListChanged,
            Self::Resource | Self::Template => Method::NotificationsResourcesListChanged,
        }
    }

    /// The member of a list's result that holds the items.
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

    /// The member of a definition, and of the parameters of a request, that names the item.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt | Self::Source => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

/// One thing that a source offers: a tool, a prompt, a resource.
#[derive(Debug, Clone)]
pub struct Item {
    /// What it is.
    pub kind: ItemKind,
    /// The source that offers it.
    pub source: SourceName,
    /// The group as part of which it is offered, if it is a tool of a member.
    pub group: Option<SourceName>,
    /// Its name (or URI, or URI template) at the source; empty for the source itself.
    pub name: Arc<str>,
    /// Its name, URI or template for the agent.
    pub exposed: Arc<str>,
    /// The definition as the source gave it, byte for byte.
    pub definition: Json,
    /// Of the definition's canonical form.
    pub digest: Digest,
    /// The source's hints.
    pub hints: Hints,
    /// The source's tags.
    pub tags: Arc<[String]>,
    /// Where its calls are counted.
    pub tally: Tally,
}

impl Item {
    /// The definition under its exposed name, everything else byte for byte.
    #[must_use]
    pub fn exposed_definition(&self) -> Json {
        self.definition.with(self.kind.key(), &Json::of(&&*self.exposed)).unwrap_or_else(Json::null)
    }

    /// The source itself, for requests that are about nothing in particular that it offers.
    #[must_use]
    pub fn of_source(source: &SourceName, tags: &[String]) -> Self {
        Self::unlisted((source, tags), ItemKind::Source, "", source.as_str())
    }

    /// A resource that the source did not list: one of a template, or one that it keeps to itself.
    #[must_use]
    pub fn unlisted_resource(source: &SourceName, tags: &[String], uri: &str, exposed: &str) -> Self {
        Self::unlisted((source, tags), ItemKind::Resource, uri, exposed)
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
            hints: Hints::default(),
            tags: tags.into(),
            tally: Tally::default(),
        }
    }

    /// By which name agents know who offers it: the source's, or that of the group.
    #[must_use]
    pub fn offered_by(&self) -> &SourceName {
        self.group.as_ref().unwrap_or(&self.source)
    }

    /// Whether both take the same arguments: their `inputSchema` is the same but for its spelling. Only then can one tool be
    /// called in the place of another that a caller was shown.
    #[must_use]
    pub fn takes_what(&self, other: &Self) -> bool {
        let schema = |item: &Self| {
            let schema = item.definition.get("inputSchema").unwrap_or_else(Json::empty_object);
            Digest::of_json(&schema).ok()
        };
        self.digest == other.digest || schema(self).is_some_and(|own| schema(other) == Some(own))
    }

    /// Whether the source listed it.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.definition != Json::empty_object()
    }
}

/// `ToolAnnotations`: claims of the source. None where it says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// `readOnlyHint`
    #[serde(rename = "readOnlyHint")]
    pub read_only: Option<bool>,
    /// `destructiveHint`
    #[serde(rename = "destructiveHint")]
    pub destructive: Option<bool>,
    /// `idempotentHint`
    #[serde(rename = "idempotentHint")]
    pub idempotent: Option<bool>,
    /// `openWorldHint`
    #[serde(rename = "openWorldHint")]
    pub open_world: Option<bool>,
}

impl Hints {
    pub(super) fn of(definition: &Json) -> Self {
        // Annotations of a wrong shape claim nothing, and nothing is what lowers no risk.
        definition.get("annotations").and_then(|json| json.read().ok()).unwrap_or_default()
    }

    /// Whether the tool may destroy something or reach beyond its source. MCP's defaults: yes, unless the source denies it.
    #[must_use]
    pub fn grave(self) -> bool {
        let destructive = self.destructive.unwrap_or(true) && self.read_only != Some(true);
        destructive || self.open_world.unwrap_or(true)
    }

    /// Whether the source itself says that the tool is dangerous.
    #[must_use]
    pub fn raise_risk(self) -> bool {
        self.destructive == Some(true) && self.read_only != Some(true) || self.open_world == Some(true)
    }

    /// Whether the source says that the tool only reads, and nothing that contradicts it.
    #[must_use]
    pub fn claim_harmless(self) -> bool {
        self.read_only == Some(true) && self.destructive != Some(true) && self.open_world != Some(true)
    }
}
