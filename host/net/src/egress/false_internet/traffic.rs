//! The messages that a source has sent into the false internet.

use std::collections::BTreeMap;
use std::time::Instant;

use portcullis_core::sync::Mutex;

/// The largest number of messages that are kept, and of bytes of them all. Beyond this they are only counted.
const MAX_MESSAGES: usize = 8192;
const MAX_BYTES: usize = 16 << 20;

/// The share of that for looked-up names, and for the messages to one host. Other traffic then has room.
const MAX_NAMES: usize = MAX_MESSAGES / 4;
const MAX_NAME_BYTES: usize = MAX_BYTES / 4;
const MAX_OF_HOST: usize = MAX_MESSAGES / 4;
const MAX_BYTES_OF_HOST: usize = MAX_BYTES / 2;

/// The way in which a message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageProtocol {
    /// A name that was asked for.
    Dns,
    /// A request without encryption.
    Http,
    /// A request inside TLS, whose certificate the source trusted.
    Https,
    /// The beginning of a TLS connection that the source ended, because it did not trust the certificate.
    Tls,
    /// A datagram that asks for no name.
    Udp,
    /// Anything else.
    Tcp,
}

impl MessageProtocol {
    /// Returns the channel in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Tls => "TLS",
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// One message that a source has sent.
#[derive(Debug, Clone)]
pub struct SentMessage {
    /// The time at which it was complete.
    pub at: Instant,
    /// The way in which it was sent.
    pub channel: MessageProtocol,
    /// The host that it was meant for, by the name that was looked up; for [`MessageProtocol::Dns`] the name itself.
    /// Traffic that names another host in TLS or HTTP counts as a message to each.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its parts by kind: `path`, `header NAME`, `body`, `name`, `bytes`. A query that says more than a name has both of
    /// these. A body is cut at 256 KiB.
    pub parts: Vec<(String, Vec<u8>)>,
}

/// The other end of a connection, as the source meant it.
#[derive(Debug, Clone)]
pub(super) struct IntendedHost {
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Debug, Default)]
pub(super) struct Traffic(Mutex<SeenTraffic>);

#[derive(Debug, Default)]
struct SeenTraffic {
    messages: Vec<SentMessage>,
    bytes: usize,
    others: u64,
    /// The messages and bytes to each host; all names that are looked up are one.
    filled: BTreeMap<Option<String>, Filled>,
}

#[derive(Debug, Default)]
struct Filled {
    messages: usize,
    bytes: usize,
}

impl Traffic {
    pub(super) fn record(&self, channel: MessageProtocol, to: &IntendedHost, parts: Vec<(String, Vec<u8>)>) {
        let mut kept = self.0.lock();
        let bytes: usize = parts.iter().map(|(name, part)| name.len() + part.len()).sum();
        let named = channel == MessageProtocol::Dns;
        let (most, most_bytes) = if named { (MAX_NAMES, MAX_NAME_BYTES) } else { (MAX_OF_HOST, MAX_BYTES_OF_HOST) };
        let whose = (!named).then(|| to.host.clone());
        let fits =
            kept.filled.get(&whose).is_none_or(|filled| filled.messages < most && filled.bytes + bytes <= most_bytes);
        if !fits || kept.messages.len() >= MAX_MESSAGES || kept.bytes + bytes > MAX_BYTES {
            kept.others += 1;
            return;
        }
        let filled = kept.filled.entry(whose).or_default();
        filled.messages += 1;
        filled.bytes += bytes;
        kept.bytes += bytes;
        kept.messages.push(SentMessage { at: Instant::now(), channel, host: to.host.clone(), port: to.port, parts });
    }

    /// Counts a message that is not kept.
    pub(super) fn miss(&self) {
        self.0.lock().others += 1;
    }

    pub(super) fn sent(&self) -> Vec<SentMessage> {
        self.0.lock().messages.clone()
    }

    pub(super) fn others(&self) -> u64 {
        self.0.lock().others
    }
}
