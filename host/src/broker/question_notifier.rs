//! Announces questions to people outside the agent's own channel: on the desktop, and to a server of theirs.
//!
//! No call waits for it, and an announcement that fails changes nothing: the question stays open in the inbox.

mod webhook;

use std::process::{Command, Stdio};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

use self::webhook::{Webhook, WebhookMessage};
use crate::config::QuestionsConfig;
use crate::escape::escape_hidden;
use crate::gate::{Inbox, Question, QuestionEvent};
use crate::receivers::{Receiver, ReceiverKind, Receivers};
use crate::secret::SecretStore;

/// The largest number of messages that may wait for the webhook's server.
const QUEUE: usize = 512;

/// The program that shows notifications on a desktop.
const NOTIFY: &str = "notify-send";

/// The most characters of a notification: more than a desktop shows, and much less than an argument of a program may
/// have.
const MAX_BODY: usize = 1024;

/// The tasks that announce questions. Dropping it ends them.
#[derive(Debug)]
pub(super) struct QuestionNotifier(Vec<JoinHandle<()>>);

impl QuestionNotifier {
    /// Starts to announce the questions of an inbox, and reports the outcomes to `reported`. It connects to nothing
    /// before there is a question.
    ///
    /// # Errors
    /// A text, if the webhook's key is missing or too short, or its address may not be reached.
    pub(super) fn start(
        config: &QuestionsConfig,
        secrets: &SecretStore,
        inbox: &Inbox,
        reported: &Receivers,
    ) -> Result<Self, String> {
        let mut tasks = Vec::new();
        if config.desktop {
            let reported = reported.add(ReceiverKind::Questions, "desktop");
            tasks.push(tokio::spawn(show(inbox.subscribe(), reported)));
        }
        if let Some(webhook) = &config.webhook {
            let webhook = Webhook::new(webhook, secrets)?;
            let reported = reported.add(ReceiverKind::Questions, &webhook.shown());
            let (queue, waiting) = mpsc::channel(QUEUE);
            tasks.push(tokio::spawn(webhook.deliver(waiting, reported.clone())));
            tasks.push(tokio::spawn(feed(inbox.subscribe(), queue, reported)));
        }
        Ok(Self(tasks))
    }
}

impl Drop for QuestionNotifier {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Hands each event to the task that sends it, so that a slow server makes no event be missed before the queue is full.
async fn feed(mut events: broadcast::Receiver<QuestionEvent>, queue: mpsc::Sender<WebhookMessage>, reported: Receiver) {
    while let Some(event) = next(&mut events).await {
        if queue.try_send(WebhookMessage::now(event)).is_err() {
            reported.failed(&format!("it is too slow: {QUEUE} messages wait for it, and one was given up"));
            tracing::warn!("the webhook's server is too slow: a question is not announced to it");
        }
    }
}

async fn show(mut events: broadcast::Receiver<QuestionEvent>, reported: Receiver) {
    while let Some(event) = next(&mut events).await {
        let QuestionEvent::Asked(question) = event else { continue };
        let shown = tokio::task::spawn_blocking(move || notify(&question)).await;
        match shown.map_err(std::io::Error::other).flatten() {
            Ok(()) => drop(reported.succeeded()),
            Err(error) => {
                if reported.failed(&format!("`{NOTIFY}`: {error}")) {
                    tracing::warn!(%error, "questions are not shown on the desktop; is `{NOTIFY}` installed?");
                }
            }
        }
    }
}

async fn next(events: &mut broadcast::Receiver<QuestionEvent>) -> Option<QuestionEvent> {
    loop {
        match events.recv().await {
            Ok(event) => return Some(event),
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "questions are not announced: there are too many"),
            Err(RecvError::Closed) => return None,
        }
    }
}

/// Shows one question and returns when the notification is handed over.
#[expect(
    clippy::disallowed_methods,
    reason = "no source: a program of the user's desktop, which needs the environment of the user's session"
)]
fn notify(question: &Question) -> std::io::Result<()> {
    // `--` ends the options: a name that begins with a dash is text.
    let status = Command::new(NOTIFY)
        .args(["--app-name=Portcullis", "--urgency=normal", "--", &title(question), &body(question)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("`{NOTIFY}` ended with {status}"))) }
}

fn title(question: &Question) -> String {
    format!("May {} be called?", escape_hidden(&question.tool))
}

/// Returns the text of the notification, in the markup of desktop notifications. The command to answer comes first, as
/// long reasons are cut.
fn body(question: &Question) -> String {
    let client = if question.client.is_empty() { &question.principal } else { &question.client };
    let text = format!(
        "{} asks.\nportcullis approvals --watch\n{}",
        escape_hidden(client),
        question.reasons.iter().map(|reason| escape_hidden(reason)).collect::<Vec<_>>().join("\n")
    );
    let text = match text.char_indices().nth(MAX_BODY) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text,
    };
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_notification_shows_is_text_and_no_markup() {
        let mut question = Question {
            id: "1".to_owned(),
            method: "tools/call".to_owned(),
            tool: "-h\u{1b}".to_owned(),
            source: "s".to_owned(),
            name: "t".to_owned(),
            recorded_tool: "-h\u{1b}".to_owned(),
            title: None,
            hints: Vec::new(),
            principal: "local".to_owned(),
            profile: "default".to_owned(),
            client: "<a href=\"x\">&".to_owned(),
            reasons: vec!["because <b>".to_owned()],
            arguments: serde_json::Value::Null,
            arguments_bytes: 4,
            cut: false,
            may_do_harm: false,
            scopes: Vec::new(),
            waiting: 0,
            expires_in: 1,
        };
        assert_eq!(title(&question), "May -h\\u{1b} be called?");
        let text = "&lt;a href=\"x\"&gt;&amp; asks.\nportcullis approvals --watch\nbecause &lt;b&gt;";
        assert_eq!(body(&question), text);
        // The system passes a program at most 128 KiB in one argument.
        question.reasons = vec!["&".repeat(64 << 10)];
        let long = body(&question);
        assert!(long.ends_with("&amp;…") && long.len() < 8 << 10, "{} bytes", long.len());
    }
}
