//! The fronts: where agents connect. Each speaks both eras of the protocol and hands calls to a session of the broker.
//!
//! A front knows bytes, headers and connections; `protocol` knows methods, versions and what may be said when; the
//! [`Broker`](crate::broker::Broker) knows tools and calls. Nothing here looks into arguments or results.

mod backend;
pub mod http;
mod protocol;
pub mod stdio;
#[cfg(test)]
mod testing;

use std::time::Duration;

/// How long open calls may still run when their agent has gone or the broker stops. Long enough for a call that is about
/// to be answered, short enough that nobody waits for a broker to stop.
pub const DRAIN: Duration = Duration::from_secs(5);

/// How long the answers to calls that were cut may take to be written. They are short; an agent that does not read them is
/// not waited for.
const LAST_WORD: Duration = Duration::from_secs(1);
