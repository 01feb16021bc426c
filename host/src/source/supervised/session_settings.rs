//! The settings that a session has made on its own connection, so that they can be restored on the next one.

use std::collections::HashMap;

use crate::call::Outcome;
use crate::gate::Permit;
use crate::protocol::{Answer, Json, Method};

/// The most subscriptions of one session that are restored. Far more than a person looks at.
const MAX_FOLLOWED: usize = 256;

/// The settings that a session has made on its own connection, so that they can be restored on the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionSettings {
    /// The log level that the session has set.
    level: Option<Json>,
    /// The resources that the session has subscribed to, by URI.
    followed: HashMap<String, Json>,
    /// True if the session has begun a task, which ends with the connection.
    tasks: bool,
}

impl SessionSettings {
    /// Reports whether the session waits for something that only this connection can deliver: a task or a change.
    pub(super) fn must_stay(&self) -> bool {
        self.tasks || !self.followed.is_empty()
    }

    /// Notes that the connection has ended, and with it all tasks.
    pub(super) fn end(&mut self) {
        self.tasks = false;
    }

    /// Returns the requests that restore the settings on a new connection.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Method, Json)> {
        let level = self.level.iter().map(|level| (Method::LoggingSetLevel, with("level", level)));
        level.chain(self.followed.values().map(|uri| (Method::ResourcesSubscribe, with("uri", uri))))
    }

    /// Notes a request that was answered.
    fn remember(&mut self, method: &Method, params: &Json) {
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

/// Returns the change to make to [`SessionSettings`] after a call, or `None` if there is nothing to remember.
/// `has_tasks` tells whether the source supports tasks.
pub(super) fn change_after<'a>(
    permit: &'a Permit,
    outcome: &Outcome,
    has_tasks: bool,
) -> Option<impl FnOnce(&mut SessionSettings) + use<'a>> {
    let (method, params) = (permit.method(), permit.source_params());
    let kept = match method {
        Method::LoggingSetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => true,
        _ => has_tasks && params.get("task").is_some(),
    };
    let answered = matches!(outcome, Outcome::Answered(Answer::Result(_)));
    (kept && answered).then_some(move |settings: &mut SessionSettings| settings.remember(method, params))
}

fn with(key: &str, value: &Json) -> Json {
    Json::empty_object().with(key, value).unwrap_or_else(Json::empty_object)
}
