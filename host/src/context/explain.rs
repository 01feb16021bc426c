//! Failures of a source that its cell may have caused say so.

use std::time::Instant;

use serde_json::json;

use super::Upstream;
use crate::protocol::{Answer, Json};

impl Upstream {
    /// Adds to a failed answer what the source's cell may lack: hosts that it was refused since `began`, and paths that
    /// the failure names. Any other answer stays as it is.
    pub(crate) fn explained(&self, answer: Answer, began: Instant) -> Answer {
        match &answer {
            Answer::Result(result) if result.get("isError").is_some_and(|flag| flag.as_str() == "true") => {
                let mut blocks = result.get("content").and_then(|content| content.items()).unwrap_or_default();
                let texts: Vec<String> = blocks.iter().filter_map(|block| block.get_str("text")).collect();
                let Some(words) = self.lacks(began, &texts.join("\n")) else { return answer };
                blocks.push(Json::of(&json!({ "type": "text", "text": format!("[portcullis: {words}]") })));
                result.with("content", &Json::of(&blocks)).map_or(answer, Answer::Result)
            }
            Answer::Error(error) => {
                let message = error.get_str("message").unwrap_or_default();
                let Some(words) = self.lacks(began, &message) else { return answer };
                error
                    .with("message", &Json::of(&format!("{message} [portcullis: {words}]")))
                    .map_or(answer, Answer::Error)
            }
            Answer::Result(_) => answer,
        }
    }

    /// Returns what the source's cell may lack, with what exists outside: for people, and not for agents.
    #[cfg(feature = "process")]
    pub(crate) fn missing_from_cell(&self) -> Vec<String> {
        self.process_cell.as_ref().map(|cell| cell.told()).unwrap_or_default()
    }

    #[cfg(not(feature = "process"))]
    pub(crate) fn missing_from_cell(&self) -> Vec<String> {
        Vec::new()
    }

    #[cfg(feature = "process")]
    fn lacks(&self, began: Instant, failure: &str) -> Option<String> {
        let lacks = self.process_cell.as_ref()?.lacks(began, failure);
        let words: Vec<String> = lacks.iter().map(ToString::to_string).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Only a program has a cell that could lack something.
    #[cfg(not(feature = "process"))]
    fn lacks(&self, _: Instant, _: &str) -> Option<String> {
        None
    }
}
