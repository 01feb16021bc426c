//! Errors for HTTP statuses, with advice.

use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Response as HttpResponse, StatusCode};
use url::Url;

use crate::call::Cause;
use crate::egress::shown;
use crate::name::SourceName;
use crate::protocol::RpcError;
use crate::source::transport::LOGIN;

/// The answer that a request gets in place of one from the server.
pub(super) struct SubstituteAnswer {
    pub(super) cause: Cause,
    data: Option<serde_json::Value>,
}

impl SubstituteAnswer {
    pub(super) fn of(cause: Cause) -> Self {
        Self { cause, data: None }
    }

    pub(super) fn to_error(&self) -> RpcError {
        let error = RpcError::new(RpcError::INTERNAL, self.cause.to_string());
        match &self.data {
            Some(data) => error.with_data(data.clone()),
            None => error,
        }
    }
}

/// Returns the error for a status that is not a success, if the server gave none of its own. `advice` names the remedy,
/// if one is known. `authorization` is the header that the source was given.
pub(super) fn error(
    source: &SourceName,
    asked: &Url,
    response: &HttpResponse,
    advice: Option<&str>,
    authorization: Option<&HeaderValue>,
) -> SubstituteAnswer {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("without a name");
    let hint = match status {
        _ if advice.is_some() => advice.map(|advice| format!("; {advice}")).unwrap_or_default(),
        StatusCode::UNAUTHORIZED if authorization.is_some_and(|value| !value.as_bytes().contains(&b' ')) => format!(
            "; the header `Authorization` under `headers` of source `{source}` is one word, without the word `Bearer` and a \
             space before it"
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!("; a header or secret is missing or wrong: see `headers` of source `{source}`")
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            format!("; is the path in `url` of source `{source}` the server's MCP endpoint?")
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(response),
        _ => String::new(),
    };
    let cause = Cause::own(format!("`{}` answered with status {} {reason}", shown(asked), status.as_u16()));
    let cause = match response.url().origin() == asked.origin() {
        true => cause,
        false => {
            cause.said(" after a redirect to `", shown(response.url()), "`, where the source's headers are not sent")
        }
    };
    let cause = cause.then(hint);
    let status = status.as_u16();
    let data = match advice {
        Some(_) => serde_json::json!({ "httpStatus": status, LOGIN: true }),
        None => serde_json::json!({ "httpStatus": status }),
    };
    SubstituteAnswer { cause, data: Some(data) }
}

fn retry_after(response: &HttpResponse) -> String {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    seconds.map(|seconds| format!("; it asks clients to wait {seconds} s before they try again")).unwrap_or_default()
}
