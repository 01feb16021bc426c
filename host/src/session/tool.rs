//! The tools of a session, and the results of calling them, as programs use them.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::call::Risk;
use crate::name::SourceName;
use crate::protocol::Json;

/// A tool that a session may call.
///
/// # Example
/// ```
/// # async fn show(session: &portcullis::Session) -> Result<(), portcullis::RpcError> {
/// for tool in session.discover().await? {
///     println!("{} ({}): {}", tool.name, tool.risk.as_str(), tool.title.as_deref().unwrap_or(&tool.description));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// The title that its source gives it for people.
    pub title: Option<String>,
    /// The description that its source gives; may be empty.
    pub description: String,
    /// The JSON Schema of its arguments: the source's own, byte for byte, unless the profile has schemas repaired.
    pub input_schema: Json,
    /// The JSON Schema of its structured results, if its source gives one.
    pub output_schema: Option<Json>,
    /// The source's claims about it (`readOnlyHint`, `destructiveHint`, …), an object. They are unverified;
    /// [`Tool::risk`] is what counts.
    pub annotations: Option<Json>,
    /// The source that offers it; for a tool of a group, the member whose definition is shown.
    pub source: SourceName,
    /// The group that the tool belongs to.
    pub group: Option<SourceName>,
    /// The priority of that source: in a group, members with a higher one go first; 0 to 100.
    pub priority: u8,
    /// The risk of a call: `harmless` or `risky`.
    #[serde(serialize_with = "word")]
    pub risk: Risk,
}

fn word<S: Serializer>(risk: &Risk, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(risk.as_str())
}

/// The result of a tool, as it left the gate: an MCP `CallToolResult` ("Tools"), byte for byte what the source gave
/// unless a transform rewrote it.
///
/// # Example
/// ```
/// # use portcullis::ToolResult;
/// # fn show(result: &ToolResult) {
/// if result.is_error() {
///     eprintln!("the tool failed: {}", result.text());
/// } else {
///     println!("{}", result.text());
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ToolResult(Json);

impl ToolResult {
    pub(super) fn of(result: Json) -> Self {
        Self(result)
    }

    /// Reports whether the tool reports a failure (`isError`). A call that never reached the tool, or was refused,
    /// gives an error, not a result.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.0.get("isError").is_some_and(|value| value.is_true())
    }

    /// Returns the text parts of the content, one after the other on separate lines; empty if there are none.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.content();
        let texts = parts.iter().filter(|part| part.get_str("type").as_deref() == Some("text"));
        texts.filter_map(|part| part.get_str("text")).collect::<Vec<_>>().join("\n")
    }

    /// Returns the parts of the content: text, images, sound, resources.
    #[must_use]
    pub fn content(&self) -> Vec<Json> {
        self.0.get("content").and_then(|content| content.items()).unwrap_or_default()
    }

    /// Returns the structured content, which fits the tool's output schema if it has one.
    #[must_use]
    pub fn structured(&self) -> Option<Value> {
        self.0.get("structuredContent").map(|content| content.to_value())
    }

    /// Reads the structured content into a type of the program, or the text if there is no structured content: many
    /// tools write JSON there. Whether the tool failed is another question, [`ToolResult::is_error`].
    ///
    /// # Errors
    /// If neither is JSON of this type.
    ///
    /// # Example
    /// ```
    /// # use portcullis::ToolResult;
    /// #[derive(serde::Deserialize)]
    /// struct Weather {
    ///     celsius: f64,
    /// }
    /// # fn is_freezing(result: &ToolResult) -> Result<bool, serde_json::Error> {
    /// let weather: Weather = result.read()?;
    /// # Ok(weather.celsius < 0.0)
    /// # }
    /// ```
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.0.get("structuredContent") {
            Some(content) => serde_json::from_str(content.as_str()),
            None => serde_json::from_str(&self.text()),
        }
    }

    /// Returns the whole result.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.0
    }
}

impl fmt::Display for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// A report of a tool on how far a call is ("Progress").
///
/// # Example
/// ```
/// # fn show(progress: portcullis::Progress) {
/// match progress.total {
///     Some(total) => println!("{:.0} %", 100.0 * progress.progress / total),
///     None => println!("{}", progress.message.unwrap_or_default()),
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The progress so far. It grows with each report of one origin; the broker's own reports, such as of a package
    /// that is being installed, are negative and come before those of the tool.
    pub progress: f64,
    /// The value at which the work is done, if the tool knows it.
    pub total: Option<f64>,
    /// The words for people.
    pub message: Option<String>,
}

impl Progress {
    /// Reads the parameters of `notifications/progress`. `None` if they contain no number.
    pub(super) fn of(params: &Json) -> Option<Self> {
        let number = |key| params.get(key).and_then(|value| value.read::<f64>().ok());
        Some(Self { progress: number("progress")?, total: number("total"), message: params.get_str("message") })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_says_its_text_and_whether_the_tool_failed() {
        let content = json!([{ "type": "text", "text": "one" }, { "type": "image", "text": "no" }, { "type": "text", "text": "two" }]);
        let failed =
            ToolResult::of(Json::of(&json!({ "content": content, "isError": true, "structuredContent": { "n": 1 } })));
        assert_eq!((failed.text().as_str(), failed.is_error()), ("one\ntwo", true));
        assert_eq!((failed.content().len(), failed.structured()), (3, Some(json!({ "n": 1 }))));
        assert_eq!(failed.read::<Value>().unwrap(), json!({ "n": 1 }));
        let text = ToolResult::of(Json::of(&json!({ "content": [{ "type": "text", "text": "[1, 2]" }] })));
        assert_eq!(text.read::<Vec<u8>>().unwrap(), [1, 2]);
        assert!(text.read::<String>().is_err());
        let bare = ToolResult::of(Json::empty_object());
        assert_eq!((bare.text().as_str(), bare.is_error(), bare.structured()), ("", false, None));
    }
}
