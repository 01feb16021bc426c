//! An agent of the stateless era (2026-07-28): every request says who it is from.

use super::calls::Calls;
use super::client::Client;
use super::contact::{Asks, Line, Out};
use super::desk::Desk;
use super::{Era, INSTRUCTIONS, Step, server_info, version};
use crate::message::{Json, Request, Response, RpcError};

/// The method that a client may begin with; it needs no session.
pub(crate) const DISCOVER: &str = "server/discover";

/// Answers `server/discover`.
pub(crate) fn discover() -> Json {
    Json::of(&serde_json::json!({
        "resultType": "complete",
        "supportedVersions": [version::MODERN],
        "capabilities": { "tools": { "listChanged": false } },
        "instructions": INSTRUCTIONS,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
    }))
}

/// Starts a request whose `_meta` was read into `client`, in an open session.
pub(crate) fn serve(desk: &Desk, client: &Client, request: Request, out: &Out, calls: &Calls) -> Step {
    // As an unknown method it would send a client of both eras looking for a fault of its own.
    if request.method == "initialize" {
        let error = RpcError::new(
            RpcError::INVALID_REQUEST,
            format!("`initialize` does not mix with requests of {}; open another connection", version::MODERN),
        );
        return Step::Answer(Response::error(Some(request.id), &error));
    }
    // A server asks nothing by a request of its own in this era, so no answer is ever waited for.
    let line = Line::new(out.clone(), client.elicitation, Asks::default());
    desk.serve(Era::Modern, request, line, calls)
}
