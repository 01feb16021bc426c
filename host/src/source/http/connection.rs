//! A connection over which a program speaks to a server at a URL itself, to judge the server before anything uses it.

use std::sync::Arc;

use reqwest::header::HeaderMap;
use url::Url;

use super::legacy_sse::LegacySse;
use super::transport::{HttpTransport, ServerAccess, TransportShared};
use crate::call::Cause;
use crate::egress::{Egress, shown};
use crate::protocol::{Answer, Json, Message, Response, RpcError};
use crate::source::SourceError;
use crate::source::transport::{Transport, TransportError};

/// The name of the server in messages.
const NAME: &str = "evaluated";

/// A connection to a server at a URL, over which a program speaks MCP itself, message by message: to judge a server,
/// not to use it. It carries no credentials, and reaches only the origin of the URL.
pub struct HttpConnection {
    transport: Arc<dyn Transport>,
    url: Url,
}

impl HttpConnection {
    /// Returns a connection by streamable HTTP, which opens nothing until the first message. A message of more than
    /// `limit` bytes is neither sent nor read.
    ///
    /// # Errors
    /// [`SourceError::Start`] if the URL may not be reached, or the system has no certificates to trust.
    pub fn new(url: &Url, limit: usize) -> Result<Self, SourceError> {
        Ok(Self { transport: Arc::new(HttpTransport::new(access(url)?, limit)), url: url.clone() })
    }

    /// Opens a connection by the HTTP+SSE transport of 2024-11-05.
    ///
    /// # Errors
    /// [`SourceError`] if the server does not speak it, and as for [`HttpConnection::new`].
    pub async fn open_sse(url: &Url, limit: usize) -> Result<Self, SourceError> {
        let (shared, inbox) = TransportShared::new(access(url)?, limit);
        Ok(Self { transport: Arc::new(LegacySse::open(shared, inbox).await?), url: url.clone() })
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`Cause`] if it was certainly not sent.
    pub async fn send(&self, message: &Message) -> Result<(), Cause> {
        self.transport.send(message).await.map_err(TransportError::into_cause)
    }

    /// Returns the next message of the server. A request whose answer is lost is answered with an error. Cancellation
    /// safe.
    ///
    /// # Errors
    /// [`Cause`] if a message cannot be read, or the connection has ended.
    pub async fn receive(&self) -> Result<Message, Cause> {
        match self.transport.receive().await {
            Some(Ok(received)) => Ok(self.explained(received.message)),
            Some(Err(TransportError::Lost { id, reason } | TransportError::Expired { id: Some(id), reason })) => {
                let answer = Answer::from(RpcError::new(RpcError::INTERNAL, reason.to_string()));
                Ok(Message::Response(Response { id: Some(id), answer }))
            }
            Some(Err(error)) => Err(error.into_cause()),
            None => Err(self.transport.exit_reason().unwrap_or_else(|| Cause::own("the connection has ended"))),
        }
    }

    /// Tells the connection which revision of the protocol was agreed, and which tools the server lists: the headers
    /// of later messages depend on both.
    pub fn agreed(&self, protocol: &str, tools: Vec<Json>) {
        self.transport.agreed(protocol);
        self.transport.listed(tools);
    }

    /// Ends the connection.
    pub async fn close(&self) {
        self.transport.close().await;
    }

    /// Replaces advice about the configuration, which does not exist here, with the message that a login is missing.
    fn explained(&self, message: Message) -> Message {
        let Message::Response(Response { id, answer: Answer::Error(error) }) = message else { return message };
        let status = error.get("data").and_then(|data| data.get("httpStatus")?.read::<u16>().ok());
        let answer = match status {
            Some(status @ (401 | 403)) => {
                let why = format!(
                    "`{}` answered with status {status}: it wants a login, and this connection has none",
                    shown(&self.url)
                );
                Json::of(&RpcError::new(RpcError::INTERNAL, why))
            }
            _ => error,
        };
        Message::Response(Response { id, answer: Answer::Error(answer) })
    }
}

impl std::fmt::Debug for HttpConnection {
    // The URL's query holds secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpConnection").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

fn access(url: &Url) -> Result<ServerAccess, SourceError> {
    let client = Egress::new().client_only_at(url).map_err(|error| SourceError::Start(Cause::of(error)))?;
    let source = NAME.parse().map_err(|error| SourceError::Start(Cause::of(error)))?;
    Ok(ServerAccess { source, url: url.clone(), client, headers: HeaderMap::new(), bearer: None })
}
