//! The questions of sources that the agent works on: requests for its roots, for its model, or for input from a person.
//! They route the agent's messages about a question to the source that asked.

use std::collections::VecDeque;

use crate::name::SourceName;
use crate::protocol::{Answer, Json, MAX_ID_BYTES};
use crate::sync::Mutex;

/// The largest number of the agent's tasks that are remembered. Beyond it the oldest is forgotten.
const MAX_TASKS: usize = 256;

/// The questions of sources that the agent works on: the tokens and tasks by which the agent refers to them, and the
/// sources that asked.
#[derive(Default)]
pub(super) struct SourceQuestions(Mutex<Questions>);

#[derive(Default)]
struct Questions {
    /// The questions that are not answered yet, by their progress token.
    open: Vec<(Json, SourceName)>,
    /// The questions that the agent answered with a task, by the id of the task.
    tasks: VecDeque<(Json, SourceName)>,
}

impl SourceQuestions {
    /// Opens a question, which stays open until the returned guard is dropped.
    pub(super) fn begin(&self, token: Json, source: &SourceName) -> OpenSourceQuestion<'_> {
        let question = (token, source.clone());
        self.0.lock().open.push(question.clone());
        OpenSourceQuestion { all: self, question }
    }

    /// Remembers the task of an answer, if the agent answered with one (2025-11-25, "Tasks").
    pub(super) fn answered(&self, answer: &Answer, source: &SourceName) {
        let Answer::Result(result) = answer else { return };
        let id = result.get("task").and_then(|task| task.get("taskId"));
        let Some(id) = id.filter(|id| id.as_bytes().len() <= MAX_ID_BYTES) else { return };
        let mut questions = self.0.lock();
        if questions.tasks.len() == MAX_TASKS {
            questions.tasks.pop_front();
        }
        questions.tasks.push_back((id.detached(), source.clone()));
    }

    /// Returns the source whose question has this token. `None` if several have: sources choose tokens without knowing
    /// of each other.
    pub(super) fn source(&self, token: &Json) -> Option<SourceName> {
        let questions = self.0.lock();
        let mut found = questions.open.iter().filter(|(other, _)| other == token);
        let (_, source) = found.next()?;
        found.next().is_none().then(|| source.clone())
    }

    /// Returns the source whose question became this task.
    pub(super) fn source_of_task(&self, id: &Json) -> Option<SourceName> {
        self.0.lock().tasks.iter().find(|(other, _)| other == id).map(|(_, source)| source.clone())
    }
}

/// A guard: the question is open until it is dropped.
pub(super) struct OpenSourceQuestion<'a> {
    all: &'a SourceQuestions,
    question: (Json, SourceName),
}

impl Drop for OpenSourceQuestion<'_> {
    fn drop(&mut self) {
        let mut questions = self.all.0.lock();
        if let Some(at) = questions.open.iter().position(|question| *question == self.question) {
            questions.open.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn progress_leads_to_the_one_open_question_with_its_token() {
        let questions = SourceQuestions::default();
        let source = |name: &str| name.parse::<SourceName>().unwrap();
        let (token, other) = (Json::of(&"t"), Json::of(&1));
        let near = questions.begin(token.clone(), &source("near"));
        assert_eq!(questions.source(&token), Some(source("near")));
        assert_eq!(questions.source(&other), None);
        let far = questions.begin(token.clone(), &source("far"));
        assert_eq!(questions.source(&token), None, "it could be of either");
        drop(near);
        assert_eq!(questions.source(&token), Some(source("far")));
        drop(far);
        assert_eq!(questions.source(&token), None);
    }

    #[test]
    fn a_task_leads_to_whose_question_it_was_and_the_oldest_is_forgotten() {
        let questions = SourceQuestions::default();
        let source = "near".parse::<SourceName>().unwrap();
        let task = |n: usize| Json::of(&format!("task {n}"));
        for n in 0..=MAX_TASKS {
            let answer =
                Json::of(&serde_json::json!({ "task": { "taskId": format!("task {n}"), "status": "working" } }));
            questions.answered(&Answer::Result(answer), &source);
        }
        questions.answered(&Answer::Result(Json::of(&serde_json::json!({ "action": "accept" }))), &source);
        assert_eq!(
            (questions.source_of_task(&task(0)), questions.source_of_task(&task(1))),
            (None, Some(source.clone()))
        );
        assert_eq!(questions.source_of_task(&task(MAX_TASKS)), Some(source));
    }
}
