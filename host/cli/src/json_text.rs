//! Text for people from the values of a report in JSON.

use serde_json::Value;

use crate::output::escape_hidden;

/// Returns the elements of a list, or none for any other value.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a value without quotes, and without characters that act on a terminal.
pub(crate) fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => escape_hidden(text).into_owned(),
        other => escape_hidden(&other.to_string()).into_owned(),
    }
}

/// Returns the elements of a list between blanks, or `nothing`.
pub(crate) fn words(list: &Value) -> String {
    let words: Vec<_> = items(list).iter().map(plain_text).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" ") }
}
