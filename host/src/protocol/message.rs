//! Raw JSON-RPC envelopes: the only place that knows their bytes.
//!
//! A broker must pass on what it does not understand. So a message is parsed only as deep as the broker has to look (id,
//! method, and slices of the rest), and everything else stays the bytes that were received: unknown fields, key order,
//! number spelling. Rewriting one value splices the text around it.
//!
//! Specification: MCP 2025-11-25 and 2026-07-28, "Base protocol"; JSON-RPC 2.0.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Json, check_nesting, slice};
use super::{Method, RpcError};

/// The largest message that is read, in bytes, unless the configuration says otherwise. Tool results carry images and files;
/// beyond this a line is an attack or an accident, and the call that it answers fails with the size named. Whoever reads
/// bytes keeps the limit, before there is a message to parse.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The deepest nesting of arrays and objects. Deep JSON exhausts the stack of whoever parses it next; real messages stay
/// below 30.
pub const MAX_NESTING: usize = 128;

/// From how many bytes on a payload is not copied to be passed on. Below it one write is cheaper than three.
const LARGE_BYTES: usize = 64 * 1024;

/// Makes room in a buffer for `more` bytes of a message of at most `limit`. A large buffer gets room for all that may come:
/// memory that is not written to is not taken, and growing step by step would hold the old and the new at once.
pub(crate) fn make_room(buffer: &mut Vec<u8>, more: usize, limit: usize) {
    let needed = buffer.len().saturating_add(more);
    if needed > buffer.capacity() && needed > LARGE_BUFFER_BYTES {
        buffer.reserve_exact(limit.max(needed) - buffer.len());
    }
}

/// From how many bytes on a buffer is large: allocators give it pages of its own.
const LARGE_BUFFER_BYTES: usize = 1024 * 1024;

/// The longest request id, in bytes of JSON text. Ids are echoed and kept while a call is open.
pub const MAX_ID_BYTES: usize = 1024;

/// A request id, as the JSON text of a string or a number: `1`, `"1"` and `1.0` are three ids, and each comes back as it
/// was sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Id(Box<str>);

impl Id {
    /// A numeric id of our own.
    #[must_use]
    pub fn number(n: u64) -> Self {
        Self(n.to_string().into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The number, if it is a plain unsigned integer, as ours are.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Takes the JSON text of an id.
    ///
    /// # Errors
    /// [`MessageError::BadId`] for anything but a string or a number, or one longer than [`MAX_ID_BYTES`].
    pub fn from_json(text: &str) -> Result<Self, MessageError> {
        let first = text.as_bytes().first().copied().unwrap_or(b' ');
        let scalar = first == b'"' || first == b'-' || first.is_ascii_digit();
        if scalar && text.len() <= MAX_ID_BYTES { Ok(Self(text.into())) } else { Err(MessageError::BadId) }
    }
}

/// What somebody wants done.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the sender, echoed in the response.
    pub id: Id,
    /// What is asked for.
    pub method: Method,
    /// An object, or positional; absent where the sender left it out.
    pub params: Option<Json>,
}

/// A request that wants no answer.
#[derive(Clone, Debug)]
pub struct Notification {
    /// What is told.
    pub method: Method,
    /// An object, or positional; absent where the sender left it out.
    pub params: Option<Json>,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Response {
    /// Whose answer it is. None where the peer could not read the id of what it refuses.
    pub id: Option<Id>,
    /// The result, or the error object as it was received.
    pub answer: Answer,
}

/// The part of a response that says how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `result`
    Result(Json),
    /// `error`: an object with `code`, `message` and perhaps `data`.
    Error(Json),
}

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Has an id and a method.
    Request(Request),
    /// Has a method and no id.
    Notification(Notification),
    /// Has a result or an error.
    Response(Response),
}

impl Message {
    /// Parses one message. The parts share the buffer.
    ///
    /// # Errors
    /// See [`MessageError`]; every case has a JSON-RPC code ([`MessageError::code`]).
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, MessageError> {
        let text = text.into();
        check_nesting(&text)?;
        if text.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
            return Err(MessageError::Batch);
        }
        let wire: Wire<'_> = serde_json::from_slice(&text).map_err(MessageError::from_json)?;
        if wire.jsonrpc != Some("2.0") {
            return Err(MessageError::Version);
        }
        let id = match wire.id.map(RawValue::get) {
            None | Some("null") => None,
            Some(id) => Some(Id::from_json(id)?),
        };
        let params = wire.params.map(|raw| slice(&text, raw));
        if let Some(params) = &params
            && !matches!(params.as_bytes().first(), Some(b'{' | b'['))
        {
            return Err(MessageError::BadParams);
        }
        match (wire.method, wire.result, wire.error) {
            (Some(method), None, None) => {
                let method = Method::from(&*method);
                // A null id is neither a request that can be answered nor a notification.
                match (id, wire.id) {
                    (Some(id), _) => Ok(Self::Request(Request { id, method, params })),
                    (None, None) => Ok(Self::Notification(Notification { method, params })),
                    (None, Some(_)) => Err(MessageError::BadId),
                }
            }
            (None, Some(result), None) => {
                let answer = Answer::Result(slice(&text, result));
                Ok(Self::Response(Response { id: Some(id.ok_or(MessageError::BadId)?), answer }))
            }
            (None, None, Some(error)) => {
                Ok(Self::Response(Response { id, answer: Answer::Error(slice(&text, error)) }))
            }
            _ => Err(MessageError::NeitherNorBoth),
        }
    }

    /// The message as one line of JSON, without the line feed.
    #[must_use]
    pub fn to_line(&self) -> Bytes {
        let (mut line, payload) = self.open(64 + self.payload_len());
        line.extend_from_slice(payload.as_ref().map_or(b"", Json::as_bytes));
        line.push(b'}');
        Bytes::from(line)
    }

    /// The line in pieces. A large payload is a piece of its own and shares the buffer in which it was received, so that
    /// passing it on needs no second one.
    #[must_use]
    pub fn to_chunks(&self) -> Vec<Bytes> {
        if self.payload_len() < LARGE_BYTES {
            return vec![self.to_line()];
        }
        let (head, payload) = self.open(64);
        let payload = payload.map(Json::into_bytes);
        [Some(Bytes::from(head)), payload, Some(Bytes::from_static(b"}"))].into_iter().flatten().collect()
    }

    /// The line up to its payload, with room for so many bytes, and the payload on one line.
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

    /// How many bytes the payload has, as it was received.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Request(Request { method, params, .. }) | Self::Notification(Notification { method, params }) => {
                method.len() + params.as_ref().map_or(0, |p| p.as_bytes().len())
            }
            Self::Response(Response { answer: Answer::Result(json) | Answer::Error(json), .. }) => {
                json.as_bytes().len()
            }
        }
    }
}

impl Response {
    /// A response that carries a result.
    #[must_use]
    pub fn result(id: Id, result: Json) -> Self {
        Self { id: Some(id), answer: Answer::Result(result) }
    }

    /// A response that carries an error of ours.
    #[must_use]
    pub fn error(id: Option<Id>, error: &RpcError) -> Self {
        Self { id, answer: Answer::Error(Json::of(error)) }
    }
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Larger than whoever reads messages here takes.
    #[error("message of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Its size in bytes, as far as it was read.
        size: usize,
        /// [`MAX_MESSAGE_BYTES`], or what the configuration says.
        limit: usize,
    },
    /// Nested deeper than [`MAX_NESTING`].
    #[error("message is nested deeper than the limit of {MAX_NESTING} levels")]
    TooDeep,
    /// Not JSON, or a member twice.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// A JSON array: batches left the protocol in 2025-06-18.
    #[error("a batch (JSON array) is not a message; send each message by itself")]
    Batch,
    /// `jsonrpc` is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// An id that is no string or number, is too long, or is missing where it must be.
    #[error("`id` must be a string or a number of at most {MAX_ID_BYTES} bytes")]
    BadId,
    /// `params` is neither an object nor an array.
    #[error("`params` must be an object or an array")]
    BadParams,
    /// No method, result or error, or more than one of them.
    #[error("a message has exactly one of `method`, `result` and `error`")]
    NeitherNorBoth,
}

impl MessageError {
    /// The JSON-RPC code to answer with.
    #[must_use]
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

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    // A result may be null, which `Option` alone would read as absent.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
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
