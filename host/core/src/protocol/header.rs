//! Names of the HTTP headers of the protocol, in lower case as HTTP/2 and the `http` crate write them.
//!
//! Specification: MCP 2026-07-28 and 2025-11-25, "Transports: Streamable HTTP".

/// The header that names the session of a legacy request.
pub const SESSION_ID: &str = "mcp-session-id";

/// The header by which a legacy client resumes an event stream.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// The header that names the revision of a message.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// The header that repeats the method of a message (2026-07-28).
pub const METHOD: &str = "mcp-method";

/// The header that repeats the name or URI of what a request is about (2026-07-28).
pub const NAME: &str = "mcp-name";
