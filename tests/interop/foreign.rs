//! Components by third parties: a server written with the official Rust SDK, and functions in JavaScript.

use portcullis_test_support::rmcp_server;
use serde_json::{Value, json};

use crate::broker::{TestDir, output};
use crate::installed;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_written_with_rmcp_runs_as_a_component_by_its_path() {
    let dir = TestDir::bare(&format!("[sources.calc]\ncomponent = {:?}\n", rmcp_server().display().to_string()));
    let sum = dir.run(&["call", "calc__add", r#"{"a":20,"b":22}"#]).await;
    assert_eq!(serde_json::from_str::<Value>(&sum).unwrap(), json!({ "result": 42.0 }));
    let refused = output(dir.portcullis(&["call", "calc__add", r#"{"a":20}"#])).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("missing field `b`"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_a_component_in_javascript_are_tools_with_typed_arguments() {
    let component = installed::text_component().display().to_string();
    let dir = TestDir::bare(&format!("[sources.text]\ncomponent = {component:?}\n"));
    let counted = dir.run(&["call", "text__count", r#"{"text":"one two one"}"#]).await;
    let words = json!([{ "text": "one", "times": 2 }, { "text": "two", "times": 1 }]);
    assert_eq!(serde_json::from_str::<Value>(&counted).unwrap(), words);
    let failed = output(dir.portcullis(&["call", "text__first", r#"{"text":" "}"#])).await;
    assert!(!failed.status.success() && format!("{failed:?}").contains("there is none"), "{failed:?}");
    let wrong = output(dir.portcullis(&["call", "text__first", r#"{"text":3}"#])).await;
    assert!(!wrong.status.success() && format!("{wrong:?}").contains("text"), "{wrong:?}");
}
