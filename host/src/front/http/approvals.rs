//! Questions over HTTP: a person reads those that are open, and answers them, with a personal token.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;

use super::body::ARRIVAL;
use super::reply::HttpRefusal;
use crate::escape::escape_hidden_json;
use crate::front::backend::Backend;
use crate::gate::{GivenAnswer, InboxError};
use crate::protocol::RpcError;

/// The path at which open questions are listed; below it, each is read as a whole and answered under its id.
pub const APPROVALS_PATH: &str = "/approvals";

/// The largest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4096;

/// An answer to a question.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PersonsAnswer {
    approve: bool,
    /// The scope of an approval; once, if absent.
    scope: Option<String>,
    /// The moment at which an approval ends, as in RFC 3339, if the person chose one.
    until: Option<String>,
}

/// Reports whether a path is about questions.
pub(super) fn is_about(path: &str) -> bool {
    path.strip_prefix(APPROVALS_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Lists the questions, shows one, or answers one in the name of a person. `person` returns who that is when the answer has
/// arrived, or why nobody may answer any more.
pub(super) async fn serve(
    backend: &dyn Backend,
    person: impl Fn() -> Result<Option<Arc<str>>, HttpRefusal>,
    method: &Method,
    path: &str,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let id = path.strip_prefix(APPROVALS_PATH).unwrap_or_default().trim_start_matches('/');
    match (method, id) {
        (&Method::GET, "") => Ok(json(&backend.questions())),
        (&Method::GET, id) => backend.question(id).map(|question| json(&question)).map_err(|error| refusal(&error)),
        (&Method::POST, id) if !id.is_empty() => {
            let answer = read(body).await?;
            let gone = || refused(StatusCode::UNAUTHORIZED, "nobody may answer questions here any more");
            let person = person()?.ok_or_else(gone)?;
            let answered = backend.answer(id, &answer, &format!("person:{person}")).await;
            answered.map(|answered| json(&answered)).map_err(|error| refusal(&error))
        }
        _ => Err(HttpRefusal::method_not_allowed(if id.is_empty() { "GET" } else { "GET, POST" })),
    }
}

fn refusal(error: &InboxError) -> HttpRefusal {
    let status = match error {
        InboxError::Unknown(_) => StatusCode::NOT_FOUND,
        InboxError::Ambiguous(_) | InboxError::Scope { .. } | InboxError::End(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refused(status, error.to_string())
}

fn refused(status: StatusCode, message: impl Into<String>) -> HttpRefusal {
    HttpRefusal::new(status, RpcError::INVALID_REQUEST, message)
}

/// Returns an answer as `--json` of the command line writes it: characters that would hide in a question, or act on a
/// terminal that shows it, are escaped.
fn json(value: &impl serde::Serialize) -> Response {
    let text = serde_json::json!(value).to_string();
    ([(CONTENT_TYPE, "application/json")], escape_hidden_json(&text).into_owned()).into_response()
}

async fn read(body: Body) -> Result<GivenAnswer, HttpRefusal> {
    let refuse = |why: String| {
        let message = format!("an answer is JSON such as {{\"approve\": true, \"scope\": \"once\"}}: {why}");
        HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message)
    };
    let body = tokio::time::timeout(ARRIVAL, Limited::new(body, MAX_ANSWER_BYTES).collect()).await;
    let body = body.map_err(|_| refuse(format!("it took longer than {} s to arrive", ARRIVAL.as_secs())))?;
    let body = body.map_err(|error| refuse(error.to_string()))?;
    let answer = serde_json::from_slice(&body.to_bytes()).map_err(|error| refuse(error.to_string()))?;
    let PersonsAnswer { approve, scope, until } = answer;
    let until = until.map(|until| until.parse::<Timestamp>().map_err(|error| refuse(format!("`until`: {error}"))));
    // A moment before 1970 has passed, as the epoch has.
    let until = until.transpose()?.map(|until| u64::try_from(until.as_millisecond()).unwrap_or(0));
    Ok(GivenAnswer { approve, scope, until })
}
