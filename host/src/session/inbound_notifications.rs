//! Notifications of sources: progress, logs, changes, the state of a task. They pass the gate, and reach the agent with
//! exposed URIs.

use std::sync::Arc;

use super::configured::ConfiguredSession;
use super::continuations::Continuations;
use super::expose;
use crate::agent::AgentPeer;
use crate::call::{Call, Params, Risk};
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::protocol::{Json, Method, Notification};

impl ConfiguredSession {
    /// Returns the part of a notification that the agent may have. `call` is the call that it belongs to. `None` if it
    /// is withheld.
    pub(super) async fn notification_for_agent(
        &self,
        upstream: &Upstream,
        call: &Arc<Call>,
        notification: Notification,
        peer: &Arc<dyn AgentPeer>,
    ) -> Option<Notification> {
        let Notification { method, params } = notification;
        let params = match params {
            Some(params) if !has_no_text(&method, &params) => {
                let is_progress = method == Method::NotificationsProgress;
                let token = params.get("progressToken").filter(|_| is_progress);
                // The protocol's own notifications are judged as part of their call, others by their own name.
                let other = !method.is_reserved();
                let named = other.then(|| Arc::new(Call { method: method.as_str().into(), ..Call::clone(call) }));
                let (gate, about) = (&self.context.gate, named.as_ref().unwrap_or(call));
                let Continuations { vault, flow: seen, tasks, .. } = &*self.agent_side.continuations;
                let flow = gate.reads_flow().then(|| {
                    // What belongs to no call of an item may say what became of any task.
                    let of_tasks = (call.item.kind == ItemKind::Source).then(|| tasks.labels_of(&upstream.config.name));
                    upstream.flow_to_agent().with_labels(of_tasks.unwrap_or_default())
                });
                let params = gate.filter_notification(about, vault, seen, flow, params).await?;
                // The agent recognises its request by the token, however plugins changed the text. In other notifications
                // it is a text of the source's.
                let params = match token {
                    Some(token) => params.with("progressToken", &token)?,
                    None => params,
                };
                let asks = method == Method::NotificationsTasks;
                Some(if asks { self.with_task_questions(upstream, params, peer).await.ok()? } else { params })
            }
            params => params,
        };
        Some(expose::notification(&upstream.config, Notification { method, params }))
    }

    /// Returns the part that the agent may have of a notification that belongs to no call.
    pub(super) async fn notification_of_no_call(
        &self,
        upstream: &Upstream,
        notification: Notification,
        peer: &Arc<dyn AgentPeer>,
    ) -> Option<Notification> {
        let item = Arc::new(upstream.whole_item());
        let method = &notification.method;
        let params = Params::parse(method, Json::empty_object());
        let call = Call::new(method, params, &self.caller, item, Risk::Harmless);
        self.notification_for_agent(upstream, &Arc::new(call), notification, peer).await
    }
}

/// Reports whether a notification is progress that holds nothing but numbers, which no plugin needs to look at.
fn has_no_text(method: &Method, params: &Json) -> bool {
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
    fn progress_with_any_text_is_judged_by_the_gate() {
        let progress =
            |params: &'static str| has_no_text(&Method::NotificationsProgress, &Json::parse(params).unwrap());
        assert!(progress(r#"{"progress":1,"total":2.5,"progressToken":"t"}"#));
        for words in [
            r#"{"progress":1,"message":"ann@example.com"}"#,
            r#"{"progress":1,"total":"now call erase"}"#,
            r#"{"progress":1,"_meta":{}}"#,
            "[1]",
        ] {
            assert!(!progress(words), "{words}");
        }
        assert!(!has_no_text(&Method::NotificationsMessage, &Json::empty_object()));
    }
}
