//! The beginning of a connection: which era the source speaks, and how it describes itself.
//!
//! Specification: MCP 2026-07-28 "server/discover"; 2025-11-25 "Lifecycle".

use std::time::Duration;

use serde_json::json;

use super::meta::{RequestFacts, client_info, with_facts};
use super::pending::{McpConnectionState, NoResponse};
use crate::call::Cause;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::revision::{LEGACY, MODERN};
use crate::protocol::{Answer, Era, Json, Message, Method, Notification, RpcError};
use crate::source::SourceError;
use crate::source::transport::LOGIN;

/// The most bytes that are kept of a source's description of itself: its name, its capabilities and its instructions.
/// Each of its connections keeps them.
const MAX_SELF_DESCRIPTION_BYTES: usize = 1024 * 1024;

/// The cause that the ledger records for a source that requires a login.
const LOGIN_WANTED: &str = "a person must log in to the source first";

/// The deadlines for the steps of opening a connection.
#[derive(Debug, Clone)]
pub(crate) struct HandshakeDeadlines {
    /// The deadline for `server/discover`, or `None` to send only `initialize`. It is short, because an old server may
    /// not answer a method that it does not know.
    pub(crate) probe: Option<Duration>,
    /// The deadline for `initialize`: long enough for an interpreter and its packages to load from a cold disk.
    pub(crate) handshake: Duration,
    /// The deadline for each page of a list.
    pub(crate) list: Duration,
    /// The deadline for all steps together, until the tools are listed; and for all pages of each later list.
    pub(crate) whole: Duration,
}

/// The longest time that a source may take to describe itself and to list its tools: longer than one slow step, and
/// shorter than agents wait for the broker, because a session begins only when all its sources have been discovered.
const WHOLE: Duration = Duration::from_secs(45);

impl Default for HandshakeDeadlines {
    fn default() -> Self {
        let step = Duration::from_secs(30);
        Self { probe: Some(Duration::from_secs(2)), handshake: step, list: step, whole: WHOLE }
    }
}

/// The era in which a connection is made to a source that may speak both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EraChoice {
    /// The modern era, with `server/discover`; if the source does not speak it, the legacy one, with `initialize`.
    ModernFirst,
    /// The legacy era, with `initialize`; if the source refuses that, the modern one, with `server/discover`.
    LegacyFirst,
    /// The modern era only, with `server/discover`; a source that refuses that is not connected to.
    ModernOnly,
}

/// The result of the handshake.
pub(super) struct HandshakeResult {
    pub(super) era: Era,
    pub(super) protocol: String,
    pub(super) server: Json,
    pub(super) instructions: Option<String>,
    /// The source's `ServerCapabilities`.
    pub(super) capabilities: Json,
}

impl Default for HandshakeResult {
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

impl HandshakeResult {
    /// Returns the result with its own parts, so that the rest of the source's answer is released.
    ///
    /// # Errors
    /// [`SourceError::Protocol`] if the parts have more than [`MAX_SELF_DESCRIPTION_BYTES`].
    fn detached(mut self) -> Result<Self, SourceError> {
        let Self { server, capabilities, instructions, .. } = &mut self;
        let instructions = instructions.as_ref().map_or(0, String::len);
        if server.as_bytes().len() + capabilities.as_bytes().len() + instructions > MAX_SELF_DESCRIPTION_BYTES {
            let why = format!("what the source says about itself has more than {MAX_SELF_DESCRIPTION_BYTES} bytes");
            return Err(SourceError::Protocol(Cause::own(why)));
        }
        (*server, *capabilities) = (server.detached(), capabilities.detached());
        Ok(self)
    }
}

/// Agrees on an era and a revision.
pub(super) async fn agree(
    shared: &McpConnectionState,
    deadlines: &HandshakeDeadlines,
) -> Result<HandshakeResult, SourceError> {
    agree_on_era(shared, deadlines).await?.detached()
}

async fn agree_on_era(
    shared: &McpConnectionState,
    deadlines: &HandshakeDeadlines,
) -> Result<HandshakeResult, SourceError> {
    match shared.config.era_choice {
        EraChoice::ModernFirst => agree_on_newest(shared, deadlines).await,
        EraChoice::LegacyFirst => match initialize(shared, deadlines.handshake).await {
            // The source may have refused the era. If it refused for another reason, that reason is the more helpful
            // error.
            Err(error @ SourceError::Protocol(_)) if deadlines.probe.is_some() => {
                discover(shared, deadlines.handshake).await.map_err(|_| error)
            }
            agreed => agreed,
        },
        EraChoice::ModernOnly => discover(shared, deadlines.handshake).await,
    }
}

/// Probes for the modern era, and falls back to the legacy one.
async fn agree_on_newest(
    shared: &McpConnectionState,
    deadlines: &HandshakeDeadlines,
) -> Result<HandshakeResult, SourceError> {
    let Some(probe_timeout) = deadlines.probe else { return initialize(shared, deadlines.handshake).await };
    // The probe stays open after its deadline: a source that starts slowly reads both requests, and its answer to the
    // first counts if it refuses the second.
    let mut probe = std::pin::pin!(shared.request(
        &Method::ServerDiscover,
        |_| with_facts(&Json::empty_object(), &RequestFacts::of_broker(Era::Modern), None),
        None,
        probe_timeout + deadlines.handshake,
    ));
    match tokio::time::timeout(probe_timeout, &mut probe).await {
        Ok(Ok(Answer::Result(result))) if speaks_modern(&result) => Ok(modern(&result)),
        // The source knows the era and supports the version that we speak: try that once more, and do not fall back.
        Ok(Ok(Answer::Error(error))) if offers_modern(&error) => discover(shared, deadlines.handshake).await,
        // Whichever era it speaks, it does not answer without a login.
        Ok(Ok(Answer::Error(error))) if wants_login(&error) => Err(refused(&Method::ServerDiscover, &error)),
        Ok(Ok(_)) | Ok(Err(NoResponse::Timeout)) => initialize(shared, deadlines.handshake).await,
        Ok(Err(lost)) => Err(explain(&Method::ServerDiscover, probe_timeout, lost)),
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

/// Begins a connection in the modern era only. A source that refuses our version but names it as supported is asked
/// once more.
async fn discover(shared: &McpConnectionState, deadline: Duration) -> Result<HandshakeResult, SourceError> {
    let ask = || {
        let with_facts = |_| with_facts(&Json::empty_object(), &RequestFacts::of_broker(Era::Modern), None);
        shared.request(&Method::ServerDiscover, with_facts, None, deadline)
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
            Err(SourceError::Protocol(Cause::own(why)))
        }
        Ok(Answer::Error(error)) => Err(refused(&Method::ServerDiscover, &error)),
        Err(lost) => Err(explain(&Method::ServerDiscover, deadline, lost)),
    }
}

/// Reports whether an error is the `UnsupportedProtocolVersion` of a modern source that nevertheless supports our
/// version.
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

fn modern(discovered: &Json) -> HandshakeResult {
    let server = discovered.get("_meta").and_then(|meta| meta.get(SERVER_INFO));
    HandshakeResult {
        era: Era::Modern,
        protocol: MODERN.to_owned(),
        server: server.unwrap_or_else(Json::empty_object),
        instructions: discovered.get_str("instructions"),
        capabilities: capabilities(discovered),
    }
}

async fn initialize(shared: &McpConnectionState, deadline: Duration) -> Result<HandshakeResult, SourceError> {
    let [.., newest] = LEGACY;
    let declared = &shared.config.capabilities;
    let params = json!({ "protocolVersion": newest, "capabilities": declared, "clientInfo": client_info() });
    let params = Json::of(&params);
    let result = match shared.request(&Method::Initialize, |_| params, None, deadline).await {
        Ok(Answer::Result(result)) => result,
        Ok(Answer::Error(error)) => return Err(refused(&Method::Initialize, &error)),
        Err(lost) => return Err(explain(&Method::Initialize, deadline, lost)),
    };
    let protocol = result.get_str("protocolVersion").unwrap_or_default();
    if !LEGACY.contains(&protocol.as_str()) {
        let ours = format!(", and this broker speaks {} and {MODERN}", LEGACY.join(", "));
        let theirs = Cause::own("the source speaks protocol revision").said(" \"", excerpt(&protocol), "\"");
        return Err(SourceError::Protocol(theirs.then(ours)));
    }
    let capabilities = capabilities(&result);
    // Before the source may send requests: some do as soon as they receive `notifications/initialized`.
    if *declared != Json::empty_object() || keeps_state(&capabilities) {
        shared.set_owner();
    }
    let method = Method::NotificationsInitialized.to_owned();
    let ready = Message::Notification(Notification { method, params: None });
    let sent = tokio::time::timeout(deadline, shared.transport.send(&ready)).await;
    sent.map_err(|_| NoResponse::Timeout)
        .and_then(|sent| sent.map_err(|error| NoResponse::Broken(error.into_cause())))
        .map_err(|lost| explain(&Method::NotificationsInitialized, deadline, lost))?;
    Ok(HandshakeResult {
        era: Era::Legacy,
        protocol,
        server: result.get("serverInfo").unwrap_or_else(Json::empty_object),
        instructions: result.get_str("instructions"),
        capabilities,
    })
}

/// Reports whether a legacy source keeps state for each client: a log level, subscriptions, tasks.
pub(super) fn keeps_state(capabilities: &Json) -> bool {
    let subscribes = capabilities.get("resources").and_then(|resources| resources.get("subscribe"));
    ["logging", "tasks"].iter().any(|kept| capabilities.get(kept).is_some())
        || subscribes.is_some_and(|subscribes| subscribes.is_true())
}

fn capabilities(answer: &Json) -> Json {
    answer.get("capabilities").filter(Json::is_object).unwrap_or_else(Json::empty_object)
}

/// Returns the error for a request that the source has answered with this one.
pub(super) fn refused(method: &Method, error: &Json) -> SourceError {
    let message = error.get_str("message").unwrap_or_default();
    if wants_login(error) {
        // Most often the transport's own message, which tells what to do; but a source may send the same code.
        let said = crate::escape::escape_hidden(&message).into_owned();
        return SourceError::Start(Cause::own(LOGIN_WANTED).replace_with_source_words(said));
    }
    let cause = Cause::own(format!("the source refused `{method}`")).said(": \"", excerpt(&message), "\"");
    SourceError::Protocol(match error.get("code") {
        Some(code) if code.read::<i64>().is_ok() => cause.then(format!(" (code {})", excerpt(code.as_str()))),
        Some(code) => cause.said(" (code ", excerpt(code.as_str()), ")"),
        None => cause.then(" (code none)"),
    })
}

/// Reports whether an error asks for a login ([`LOGIN`]).
fn wants_login(error: &Json) -> bool {
    error.get("data").is_some_and(|data| data.get(LOGIN).is_some_and(|login| login.is_true()))
}

/// Returns the error for a request that has no answer.
pub(super) fn explain(method: &Method, deadline: Duration, lost: NoResponse) -> SourceError {
    match lost {
        NoResponse::Timeout => late(method, deadline),
        NoResponse::NotSent(why) | NoResponse::Broken(why) => SourceError::Closed(why),
    }
}

/// Returns the error for a request that was not answered by its deadline.
pub(super) fn late(method: &Method, deadline: Duration) -> SourceError {
    SourceError::Timeout { method: method.to_string(), seconds: deadline.as_secs() }
}

/// Returns a source's text escaped for printing, at most 200 characters of it.
fn excerpt(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
