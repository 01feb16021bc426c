//! How a connection begins: which era the source speaks, who it is; and its lists.
//!
//! Specification: MCP 2026-07-28 "server/discover"; 2025-11-25 "Lifecycle"; both "Tools" and "Pagination".

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use super::meta::{Hop, client_info, dress};
use super::pending::{Lost, Shared};
use crate::item::ItemKind;
use crate::limits::{MAX_ITEMS_PER_SOURCE, MAX_TOOLS_PER_SOURCE};
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::revision::{LEGACY, MODERN};
use crate::protocol::{Answer, Era, Json, Message, Method, Notification, RpcError};
use crate::source::transport::LOGIN;
use crate::source::{Listed, SourceError};

/// Pages of one list: a source that pages one tool at a time is still heard for a while.
const MAX_PAGES: usize = 500;

/// How long the steps of opening a connection may take.
#[derive(Debug, Clone)]
pub(crate) struct Deadlines {
    /// For `server/discover`, before `initialize` is tried; None sends `initialize` alone. Short, because an old server may
    /// say nothing at all to a method it does not know.
    pub(crate) probe: Option<Duration>,
    /// For `initialize`: long enough for an interpreter and its packages to load from a cold disk.
    pub(crate) handshake: Duration,
    /// For each page of a list.
    pub(crate) list: Duration,
    /// For all of it together, until the tools are listed; and again for all pages of a list that is taken later.
    pub(crate) whole: Duration,
}

/// How long a source has to say who it is and list its tools: longer than one slow step, and less than agents wait for us, as a
/// session begins when all its sources have been met.
const WHOLE: Duration = Duration::from_secs(45);

impl Default for Deadlines {
    fn default() -> Self {
        let step = Duration::from_secs(30);
        Self { probe: Some(Duration::from_secs(2)), handshake: step, list: step, whole: WHOLE }
    }
}

/// In which era a connection is made to a source that may speak both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// In the newest one that the source speaks.
    Newest,
    /// With `initialize`, and with `server/discover` where the source refuses that.
    LegacyFirst,
    /// With `server/discover`, and not at all where the source refuses that.
    Modern,
}

/// What was agreed.
pub(super) struct Agreed {
    pub(super) era: Era,
    pub(super) protocol: String,
    pub(super) server: Json,
    pub(super) instructions: Option<String>,
    /// What the source said that it can do.
    pub(super) capabilities: Json,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            era: Era::Legacy,
            protocol: String::new(),
            server: Json::empty_object(),
            instructions: None,
            capabilities: Json::empty_object(),
        }
    }
}

/// Agrees on an era and a revision.
pub(super) async fn agree(shared: &Shared, deadlines: &Deadlines) -> Result<Agreed, SourceError> {
    match shared.party.opening {
        Opening::Newest => agree_on_newest(shared, deadlines).await,
        Opening::LegacyFirst => match initialize(shared, deadlines.handshake).await {
            // What it refused may be the era. If it was something else, that is what helps to know.
            Err(error @ SourceError::Protocol(_)) if deadlines.probe.is_some() => {
                discover(shared, deadlines.handshake).await.map_err(|_| error)
            }
            agreed => agreed,
        },
        Opening::Modern => discover(shared, deadlines.handshake).await,
    }
}

/// Probes for the modern era, and falls back to the other.
async fn agree_on_newest(shared: &Shared, deadlines: &Deadlines) -> Result<Agreed, SourceError> {
    let Some(patience) = deadlines.probe else { return initialize(shared, deadlines.handshake).await };
    // The probe stays open after its patience: a slow starter reads both requests, and its answer to the first counts if
    // it refuses the second.
    let mut probe = std::pin::pin!(shared.request(
        &Method::ServerDiscover,
        |_| dress(&Json::empty_object(), &Hop::quiet(Era::Modern), None),
        None,
        patience + deadlines.handshake,
    ));
    match tokio::time::timeout(patience, &mut probe).await {
        Ok(Ok(Answer::Result(result))) if speaks_modern(&result) => Ok(modern(&result)),
        // It knows the era, and names the version that we speak among its own: once more, and no other way.
        Ok(Ok(Answer::Error(error))) if offers_modern(&error) => discover(shared, deadlines.handshake).await,
        // Whatever it speaks, it says nothing to strangers.
        Ok(Ok(Answer::Error(error))) if wants_login(&error) => Err(refused(&Method::ServerDiscover, &error)),
        Ok(Ok(_)) | Ok(Err(Lost::Timeout)) => initialize(shared, deadlines.handshake).await,
        Ok(Err(lost)) => Err(explain(&Method::ServerDiscover, patience, lost)),
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

/// Asks a source for the modern era alone. One that refuses our version and names it among its own is asked once more.
async fn discover(shared: &Shared, deadline: Duration) -> Result<Agreed, SourceError> {
    let ask = || {
        let dressed = |_| dress(&Json::empty_object(), &Hop::quiet(Era::Modern), None);
        shared.request(&Method::ServerDiscover, dressed, None, deadline)
    };
    let answer = match ask().await {
        Ok(Answer::Error(error)) if offers_modern(&error) => ask().await,
        answer => answer,
    };
    match answer {
        Ok(Answer::Result(result)) if speaks_modern(&result) => Ok(modern(&result)),
        Ok(Answer::Result(_)) => {
            let why = format!(
                "the source's answer to `server/discover` does not name {MODERN} among its `supportedVersions`"
            );
            Err(SourceError::Protocol(why))
        }
        Ok(Answer::Error(error)) => Err(refused(&Method::ServerDiscover, &error)),
        Err(lost) => Err(explain(&Method::ServerDiscover, deadline, lost)),
    }
}

/// Whether a refusal is that of a modern source (`UnsupportedProtocolVersion`) that serves our version all the same.
fn offers_modern(error: &Json) -> bool {
    let code =
        error.get("code").is_some_and(|code| code.read::<i64>().is_ok_and(|c| c == RpcError::UNSUPPORTED_VERSION));
    let supported = error.get("data").and_then(|data| data.get("supported"));
    let versions: Vec<String> = supported.and_then(|versions| versions.read().ok()).unwrap_or_default();
    code && versions.iter().any(|version| version == MODERN)
}

fn speaks_modern(discovered: &Json) -> bool {
    let versions = discovered.get("supportedVersions");
    versions.and_then(|versions| versions.read::<Vec<String>>().ok()).is_some_and(|all| all.iter().any(|v| v == MODERN))
}

fn modern(discovered: &Json) -> Agreed {
    let server = discovered.get("_meta").and_then(|meta| meta.get(SERVER_INFO));
    Agreed {
        era: Era::Modern,
        protocol: MODERN.to_owned(),
        server: server.unwrap_or_else(Json::empty_object),
        instructions: discovered.get_str("instructions"),
        capabilities: capabilities(discovered),
    }
}

async fn initialize(shared: &Shared, deadline: Duration) -> Result<Agreed, SourceError> {
    let [.., newest] = LEGACY;
    let declared = &shared.party.capabilities;
    let params = json!({ "protocolVersion": newest, "capabilities": declared, "clientInfo": client_info() });
    let params = Json::of(&params);
    let result = match shared.request(&Method::Initialize, |_| params, None, deadline).await {
        Ok(Answer::Result(result)) => result,
        Ok(Answer::Error(error)) => return Err(refused(&Method::Initialize, &error)),
        Err(lost) => return Err(explain(&Method::Initialize, deadline, lost)),
    };
    let protocol = result.get_str("protocolVersion").unwrap_or_default();
    if !LEGACY.contains(&protocol.as_str()) {
        return Err(SourceError::Protocol(format!(
            "the source speaks protocol revision \"{}\", and this broker speaks {} and {MODERN}",
            cut(&protocol),
            LEGACY.join(", ")
        )));
    }
    let capabilities = capabilities(&result);
    // Before the source may ask: some do as soon as they are told that all is ready.
    if *declared != Json::empty_object() || keeps_state(&capabilities) {
        shared.settle_owner();
    }
    let method = Method::NotificationsInitialized.to_owned();
    let ready = Message::Notification(Notification { method, params: None });
    let sent = tokio::time::timeout(deadline, shared.transport.send(&ready)).await;
    sent.map_err(|_| Lost::Timeout)
        .and_then(|sent| sent.map_err(|error| Lost::Broken(error.to_string())))
        .map_err(|lost| explain(&Method::NotificationsInitialized, deadline, lost))?;
    Ok(Agreed {
        era: Era::Legacy,
        protocol,
        server: result.get("serverInfo").unwrap_or_else(Json::empty_object),
        instructions: result.get_str("instructions"),
        capabilities,
    })
}

/// Whether a legacy source keeps something for each of its clients: a log level, what they subscribed to, their tasks.
pub(super) fn keeps_state(capabilities: &Json) -> bool {
    let subscribes = capabilities.get("resources").and_then(|resources| resources.get("subscribe"));
    ["logging", "tasks"].iter().any(|kept| capabilities.get(kept).is_some())
        || subscribes.is_some_and(|subscribes| subscribes.as_str() == "true")
}

fn capabilities(answer: &Json) -> Json {
    answer.get("capabilities").filter(|all| all.as_bytes().starts_with(b"{")).unwrap_or_else(Json::empty_object)
}

/// The capability that a source has which answers to the method that lists such items.
fn capability_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tools",
        ItemKind::Prompt => "prompts",
        ItemKind::Resource | ItemKind::Template | ItemKind::Source => "resources",
    }
}

/// All pages of a list.
pub(super) async fn list(
    shared: &Shared,
    agreed: &Agreed,
    kind: ItemKind,
    deadline: Duration,
) -> Result<Listed, SourceError> {
    let (method, limit) = match kind {
        ItemKind::Tool => (kind.list_method(), MAX_TOOLS_PER_SOURCE),
        _ => (kind.list_method(), MAX_ITEMS_PER_SOURCE),
    };
    let declared = agreed.capabilities.get(capability_of(kind)).is_some();
    if !declared && kind != ItemKind::Tool {
        return Ok(Listed::default());
    }
    let (mut items, mut ttl_ms, mut public, mut around) = (Vec::new(), u64::MAX, true, None);
    let (mut cursors, nothing) = (HashSet::new(), Json::of(&[(); 0]));
    let mut params = Json::empty_object();
    for _ in 0..MAX_PAGES {
        let dressed = |_| dress(&params, &Hop::quiet(agreed.era), None);
        let page = match shared.request(&method, dressed, None, deadline).await {
            Ok(Answer::Result(page)) => page,
            // Tools are asked for all the same, because some servers forget to declare what they have; and some that have
            // resources know no templates.
            Ok(Answer::Error(_)) if !declared || kind == ItemKind::Template => return Ok(Listed::default()),
            Ok(Answer::Error(error)) => return Err(refused(&method, &error)),
            Err(lost) => return Err(explain(&method, deadline, lost)),
        };
        items.extend(items_of(kind, &page)?);
        around = around.or_else(|| page.edited(&[(kind.member(), Some(&nothing)), ("nextCursor", None)]));
        public &= page.get_str("cacheScope").as_deref() == Some("public");
        ttl_ms = ttl_ms.min(page.get("ttlMs").and_then(|ttl| ttl.read().ok()).unwrap_or(0));
        if items.len() > limit {
            return Err(SourceError::Protocol(format!("the source lists more than {limit} {}", kind.member())));
        }
        let Some(cursor) = page.get("nextCursor").filter(|cursor| *cursor != Json::null()) else {
            return Ok(Listed { items, ttl_ms, public, around });
        };
        params = Json::empty_object().with("cursor", &cursor).unwrap_or_else(Json::empty_object);
        if !cursors.insert(cursor) {
            let what = kind.member();
            let why = format!("the source's list of {what} never ends: it gave the same `nextCursor` twice");
            return Err(SourceError::Protocol(why));
        }
    }
    Err(SourceError::Protocol(format!("the source's list of {} has more than {MAX_PAGES} pages", kind.member())))
}

fn items_of(kind: ItemKind, page: &Json) -> Result<Vec<Json>, SourceError> {
    let items = page.get(kind.member()).and_then(|list| list.items());
    items.ok_or_else(|| {
        let (method, member) = (kind.list_method(), kind.member());
        SourceError::Protocol(format!("the source's answer to `{method}` holds no list `{member}`"))
    })
}

fn refused(method: &Method, error: &Json) -> SourceError {
    let message = error.get_str("message").unwrap_or_default();
    if wants_login(error) {
        // The transport's own words, which say what to do.
        return SourceError::Start(crate::visible::visible(&message).into_owned());
    }
    let code = error.get("code").map_or_else(|| "none".to_owned(), |code| cut(code.as_str()));
    SourceError::Protocol(format!("the source refused `{method}`: \"{}\" (code {code})", cut(&message)))
}

/// Whether a refusal is one of [`LOGIN`].
fn wants_login(error: &Json) -> bool {
    error.get("data").is_some_and(|data| data.get(LOGIN).is_some_and(|login| login.as_str() == "true"))
}

pub(super) fn explain(method: &Method, deadline: Duration, lost: Lost) -> SourceError {
    match lost {
        Lost::Timeout => late(method, deadline),
        Lost::NotSent(why) | Lost::Broken(why) => SourceError::Closed(why),
    }
}

pub(super) fn late(method: &Method, deadline: Duration) -> SourceError {
    SourceError::Timeout { method: method.to_string(), seconds: deadline.as_secs() }
}

/// A source's own words, safe to print and short enough to be one line.
fn cut(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
