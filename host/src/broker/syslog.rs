//! Messages to syslog receivers, in the format of RFC 5424. A stream has each message after its length in octets
//! (RFC 5425, section 4.3; RFC 6587, section 3.4.1); a socket of this machine gets each as a datagram.
//!
//! Syslog confirms nothing: a message counts as sent once the system has taken it.

use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use rustix::system::uname;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use super::feed::with_body;
use crate::config::SyslogAddress;
use crate::egress::{ByteStream, Egress};

/// The longest time that a receiver may take to accept messages, with connecting to it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The longest time that the end of a connection may take.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);

/// The facility of all messages, "log audit", by its number in RFC 5424.
const FACILITY: u8 = 13;

/// The longest datagram, in bytes. Sockets take more by default, and receivers cut long ones.
const MAX_DATAGRAM: usize = 64 * 1024;

/// The longest name of a host in a message, in characters.
const MAX_HOST: usize = 255;

/// The longest kind of a message, in characters.
const MAX_ID: usize = 32;

/// The severity of a message, by its number in RFC 5424.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyslogSeverity {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// A message.
#[derive(Debug)]
pub(super) struct SyslogMessage {
    /// The time at which it happened, in milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) severity: SyslogSeverity,
    /// The kind of the message: its MSGID.
    pub(super) id: String,
    pub(super) text: String,
}

/// A sender of messages to one receiver. It connects with the first message.
pub(super) struct SyslogSender {
    address: SyslogAddress,
    /// The part of each header between the time and the kind.
    sender: String,
    connection: tokio::sync::Mutex<Option<SyslogConnection>>,
}

enum SyslogConnection {
    Stream(Box<dyn ByteStream>),
    Local(UnixDatagram),
}

impl SyslogMessage {
    /// Returns the message about a record of the ledger, whose text is the message's.
    pub(super) fn of_record(record: String) -> Self {
        let members: Value = serde_json::from_str(&record).unwrap_or_default();
        let text = |path: &str| members.pointer(path).and_then(Value::as_str);
        let kind = text("/kind").unwrap_or("record");
        let severity = match (kind, text("/body/outcome")) {
            ("ledger.gap" | "plugin.failed" | "run.error" | "mcp.error", _) => SyslogSeverity::Error,
            ("call.denied" | "front.rejected" | "egress.refused" | "config.refused" | "definition.flagged", _) => {
                SyslogSeverity::Warning
            }
            ("tool.completed", Some(outcome)) if outcome != "ok" => SyslogSeverity::Warning,
            _ => SyslogSeverity::Info,
        };
        let at = members.get("at").and_then(Value::as_u64).unwrap_or_default();
        Self { at, severity, id: kind.to_owned(), text: record }
    }

    /// Returns the bytes of the message. `sender` names the host and the process.
    fn encoded(&self, sender: &str) -> String {
        let priority = FACILITY * 8 + self.severity as u8;
        let at = i64::try_from(self.at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
        let at = at.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"));
        format!("<{priority}>1 {at} {sender} {} - {}", printable(&self.id, MAX_ID), self.text)
    }

    /// Returns the message for a datagram. A record that is too long for one is sent without its body, and says so.
    fn datagram(&self, sender: &str) -> String {
        let whole = self.encoded(sender);
        if whole.len() <= MAX_DATAGRAM {
            return whole;
        }
        let text = with_body(&self.text, &json!({ "left_out_bytes": self.text.len() }));
        Self { at: self.at, severity: self.severity, id: self.id.clone(), text }.encoded(sender)
    }
}

impl SyslogSender {
    pub(super) fn new(address: SyslogAddress) -> Self {
        let host = printable(&uname().nodename().to_string_lossy(), MAX_HOST);
        let sender = format!("{host} portcullis {}", std::process::id());
        Self { address, sender, connection: tokio::sync::Mutex::default() }
    }

    pub(super) fn address(&self) -> &SyslogAddress {
        &self.address
    }

    /// Sends messages in their order. After an error any number of them may have been sent.
    pub(super) async fn send(&self, messages: &[SyslogMessage]) -> Result<(), String> {
        let mut connection = self.connection.lock().await;
        // After an abandoned attempt, a connection may be in the middle of a message.
        let used = connection.take();
        let sent = timeout(DEADLINE, self.send_over(used, messages)).await;
        *connection = Some(sent.map_err(|_| format!("no answer within {} s", DEADLINE.as_secs()))??);
        Ok(())
    }

    async fn send_over(
        &self,
        used: Option<SyslogConnection>,
        messages: &[SyslogMessage],
    ) -> Result<SyslogConnection, String> {
        let mut connection = match used.and_then(SyslogConnection::if_open) {
            Some(open) => open,
            None => self.connect().await?,
        };
        match &mut connection {
            SyslogConnection::Stream(stream) => {
                let mut bytes = Vec::new();
                for message in messages {
                    let text = message.encoded(&self.sender);
                    bytes.extend_from_slice(format!("{} {text}", text.len()).as_bytes());
                }
                stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
                stream.flush().await.map_err(|error| error.to_string())?;
            }
            SyslogConnection::Local(socket) => {
                for message in messages {
                    let text = message.datagram(&self.sender);
                    socket.send(text.as_bytes()).await.map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(connection)
    }

    async fn connect(&self) -> Result<SyslogConnection, String> {
        let (host, port, tls) = match &self.address {
            SyslogAddress::Tls { host, port } => (host, *port, true),
            SyslogAddress::Tcp { host, port } => (host, *port, false),
            SyslogAddress::Local(path) => {
                let socket = UnixDatagram::unbound().and_then(|socket| socket.connect(path).map(|()| socket));
                return socket.map(SyslogConnection::Local).map_err(|error| error.to_string());
            }
        };
        let stream = Egress::new().stream_to(host, port, tls).await.map_err(|error| error.to_string())?;
        Ok(SyslogConnection::Stream(stream))
    }

    /// Ends the connection in such a way that the receiver gets all that was sent.
    pub(super) async fn close(&self) {
        if let Some(SyslogConnection::Stream(mut stream)) = self.connection.lock().await.take() {
            // Records that the receiver did not get by then are lost; they were already reported as sent.
            let _ = timeout(CLOSE_DEADLINE, stream.shutdown()).await;
        }
    }
}

impl SyslogConnection {
    /// Returns the connection unless the receiver has ended it. A receiver sends nothing, so anything that can be read
    /// is the end.
    fn if_open(mut self) -> Option<Self> {
        match &mut self {
            Self::Stream(stream) => match stream.read(&mut [0; 64]).now_or_never() {
                Some(Ok(1..)) | None => Some(self),
                Some(_) => None,
            },
            Self::Local(_) => Some(self),
        }
    }
}

/// Returns a text as a field of a header: visible ASCII characters, or `-` if there are none.
fn printable(text: &str, most: usize) -> String {
    let shown: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
    if shown.is_empty() { "-".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::net::TcpListener;

    use super::*;

    fn record(kind: &str, body: &Value) -> String {
        json!({ "at": 1_764_000_000_123_u64, "body": body, "kind": kind, "seq": 7 }).to_string()
    }

    #[test]
    fn a_message_has_the_form_of_rfc_5424_and_nothing_that_a_record_says_changes_its_header() {
        let text = record("call.denied", &json!({ "tool": "a\n<13>1 - forged" }));
        let message = SyslogMessage::of_record(text.clone());
        let encoded = message.encoded("host portcullis 42");
        assert_eq!(encoded, format!("<108>1 2025-11-24T16:00:00.123Z host portcullis 42 call.denied - {text}"));
        assert_eq!(encoded.lines().count(), 1, "JSON has no line feed");
        let strange = SyslogMessage::of_record(record("a b\u{7}é\nc", &json!({})));
        assert!(strange.encoded("h p 1").contains(" h p 1 abc - {"), "{}", strange.encoded("h p 1"));
        for (kind, body, severity) in [
            ("tool.completed", json!({ "outcome": "ok" }), SyslogSeverity::Info),
            ("tool.completed", json!({ "outcome": "unknown" }), SyslogSeverity::Warning),
            ("ledger.gap", json!({}), SyslogSeverity::Error),
        ] {
            assert_eq!(SyslogMessage::of_record(record(kind, &body)).severity, severity, "{kind}");
        }
    }

    #[tokio::test]
    async fn messages_over_tcp_are_counted_in_octets_and_a_connection_that_ended_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sender = SyslogSender::new(SyslogAddress::Tcp { host: "127.0.0.1".to_owned(), port });
        let texts = ["é", "second"].map(|tool| record("call.intent", &json!({ "tool": tool })));
        for _ in 0..2 {
            let messages = texts.clone().map(SyslogMessage::of_record);
            let (sent, accepted) = tokio::join!(sender.send(&messages), listener.accept());
            sent.unwrap();
            let mut stream = accepted.unwrap().0;
            let expected: String = messages
                .iter()
                .map(|message| message.encoded(&sender.sender))
                .map(|text| format!("{} {text}", text.len()))
                .collect();
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), expected);
            // The end of the connection reaches the sender before it sends again.
            drop(stream);
            let open = async || sender.connection.lock().await.take().and_then(SyslogConnection::if_open);
            while let Some(still_open) = open().await {
                *sender.connection.lock().await = Some(still_open);
                tokio::task::yield_now().await;
            }
        }
        drop(listener);
        assert!(sender.send(&[]).await.unwrap_err().contains("127.0.0.1"));
    }

    #[tokio::test]
    async fn a_record_that_is_too_long_for_a_datagram_goes_without_its_body() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let socket = UnixDatagram::bind(&path).unwrap();
        let sender = SyslogSender::new(SyslogAddress::Local(path));
        let long = record("call.intent", &json!({ "tool": "x".repeat(MAX_DATAGRAM) }));
        let short = record("call.intent", &json!({ "tool": "x" }));
        let length = long.len();
        sender.send(&[SyslogMessage::of_record(long), SyslogMessage::of_record(short.clone())]).await.unwrap();
        let mut buffer = vec![0; 2 * MAX_DATAGRAM];
        let mut next = async || {
            let size = socket.recv(&mut buffer).await.unwrap();
            String::from_utf8(buffer.get(..size).unwrap().to_vec()).unwrap()
        };
        let cut = next().await;
        assert!(cut.contains(&format!("{{\"left_out_bytes\":{length}}}")) && cut.contains("\"seq\":7"), "{cut}");
        assert!(next().await.ends_with(&short));
    }
}
