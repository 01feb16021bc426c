//! The catalog: all tools of all sources, under the names that agents see.

use std::sync::Arc;

use crate::digest::Digest;
use crate::message::Json;
use crate::name::SourceName;

/// One tool of one source.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The source that offers it.
    pub source: SourceName,
    /// Its name at the source.
    pub name: Arc<str>,
    /// Its name for the agent.
    pub exposed: Arc<str>,
    /// An MCP `Tool` as the source gave it, byte for byte.
    pub definition: Json,
    /// Of the definition's canonical form.
    pub digest: Digest,
    /// The source's tags.
    pub tags: Arc<[String]>,
}
