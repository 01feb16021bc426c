//! A component for the `tools` world, written with the SDK: one tool that counts words.

use portcullis_plugin::{Effect, Failure, Tools, arguments, text_result, tool};
use serde::Deserialize;
use serde_json::json;

struct Words;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    text: String,
}

impl Tools for Words {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(_settings: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn definitions(&self) -> Result<String, String> {
        let properties = json!({ "text": { "type": "string" } });
        Ok(json!([tool("count", "Counts the words of a text.", properties, &["text"], Effect::Reads)]).to_string())
    }

    fn open(&self) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        if tool != "count" {
            return Err(Failure::UnknownTool);
        }
        let Count { text } = self::arguments(arguments)?;
        Ok(text_result(&text.split_whitespace().count().to_string()))
    }
}

portcullis_plugin::export_tools!(Words);
