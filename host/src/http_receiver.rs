//! A server of the operator's to which the broker posts: a webhook, a witness, a collector of telemetry.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::time::timeout;
use url::Url;

use crate::egress::{Egress, HttpClient, OutgoingRequest, shown};

/// The longest time that a server may take to accept a posted body.
const DEADLINE: Duration = Duration::from_secs(10);

/// An address to which the broker posts.
#[derive(Debug)]
pub(crate) struct HttpReceiver {
    client: HttpClient,
    url: Url,
}

impl HttpReceiver {
    /// Prepares an address. The operator chose it, so it may be private.
    ///
    /// # Errors
    /// A message for people, if the client cannot be made.
    pub(crate) fn new(url: Url) -> Result<Self, String> {
        let client = Egress::new().client_at(&url).map_err(|error| error.to_string())?;
        Ok(Self { client, url })
    }

    /// Returns the address, safe to show.
    pub(crate) fn shown(&self) -> String {
        shown(&self.url)
    }

    /// Posts a body, and waits until the server has accepted it. Redirects are not followed. `secrets` are further
    /// headers, whose values appear in no message.
    ///
    /// # Errors
    /// A message for people, if the server does not accept it in time.
    pub(crate) async fn post(&self, headers: HeaderMap, secrets: HeaderMap, body: Bytes) -> Result<(), String> {
        let (url, body) = (self.url.clone(), Some(body));
        let outgoing = OutgoingRequest { method: Method::POST, url, headers, secrets, body, on_body: None };
        let sent = timeout(DEADLINE, self.client.send_without_redirects(outgoing)).await;
        let response = sent.map_err(|_| format!("no answer within {} s", DEADLINE.as_secs()))?;
        match response.map_err(|error| error.to_string())?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("status {}", status.as_u16())),
        }
    }
}
