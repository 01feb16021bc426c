//! Validates `[questions]`.

use super::build::ProblemCollector;
use super::raw::RawQuestions;
use super::{ConfigValue, callers};

/// The ways in which people hear of questions, in addition to the agent's own: `[questions]`.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct QuestionsConfig {
    /// True if each question is a notification on the desktop.
    pub desktop: bool,
    /// The server that is notified of each question and each answer, if there is one.
    pub webhook: Option<WebhookConfig>,
}

/// A server that is notified of questions: `[questions.webhook]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct WebhookConfig {
    /// The address to which messages are posted.
    #[serde(serialize_with = "super::digest::text")]
    pub url: url::Url,
    /// The key with which messages are signed.
    pub secret: ConfigValue,
    /// True if messages carry the arguments of calls.
    pub arguments: bool,
}

/// Validates how people hear of questions; every problem is added to `problems`.
pub(super) fn questions(raw: &RawQuestions, problems: &mut ProblemCollector) -> QuestionsConfig {
    let webhook = raw.webhook.as_ref().and_then(|raw| {
        let url = problems.keep(callers::web(&raw.url, "https://hooks.example.com/portcullis"));
        let secret = problems.keep(callers::token(&raw.secret, "name a secret: `secret = { secret = \"webhook\" }`"));
        Some(WebhookConfig { url: url?, secret: secret?, arguments: raw.arguments.unwrap_or_default() })
    });
    QuestionsConfig { desktop: raw.desktop.unwrap_or_default(), webhook }
}
