//! Lists of tasks of several sources.

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};

use super::*;
use crate::config::SourceTable;
use crate::plugin::NativeError;
use crate::source::NativeSource;

/// A legacy server whose list of tasks has this many pages.
struct Lister(u32);

#[async_trait]
impl NativeSource for Lister {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
        let (input, mut output) = split(stream);
        let mut lines = BufReader::new(input).lines();
        while let Some(line) = lines.next_line().await? {
            let request: serde_json::Value = serde_json::from_str(&line)?;
            let result = match request["method"].as_str().unwrap_or_default() {
                "initialize" => json!({
                    "protocolVersion": "2025-11-25", "serverInfo": { "name": "lister", "version": "1" },
                    "capabilities": { "tools": {}, "tasks": { "list": {} } }
                }),
                "tools/list" => json!({ "tools": [] }),
                "tasks/list" => {
                    let page = request["params"]["cursor"].as_str().map_or(1, |cursor| cursor.parse().unwrap());
                    let next = if page < self.0 { json!((page + 1).to_string()) } else { json!(null) };
                    json!({ "tasks": [], "nextCursor": next })
                }
                _ => continue,
            };
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            output.write_all(format!("{answer}\n").as_bytes()).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_all_tasks_that_would_lack_some_is_an_error() {
    for (pages, expected) in [(64, None), (65, Some("source `two` lists tasks on more than 64 pages"))] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path()).source("one", SourceTable::native("one"));
        let config = config.source("two", SourceTable::native("two")).build().unwrap();
        let broker = Broker::builder(config, Launcher::SelfExec);
        let broker = broker.source("one", Lister(1)).source("two", Lister(pages)).build().await.unwrap();
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
