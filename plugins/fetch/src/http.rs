//! Makes one request over `wasi:http`.

use std::io::Read as _;

use url::Url;
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{ErrorCode, Fields, IncomingBody, IncomingResponse, OutgoingRequest, Scheme};

use crate::{PAGE_BYTES, Response};

/// The headers that every request has.
const HEADERS: [(&str, &str); 2] =
    [("accept", "text/html, text/plain, application/json;q=0.9, */*;q=0.5"), ("user-agent", "portcullis-fetch/0.1")];

pub(crate) fn get(url: &Url) -> Result<Response, String> {
    let response = send(url).map_err(|error| told(url, &error))?;
    let fields = response.headers();
    let header = |name: &str| fields.get(name).into_iter().next().and_then(|value| String::from_utf8(value).ok());
    let (location, kind) = (header("location"), header("content-type"));
    let broken = |what: &str| format!("{url} broke off: {what}");
    let body = response.consume().map_err(|()| broken("there is no body"))?;
    let stream = body.stream().map_err(|()| broken("there is no body"))?;
    let mut bytes = Vec::new();
    // One byte more than is kept, to tell a page that is too large from one that just fits.
    let mut limited = stream.take(PAGE_BYTES as u64 + 1);
    limited.read_to_end(&mut bytes).map_err(|error| broken(&error.to_string()))?;
    drop(limited);
    drop(IncomingBody::finish(body));
    let cut = bytes.len() > PAGE_BYTES;
    bytes.truncate(PAGE_BYTES);
    Ok(Response { status: response.status(), location, kind, body: bytes, cut })
}

fn send(url: &Url) -> Result<IncomingResponse, ErrorCode> {
    let invalid = |()| ErrorCode::HttpRequestUriInvalid;
    let headers = HEADERS.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let headers = Fields::from_list(&headers).map_err(|_| ErrorCode::InternalError(None))?;
    let request = OutgoingRequest::new(headers);
    let scheme = if url.scheme() == "http" { Scheme::Http } else { Scheme::Https };
    request.set_scheme(Some(&scheme)).map_err(invalid)?;
    request.set_authority(Some(url.authority())).map_err(invalid)?;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    request.set_path_with_query(Some(&format!("{}{query}", url.path()))).map_err(invalid)?;
    let response = handle(request, None)?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(response)) => response,
        // The response is ready, and nothing else takes it.
        None | Some(Err(())) => Err(ErrorCode::InternalError(None)),
    }
}

/// Describes an error for the model.
fn told(url: &Url, error: &ErrorCode) -> String {
    match error {
        ErrorCode::HttpRequestDenied => {
            format!("{url} is not granted: hosts that may be reached are listed in `cell.network` of this source")
        }
        ErrorCode::DestinationIpProhibited => {
            format!("{url} cannot be reached: its address is private, or one that no source may reach")
        }
        ErrorCode::DnsError(payload) => {
            format!("{url} has no address: {}", payload.rcode.as_deref().unwrap_or("unknown name"))
        }
        ErrorCode::InternalError(Some(text)) => text.clone(),
        other => format!("{url} cannot be fetched: {other:?}"),
    }
}
