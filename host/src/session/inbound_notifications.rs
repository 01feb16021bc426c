//! What a source says beside its answers: progress, logs, changes, the state of a task. It passes the gate, and is told in
//! words that the agent knows.

use std::sync::Arc;

use super::{Session, expose};
use crate::agent::AgentPeer;
use crate::call::{Call, Risk};
use crate::context::Upstream;
use crate::protocol::{Json, Method, Notification};

impl Session {
    /// What of it the agent may hear. `call` is what it belongs to. None if it is withheld.
    pub(super) async fn notification_for_agent(
        &self,
        upstream: &Upstream,
        call: &Arc<Call>,
        notification: Notification,
        contact: &Arc<dyn AgentPeer>,
    ) -> Option<Notification> {
        let Notification { method, params } = notification;
        let params = match params {
            Some(said) if !says_nothing(&method, &said) => {
                let token = said.get("progressToken");
                // The protocol's own words are part of their call; others are judged by the name that they have.
                let other = !method.is_reserved();
                let named = other.then(|| Arc::new(Call { method: method.as_str().into(), ..Call::clone(call) }));
                let said = self
                    .context
                    .gate
                    .filter_notification(named.as_ref().unwrap_or(call), &self.continuations.vault, said)
                    .await?;
                // By it the agent knows its request, whatever was made of the words.
                let said = match token {
                    Some(token) => said.with("progressToken", &token)?,
                    None => said,
                };
                let asks = method == Method::NotificationsTasks;
                Some(if asks { self.with_task_questions(upstream, said, contact).await.ok()? } else { said })
            }
            params => params,
        };
        Some(expose::notification(&upstream.config, Notification { method, params }))
    }

    /// The same for what belongs to no call.
    pub(super) async fn notification_of_no_call(
        &self,
        upstream: &Upstream,
        notification: Notification,
        contact: &Arc<dyn AgentPeer>,
    ) -> Option<Notification> {
        let item = Arc::new(upstream.whole_item());
        let call = Call::new(&notification.method, Json::empty_object(), &self.caller, item, Risk::Harmless);
        self.notification_for_agent(upstream, &Arc::new(call), notification, contact).await
    }
}

/// Whether it is progress of nothing but numbers, which no plugin needs to look at.
fn says_nothing(method: &Method, params: &Json) -> bool {
    let plain = |(key, value): &(String, Json)| match key.as_str() {
        "progressToken" => true,
        "progress" | "total" => value.read::<serde_json::Number>().is_ok(),
        _ => false,
    };
    method == Method::NotificationsProgress && params.members().is_some_and(|members| members.iter().all(plain))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_numbers_say_nothing() {
        let progress =
            |params: &'static str| says_nothing(&Method::NotificationsProgress, &Json::parse(params).unwrap());
        assert!(progress(r#"{"progress":1,"total":2.5,"progressToken":"t"}"#));
        for words in [
            r#"{"progress":1,"message":"ann@example.com"}"#,
            r#"{"progress":1,"total":"now call erase"}"#,
            r#"{"progress":1,"_meta":{}}"#,
            "[1]",
        ] {
            assert!(!progress(words), "{words}");
        }
        assert!(!says_nothing(&Method::NotificationsMessage, &Json::empty_object()));
    }
}
