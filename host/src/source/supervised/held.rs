//! What a session has asked of the connection that it has to itself, so that the next one knows it too.

use std::collections::HashMap;

use crate::call::Outcome;
use crate::gate::Permit;
use crate::protocol::{Answer, Json, Method};

/// Subscriptions of one session that are made again. Far more than a person looks at.
const MAX_FOLLOWED: usize = 256;

/// What a session has asked of the connection that it has to itself, so that the next one knows it too.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// The least grave log messages that it wants.
    level: Option<Json>,
    /// The resources that it has subscribed to.
    followed: HashMap<String, Json>,
    /// Whether it has begun a task, which ends with its connection.
    tasks: bool,
}

impl Held {
    /// Whether the session waits for something that only this very connection can bring.
    pub(super) fn must_stay(&self) -> bool {
        self.tasks || !self.followed.is_empty()
    }

    /// The connection has ended, and what cannot be told to another with it.
    pub(super) fn end(&mut self) {
        self.tasks = false;
    }

    /// The requests that tell a new connection what the one before it knew.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Method, Json)> {
        let level = self.level.iter().map(|level| (Method::LoggingSetLevel, with("level", level)));
        level.chain(self.followed.values().map(|uri| (Method::ResourcesSubscribe, with("uri", uri))))
    }

    /// Takes note of a request that was answered.
    fn note(&mut self, method: &Method, params: &Json) {
        let uri = || Some((params.get_str("uri")?, params.get("uri")?));
        match method {
            Method::LoggingSetLevel => self.level = params.get("level"),
            Method::ResourcesSubscribe => {
                let room = MAX_FOLLOWED.saturating_sub(self.followed.len());
                self.followed.extend(uri().into_iter().take(room));
            }
            Method::ResourcesUnsubscribe => {
                if let Some((uri, _)) = uri() {
                    self.followed.remove(&uri);
                }
            }
            _ => self.tasks = true,
        }
    }
}

/// What a line must remember of a call that has ended, if anything. `has_tasks` says whether the source knows tasks.
pub(super) fn noted<'a>(
    permit: &'a Permit,
    outcome: &Outcome,
    has_tasks: bool,
) -> Option<impl FnOnce(&mut Held) + use<'a>> {
    let (method, params) = (permit.method(), permit.source_params());
    let kept = match method {
        Method::LoggingSetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => true,
        _ => has_tasks && params.get("task").is_some(),
    };
    let answered = matches!(outcome, Outcome::Answered(Answer::Result(_)));
    (kept && answered).then_some(move |held: &mut Held| held.note(method, params))
}

fn with(key: &str, value: &Json) -> Json {
    Json::empty_object().with(key, value).unwrap_or_else(Json::empty_object)
}
