//! Tasks: calls that continue after they were answered (2025-11-25, and the extension of 2026-07-28). The broker
//! remembers the source of each task, and takes the questions of a task through the gate.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::json;

use super::configured::ConfiguredSession;
use super::execution::Execution;
use super::listing::VisibleItem;
use super::pending_rounds::AgentQuestion;
use super::request::SessionRequest;
use super::round_trips::released;
use super::target::{META_SOURCE, names_source};
use crate::agent::AgentPeer;
use crate::call::{Params, Risk};
use crate::context::Upstream;
use crate::item::ItemKind;
use crate::lockfile::Acceptance;
use crate::name::SourceName;
use crate::protocol::{Answer, AskingMembers, Era, Json, MAX_ID_BYTES, Method, RpcError, meta};
use crate::provenance::TracedCall;
use crate::shared_limit::{LimitShare, PrincipalRoom};
use crate::sync::Mutex;

/// The largest number of tasks of one caller that are remembered. Beyond it a new one takes the place of the oldest.
const MAX_TASKS: usize = 1024;

/// The largest number of pages of one source's list of tasks that are read for a list of all. Sources forget tasks; one
/// whose list never ends is faulty. A list without the later pages would look like one of all tasks.
const MAX_PAGES: usize = 64;

/// The most bytes of all pages of tasks that one request collects.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// The largest number of questions of one task that may be open. A person answers one at a time.
const MAX_QUESTIONS: usize = 16;

/// The most bytes of the open questions of the tasks of all callers. By the rule of
/// [`SharedLimit`](crate::shared_limit::SharedLimit) a single caller gets half of that, in all of its sessions. Each
/// question counts as its source put it and as the agent gets it.
pub(crate) const MAX_QUESTION_BYTES: u64 = 256 * 1024 * 1024;

/// The tasks of one legacy session, or of all modern sessions of one principal and profile.
pub(super) struct Tasks {
    known: Mutex<HashMap<String, Task>>,
    /// The labels of tasks that are not remembered any more.
    labels_of_others: Mutex<BTreeSet<String>>,
    room: PrincipalRoom,
}

/// The caller's open questions take all the memory that it may have.
#[derive(Debug)]
struct NoRoom;

/// Another source has a task of this id, so that requests about the id could reach the wrong source.
#[derive(Debug)]
struct Taken;

/// A task, and its open questions by key.
struct Task {
    /// The task's number, which is higher than that of each remembered task that was begun before it.
    number: u64,
    /// The source's name. What it stands for is looked up for each request: a reload may have removed or replaced it.
    source: SourceName,
    /// The labels of the results that began it: what it answers later may have been made from the same arguments.
    labels: BTreeSet<String>,
    asked: HashMap<String, Asked>,
}

/// A question that has passed the gate, with the source's original wording.
struct Asked {
    request: Json,
    question: AgentQuestion,
    _share: LimitShare,
}

impl Tasks {
    /// Makes tasks whose questions take their memory from this room.
    pub(super) fn new(room: PrincipalRoom) -> Self {
        Self { known: Mutex::default(), labels_of_others: Mutex::default(), room }
    }

    /// Remembers the task that a result of this call begins, if it begins one.
    fn remember(&self, source: &SourceName, result: &Json, call: Option<&TracedCall>) -> Result<(), Taken> {
        let Some(id) = begun(result) else { return Ok(()) };
        let labels = || call.map(TracedCall::result_labels).into_iter().flat_map(|labels| labels.to_vec());
        let mut tasks = self.known.lock();
        if let Some(task) = tasks.get_mut(&id) {
            // The source may answer again with a task that it has begun: its questions are still open.
            if task.source != *source {
                return Err(Taken);
            }
            task.labels.extend(labels());
            return Ok(());
        }
        if tasks.len() >= MAX_TASKS
            && let Some(oldest) = tasks.iter().min_by_key(|(_, task)| task.number).map(|(id, _)| id.clone())
            && let Some(forgotten) = tasks.remove(&oldest)
        {
            self.labels_of_others.lock().extend(forgotten.labels);
        }
        let number = tasks.values().map(|task| task.number + 1).max().unwrap_or_default();
        tasks.insert(id, Task { number, source: source.clone(), labels: labels().collect(), asked: HashMap::new() });
        Ok(())
    }

    /// Returns the labels that what a source answers to a request about a task has.
    pub(super) fn labels_for(&self, method: &Method, params: &Params, source: &SourceName) -> BTreeSet<String> {
        match method {
            Method::TasksList => self.labels_of(source),
            method if method.is_of_tasks() => {
                let id = params.as_json().get_str("taskId").unwrap_or_default();
                self.known.lock().get(&id).map(|task| task.labels.clone()).unwrap_or_default()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Returns the labels of all tasks of a source, and of those that are not remembered any more.
    pub(super) fn labels_of(&self, source: &SourceName) -> BTreeSet<String> {
        let mut labels = self.labels_of_others.lock().clone();
        let tasks = self.known.lock();
        labels
            .extend(tasks.values().filter(|task| task.source == *source).flat_map(|task| task.labels.iter().cloned()));
        labels
    }

    /// Returns the name of the source that began a task.
    fn source(&self, id: &str) -> Option<SourceName> {
        self.known.lock().get(id).map(|task| task.source.clone())
    }

    /// Reports whether a source has begun the task of this id for the caller.
    fn has(&self, id: &str, source: &SourceName) -> bool {
        self.known.lock().get(id).is_some_and(|task| task.source == *source)
    }

    /// Returns a question as the agent was shown it, if its source has put it in the same words before.
    fn shown(&self, id: &str, key: &str, request: &Json) -> Option<Json> {
        let tasks = self.known.lock();
        let asked = tasks.get(id)?.asked.get(key)?;
        (asked.request == *request).then(|| asked.question.as_request())
    }

    /// Keeps a question until it is answered. One beyond the number that a task may have open is shown, and its answer
    /// is left out.
    fn keep(&self, id: &str, request: Json, question: AgentQuestion) -> Result<(), NoRoom> {
        let mut tasks = self.known.lock();
        let task = tasks.get_mut(id).filter(|task| task.asked.len() < MAX_QUESTIONS);
        let Some(task) = task else { return Ok(()) };
        let share = self.room.try_take(request.as_bytes().len() + question.bytes()).ok_or(NoRoom)?;
        task.asked.insert(question.key.clone(), Asked { request, question, _share: share });
        Ok(())
    }

    fn is_open(&self, id: &str, key: &str) -> bool {
        self.known.lock().get(id).is_some_and(|task| task.asked.contains_key(key))
    }

    fn take(&self, id: &str, key: &str) -> Option<AgentQuestion> {
        self.known.lock().get_mut(id)?.asked.remove(key).map(|asked| asked.question)
    }
}

/// Returns the id of the task that a result begins, in the form of either era. Nothing is a task under a longer id than
/// a request may have.
fn begun(result: &Json) -> Option<String> {
    let [task, id] = result.get_all(["task", "taskId"]);
    let id = task.and_then(|task| task.get("taskId")).or_else(|| id.filter(|_| is_handle(result)));
    id.filter(|id| id.as_bytes().len() <= MAX_ID_BYTES)?.read().ok()
}

/// Reports whether a result is the handle of a task (2026-07-28).
fn is_handle(result: &Json) -> bool {
    result.get_str("resultType").as_deref() == Some("task")
}

/// Reports whether a legacy source lists its tasks.
pub(super) fn lists_tasks(capabilities: &Json) -> bool {
    capabilities.get("tasks").is_some_and(|tasks| tasks.get("list").is_some())
}

/// Reports whether a source has tasks, in the form of either era.
pub(super) fn has_tasks(capabilities: &Json) -> bool {
    let extension = capabilities.get("extensions").and_then(|extensions| extensions.get(meta::TASKS_EXTENSION));
    capabilities.get("tasks").is_some() || extension.is_some()
}

impl Execution<'_> {
    /// Remembers the task that a result begins, takes the questions of a task through the gate, and leaves only this
    /// caller's tasks in a list.
    pub(super) async fn with_tasks(&self, result: Json, call: Option<&TracedCall>) -> Result<Json, Answer> {
        let SessionRequest { session, method, peer, .. } = &self.request;
        let (known, upstream) = (&session.agent_side.continuations.tasks, &self.target.upstream);
        if is_handle(&result) && !session.agent_side.agent.extends(meta::TASKS_EXTENSION) {
            let text = "the source began a task, and this agent did not declare that it supports tasks";
            return Err(Answer::from(RpcError::new(RpcError::INTERNAL, text)));
        }
        if known.remember(&upstream.config.name, &result, call).is_err() {
            let text =
                "the source began a task under the id of a task of another source; the two could not be told apart";
            return Err(Answer::from(RpcError::new(RpcError::INTERNAL, text)));
        }
        match method {
            Method::TasksGet => Box::pin(session.with_task_questions(upstream, result, peer)).await,
            // Several agents may share one connection to the source; each sees its own tasks of this source.
            Method::TasksList => {
                let tasks = result.get("tasks").and_then(|tasks| tasks.items()).unwrap_or_default();
                let is_own =
                    |task: &Json| task.get_str("taskId").is_some_and(|id| known.has(&id, &upstream.config.name));
                let own: Vec<_> = tasks.into_iter().filter(is_own).collect();
                Ok(result.with("tasks", &Json::of(&own)).unwrap_or(result))
            }
            _ => Ok(result),
        }
    }
}

impl ConfiguredSession {
    /// Returns parameters that name, as the task that they belong to, none but one that this source began for this caller:
    /// any other id would be a text that nobody judges.
    pub(super) fn without_foreign_task(&self, method: &Method, params: &Params, upstream: &Upstream) -> Params {
        let related = params.meta().and_then(|meta| Some((meta, meta.get(meta::RELATED_TASK)?)));
        let Some((facts, related)) = related else { return params.clone() };
        let id = related.get_str(meta::TASK_ID);
        if id.is_some_and(|id| self.agent_side.continuations.tasks.has(&id, &upstream.config.name)) {
            return params.clone();
        }
        let whole = params.as_json().with("_meta", &facts.without(meta::RELATED_TASK));
        whole.map_or_else(|| params.clone(), |whole| Params::parse(method, whole))
    }

    /// Returns the state of a task, with the questions that the agent may be asked. A question that was shown once is
    /// shown unchanged.
    pub(super) async fn with_task_questions(
        &self,
        upstream: &Upstream,
        state: Json,
        peer: &Arc<dyn AgentPeer>,
    ) -> Result<Json, Answer> {
        let members = AskingMembers::of(&state, |_, _| {});
        if !members.is_clear() {
            let text = "the source asks for input in a form that parsers read in different ways";
            return Err(Answer::from(RpcError::new(RpcError::INTERNAL, text)));
        }
        let asked = state.get("inputRequests").filter(|asked| *asked != Json::null());
        let Some(asked) = asked else { return Ok(state) };
        let (Some(asked), Some(id)) = (asked.members(), state.get_str("taskId")) else {
            return Ok(state.without("inputRequests"));
        };
        let mut shown = Json::empty_object();
        for (key, request) in asked.into_iter().take(MAX_QUESTIONS) {
            // A question that is kept keeps nothing else of the result.
            let request = request.detached();
            let for_agent = match self.agent_side.continuations.tasks.shown(&id, &key, &request) {
                Some(for_agent) => for_agent,
                None => {
                    let method = request.get_str("method").unwrap_or_default();
                    let question = self
                        .question(upstream, key.clone(), &Method::from(method), request.get("params"), peer)
                        .await?;
                    let for_agent = question.as_request();
                    self.agent_side.continuations.tasks.keep(&id, request, question).map_err(|NoRoom| {
                        let text = "the open questions of this caller's tasks take more memory than it may have; answer some of them first";
                        Answer::from(RpcError::new(RpcError::INTERNAL, text))
                    })?;
                    for_agent
                }
            };
            shown = shown.with(&key, &for_agent).unwrap_or(shown);
        }
        Ok(state.with("inputRequests", &shown).unwrap_or(state))
    }
}

impl SessionRequest<'_> {
    /// Returns the parameters of `tasks/update` with the answers to open questions. An answer without a question is left
    /// out.
    pub(super) fn with_open_answers(&self) -> Json {
        let tasks = &self.session.agent_side.continuations.tasks;
        let Some((id, answers)) = self.task_answers() else { return self.params.as_json().clone() };
        self.with_answers(answers.into_iter().filter(|(key, _)| tasks.is_open(&id, key)))
    }

    /// Takes the answers of `tasks/update` through the gate. Returns the parameters with the answers that the source may
    /// have. From here on the questions are answered.
    pub(super) async fn with_released_answers(&self) -> Result<Json, Answer> {
        let tasks = &self.session.agent_side.continuations.tasks;
        let Some((id, answers)) = self.task_answers() else { return Ok(self.params.as_json().clone()) };
        let mut passed = Vec::new();
        for (key, answer) in answers {
            let Some(question) = tasks.take(&id, &key) else { continue };
            let answer = released(question.ticket.keeping_placeholders(), Answer::Result(answer)).await?;
            passed.push((key, answer));
        }
        Ok(self.with_answers(passed))
    }

    /// Returns the id of the task that the request is about, and the answers that it brings.
    fn task_answers(&self) -> Option<(String, Vec<(String, Json)>)> {
        let answers = self.params.input_responses()?.members()?;
        Some((self.params.as_json().get_str("taskId")?, answers))
    }

    fn with_answers(&self, answers: impl IntoIterator<Item = (String, Json)>) -> Json {
        let add = |all: Json, (key, answer): (String, Json)| all.with(&key, &answer).unwrap_or(all);
        let answers = answers.into_iter().fold(Json::empty_object(), add);
        let params = self.params.as_json();
        params.with("inputResponses", &answers).unwrap_or_else(|| params.clone())
    }

    /// Answers `tasks/list`: with the tasks of the source that is named, or of all that list tasks, in the order of
    /// their names.
    pub(super) async fn list_tasks(self) -> Result<Answer, RpcError> {
        let tools = self.session.listing(ItemKind::Tool).await?;
        let listing = tools.sources().filter(|(_, discovered)| lists_tasks(&discovered.capabilities));
        let several: Vec<_> = listing.map(|(upstream, _)| VisibleItem::whole_source(upstream)).collect();
        if several.len() < 2 || names_source(&self.params) {
            return self.execute().await;
        }
        let params = self.params.as_json();
        let (mut all, mut listed) = (Vec::new(), 0);
        for source in several {
            let mut page = params.without("cursor");
            for number in 1.. {
                let result = match self.with_params(page).execute_at(&source).await? {
                    Answer::Result(result) => result,
                    refused @ Answer::Error(_) => return Ok(refused),
                };
                listed += result.as_bytes().len();
                if listed > MAX_LIST_BYTES {
                    let message =
                        format!("the sources list tasks with more than {MAX_LIST_BYTES} bytes; name one source");
                    return Err(RpcError::new(RpcError::INTERNAL, message));
                }
                all.extend(result.get("tasks").and_then(|tasks| tasks.items()).unwrap_or_default());
                let Some(cursor) = result.get("nextCursor").filter(|cursor| *cursor != Json::null()) else { break };
                if number == MAX_PAGES {
                    let source = source.item.source.as_str();
                    let message = format!(
                        "source `{source}` lists tasks on more than {MAX_PAGES} pages; name it in `_meta` as `{META_SOURCE}`, and it lists them page by page"
                    );
                    return Err(RpcError::new(RpcError::INTERNAL, message));
                }
                page = params.with("cursor", &cursor).unwrap_or_else(|| params.clone());
            }
        }
        let result = Json::empty_object().with("tasks", &Json::of(&all));
        Ok(Answer::Result(result.unwrap_or_else(Json::empty_object)))
    }

    /// Returns the source of a task that this caller began, if the configuration in force still admits it. A task of
    /// another caller looks the same as one that does not exist.
    pub(super) async fn task(&self) -> Result<VisibleItem, RpcError> {
        let session = self.session;
        // Where no source has tasks, the request is refused like any method that is not served.
        let tools = session.listing(ItemKind::Tool).await?;
        if !tools.sources().any(|(_, discovered)| has_tasks(&discovered.capabilities)) {
            return self.source().await;
        }
        if session.agent_side.agent.era == Era::Modern && !session.agent_side.agent.extends(meta::TASKS_EXTENSION) {
            let error = session.record_rejection(
                "missing-capability",
                ItemKind::Source,
                "",
                "the request does not declare tasks",
            );
            let needed = json!({ "requiredCapabilities": { "extensions": { meta::TASKS_EXTENSION: {} } } });
            return Err(RpcError { code: RpcError::MISSING_CAPABILITY, ..error }.with_data(needed));
        }
        let id = self.params.as_json().get_str("taskId").unwrap_or_default();
        let source = session.agent_side.continuations.tasks.source(&id);
        let Some(upstream) = source.and_then(|source| session.upstream(source.as_str())) else {
            let text = "no such task of this session";
            return Err(session.record_rejection("unknown-task", ItemKind::Source, "", text));
        };
        let item = Arc::new(upstream.whole_item());
        // The call that began the task passed the gate.
        Ok(VisibleItem::new(item, Risk::Harmless, Acceptance::Unknown, upstream))
    }
}
