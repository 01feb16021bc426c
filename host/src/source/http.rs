//! Sources that speak streamable HTTP, of both eras.

mod exchange;
mod headers;
mod sse;
mod status;
mod transport;

