//! Three tools in place of all: an agent finds what it needs, reads its definition, and calls it. Definitions cost a
//! model nothing until then. A tool that is called this way is judged and recorded like any other call, under its own
//! name.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::configured::ConfiguredSession;
use super::listing::{SessionCatalog, VisibleItem};
use super::request::SessionRequest;
use super::{ListPage, shortened};
use crate::catalog::{Catalog, ContestedName, ToolQuery};
use crate::config::Exposure;
use crate::item::ItemKind;
use crate::protocol::{Answer, Json, RpcError};

const FIND: &str = "find_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// The number of tools that a search returns if no limit is given.
const DEFAULT_LIMIT: usize = 10;

/// The largest number of tools that may be returned at once. A longer result would be the list that deferring saves.
const MAX_LIMIT: usize = 100;

/// The most characters of a description in the result of a search.
const MAX_DESCRIPTION: usize = 300;

/// The instructions for a model that uses the three tools.
pub(super) const INSTRUCTIONS: &str = "Most tools are not listed. Find them with `find_tools`, read the definition of one with \
                                       `describe_tool`, and call it with `call_tool`.";

/// The definitions of the three tools.
static TOOLS: LazyLock<Arc<[Json]>> = LazyLock::new(|| {
    let name = json!({ "type": "string", "description": "The name of a tool, as find_tools gives it" });
    let reads = json!({ "readOnlyHint": true, "destructiveHint": false, "openWorldHint": false });
    let find = json!({
        "name": FIND,
        "title": "Find tools",
        "description": "Searches all tools that can be called here, by what they do. Gives names and short descriptions, best match \
                        first; without a query, all of them by name.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What the tool should do, in any words" },
                "source": { "type": "string", "description": "Only tools of this source" },
                "tag": { "type": "string", "description": "Only tools of sources with this tag" },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT },
                "offset": { "type": "integer", "minimum": 0, "default": 0, "description": "How many of the best to leave out" },
            },
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "total": { "type": "integer", "description": "How many tools match in all" },
                "tools": { "type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string" },
                        "description": { "type": "string" },
                        "source": { "type": "string" },
                        "tags": { "type": "array", "items": { "type": "string" } },
                        "risk": { "type": "string" },
                    },
                    "required": ["name", "source", "risk"],
                } },
            },
            "required": ["total", "tools"],
        },
        "annotations": reads,
    });
    let describe = json!({
        "name": DESCRIBE,
        "title": "Describe a tool",
        "description": "Gives the whole definition of one tool: what it does, and the JSON Schema of its arguments.",
        "inputSchema": {
            "type": "object", "properties": { "name": name }, "required": ["name"], "additionalProperties": false,
        },
        "annotations": reads,
    });
    let call = json!({
        "name": CALL,
        "title": "Call a tool",
        "description": "Calls one of the tools that find_tools finds, and gives its result.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": name,
                "arguments": { "type": "object", "description": "As the tool's own inputSchema has them" },
            },
            "required": ["name"],
            "additionalProperties": false,
        },
    });
    [find, describe, call].map(|tool| Json::of(&tool)).into()
});

/// Checks that no source has a tool under the name of one of the three.
///
/// # Errors
/// A text that names the source and the tool.
pub(super) fn contested(catalog: &Catalog) -> Vec<ContestedName> {
    let taken = [FIND, DESCRIBE, CALL].iter().filter_map(|name| catalog.get(name));
    let contested = taken.map(|item| ContestedName {
        exposed: item.exposed.clone(),
        sources: vec![item.source.clone()],
        message: format!(
            "source `{}` offers a tool `{}`, as the broker itself does where a profile has `tools = \"deferred\"`; give the \
             source another `names` (`\"source\"`, or `{{ prefix = \"…\" }}`)",
            item.source, item.exposed
        ),
    });
    contested.collect()
}

impl ConfiguredSession {
    /// Returns the list of the three tools that stand for all, if the tools are deferred.
    pub(super) fn deferred(&self, kind: ItemKind) -> Option<ListPage> {
        let deferred = kind == ItemKind::Tool && self.profile.tools == Exposure::Deferred;
        // Not public: under another profile, the tools themselves may be listed.
        deferred.then(|| ListPage { items: TOOLS.clone(), ttl_ms: 0, public: false, other_members: None })
    }
}

impl SessionRequest<'_> {
    /// Returns the session's tools as a modern agent gets them that lists again.
    async fn listed_anew(&self) -> Result<Arc<SessionCatalog>, RpcError> {
        self.session.refresh_outdated().await;
        self.listed().await
    }

    /// Answers a call where tools are deferred: of one of the three tools, or of any other by its own name.
    pub(super) async fn call_deferred(self) -> Result<Answer, RpcError> {
        let arguments = self.params.arguments();
        let name = self.params.name().and_then(|name| name.read::<String>().ok());
        match name.as_deref() {
            Some(FIND) => Ok(answer(find(&*self.listed_anew().await?, arguments).await)),
            Some(DESCRIBE) => Ok(answer(describe(&*self.listed_anew().await?, arguments))),
            Some(CALL) => self.inner()?.execute().await,
            _ => self.execute().await,
        }
    }

    /// Returns the request that a `call_tool` stands for. All members except name and arguments stay: progress token,
    /// task, answers.
    fn inner(&self) -> Result<Self, RpcError> {
        let (params, [name, inner]) = (self.params.as_json(), self.params.arguments().get_all(["name", "arguments"]));
        let named = name.filter(|name| name.read::<String>().is_ok());
        let found = named.and_then(|name| params.edited(&[("name", Some(&name)), ("arguments", inner.as_ref())]));
        found.map(|params| self.with_params(params)).ok_or_else(|| {
            let text = format!("`params.arguments.name` of `{CALL}` must be the name of a tool, as `{FIND}` gives it");
            self.session.record_rejection("invalid-params", ItemKind::Tool, CALL, &text)
        })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Find {
    query: Option<String>,
    source: Option<String>,
    tag: Option<String>,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default)]
    offset: usize,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

async fn find(listing: &SessionCatalog, arguments: &Json) -> Result<Json, String> {
    let asked: Find = arguments.read().map_err(|error| format!("the arguments of `{FIND}`: {error}"))?;
    let Find { query, source, tag, limit, offset } = asked;
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(format!("`limit` must be from 1 to {MAX_LIMIT}, not {limit}"));
    }
    let index = listing.index().await?;
    let found = tokio::task::spawn_blocking(move || index.find(&ToolQuery { query, source, tag })).await;
    let found = found.map_err(|error| error.to_string())?.map_err(|error| format!("the search failed: {error}"))?;
    let shown = found.iter().skip(offset).take(limit).filter_map(|item| listing.get(&item.exposed));
    let tools: Vec<_> = shown.map(summary).collect();
    Ok(Json::of(&json!({ "total": found.len(), "tools": tools })))
}

fn summary(shown: &VisibleItem) -> Value {
    let item = &shown.item;
    let description = item.definition.get_str("description").unwrap_or_default();
    let description: String = description.chars().take(MAX_DESCRIPTION).collect();
    json!({
        "name": &*item.exposed,
        "description": description,
        "source": item.offered_by(),
        "tags": &*item.tags,
        "risk": shown.risk.as_str(),
    })
}

fn describe(listing: &SessionCatalog, arguments: &Json) -> Result<Json, String> {
    let name = arguments.get_str("name").ok_or_else(|| format!("`{DESCRIBE}` needs the `name` of a tool"))?;
    let unknown = || format!("unknown tool {:?}; `{FIND}` finds those there are", shortened(&name));
    listing.get(&name).map(VisibleItem::definition).ok_or_else(unknown)
}

/// Returns an answer as the result of a tool. Wrong arguments are reported in the result too, where the model reads
/// them (2025-11-25, "Error Handling").
fn answer(result: Result<Json, String>) -> Answer {
    let (text, rest) = match &result {
        Ok(found) => (found.as_str(), ("structuredContent", found.clone())),
        Err(why) => (why.as_str(), ("isError", Json::of(&true))),
    };
    let content = Json::of(&json!({ "content": [{ "type": "text", "text": text }] }));
    Answer::Result(content.with(rest.0, &rest.1).unwrap_or(content))
}
