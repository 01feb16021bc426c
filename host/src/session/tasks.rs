//! Tasks: calls that go on after they were answered (2025-11-25, and the extension of 2026-07-28). The broker knows which
//! source each task of a session is with, and takes what a task asks for through the gate.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::Session;
use super::listing::VisibleItem;
use super::rounds::Question;
use super::target::names_source;
use crate::agent::AgentPeer;
use crate::call::Risk;
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::lockfile::Acceptance;
use crate::protocol::{Answer, Era, Json, Method, RpcError, meta};
use crate::sync::{Mutex, MutexGuard};

/// Tasks of one session that are remembered. Beyond it a new one takes the place of another.
const MAX_TASKS: usize = 1024;

/// Pages of one source's list of tasks. Sources forget tasks; one that pages for ever has run away.
const MAX_PAGES: usize = 64;

/// Questions of one task that may be open. A person answers one at a time.
const MAX_QUESTIONS: usize = 16;

/// The tasks of one session.
#[derive(Default)]
pub(super) struct Tasks(Mutex<HashMap<String, Task>>);

/// A task, and what its source asks for it.
struct Task {
    upstream: Arc<Upstream>,
    asked: HashMap<String, Asked>,
}

/// A question that has passed the gate, and how its source put it.
struct Asked {
    put: Json,
    question: Question,
}

impl Tasks {
    /// Remembers the task that a result has begun, if it has.
    fn note(&self, upstream: &Arc<Upstream>, result: &Json) {
        let Some(id) = begun(result) else { return };
        let mut tasks = self.lock();
        if tasks.len() >= MAX_TASKS
            && let Some(other) = tasks.keys().next().cloned()
        {
            tasks.remove(&other);
        }
        tasks.insert(id, Task { upstream: upstream.clone(), asked: HashMap::new() });
    }

    fn source(&self, id: &str) -> Option<Arc<Upstream>> {
        self.lock().get(id).map(|task| task.upstream.clone())
    }

    /// A question as the agent was shown it, if its source has put it in the same words before.
    fn shown(&self, id: &str, key: &str, put: &Json) -> Option<Json> {
        let tasks = self.lock();
        let asked = tasks.get(id)?.asked.get(key)?;
        (asked.put == *put).then(|| asked.question.as_request())
    }

    fn keep(&self, id: &str, put: Json, question: Question) {
        if let Some(task) = self.lock().get_mut(id)
            && task.asked.len() < MAX_QUESTIONS
        {
            task.asked.insert(question.key.clone(), Asked { put, question });
        }
    }

    fn take(&self, id: &str, key: &str) -> Option<Question> {
        self.lock().get_mut(id)?.asked.remove(key).map(|asked| asked.question)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Task>> {
        self.0.lock()
    }
}

/// The task that a result has begun, in either era's words.
fn begun(result: &Json) -> Option<String> {
    let [task, id] = result.get_all(["task", "taskId"]);
    let id = task.and_then(|task| task.get("taskId")).or_else(|| id.filter(|_| is_handle(result)));
    id?.read().ok()
}

/// Whether a result is the handle of a task in the place of a result (2026-07-28).
fn is_handle(result: &Json) -> bool {
    result.get_str("resultType").as_deref() == Some("task")
}

/// Whether a legacy source lists its tasks.
pub(super) fn lists_tasks(capabilities: &Json) -> bool {
    capabilities.get("tasks").is_some_and(|tasks| tasks.get("list").is_some())
}

/// Whether a source has tasks, in either era's words.
pub(super) fn has_tasks(capabilities: &Json) -> bool {
    let extension = capabilities.get("extensions").and_then(|extensions| extensions.get(meta::TASKS_EXTENSION));
    capabilities.get("tasks").is_some() || extension.is_some()
}

impl Session {
    /// A result with what there is to say of tasks. Where the source asks for something, that passes the gate.
    pub(super) async fn with_tasks(
        &self,
        method: &Method,
        upstream: &Arc<Upstream>,
        result: Json,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<Json, Answer> {
        if is_handle(&result) && !self.agent.extends(meta::TASKS_EXTENSION) {
            let text = "the source began a task, which this agent did not say that it can follow";
            return Err(Answer::Error(Json::of(&RpcError::new(RpcError::INTERNAL, text))));
        }
        self.continuations.tasks.note(upstream, &result);
        match method {
            Method::TasksGet => self.with_task_questions(upstream, result, contact).await,
            // Whom the source takes for one client may be several.
            Method::TasksList => {
                let tasks = result.get("tasks").and_then(|tasks| tasks.items()).unwrap_or_default();
                let known = |task: &Json| {
                    task.get_str("taskId").is_some_and(|id| self.continuations.tasks.source(&id).is_some())
                };
                let own: Vec<_> = tasks.into_iter().filter(known).collect();
                Ok(result.with("tasks", &Json::of(&own)).unwrap_or(result))
            }
            _ => Ok(result),
        }
    }

    /// The state of a task, with what it asks for as the agent may be asked. What was shown once is shown as it was.
    pub(super) async fn with_task_questions(
        &self,
        upstream: &Upstream,
        state: Json,
        contact: &Arc<dyn AgentPeer>,
    ) -> Result<Json, Answer> {
        let asked = state.get("inputRequests").and_then(|asked| asked.members());
        let (Some(asked), Some(id)) = (asked, state.get_str("taskId")) else { return Ok(state) };
        let mut shown = Json::empty_object();
        for (key, put) in asked.into_iter().take(MAX_QUESTIONS) {
            let request = match self.continuations.tasks.shown(&id, &key, &put) {
                Some(request) => request,
                None => {
                    let method = put.get_str("method").unwrap_or_default();
                    let question =
                        self.question(upstream, key.clone(), &Method::from(method), put.get("params"), contact).await?;
                    let request = question.as_request();
                    self.continuations.tasks.keep(&id, put, question);
                    request
                }
            };
            shown = shown.with(&key, &request).unwrap_or(shown);
        }
        Ok(state.with("inputRequests", &shown).unwrap_or(state))
    }

    /// The parameters of `tasks/update`, with the answers as far as the source may have them. What was not asked is not
    /// answered.
    pub(super) async fn with_task_answers(&self, params: Json) -> Result<Json, Answer> {
        let answers = params.get("inputResponses").and_then(|answers| answers.members());
        let (Some(answers), Some(id)) = (answers, params.get_str("taskId")) else { return Ok(params) };
        let mut passed = Json::empty_object();
        for (key, answer) in answers {
            let Some(question) = self.continuations.tasks.take(&id, &key) else { continue };
            let answer = self.released(question.ticket, Answer::Result(answer)).await?;
            passed = passed.with(&key, &answer).unwrap_or(passed);
        }
        Ok(params.with("inputResponses", &passed).unwrap_or(params))
    }

    /// `tasks/list`: of the source that is named, or of all that list tasks, in the order of their names.
    pub(super) async fn list_tasks(&self, params: Json, contact: &Arc<dyn AgentPeer>) -> Result<Answer, RpcError> {
        let tools = self.listing(ItemKind::Tool).await?;
        let listing = tools.sources().filter(|(_, met)| lists_tasks(&met.capabilities));
        let several: Vec<_> = listing.map(|(upstream, _)| VisibleItem::whole_source(upstream)).collect();
        if several.len() < 2 || names_source(&params) {
            return self.call(&Method::TasksList, params, contact).await;
        }
        let mut all = Vec::new();
        for source in several {
            let mut page = params.without("cursor");
            for _ in 0..MAX_PAGES {
                let result = match self.execute(&Method::TasksList, page, &source, contact).await? {
                    Answer::Result(result) => result,
                    refused @ Answer::Error(_) => return Ok(refused),
                };
                all.extend(result.get("tasks").and_then(|tasks| tasks.items()).unwrap_or_default());
                let Some(cursor) = result.get("nextCursor").filter(|cursor| *cursor != Json::null()) else { break };
                page = params.with("cursor", &cursor).unwrap_or_else(|| params.clone());
            }
        }
        let result = Json::empty_object().with("tasks", &Json::of(&all));
        Ok(Answer::Result(result.unwrap_or_else(Json::empty_object)))
    }

    /// The source of a task that this session began. One of another session is as unknown as one that never was.
    pub(super) async fn of_task(&self, method: &Method, params: &Json) -> Result<VisibleItem, RpcError> {
        // Where no source has tasks, that is what there is to say.
        let tools = self.listing(ItemKind::Tool).await?;
        if !tools.sources().any(|(_, met)| has_tasks(&met.capabilities)) {
            return self.source_for(method, params).await;
        }
        if self.agent.era == Era::Modern && !self.agent.extends(meta::TASKS_EXTENSION) {
            let error =
                self.turned_away("missing-capability", ItemKind::Source, "", "the request does not declare tasks");
            let needed = json!({ "requiredCapabilities": { "extensions": { meta::TASKS_EXTENSION: {} } } });
            return Err(RpcError { code: RpcError::MISSING_CAPABILITY, ..error }.with_data(needed));
        }
        let id = params.get_str("taskId").unwrap_or_default();
        let Some(upstream) = self.continuations.tasks.source(&id) else {
            let text = "no such task of this session";
            return Err(self.turned_away("unknown-task", ItemKind::Source, "", text));
        };
        let item = Arc::new(upstream.whole_item());
        // The call that began it had its permit.
        Ok(VisibleItem { item, risk: Risk::Harmless, acceptance: Acceptance::Unknown, upstream, group: None })
    }
}
