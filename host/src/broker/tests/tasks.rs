//! Lists of tasks of several sources.

use super::*;
use crate::config::SourceTable;
use crate::source::NativeSource;
use crate::source::testing::{ScriptedServer, answering};

/// Returns a legacy server whose list of tasks has this many pages.
fn lister(pages: u32) -> impl NativeSource {
    ScriptedServer(move |request: &serde_json::Value| {
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => Some(json!({
                "protocolVersion": "2025-11-25", "serverInfo": { "name": "lister", "version": "1" },
                "capabilities": { "tools": {}, "tasks": { "list": {} } }
            })),
            "tools/list" => Some(json!({ "tools": [] })),
            "tasks/list" => {
                let page = request["params"]["cursor"].as_str().map_or(1, |cursor| cursor.parse().unwrap());
                let next = if page < pages { json!((page + 1).to_string()) } else { json!(null) };
                Some(json!({ "tasks": [], "nextCursor": next }))
            }
            _ => None,
        };
        answering(request, result)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_all_tasks_that_would_lack_some_is_an_error() {
    for (pages, expected) in [(64, None), (65, Some("source `two` lists tasks on more than 64 pages"))] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path()).source("one", SourceTable::native("one"));
        let config = config.source("two", SourceTable::native("two")).build().unwrap();
        let broker = Broker::builder(config, Launcher::SelfExec);
        let broker = broker.source("one", lister(1)).source("two", lister(pages)).build().await.unwrap();
        let session = session(&broker).await;
        let answer = session.request("tasks/list", Json::empty_object(), Arc::new(NoAgent)).await;
        let refused = match answer {
            Answer::Result(result) => {
                assert_eq!(result.to_value()["tasks"], json!([]));
                None
            }
            Answer::Error(error) => error.get_str("message"),
        };
        match expected {
            None => assert_eq!(refused, None),
            Some(why) => assert!(refused.as_ref().is_some_and(|refused| refused.contains(why)), "{refused:?}"),
        }
        broker.shutdown().await;
    }
}
