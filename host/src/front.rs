//! The fronts, to which agents connect. Each speaks both eras of the protocol and hands calls to a session of the
//! broker.
//!
//! A front knows bytes, headers and connections; `protocol` knows methods, versions and which message may come when;
//! the [`Broker`](crate::broker::Broker) knows tools and calls. Nothing here looks into arguments or results, except
//! that the HTTP front compares arguments with the headers that repeat them.

#[cfg_attr(not(feature = "http-front"), expect(dead_code, reason = "the HTTP front uses more of it"))]
mod backend;
#[cfg(feature = "http-front")]
pub mod http;
#[cfg_attr(not(feature = "http-front"), expect(dead_code, reason = "the HTTP front uses more of it"))]
mod outgoing;
#[cfg_attr(not(feature = "http-front"), expect(dead_code, reason = "the HTTP front uses more of it"))]
mod protocol;
pub mod stdio;
#[cfg(test)]
mod testing;

use std::time::Duration;

pub use stdio::connect;

/// The longest time that open calls may continue after their agent has disconnected or the broker has been told to
/// stop. Long enough for a call that is about to be answered, short enough not to hold up the stop of a broker.
pub const DRAIN: Duration = Duration::from_secs(5);

/// The longest time that writing the answers to calls that were cut may take. They are short, and an agent that does
/// not read them is not waited for.
const CUT_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
