//! A session that a program uses directly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::json;

use super::Session;
use super::tool::{Progress, Tool, ToolResult};
use crate::agent::{AgentPeer, Elicitation, NoAgent};
use crate::item::ItemKind;
use crate::protocol::{Answer, Json, Method, Notification, RpcError};

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
                let (item, config, definition) = (&shown.item, &shown.upstream.config, shown.definition());
                Tool {
                    name: item.exposed.to_string(),
                    title: definition.get_str("title"),
                    description: item.definition.get_str("description").unwrap_or_default(),
                    input_schema: definition.get("inputSchema").unwrap_or_else(Json::empty_object),
                    output_schema: definition.get("outputSchema"),
                    annotations: definition.get("annotations"),
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

    /// Calls a tool with these arguments, an object, through the gate. Returns its result, even if that says that the
    /// tool failed ([`ToolResult::is_error`]). No person can be asked through this session: a question waits in the
    /// [`Inbox`](crate::gate::Inbox) for another terminal, or for the program, and the call waits for the answer: up to
    /// 50 seconds.
    ///
    /// Cancellation: the call is cancelled at its source, and its outcome recorded as unknown.
    ///
    /// # Errors
    /// [`RpcError`] of the source, or of the broker, which states why in [`RpcError::reason`]: among others `not-sent`
    /// if no source could be reached and `outcome-unknown` if one may have acted; what a policy or a person refused has
    /// the code [`RpcError::DENIED`], a question that nobody has answered yet [`RpcError::PENDING`] (the same call may
    /// be sent again: a yes that was given meanwhile lets it pass, and after a no it asks again), an unknown tool
    /// [`RpcError::INVALID_PARAMS`].
    pub async fn call_tool(&self, tool: &str, arguments: &impl Serialize) -> Result<ToolResult, RpcError> {
        let params = Json::of(&json!({ "name": tool, "arguments": written(arguments)? }));
        self.call_with(params, Arc::new(NoAgent)).await
    }

    /// Calls a tool as [`Session::call_tool`] does, and reports its progress while it runs. `on_progress` is called
    /// while the returned future is polled, so it must not block. If it panics, it is not called again, and the call
    /// continues.
    ///
    /// # Errors
    /// As for [`Session::call_tool`].
    ///
    /// # Example
    /// ```no_run
    /// # async fn call(session: &portcullis::Session) -> Result<(), portcullis::RpcError> {
    /// let result = session
    ///     .call_tool_with("build__release", &serde_json::json!({}), |progress| {
    ///         eprintln!("{} of {:?}", progress.progress, progress.total);
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_tool_with(
        &self,
        tool: &str,
        arguments: &impl Serialize,
        on_progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<ToolResult, RpcError> {
        // One request has one token, so it need not be unique: the answer's route leads only to this call.
        let meta = json!({ "progressToken": tool });
        let params = Json::of(&json!({ "name": tool, "arguments": written(arguments)?, "_meta": meta }));
        self.call_with(params, Arc::new(ProgressReader { on_progress, has_panicked: AtomicBool::new(false) })).await
    }

    async fn call_with(&self, params: Json, peer: Arc<dyn AgentPeer>) -> Result<ToolResult, RpcError> {
        // Boxed, as the compiler limits the nesting of futures, and callers nest this one further.
        let answer: BoxFuture<'_, Answer> = Box::pin(self.request(Method::ToolsCall, params, peer));
        match answer.await {
            Answer::Result(result) => Ok(ToolResult::of(result)),
            Answer::Error(error) => Err(RpcError::of(&error)),
        }
    }
}

/// Returns the arguments as JSON.
fn written(arguments: &impl Serialize) -> Result<Json, RpcError> {
    let text = serde_json::to_string(arguments).map_err(|error| error.to_string());
    let written = text.and_then(|text| Json::parse(text).map_err(|error| error.to_string()));
    written.map_err(|error| {
        RpcError::new(RpcError::INVALID_PARAMS, format!("the arguments cannot be written as JSON: {error}"))
    })
}

/// A peer without a person, which passes on the progress of a call.
struct ProgressReader<F> {
    on_progress: F,
    /// True once the callback has panicked: its captures may be in any state.
    has_panicked: AtomicBool,
}

impl<F: Fn(Progress) + Send + Sync> AgentPeer for ProgressReader<F> {
    fn notify(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if notification.method == Method::NotificationsProgress
                && !self.has_panicked.load(Ordering::SeqCst)
                && let Some(progress) = notification.params.as_ref().and_then(Progress::of)
                && catch_unwind(AssertUnwindSafe(|| (self.on_progress)(progress))).is_err()
            {
                self.has_panicked.store(true, Ordering::SeqCst);
                tracing::error!("the callback for the progress of a call has panicked and is not called again");
            }
        })
    }

    fn elicitation(&self) -> Elicitation {
        NoAgent.elicitation()
    }

    fn request<'a>(&'a self, method: &'a Method, params: Option<Json>) -> BoxFuture<'a, Answer> {
        NoAgent.request(method, params)
    }
}
