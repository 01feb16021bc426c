//! A session that a program uses directly.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::json;

use super::Session;
use crate::agent::NoAgent;
use crate::call::Risk;
use crate::item::ItemKind;
use crate::name::SourceName;
use crate::protocol::{Answer, Json, Method, RpcError};

/// A tool that a session may call.
#[derive(Debug, Clone, Serialize)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// The description that its source gives; may be empty.
    pub description: String,
    /// The JSON Schema of its arguments: the source's own, byte for byte, unless the profile has schemas repaired.
    pub input_schema: Json,
    /// The source that offers it; for a tool of a group, the member whose definition is shown.
    pub source: SourceName,
    /// The group that the tool belongs to.
    pub group: Option<SourceName>,
    /// The priority of that source: in a group, members with a higher one go first; 0 to 100.
    pub priority: u8,
    /// The risk of a call: `harmless` or `risky`.
    #[serde(serialize_with = "word")]
    pub risk: Risk,
}

fn word<S: serde::Serializer>(risk: &Risk, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(risk.as_str())
}

impl Session {
    /// Returns the tools that this session may call, by name. The first call discovers the profile's sources, in
    /// parallel; later ones return the same snapshot. Cancellation safe.
    ///
    /// # Errors
    /// [`RpcError`] with the `data.code` `discovery-failed` if a required source could not be discovered: the session
    /// has then ended.
    pub async fn discover(&self) -> Result<Vec<Tool>, RpcError> {
        let listing = self.current().listing(ItemKind::Tool).await?;
        let mut tools: Vec<_> = listing
            .items()
            .map(|shown| {
                let (item, config) = (&shown.item, &shown.upstream.config);
                Tool {
                    name: item.exposed.to_string(),
                    description: item.definition.get_str("description").unwrap_or_default(),
                    input_schema: shown.definition().get("inputSchema").unwrap_or_else(Json::empty_object),
                    source: config.name.clone(),
                    group: item.group.clone(),
                    priority: config.priority,
                    risk: shown.risk,
                }
            })
            .collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tools)
    }

    /// Calls a tool with these arguments, an object, through the gate. Returns its MCP `CallToolResult`, even if that
    /// says that the tool failed (`isError`). No person can be asked through this session: a question
    /// waits in the inbox for another terminal. [`Session::request`] takes everything else that a call can have.
    ///
    /// Cancellation: the call is cancelled at its source, and its outcome recorded as unknown.
    ///
    /// # Errors
    /// [`RpcError`] of the source, or of the broker, which says why in `data.code`: among others `not-sent` if no
    /// source could be reached and `outcome-unknown` if one may have acted; what a policy or a person refused has the
    /// code [`RpcError::DENIED`], an unknown tool [`RpcError::INVALID_PARAMS`].
    pub async fn call_tool(&self, tool: &str, arguments: &impl Serialize) -> Result<Json, RpcError> {
        let params = Json::of(&json!({ "name": tool, "arguments": Json::of(arguments) }));
        // Boxed, as the compiler limits the nesting of futures, and callers nest this one further.
        let answer: BoxFuture<'_, Answer> = Box::pin(self.request(Method::ToolsCall, params, Arc::new(NoAgent)));
        match answer.await {
            Answer::Result(result) => Ok(result),
            Answer::Error(error) => Err(RpcError::of(&error)),
        }
    }
}
