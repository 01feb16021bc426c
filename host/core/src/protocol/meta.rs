//! The keys that the protocol reserves in `_meta`.

/// The prefix of every key that the protocol reserves.
pub const RESERVED: &str = "io.modelcontextprotocol/";

/// The revision in which a request is made (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// The client that makes a request (2026-07-28).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// The capabilities of the client that makes a request (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The server that gives a result (2026-07-28).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The lowest severity of log messages that a request asks for (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The levels that a log message can have, and a caller can ask for, the lowest first.
pub const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The subscription that a notification belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The task that a message belongs to (2025-11-25, "Tasks").
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The member of [`RELATED_TASK`]'s value that names the task.
pub const TASK_ID: &str = "taskId";

/// The extension by which a modern server and client declare tasks.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
