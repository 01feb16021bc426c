//! JSON-RPC messages: how their envelope is read from bytes and written to bytes.
//!
//! A broker must pass on what it does not understand. A message is therefore parsed only as deep as the broker must
//! look (id, method, and slices of the rest); everything else stays the bytes that were received: unknown fields, key
//! order, number spelling. Rewriting one value splices the text around it.
//!
//! Specification: MCP 2025-11-25 and 2026-07-28, "Base protocol"; JSON-RPC 2.0.

use bytes::Bytes;

use super::json::{Json, check_structure, not_utf8};
use super::{Method, RpcError};

/// The largest message that is read, in bytes, unless configured otherwise. Tool results carry images and files; a
/// larger message is an attack or an accident, and the call that it answers fails with an error that names the size.
/// The code that reads bytes from a connection enforces the limit, before there is a message to parse.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The deepest nesting of arrays and objects. Deep JSON exhausts the stack of the next program that parses it; real
/// messages stay below 30.
pub const MAX_NESTING: usize = 128;

/// The most members of objects and items of arrays that one message may have, in all of them together: more than any
/// model can read. A search for a member keeps some 80 bytes for each, though a member can be six bytes of text.
pub(super) const MAX_VALUES: usize = 500_000;

/// The size in bytes from which a payload is passed on without being copied. Below it, one write is cheaper than three.
const LARGE_BYTES: usize = 64 * 1024;

/// Reserves space in a buffer for `more` bytes of a message of at most `limit` bytes. A large buffer is grown to the
/// limit at once: memory that is never written to is not resident, and growing in steps would hold the old and the new
/// buffer together.
pub fn reserve_for_message(buffer: &mut Vec<u8>, more: usize, limit: usize) {
    let needed = buffer.len().saturating_add(more);
    if needed > buffer.capacity() && needed > LARGE_BUFFER_BYTES {
        buffer.reserve_exact(limit.max(needed) - buffer.len());
    }
}

/// The size in bytes from which a buffer is large: allocators give it separate pages.
const LARGE_BUFFER_BYTES: usize = 1024 * 1024;

/// The longest request id, in bytes of JSON text. An id is echoed, and kept while its call is in flight.
pub const MAX_ID_BYTES: usize = 1024;

/// The most bytes of a message outside its parameters, result or error: its method, its id, and members unknown to the
/// protocol. The whole message stays in memory for as long as any part of it is kept, and the limits of that count only
/// the part.
pub const MAX_ENVELOPE_BYTES: usize = 64 * 1024;

/// A request id, as the JSON text of a string or a number: `1`, `"1"` and `1.0` are three ids, and each comes back
/// unchanged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Id(Box<str>);

impl Id {
    /// Creates a numeric id, for a request of the broker's own.
    #[must_use]
    pub fn number(n: u64) -> Self {
        Self(n.to_string().into())
    }

    /// Returns the JSON text of the id.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Returns the number if the id is a plain unsigned integer, as the broker's own ids are.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Parses the JSON text of an id.
    ///
    /// # Errors
    /// [`MessageError::BadId`] if it is neither a string nor a number, or longer than [`MAX_ID_BYTES`].
    pub fn from_json(text: &str) -> Result<Self, MessageError> {
        let first = text.as_bytes().first().copied().unwrap_or(b' ');
        let scalar = first == b'"' || first == b'-' || first.is_ascii_digit();
        if scalar && text.len() <= MAX_ID_BYTES { Ok(Self(text.into())) } else { Err(MessageError::BadId) }
    }
}

/// A JSON-RPC request: a message that expects a response.
#[derive(Clone, Debug)]
pub struct Request {
    /// The id, chosen by the sender and echoed in the response.
    pub id: Id,
    /// The method that is requested.
    pub method: Method,
    /// The parameters, an object or an array, or `None` if the sender left them out.
    pub params: Option<Json>,
}

/// A JSON-RPC notification: a message that expects no response.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The method that names the notification.
    pub method: Method,
    /// The parameters, an object or an array, or `None` if the sender left them out.
    pub params: Option<Json>,
}

/// A JSON-RPC response to a request.
#[derive(Clone, Debug)]
pub struct Response {
    /// The id of the request, or `None` if the peer could not read the id of a message that it refuses.
    pub id: Option<Id>,
    /// The result, or the error object as received.
    pub answer: Answer,
}

/// The outcome that a response carries: a result or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `result`
    Result(Json),
    /// `error`: an object with `code`, `message` and perhaps `data`.
    Error(Json),
}

impl From<RpcError> for Answer {
    fn from(error: RpcError) -> Self {
        Self::Error(Json::of(&error))
    }
}

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// A message with an id and a method.
    Request(Request),
    /// A message with a method and no id.
    Notification(Notification),
    /// A message with a result or an error.
    Response(Response),
}

impl Message {
    /// Parses one message. Its parts share the buffer.
    ///
    /// # Errors
    /// See [`MessageError`]; every case has a JSON-RPC code ([`MessageError::code`]).
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, MessageError> {
        let text = text.into();
        if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            std::str::from_utf8(&text).map_err(|_| not_utf8(&text))?;
            check_structure(&text)?;
            return Err(MessageError::Batch);
        }
        let length = text.len();
        let whole = Json::parse(text)?;
        let envelope = Envelope::of(&whole)?;
        if envelope.jsonrpc != Some(r#""2.0""#) {
            return Err(MessageError::Version);
        }
        let id = match envelope.id {
            None | Some("null") => None,
            Some(id) => Some(Id::from_json(id)?),
        };
        let params = envelope.params.map(|params| whole.slice(params));
        if let Some(params) = &params
            && !matches!(params.as_bytes().first(), Some(b'{' | b'['))
        {
            return Err(MessageError::BadParams);
        }
        let payload = [envelope.params, envelope.result, envelope.error].into_iter().flatten().map(str::len).sum();
        if length.saturating_sub(payload) > MAX_ENVELOPE_BYTES {
            return Err(MessageError::Envelope);
        }
        match (envelope.method, envelope.result, envelope.error) {
            (Some(method), None, None) => {
                let method = Method::from(&*method);
                // With a null id the message is neither a request that can be answered nor a notification.
                match (id, envelope.id) {
                    (Some(id), _) => Ok(Self::Request(Request { id, method, params })),
                    (None, None) => Ok(Self::Notification(Notification { method, params })),
                    (None, Some(_)) => Err(MessageError::BadId),
                }
            }
            (None, Some(result), None) => {
                let answer = Answer::Result(whole.slice(result));
                Ok(Self::Response(Response { id: Some(id.ok_or(MessageError::BadId)?), answer }))
            }
            (None, None, Some(error)) => Ok(Self::Response(Response { id, answer: Answer::Error(whole.slice(error)) })),
            _ => Err(MessageError::AmbiguousKind),
        }
    }

    /// Returns the message as one line of JSON, without the line feed.
    #[must_use]
    pub fn to_line(&self) -> Bytes {
        let (mut line, payload) = self.open(64 + self.payload_len());
        line.extend_from_slice(payload.as_ref().map_or(b"", Json::as_bytes));
        line.push(b'}');
        Bytes::from(line)
    }

    /// Returns the line of [`to_line`](Self::to_line) in pieces. A large payload is a separate piece that shares the
    /// buffer in which it was received, so that passing it on needs no second buffer.
    #[must_use]
    pub fn to_chunks(&self) -> Vec<Bytes> {
        if self.payload_len() < LARGE_BYTES {
            return vec![self.to_line()];
        }
        let (head, payload) = self.open(64);
        let payload = payload.map(Json::into_bytes);
        [Some(Bytes::from(head)), payload, Some(Bytes::from_static(b"}"))].into_iter().flatten().collect()
    }

    /// Returns the line up to its payload, in a buffer with a capacity of `room` bytes, and the payload on one line.
    fn open(&self, room: usize) -> (Vec<u8>, Option<Json>) {
        let mut head = Vec::with_capacity(room);
        head.extend_from_slice(br#"{"jsonrpc":"2.0""#);
        let (key, payload) = match self {
            Self::Request(Request { id, method, params }) => {
                put(&mut head, "id", id.as_json().as_bytes());
                put_method(&mut head, method);
                ("params", params.as_ref())
            }
            Self::Notification(Notification { method, params }) => {
                put_method(&mut head, method);
                ("params", params.as_ref())
            }
            Self::Response(Response { id, answer }) => {
                put(&mut head, "id", id.as_ref().map_or("null", Id::as_json).as_bytes());
                match answer {
                    Answer::Result(result) => ("result", Some(result)),
                    Answer::Error(error) => ("error", Some(error)),
                }
            }
        };
        if payload.is_some() {
            put(&mut head, key, b"");
        }
        (head, payload.map(Json::on_one_line))
    }

    /// Returns the size in bytes of the method and the payload, as received.
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Request(Request { method, params, .. }) | Self::Notification(Notification { method, params }) => {
                method.as_str().len() + params.as_ref().map_or(0, |p| p.as_bytes().len())
            }
            Self::Response(Response { answer: Answer::Result(json) | Answer::Error(json), .. }) => {
                json.as_bytes().len()
            }
        }
    }
}

impl Response {
    /// Creates a response that carries a result.
    #[must_use]
    pub fn result(id: Id, result: Json) -> Self {
        Self { id: Some(id), answer: Answer::Result(result) }
    }

    /// Creates a response that carries an error of the broker.
    #[must_use]
    pub fn error(id: Option<Id>, error: &RpcError) -> Self {
        Self { id, answer: Answer::Error(Json::of(error)) }
    }
}

/// The reason why bytes are not a valid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is larger than the limit of its connection.
    #[error("message of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The size in bytes, as far as the message was read.
        size: usize,
        /// The limit in bytes: [`MAX_MESSAGE_BYTES`], or the configured value.
        limit: usize,
    },
    /// The message is nested deeper than [`MAX_NESTING`].
    #[error("message is nested deeper than the limit of {MAX_NESTING} levels")]
    TooDeep,
    /// The objects and arrays of the message have more than 500,000 members and items together.
    #[error("message has more than {MAX_VALUES} members of objects and items of arrays")]
    TooManyValues,
    /// The text is not JSON, or a member of the envelope appears twice.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// The message is a JSON array: batches left the protocol in 2025-06-18.
    #[error("a batch (JSON array) is not a message; send each message by itself")]
    Batch,
    /// `jsonrpc` is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// The id is neither a string nor a number, is too long, or is missing where it is required.
    #[error("`id` must be a string or a number of at most {MAX_ID_BYTES} bytes")]
    BadId,
    /// `params` is neither an object nor an array.
    #[error("`params` must be an object or an array")]
    BadParams,
    /// The message has more than [`MAX_ENVELOPE_BYTES`] outside its parameters, result or error.
    #[error("a message has more than {MAX_ENVELOPE_BYTES} bytes besides its `params`, `result` or `error`")]
    Envelope,
    /// The message has no method, result or error, or more than one of them.
    #[error("a message has exactly one of `method`, `result` and `error`")]
    AmbiguousKind,
}

impl MessageError {
    /// Returns the JSON-RPC code to answer with.
    #[must_use]
    #[doc(hidden)]
    pub fn code(&self) -> i64 {
        match self {
            Self::Json(_) => RpcError::PARSE,
            _ => RpcError::INVALID_REQUEST,
        }
    }

    pub(super) fn from_json(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}

/// The members of a message that the protocol defines, each as its text.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<String>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// Finds the members of an object.
    ///
    /// # Errors
    /// [`MessageError::Json`] if it is not an object, has a member twice or a key that cannot be read, or if a member
    /// is of another type.
    fn of(whole: &'a Json) -> Result<Self, MessageError> {
        let invalid = |why: &str| MessageError::Json(why.to_owned());
        let members = whole.place().members();
        let members = members.ok_or_else(|| invalid("a message is an object with keys that can be read"))?;
        let (mut envelope, mut method) = (Self::default(), None);
        for (key, value) in members {
            let member = match &*key {
                "jsonrpc" => &mut envelope.jsonrpc,
                "id" => &mut envelope.id,
                "method" => &mut method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => continue,
            };
            if member.replace(value).is_some() {
                return Err(invalid(&format!("the message has `{key}` twice")));
            }
        }
        let present = |value: &&str| *value != "null";
        envelope.jsonrpc = envelope.jsonrpc.filter(present);
        if envelope.jsonrpc.is_some_and(|version| !version.starts_with('"') || version.contains('\\')) {
            return Err(invalid("`jsonrpc` is a string without escapes"));
        }
        // A result may be null, and so may the id of a message that could not be read.
        envelope.params = envelope.params.filter(present);
        envelope.error = envelope.error.filter(present);
        if let Some(method) = method.filter(present) {
            envelope.method = Some(serde_json::from_str(method).map_err(MessageError::from_json)?);
        }
        Ok(envelope)
    }
}

fn put(out: &mut Vec<u8>, key: &str, json: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(json);
}

fn put_method(out: &mut Vec<u8>, method: &Method) {
    put(out, "method", serde_json::to_string(method.as_str()).unwrap_or_default().as_bytes());
}

#[cfg(test)]
mod tests;
