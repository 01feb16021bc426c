//! A component of tools, with the SDK: one tool that counts words.

use portcullis_plugin::{Failure, Tools};
use serde_json::{Value, json};

struct Words;

impl Tools for Words {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(_settings: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn definitions(&self) -> String {
        json!([{
            "name": "count",
            "description": "Counts the words of a text.",
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
            "annotations": { "readOnlyHint": true },
        }])
        .to_string()
    }

    fn open(&self) {}

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        if tool != "count" {
            return Err(Failure::UnknownTool);
        }
        let arguments: Value = serde_json::from_str(arguments).map_err(|why| Failure::InvalidArguments(why.to_string()))?;
        let text = arguments["text"].as_str().ok_or_else(|| Failure::InvalidArguments("`text` must be a string".into()))?;
        let words = text.split_whitespace().count().to_string();
        Ok(json!({ "content": [{ "type": "text", "text": words }] }).to_string())
    }
}

portcullis_plugin::export_tools!(Words);
