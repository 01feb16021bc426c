//! Sources that are WebAssembly components: they have no process, and reach only granted resources.
//!
//! Each call to a component of tools or functions runs in an instance. A component that is a program
//! ([`CommandSource`]) is spoken to like a process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::{
    CallEventSender, ConcurrencyLimit, ConnectionHealth, Discovery, ListedDefinitions, Source, SourceClient,
    SourceError, SourceStatus,
};
use crate::call::{Caller, Cause, Outcome, SessionId};
use crate::config::SourceConfig;
use crate::gate::Permit;
use crate::item::ItemKind;
use crate::plugin::{FunctionsComponent, PluginFailure, ToolFailure, ToolsComponent};
use crate::protocol::{Answer, Json, Method, RpcError};

mod command;

pub(crate) use command::{CommandSource, ComponentProgram};

/// The value of [`Discovery::protocol`] for a component: it is called without MCP, so there is no revision.
const PROTOCOL: &str = "component";

/// The exports of a component that are called.
#[derive(Debug)]
enum Callee {
    Tools(ToolsComponent),
    Functions(FunctionsComponent),
}

/// A component as a source: loaded and configured. A fresh one runs no instance.
#[derive(Debug)]
pub struct ComponentSource {
    tools: Callee,
    timeout: Duration,
    concurrency: ConcurrencyLimit,
    /// True if the component can neither change anything outside itself nor send anything out.
    harmless: bool,
}

impl ComponentSource {
    /// Makes a source of a loaded component. Each call may take the source's `timeout`, if the host's own limits leave
    /// it that long.
    #[must_use]
    pub fn new(tools: ToolsComponent, config: &SourceConfig) -> Self {
        let harmless = tools.is_harmless();
        Self {
            tools: Callee::Tools(tools),
            timeout: config.timeout,
            concurrency: ConcurrencyLimit::new(&config.name, config.concurrency),
            harmless,
        }
    }

    /// Makes a source of a loaded component of functions. Each call may take the source's `timeout`, as for
    /// [`ComponentSource::new`].
    #[must_use]
    pub fn of_functions(functions: FunctionsComponent, config: &SourceConfig) -> Self {
        let (harmless, concurrency) =
            (functions.is_harmless(), ConcurrencyLimit::new(&config.name, config.concurrency));
        Self { tools: Callee::Functions(functions), timeout: config.timeout, concurrency, harmless }
    }

    async fn read(&self, tools: &ToolsComponent, caller: &Arc<Caller>, params: &Json, deadline: Instant) -> Outcome {
        let uri = params.get_str("uri").unwrap_or_default();
        let Ok(read) = timeout_at(deadline, tools.read(caller, &uri)).await else {
            return error(RpcError::INTERNAL, self.late());
        };
        match read {
            Ok(Some(contents)) => Outcome::Answered(Answer::Result(contents)),
            // As in revisions before 2026-07-28; the front translates it to the agent's revision.
            Ok(None) => error(RpcError::RESOURCE_NOT_FOUND, format!("resource not found: {uri}")),
            Err(PluginFailure { code, detail }) => {
                error(RpcError::INTERNAL, format!("the component failed ({code}): {detail}"))
            }
        }
    }

    async fn in_time<T>(&self, method: &Method, listed: impl Future<Output = T>) -> Result<T, SourceError> {
        let late = |_| SourceError::Timeout { method: method.to_string(), seconds: self.timeout.as_secs() };
        tokio::time::timeout(self.timeout, listed).await.map_err(late)
    }

    fn late(&self) -> String {
        let timeout = self.timeout.as_secs_f32();
        format!("the component did not answer within {timeout} s; to wait longer, raise `timeout` in its source")
    }

    /// Returns the outcome of a call that has no answer.
    fn broken(&self, why: Cause) -> Outcome {
        match self.harmless {
            // The component can reach nothing outside itself, so nothing has happened: the outcome is known.
            true => failed(&why.to_string()),
            false => Outcome::Unknown(why.then("; it may have acted or not")),
        }
    }
}

#[async_trait]
impl Source for ComponentSource {
    async fn discover(&self, _: &Arc<dyn SourceClient>) -> Result<Discovery, SourceError> {
        let (identity, listed) = match &self.tools {
            Callee::Tools(tools) => (tools.identity(), self.in_time(&Method::ToolsList, tools.definitions()).await?),
            Callee::Functions(functions) => (functions.identity(), Ok(functions.definitions())),
        };
        let listed = listed
            .map_err(|failure| SourceError::Protocol(cause(format!("{} lists no tools: ", identity.name), failure)))?;
        let capabilities = match &self.tools {
            Callee::Tools(tools) if tools.offers_resources() => serde_json::json!({ "tools": {}, "resources": {} }),
            _ => serde_json::json!({ "tools": {} }),
        };
        let server = serde_json::json!({ "name": identity.name, "version": identity.digest });
        Ok(Discovery {
            server: Json::of(&server),
            protocol: PROTOCOL.into(),
            capabilities: Json::of(&capabilities),
            instructions: None,
            tools: ListedDefinitions { items: listed, ..ListedDefinitions::default() },
        })
    }

    async fn list(&self, client: &Arc<dyn SourceClient>, kind: ItemKind) -> Result<ListedDefinitions, SourceError> {
        let failed = |failure| SourceError::Protocol(cause("it lists no resources: ".to_owned(), failure));
        Ok(match (kind, &self.tools) {
            (ItemKind::Tool, _) => self.discover(client).await?.tools,
            (ItemKind::Resource, Callee::Tools(tools)) if tools.offers_resources() => {
                let resources = self.in_time(&Method::ResourcesList, tools.resources(client.profile())).await?;
                ListedDefinitions { items: resources.map_err(failed)?, ..ListedDefinitions::default() }
            }
            _ => ListedDefinitions::default(),
        })
    }

    async fn notify(&self, permit: Permit, _: &Arc<dyn SourceClient>) -> Result<(), SourceError> {
        Err(SourceError::Protocol(Cause::own(format!("a component takes no notification `{}`", permit.method()))))
    }

    async fn call(&self, permit: Permit, _: &Arc<dyn SourceClient>, _: CallEventSender) -> Outcome {
        let caller = &permit.call().caller;
        let deadline = Instant::now() + self.timeout;
        let turn = self.concurrency.acquire(permit.method(), deadline);
        let _guard = match permit.before_sending(turn).await {
            Ok(turn) => turn,
            Err(busy) => return Outcome::NotSent(busy),
        };
        if let (Method::ResourcesRead, Callee::Tools(tools)) = (permit.method(), &self.tools) {
            return self.read(tools, caller, permit.source_params(), deadline).await;
        }
        if permit.method() != Method::ToolsCall {
            let text = format!("a component has no method `{}`", permit.method());
            return error(RpcError::METHOD_NOT_FOUND, text);
        }
        let params = permit.source_params();
        let Some(tool) = params.get_str("name") else {
            return error(RpcError::INVALID_PARAMS, "`name` is missing or is not a string".into());
        };
        let given = params.get("arguments").filter(|arguments| *arguments != Json::null());
        let arguments = given.unwrap_or(Json::empty_object());
        let called = async {
            match &self.tools {
                Callee::Tools(tools) => tools.call(caller, &tool, &arguments).await,
                Callee::Functions(functions) => functions.call(caller, &tool, &arguments).await,
            }
        };
        // Dropping the call ends the guest.
        let Ok(called) = timeout_at(deadline, called).await else {
            return self.broken(Cause::own(self.late()));
        };
        match called {
            Ok(result) => Outcome::Answered(Answer::Result(result)),
            Err(ToolFailure::UnknownTool) => error(RpcError::INVALID_PARAMS, format!("unknown tool: {tool}")),
            Err(ToolFailure::InvalidArguments(text)) => error(RpcError::INVALID_PARAMS, text),
            Err(ToolFailure::Failed(text)) => failed(&text),
            Err(ToolFailure::Component(PluginFailure { code, detail })) => {
                self.broken(Cause::own(format!("the component failed ({code})")).said(": ", detail, ""))
            }
        }
    }

    /// Returns `Ready`: a component that is loaded is available.
    fn health(&self) -> ConnectionHealth {
        ConnectionHealth { status: SourceStatus::Ready, connected: true, ..ConnectionHealth::default() }
    }

    fn end_session(&self, session: &SessionId) {
        if let Callee::Tools(tools) = &self.tools {
            tools.end_session(session);
        }
    }

    async fn close(&self) {
        if let Callee::Tools(tools) = &self.tools {
            tools.end_all();
        }
    }
}

/// Returns the cause of a failure of the component, whose detail may contain its own words.
fn cause(text: String, PluginFailure { code, detail }: PluginFailure) -> Cause {
    Cause::own(format!("{text}{code}")).said(": ", detail, "")
}

fn error(code: i64, text: String) -> Outcome {
    Outcome::Answered(Answer::from(RpcError::new(code, text)))
}

/// Returns a tool result that says that the tool failed, for the model to read.
fn failed(text: &str) -> Outcome {
    let result = serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true });
    Outcome::Answered(Answer::Result(Json::of(&result)))
}

#[cfg(test)]
mod tests;
