//! Tasks: calls that go on after they were answered (2025-11-25, and the extension of 2026-07-28). The broker knows which
//! source each task of a session is with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Session;
use super::listing::Shown;
use crate::broker::Upstream;
use crate::call::Risk;
use crate::catalog::{Acceptance, Item, Kind};
use crate::message::{Answer, Json, RpcError};

/// Tasks of one session that are remembered. Beyond it a new one takes the place of another.
const MAX_TASKS: usize = 1024;

/// The extension by which modern peers have tasks.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The tasks of one session, with the source of each.
#[derive(Default)]
pub(super) struct Tasks(Mutex<HashMap<String, Arc<Upstream>>>);

impl Tasks {
    /// Remembers the task that a result has begun, if it has.
    pub(super) fn note(&self, upstream: &Arc<Upstream>, answer: &Answer) {
        let Answer::Result(result) = answer else { return };
        let [task, id, kind] = result.get_all(["task", "taskId", "resultType"]);
        let begun = kind.is_some_and(|kind| kind == Json::of(&"task"));
        let id = task.and_then(|task| task.get("taskId")).or_else(|| id.filter(|_| begun));
        let Some(id) = id.and_then(|id| id.read::<String>().ok()) else { return };
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.len() >= MAX_TASKS
            && let Some(other) = tasks.keys().next().cloned()
        {
            tasks.remove(&other);
        }
        tasks.insert(id, upstream.clone());
    }

    fn source(&self, id: &str) -> Option<Arc<Upstream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

/// Whether a source has tasks, in either era's words.
pub(super) fn has_tasks(capabilities: &Json) -> bool {
    let extension = capabilities.get("extensions").and_then(|extensions| extensions.get(EXTENSION));
    capabilities.get("tasks").is_some() || extension.is_some()
}

impl Session {
    /// The source of a task that this session began. One of another session is as unknown as one that never was.
    pub(super) async fn of_task(&self, method: &str, params: &Json) -> Result<Shown, RpcError> {
        let id = params.get_str("taskId").unwrap_or_default();
        let Some(upstream) = self.tasks.source(&id) else {
            // Where no source has tasks, that is what there is to say.
            self.source_for(method, params).await?;
            let text = "no such task of this session";
            return Err(self.turned_away("unknown-task", Kind::Source, "", text));
        };
        let item = Arc::new(Item::of_source(&upstream.config));
        // The call that began it had its permit.
        Ok(Shown { item, risk: Risk::Harmless, acceptance: Acceptance::Unknown, upstream })
    }
}
