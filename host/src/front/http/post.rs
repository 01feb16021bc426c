//! The handling of one message by POST, in either era.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tokio::sync::OnceCell;

use super::admission::AdmittedCaller;
use super::reply::{self, HttpRefusal};
use super::{FrontShared, headers, params};
use crate::agent::{Agent, TransportKind};
use crate::front::outgoing::MessageSender;
use crate::front::protocol::client::{self, ClientInfo};
use crate::front::protocol::legacy::LegacyConversation;
use crate::front::protocol::session_handle::SessionHandle;
use crate::front::protocol::{NextStep, method_not_found, modern};
use crate::protocol::{Era, Message, Method, Notification, Request, Response as JsonRpcResponse, RpcError, header};
use crate::shared_limit::LimitShare;

/// The time that a body may take to arrive before its caller is admitted again: a token may have expired meanwhile.
const ADMITTED_FOR: Duration = Duration::from_secs(1);

pub(crate) async fn post(
    shared: &Arc<FrontShared>,
    caller: &AdmittedCaller,
    parts: &Parts,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let (headers, begun) = (&parts.headers, Instant::now());
    headers::check_content_type(headers)?;
    headers::check_accept(headers)?;
    let text = shared.bodies.read(body, &caller.principal).await?;
    shared.admission.confirm(caller)?;
    if begun.elapsed() > ADMITTED_FOR {
        shared.admission.admit(parts).await?;
    }
    let message = Message::parse(text.clone()).map_err(|error| HttpRefusal::parse_error(&text, &error))?;
    if headers::is_modern(headers, &message)? {
        modern_message(shared, caller, headers, message).await
    } else {
        legacy_message(shared, caller, headers, message).await
    }
}

async fn modern_message(
    shared: &Arc<FrontShared>,
    caller: &AdmittedCaller,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, HttpRefusal> {
    let message = match message {
        // Its headers belong to another revision too, so they are not compared.
        Message::Request(request) if request.method.is_removed_from_modern() => {
            let answer = method_not_found(request);
            return Ok(reply::json(reply::modern_status(&answer), answer));
        }
        message => message,
    };
    headers::check_agreement(headers, &message)?;
    match message {
        Message::Request(request) => modern_request(shared, caller, headers, request).await,
        // None of the protocol's own notifications matters here: in this era a call is cancelled by closing its stream.
        Message::Notification(notification) if notification.method.is_reserved() => Ok(reply::accepted()),
        Message::Notification(notification) => modern_notification(shared, caller, &notification).await,
        Message::Response(_) => {
            let message = "no response is expected: in this era a server sends no requests";
            Err(HttpRefusal::new(StatusCode::BAD_REQUEST, RpcError::INVALID_REQUEST, message))
        }
    }
}

/// Passes a notification to the session of the client that it names. One that names none counts as from a client
/// without capabilities.
async fn modern_notification(
    shared: &Arc<FrontShared>,
    caller: &AdmittedCaller,
    notification: &Notification,
) -> Result<Response, HttpRefusal> {
    let params = notification.params.as_ref();
    let agent = match client::meta_version(params) {
        Some(_) => {
            let client = ClientInfo::from_meta(params, TransportKind::Tcp);
            client.map_err(|error| HttpRefusal::of(StatusCode::BAD_REQUEST, None, &error))?.agent
        }
        None => Agent { era: Era::Modern, transport: Some(TransportKind::Tcp), ..Agent::named("") },
    };
    let session = shared.sessions.modern(caller, &agent)?;
    let handle = handle(shared, caller, &session, agent).await;
    let handle = handle.map_err(|error| HttpRefusal::of(StatusCode::INTERNAL_SERVER_ERROR, None, &error))?;
    shared.admission.confirm(caller)?;
    handle.notified(notification);
    Ok(reply::accepted())
}

/// Returns the session's handle, which is opened on first use.
async fn handle(
    shared: &FrontShared,
    caller: &AdmittedCaller,
    session: &OnceCell<SessionHandle>,
    agent: Agent,
) -> Result<SessionHandle, RpcError> {
    let open = async || shared.backend.open(&caller.profile, &caller.principal, agent).await.map(SessionHandle::new);
    session.get_or_try_init(open).await.cloned()
}

async fn modern_request(
    shared: &Arc<FrontShared>,
    caller: &AdmittedCaller,
    headers: &HeaderMap,
    request: Request,
) -> Result<Response, HttpRefusal> {
    let id = request.id.clone();
    let bad_request = |error: &RpcError| HttpRefusal::of(StatusCode::BAD_REQUEST, Some(id.clone()), error);
    let client =
        ClientInfo::from_meta(request.params.as_ref(), TransportKind::Tcp).map_err(|error| bad_request(&error))?;
    let session = shared.sessions.modern(caller, &client.agent)?;
    let handle = match handle(shared, caller, &session, client.agent.clone()).await {
        Ok(handle) => handle,
        Err(error) => return Ok(reply::json(StatusCode::OK, JsonRpcResponse::error(Some(request.id), &error))),
    };
    if modern::is_refused(&handle, &request).await {
        let refused = JsonRpcResponse::error(Some(request.id), &modern::refusal());
        return Ok(reply::json(reply::modern_status(&refused), refused));
    }
    if request.method == Method::ToolsCall
        && let (Some(params), Ok(tools)) = (&request.params, handle.mirroring_tools().await)
    {
        let agree = params::check(headers, &tools, params);
        agree.map_err(|why| bad_request(&RpcError::new(RpcError::HEADER_MISMATCH, why)).because("mismatch"))?;
    }
    shared.admission.confirm(caller)?;
    let (out, messages) = MessageSender::queue(shared.room(caller));
    // Ids need to be unique only among the requests of one stream, and this request has its own stream.
    match modern::serve(&handle, &client, request, &out, &shared.calls.stream()) {
        NextStep::Work(work) => Ok(reply::work(work, out, messages, None, session).await),
        NextStep::Answer(answer) => Ok(reply::json(reply::modern_status(&answer), answer)),
        NextStep::Silence => Ok(reply::accepted()),
    }
}

async fn legacy_message(
    shared: &Arc<FrontShared>,
    caller: &AdmittedCaller,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, HttpRefusal> {
    headers::check_contradiction(headers, &message)?;
    let message = match message {
        Message::Request(request) if request.method == Method::Initialize => {
            return initialize(shared, caller, request).await;
        }
        message => message,
    };
    let session = shared.sessions.legacy(caller, headers).map_err(|refusal| named(refusal, &message))?;
    headers::check_legacy_version(headers).map_err(|refusal| named(refusal, &message))?;
    let place = match &message {
        Message::Request(_) => Some(place(shared, caller).map_err(|refusal| named(refusal, &message))?),
        _ => None,
    };
    let (out, messages) = MessageSender::queue(shared.room(caller));
    let resumable = session.resumable();
    match session.agent.accept(message, &out) {
        NextStep::Work(work) => Ok(reply::work(work, out, messages, Some(&resumable), (session, place)).await),
        NextStep::Answer(answer) => Ok(reply::json(StatusCode::OK, answer)),
        NextStep::Silence => Ok(reply::accepted()),
    }
}

/// Takes the place of a call, which it keeps until it ends, even if its agent disconnects.
fn place(shared: &FrontShared, caller: &AdmittedCaller) -> Result<LimitShare, HttpRefusal> {
    let place = shared.legacy_calls.try_take(&caller.principal, 1);
    place.ok_or_else(|| {
        let message = "this caller has its share of calls open already, with those whose client has disconnected; wait for \
                       one to end, or cancel it with `notifications/cancelled`";
        HttpRefusal::busy(message.to_owned())
    })
}

async fn initialize(shared: &FrontShared, caller: &AdmittedCaller, request: Request) -> Result<Response, HttpRefusal> {
    let session = shared.sessions.new_id(caller)?;
    let params = request.params.as_ref();
    match LegacyConversation::open(&*shared.backend, &caller.profile, &caller.principal, TransportKind::Tcp, params)
        .await
    {
        Ok((agent, result)) => {
            let mut response = reply::json(StatusCode::OK, JsonRpcResponse::result(request.id, result));
            if let Ok(id) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(HeaderName::from_static(header::SESSION_ID), id);
            }
            shared.admission.confirm(caller)?;
            shared.sessions.add(session, caller.clone(), agent)?;
            Ok(response)
        }
        Err(error) => Ok(reply::json(StatusCode::OK, JsonRpcResponse::error(Some(request.id), &error))),
    }
}

/// Adds the id of a request to its refusal.
fn named(refusal: HttpRefusal, message: &Message) -> HttpRefusal {
    match message {
        Message::Request(request) => refusal.answering(request.id.clone()),
        _ => refusal,
    }
}
