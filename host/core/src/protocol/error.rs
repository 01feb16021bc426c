//! Errors of JSON-RPC and of the Model Context Protocol.

use super::json::Json;

/// A JSON-RPC error that the broker itself answers with.
#[derive(Clone, Debug, PartialEq, serde::Serialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The JSON-RPC or MCP error code.
    pub code: i64,
    /// The message for people: what happened and what to do.
    pub message: String,
    /// The details for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// The text is JSON but not a valid message, or the message is not allowed at this point.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is not known here.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid, or the tool is unknown.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The broker or the source failed.
    pub const INTERNAL: i64 = -32603;
    /// A header and the body disagree (2026-07-28, streamable HTTP).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare; `data` names it (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not served; `data` lists those that are (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The resource does not exist (before 2026-07-28, which uses [`RpcError::INVALID_PARAMS`]).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// A person must open the pages in `data` first (2025-11-25).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// The gate refused the call; `data.code` says why. The code is in the range that JSON-RPC leaves to
    /// implementations.
    pub const DENIED: i64 = -32010;
    /// A person has not answered yet; the same call may be sent again. `data.ask` names the question.
    pub const PENDING: i64 = -32011;

    /// Creates an error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads the error of a response. A value that is not an error object becomes the message.
    #[doc(hidden)]
    #[must_use]
    pub fn of(error: &Json) -> Self {
        let code = error.get("code").and_then(|code| code.read().ok());
        let message = error.get_str("message").unwrap_or_else(|| error.as_str().to_owned());
        Self { code: code.unwrap_or(Self::INTERNAL), message, data: error.get("data").map(|data| data.to_value()) }
    }

    /// Returns why the broker answered with this error, in a word for programs (`data.code`), such as `not-sent`.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.data.as_ref()?.get("code")?.as_str()
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }
}
