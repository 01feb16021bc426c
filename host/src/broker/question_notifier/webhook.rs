//! Messages about questions to a server of the operator, signed as Standard Webhooks 1.0.0 specifies: the receiver
//! checks `webhook-signature` over `webhook-id`, `webhook-timestamp` and the body, and refuses an old time or an id
//! that it has seen.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::mpsc;

use crate::call::now_millis;
use crate::config::WebhookConfig;
use crate::gate::{Question, QuestionEvent};
use crate::http_receiver::HttpReceiver;
use crate::receivers::Receiver;
use crate::secret::SecretStore;

/// The least length of a key, in bytes.
const MIN_KEY_BYTES: usize = 24;

/// The pauses before a message is sent again. After the last the message is given up.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// One message, with the id and the time of its event.
#[derive(Debug)]
pub(super) struct WebhookMessage {
    id: String,
    time: u64,
    event: QuestionEvent,
}

impl WebhookMessage {
    /// Returns the message about an event of this moment. A message that is sent again keeps its id, so that the
    /// receiver knows it.
    pub(super) fn now(event: QuestionEvent) -> Self {
        let time = now_millis() / 1000;
        let (kind, question) = match &event {
            QuestionEvent::Asked(question) => ("asked", question),
            QuestionEvent::Answered { question, .. } => ("answered", question),
        };
        Self { id: format!("{}-{kind}", question.id), time, event }
    }

    fn body(&self, arguments: bool) -> Value {
        let about = |question: &Arc<Question>| {
            let mut data = json!(&**question);
            if let Value::Object(members) = &mut data {
                members.retain(|name, _| name != "waiting" && (arguments || name != "arguments"));
                if !arguments && question.recorded_tool != question.tool {
                    // The name is payload, too.
                    members.remove("name");
                    members.insert("tool".to_owned(), json!(question.recorded_tool));
                }
            }
            data
        };
        match &self.event {
            QuestionEvent::Asked(question) => {
                json!({ "type": "question.asked", "timestamp": self.time, "data": about(question) })
            }
            QuestionEvent::Answered { question, approved, by } => json!({
                "type": "question.answered",
                "timestamp": self.time,
                "data": { "question": about(question), "approved": approved, "by": &**by },
            }),
        }
    }
}

/// A server that is notified of questions.
pub(super) struct Webhook {
    server: HttpReceiver,
    key: Vec<u8>,
    arguments: bool,
}

impl Webhook {
    pub(super) fn new(config: &WebhookConfig, secrets: &SecretStore) -> Result<Self, String> {
        let secret = secrets.resolve(&config.secret).map_err(|error| error.to_string())?;
        let key = key(secret.expose_secret())?;
        Ok(Self { server: HttpReceiver::new(config.url.clone())?, key, arguments: config.arguments })
    }

    /// Returns the address, safe to show.
    pub(super) fn shown(&self) -> String {
        self.server.shown()
    }

    /// Sends the messages in order until there will be no more, and reports what came of each attempt.
    pub(super) async fn deliver(self, mut waiting: mpsc::Receiver<WebhookMessage>, reported: Receiver) {
        while let Some(message) = waiting.recv().await {
            let mut pauses = PAUSES.into_iter();
            loop {
                let Err(error) = self.send(&message).await else {
                    reported.succeeded();
                    break;
                };
                reported.failed(&error);
                let Some(pause) = pauses.next() else {
                    tracing::warn!(url = self.shown(), error, "a question is not announced to the webhook's server");
                    break;
                };
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn send(&self, message: &WebhookMessage) -> Result<(), String> {
        let body = message.body(self.arguments).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The time of this attempt: receivers refuse an old one, and a message may have waited for others.
        let time = (now_millis() / 1000).to_string();
        let signed = [
            ("webhook-id", message.id.as_str()),
            ("webhook-timestamp", &time),
            ("webhook-signature", &signature(&self.key, &message.id, &time, &body)),
        ];
        for (name, value) in signed {
            let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
            headers.insert(HeaderName::from_static(name), value);
        }
        self.server.post(headers, HeaderMap::new(), body.into()).await
    }
}

/// Returns the bytes of a key: those that `whsec_` and base64 stand for, or those of the text.
fn key(secret: &str) -> Result<Vec<u8>, String> {
    let key = match secret.strip_prefix("whsec_") {
        None => secret.as_bytes().to_vec(),
        Some(text) => STANDARD
            .decode(text)
            .map_err(|_| "`secret` under [questions.webhook]: what follows `whsec_` is not base64".to_owned())?,
    };
    if key.len() < MIN_KEY_BYTES {
        return Err(format!(
            "`secret` under [questions.webhook] has {} bytes: a key needs {MIN_KEY_BYTES}; make one with `openssl rand \
             -hex 32`, and store it with `portcullis secret set NAME`",
            key.len()
        ));
    }
    Ok(key)
}

fn signature(key: &[u8], id: &str, time: &str, body: &str) -> String {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(format!("{id}.{time}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_message_is_signed_as_standard_webhooks_says() {
        // The example of the specification's reference libraries.
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "{\"test\": 2432232314}");
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_short_key_is_refused_with_the_way_to_a_good_one() {
        let refused = key("short").unwrap_err();
        assert!(refused.contains("5 bytes") && refused.contains("openssl rand -hex 32"), "{refused}");
        assert!(key("whsec_!").unwrap_err().contains("base64"));
        assert!(key(&"x".repeat(MIN_KEY_BYTES)).is_ok());
    }
}
