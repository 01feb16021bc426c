//! The files in which MCP clients keep their servers: where they are, what our entry is in each, and how it is written
//! and removed again without touching anything else.

pub(crate) mod changed;
pub(crate) mod client;
pub(crate) mod client_file;
pub(crate) mod edit;
pub(crate) mod entry;
