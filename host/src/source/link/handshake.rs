//! How a connection begins: which era the source speaks, who it is, which tools it has.
//!
//! Specification: MCP 2026-07-28 "server/discover"; 2025-11-25 "Lifecycle"; both "Tools" and "Pagination".

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use super::meta::{client_info, dress};
use super::{Lost, Shared};
use crate::message::{Answer, Json, Message, Notification};
use crate::source::SourceError;

pub(super) const DISCOVER: &str = "server/discover";
pub(super) const INITIALIZE: &str = "initialize";

/// The stateless revision.
pub(super) const MODERN: &str = "2026-07-28";

/// Revisions with `initialize`, oldest first. The last is offered, any is accepted.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Tools of one source. Real servers have tens; an agent can use no more than hundreds.
const MAX_TOOLS: usize = 1000;

/// Pages of one list: a source that pages one tool at a time is still heard for a while.
const MAX_PAGES: usize = 100;

/// How long each step of opening a connection may take.
#[derive(Debug, Clone)]
pub(crate) struct Deadlines {
    /// For `server/discover`, before `initialize` is tried; None skips the probe. Short, because an old server may say
    /// nothing at all to a method it does not know.
    pub(crate) probe: Option<Duration>,
    /// For `initialize`: long enough for an interpreter and its packages to load from a cold disk.
    pub(crate) handshake: Duration,
    /// For each page of `tools/list`.
    pub(crate) list: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { probe: Some(Duration::from_secs(2)), handshake: Duration::from_secs(30), list: Duration::from_secs(30) }
    }
}

/// Which of the protocol's two shapes is spoken. One per process: some servers refuse one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// With `initialize`.
    Legacy,
    /// With facts in each request's `_meta`.
    Modern,
}

/// What was agreed.
pub(super) struct Agreed {
    pub(super) era: Era,
    pub(super) protocol: String,
    pub(super) server: Json,
    pub(super) instructions: Option<String>,
    /// Whether the source said that it has tools.
    tools: bool,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            era: Era::Legacy,
            protocol: String::new(),
            server: Json::empty_object(),
            instructions: None,
            tools: false,
        }
    }
}

/// Probes for the modern era, and falls back to the other.
pub(super) async fn agree(shared: &Shared, deadlines: &Deadlines) -> Result<Agreed, SourceError> {
    let Some(patience) = deadlines.probe else { return initialize(shared, deadlines.handshake).await };
    // The probe stays open after its patience: a slow starter reads both requests, and its answer to the first counts if
    // it refuses the second.
    let mut probe = std::pin::pin!(shared.request(
        DISCOVER,
        |id| dress(&Json::empty_object(), Era::Modern, id, None),
        None,
        patience + deadlines.handshake,
    ));
    match tokio::time::timeout(patience, &mut probe).await {
        Ok(Ok(Answer::Result(result))) if speaks_modern(&result) => Ok(modern(&result)),
        Ok(Ok(_)) | Ok(Err(Lost::Timeout)) => initialize(shared, deadlines.handshake).await,
        Ok(Err(lost)) => Err(explain(DISCOVER, patience, lost)),
        Err(_) => {
            let mut late = None;
            let mut initialized = std::pin::pin!(initialize(shared, deadlines.handshake));
            let refused = loop {
                tokio::select! {
                    biased;
                    discovered = &mut probe, if late.is_none() => late = Some(discovered),
                    agreed = &mut initialized => match agreed {
                        Ok(agreed) => return Ok(agreed),
                        Err(error) => break error,
                    },
                }
            };
            match late {
                Some(Ok(Answer::Result(result))) if speaks_modern(&result) => Ok(modern(&result)),
                _ => Err(refused),
            }
        }
    }
}

fn speaks_modern(discovered: &Json) -> bool {
    let versions = discovered.get("supportedVersions");
    versions.and_then(|versions| versions.read::<Vec<String>>().ok()).is_some_and(|all| all.iter().any(|v| v == MODERN))
}

fn modern(discovered: &Json) -> Agreed {
    let server = discovered.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
    Agreed {
        era: Era::Modern,
        protocol: MODERN.to_owned(),
        server: server.unwrap_or_else(Json::empty_object),
        instructions: discovered.get_str("instructions"),
        tools: has_tools(discovered),
    }
}

async fn initialize(shared: &Shared, deadline: Duration) -> Result<Agreed, SourceError> {
    let [.., newest] = LEGACY;
    let params = Json::of(&json!({ "protocolVersion": newest, "capabilities": {}, "clientInfo": client_info() }));
    let result = match shared.request(INITIALIZE, |_| params, None, deadline).await {
        Ok(Answer::Result(result)) => result,
        Ok(Answer::Error(error)) => return Err(refused(INITIALIZE, &error)),
        Err(lost) => return Err(explain(INITIALIZE, deadline, lost)),
    };
    let protocol = result.get_str("protocolVersion").unwrap_or_default();
    if !LEGACY.contains(&protocol.as_str()) {
        return Err(SourceError::Protocol(format!(
            "the source speaks protocol revision \"{}\", and this broker speaks {} and {MODERN}",
            cut(&protocol),
            LEGACY.join(", ")
        )));
    }
    let method = "notifications/initialized".to_owned();
    let ready = Message::Notification(Notification { method, params: None });
    let sent = tokio::time::timeout(deadline, shared.transport.send(&ready)).await;
    sent.map_err(|_| Lost::Timeout)
        .and_then(|sent| sent.map_err(|error| Lost::Broken(error.to_string())))
        .map_err(|lost| explain("notifications/initialized", deadline, lost))?;
    Ok(Agreed {
        era: Era::Legacy,
        protocol,
        server: result.get("serverInfo").unwrap_or_else(Json::empty_object),
        instructions: result.get_str("instructions"),
        tools: has_tools(&result),
    })
}

fn has_tools(answer: &Json) -> bool {
    answer.get("capabilities").and_then(|capabilities| capabilities.get("tools")).is_some()
}

/// All pages of `tools/list`.
pub(super) async fn list_tools(shared: &Shared, agreed: &Agreed, deadline: Duration) -> Result<Vec<Json>, SourceError> {
    const LIST: &str = "tools/list";
    let mut tools = Vec::new();
    let mut cursors = HashSet::new();
    let mut params = Json::empty_object();
    for _ in 0..MAX_PAGES {
        let page = match shared.request(LIST, |id| dress(&params, agreed.era, id, None), None, deadline).await {
            Ok(Answer::Result(page)) => page,
            // Asked all the same, because some servers forget to declare what they have.
            Ok(Answer::Error(_)) if !agreed.tools => return Ok(Vec::new()),
            Ok(Answer::Error(error)) => return Err(refused(LIST, &error)),
            Err(lost) => return Err(explain(LIST, deadline, lost)),
        };
        tools.extend(tools_of(&page)?);
        if tools.len() > MAX_TOOLS {
            return Err(SourceError::Protocol(format!("the source lists more than {MAX_TOOLS} tools")));
        }
        let Some(cursor) = page.get("nextCursor").filter(|cursor| *cursor != Json::null()) else { return Ok(tools) };
        params = Json::empty_object().with("cursor", &cursor).unwrap_or_else(Json::empty_object);
        if !cursors.insert(cursor) {
            return Err(SourceError::Protocol(
                "the source's list of tools never ends: it gave the same `nextCursor` twice".to_owned(),
            ));
        }
    }
    Err(SourceError::Protocol(format!("the source's list of tools has more than {MAX_PAGES} pages")))
}

fn tools_of(page: &Json) -> Result<Vec<Json>, SourceError> {
    let no_list = || SourceError::Protocol("the source's answer to `tools/list` holds no list `tools`".to_owned());
    let list = page.get("tools").ok_or_else(no_list)?;
    let tools: Vec<&RawValue> = list.read().map_err(|_| no_list())?;
    tools.into_iter().map(|tool| Json::parse(tool.get().to_owned()).map_err(|_| no_list())).collect()
}

fn refused(method: &str, error: &Json) -> SourceError {
    let message = error.get_str("message").unwrap_or_default();
    let code = error.get("code").map_or_else(|| "none".to_owned(), |code| cut(code.as_str()));
    SourceError::Protocol(format!("the source refused `{method}`: \"{}\" (code {code})", cut(&message)))
}

fn explain(method: &str, deadline: Duration, lost: Lost) -> SourceError {
    match lost {
        Lost::Timeout => SourceError::Timeout { method: method.to_owned(), seconds: deadline.as_secs() },
        Lost::NotSent(why) | Lost::Broken(why) => SourceError::Closed(why),
    }
}

/// A source's own words, safe to print and short enough to be one line.
fn cut(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
