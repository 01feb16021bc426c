//! Makes a source show what it needs, by calling its tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::item::Item;
use portcullis::name::{NameError, SourceName};
use portcullis::principal::Principal;
use portcullis::protocol::{Answer, Json, Method};
use portcullis::session::Session;
use portcullis_learn::calls;
use serde_json::{Value, json};

use crate::call_query::LEARN;

/// The largest number of tools that are called. A server with more shows what it needs with these.
const MAX_CALLS: usize = 64;

/// The longest part of an answer that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The time after which no further call is begun in a run. A source whose calls wait for missing access would otherwise
/// take minutes.
const ROUND_TIME: Duration = Duration::from_secs(10);

/// The calls to make.
pub(crate) enum CallScript {
    /// Those that the source's own description calls harmless.
    Harmless,
    /// Those of a file: tools and arguments.
    Listed(Vec<(String, Value)>),
}

/// The result of driving a source.
pub(super) struct DriveResult {
    /// The error, if it did not start.
    pub(super) failure: Option<String>,
    pub(super) calls: Vec<CallResult>,
}

/// A call that was made.
pub(super) struct CallResult {
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// True if the tool answered, and did not call its answer an error.
    pub(super) ok: bool,
    /// The beginning of its answer, at most [`MAX_TEXT_BYTES`].
    pub(super) text: String,
    /// The first line of why it failed, or `None` if it did not.
    pub(super) failure: Option<String>,
}

impl CallScript {
    /// Reads calls from a file.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let shown = crate::output::escape_hidden(&file.to_string_lossy()).into_owned();
        let text = std::fs::read_to_string(file).with_context(|| format!("{shown} cannot be read"))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let calls = lines.map(|(number, line)| {
            let place = || format!("{shown}, line {}: write {{\"tool\": \"NAME\", \"arguments\": {{}}}}", number + 1);
            let call: Value = serde_json::from_str(line).with_context(place)?;
            let tool = call.get("tool").and_then(Value::as_str).with_context(place)?.to_owned();
            Ok((tool, call.get("arguments").cloned().unwrap_or_else(|| json!({}))))
        });
        Ok(Self::Listed(calls.collect::<anyhow::Result<_>>()?))
    }
}

impl DriveResult {
    /// Returns all texts of the source from failures.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let failed = self.calls.iter().filter(|call| !call.ok).map(|call| call.text.as_str());
        self.failure.as_deref().into_iter().chain(failed)
    }
}

/// Starts the source and makes the calls of a script. In a `harmless_cell`, every tool is harmless. A text that
/// means a path becomes the first of `named`.
pub(super) async fn drive(
    broker: &Broker,
    source: &SourceName,
    script: &CallScript,
    harmless_cell: bool,
    named: &[PathBuf],
) -> DriveResult {
    let listed = match tools(broker, source).await {
        Ok(listed) => listed,
        Err(failure) => return DriveResult { failure: Some(failure), calls: Vec::new() },
    };
    let calls: Vec<(String, Value)> = match script {
        CallScript::Listed(calls) => calls.clone(),
        CallScript::Harmless => {
            let definition = |item: &Arc<Item>| serde_json::from_str::<Value>(item.definition.as_str()).ok();
            let called = listed.iter().filter_map(|item| Some((item.name.to_string(), definition(item)?)));
            let harmless = called.filter(|(_, tool)| harmless_cell || calls::is_harmless(tool)).take(MAX_CALLS);
            let with_arguments = |(name, tool): (String, Value)| {
                let path = example(named, &name);
                (name, calls::arguments(&tool, path.as_deref()))
            };
            harmless.map(with_arguments).collect()
        }
    };
    make(broker, &listed, &calls, ROUND_TIME).await
}

/// Makes the same calls again.
pub(super) async fn repeat(broker: &Broker, source: &SourceName, before: &DriveResult) -> DriveResult {
    match tools(broker, source).await {
        Ok(listed) => {
            let calls: Vec<_> = before.calls.iter().map(|call| (call.tool.clone(), call.arguments.clone())).collect();
            make(broker, &listed, &calls, Duration::MAX).await
        }
        Err(failure) => DriveResult { failure: Some(failure), calls: Vec::new() },
    }
}

/// Starts the source and returns its tools.
async fn tools(broker: &Broker, source: &SourceName) -> Result<Arc<[Arc<Item>]>, String> {
    match broker.discover().await.remove(source) {
        Some(Ok(items)) => Ok(items),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the source is gone".to_owned()),
    }
}

/// Returns the path that a tool is called with: a file for a tool that is named after files.
fn example(named: &[PathBuf], tool: &str) -> Option<PathBuf> {
    let first = named.first()?;
    if !tool.contains("file") {
        return Some(first.clone());
    }
    let entries = std::fs::read_dir(first).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let file = entries.filter(|path| path.is_file()).min();
    Some(file.unwrap_or_else(|| first.clone()))
}

/// Makes calls one after another. After `limit` no further one is begun.
async fn make(broker: &Broker, listed: &[Arc<Item>], calls: &[(String, Value)], limit: Duration) -> DriveResult {
    let session = match "default".parse().map_err(|error: NameError| error.to_string()) {
        Ok(profile) => broker
            .open_session(&profile, &Principal::established(LEARN), "portcullis-learn")
            .await
            .map_err(|error| error.message),
        Err(error) => Err(error),
    };
    let session = match session {
        Ok(session) => session,
        Err(failure) => return DriveResult { failure: Some(failure), calls: Vec::new() },
    };
    let (mut made, began) = (Vec::new(), Instant::now());
    for (tool, arguments) in calls {
        if began.elapsed() >= limit {
            break;
        }
        let exposed = listed.iter().find(|item| *item.name == **tool).map_or(tool.as_str(), |item| &item.exposed);
        made.push(one(&session, tool, exposed, arguments).await);
    }
    session.close().await;
    DriveResult { failure: None, calls: made }
}

async fn one(session: &Session, tool: &str, exposed: &str, arguments: &Value) -> CallResult {
    let params = Json::of(&json!({ "name": exposed, "arguments": arguments }));
    let (failed, text, said) = match session.request(Method::ToolsCall, params, Arc::new(NoAgent)).await {
        Answer::Result(result) => {
            let blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
            let said = blocks.iter().find_map(|block| block.get_str("text"));
            (result.get("isError").is_some_and(|flag| flag.is_true()), beginning(result.as_str()), said)
        }
        Answer::Error(error) => {
            let message = error.get_str("message").unwrap_or_else(|| error.as_str().to_owned());
            (true, beginning(&message), Some(message))
        }
    };
    let failure = failed.then(|| first_line(said.as_deref().unwrap_or(&text)));
    CallResult { tool: tool.to_owned(), arguments: arguments.clone(), ok: !failed, text, failure }
}

/// Returns the first line of a text that is not empty, without the space around it.
fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    beginning(line.unwrap_or("it does not say why"))
}

fn beginning(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default().to_owned()
}
