//! An agent of the modern era (2026-07-28), which is stateless: every request names its client.

use std::time::Duration;

use super::agent_channel::{AgentChannel, OpenQuestions};
use super::client::ClientInfo;
use super::open_calls::OpenCalls;
use super::session_handle::SessionHandle;
use super::{NextStep, instructions, method_not_found, server_info};
use crate::front::outgoing::MessageSender;
use crate::protocol::{Answer, Era, Json, Method, Request, RpcError, meta, revision};

/// Answers `server/discover`.
async fn discover(handle: SessionHandle) -> Answer {
    let offers = handle.offers().await;
    Answer::Result(Json::of(&serde_json::json!({
        "resultType": "complete",
        "supportedVersions": [revision::MODERN],
        "capabilities": offers.capabilities,
        "instructions": instructions(&offers),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { meta::SERVER_INFO: server_info() },
    })))
}

/// Reports whether `server/discover` is answered as an unknown method: the one source behind the front speaks only the
/// legacy era, and an agent that speaks it too gets more of that source there. Ends a session that no request uses.
pub(crate) async fn is_refused(handle: &SessionHandle, request: &Request) -> bool {
    let refused = request.method == Method::ServerDiscover && handle.offers().await.only_era == Some(Era::Legacy);
    if refused && handle.is_unused() {
        handle.close(Duration::ZERO).await;
    }
    refused
}

/// Returns the error for a `server/discover` that is refused.
pub(crate) fn refusal() -> RpcError {
    let why = format!(
        "method {:?} is not served here: the one source behind this broker begins with `initialize`",
        Method::ServerDiscover
    );
    RpcError::new(RpcError::METHOD_NOT_FOUND, why)
}

/// Starts a request whose `_meta` was read into `client`, in an open session.
pub(crate) fn serve(
    handle: &SessionHandle,
    client: &ClientInfo,
    request: Request,
    out: &MessageSender,
    calls: &OpenCalls,
) -> NextStep {
    if request.method == Method::ServerDiscover {
        return handle.start(request.id, discover(handle.clone()), calls);
    }
    if request.method.is_removed_from_modern() {
        return NextStep::Answer(method_not_found(request));
    }
    // In this era a server sends no requests, so no answer is ever awaited.
    let channel = AgentChannel::new(out.clone(), client, OpenQuestions::default(), Some(request.id.clone()));
    handle.serve(Era::Modern, request, channel, calls)
}
