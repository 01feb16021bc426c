#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use portcullis_wasm::testing::plugins;

use super::*;
use crate::config::PluginTable;
use crate::digest::Digest;
use crate::ledger::{ChainStart, Event, EventBody, EventKind, LedgerReader, RecordFilter};
use crate::plugin::{NativeError, NativePlugins, NativeSink};
use crate::sync::Mutex;

/// A sink that keeps the records that it gets.
#[derive(Clone, Default)]
struct Keeping(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl NativeSink for Keeping {
    async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
        self.0.lock().extend_from_slice(records);
        Ok(())
    }
}

async fn ledger(dir: &Path) -> Ledger {
    Ledger::open(dir, ChainStart { version: "1".into(), config: Digest::of(b""), key: None }).await.unwrap()
}

async fn record(ledger: &Ledger, line: &str) {
    ledger.append(Event::new(EventKind::SourceLog, EventBody::new().with("line", line))).await.unwrap();
}

fn file(name: &str) -> PluginTable {
    PluginTable::new("builtin:jsonl").key("file", name)
}

#[tokio::test]
async fn a_reload_leaves_no_record_out_and_gives_a_new_sink_those_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let [kept, added] = [Keeping::default(), Keeping::default()];
    let mut natives = NativePlugins::default();
    natives.sinks.insert("kept".to_owned(), Arc::new(kept.clone()));
    natives.sinks.insert("added".to_owned(), Arc::new(added.clone()));
    let plugins = plugins().clone().with_natives(natives);
    let configured = |sinks: Vec<PluginTable>| {
        sinks.into_iter().fold(Config::builder(dir.path()), |config, sink| config.sink(sink)).build().unwrap()
    };
    let first = configured(vec![file("before.jsonl"), PluginTable::new("native:kept")]);
    let ledger = ledger(&first.data_dir).await;
    let secrets = SecretStore::open(&first.data_dir).unwrap();
    let loaded = async |config: &Config| load(&plugins, config, &secrets).await.unwrap();
    let reported = Receivers::default();
    let mut tasks = SinkTasks::start(loaded(&first).await, &ledger, &reported);
    record(&ledger, "one").await;
    assert!(!tasks.differ(&loaded(&first).await));

    let native = PluginTable::new;
    let second = configured(vec![native("native:kept"), file("after.jsonl"), native("native:added")]);
    assert!(tasks.differ(&loaded(&second).await));
    tasks.replace(loaded(&second).await);
    assert_eq!(reported.states().len(), 3);
    assert!(!tasks.differ(&loaded(&second).await), "in whatever order");
    record(&ledger, "two").await;
    tasks.finish().await;

    let all = LedgerReader::open(&first.data_dir).unwrap().tail(usize::MAX, &RecordFilter::default()).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let written = read("before.jsonl") + &read("after.jsonl");
    assert_eq!(written.lines().count(), all.len(), "each once: {}\nand\n{}", read("before.jsonl"), read("after.jsonl"));
    assert!(written.contains("\"one\"") && written.contains("\"two\""), "{written}");
    assert!(!read("after.jsonl").contains("\"one\""), "it goes on where the other was");
    assert_eq!(kept.0.lock().len(), all.len(), "it goes on");
    let added = added.0.lock().concat();
    assert!(added.contains("\"two\"") && !added.contains("\"one\""), "{added}");
}

#[tokio::test]
async fn a_sink_that_is_removed_gets_what_was_recorded_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::builder(dir.path()).sink(file("sink.jsonl")).build().unwrap();
    let ledger = ledger(&config.data_dir).await;
    let secrets = SecretStore::open(&config.data_dir).unwrap();
    let reported = Receivers::default();
    let mut tasks = SinkTasks::start(load(plugins(), &config, &secrets).await.unwrap(), &ledger, &reported);
    record(&ledger, "last").await;
    tasks.replace(Vec::new());
    assert!(reported.states().is_empty());
    // Its task ends concurrently with this one.
    let written = dir.path().join("sink.jsonl");
    while !std::fs::read_to_string(&written).is_ok_and(|text| text.contains("last")) {
        tokio::task::yield_now().await;
    }
    tasks.finish().await;
}

#[tokio::test]
async fn a_feed_ends_with_a_broker_that_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::builder(dir.path()).sink(file("sink.jsonl")).build().unwrap();
    let ledger = ledger(&config.data_dir).await;
    let secrets = SecretStore::open(&config.data_dir).unwrap();
    let sinks = load(plugins(), &config, &secrets).await.unwrap();
    let SinkTasks { running, .. } = SinkTasks::start(sinks, &ledger, &Receivers::default());
    assert_eq!(running.len(), 1);
    for RunningSink { finishing, task, .. } in running {
        drop(finishing);
        task.await.unwrap();
    }
}
