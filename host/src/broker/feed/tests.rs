#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use portcullis_test_support::guest;
use portcullis_wasm::testing::plugins;

use super::super::sinks::{LoadedSink, SinkTasks, load};
use super::*;
use crate::config::{Config, PluginTable};
use crate::ledger::ChainStart;
use crate::plugin::{NativeError, NativePlugins, NativeSink, PluginHost};
use crate::secret::SecretStore;
use crate::sync::Mutex;

/// A sink that fails the given number of times, and then counts the records that it gets.
struct Failing(Arc<Mutex<(usize, usize)>>);

#[async_trait]
impl NativeSink for Failing {
    async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
        let (failures, got) = &mut *self.0.lock();
        if let Some(left) = failures.checked_sub(1) {
            *failures = left;
            return Err("not yet".into());
        }
        *got += records.len();
        Ok(())
    }
}

/// A sink that panics.
struct Panicking;

#[async_trait]
impl NativeSink for Panicking {
    async fn deliver(&self, _: &[String]) -> Result<(), NativeError> {
        panic!("told to");
    }
}

/// Returns a ledger in a folder, and the configured sink.
async fn loaded(dir: &Path, sink: PluginTable, plugins: &PluginHost) -> (Ledger, Vec<LoadedSink>) {
    let config = Config::builder(dir).sink(sink).build().unwrap();
    let started = ChainStart { version: "1".into(), config: crate::digest::Digest::of(b""), key: None };
    let ledger = Ledger::open(&config.data_dir, started).await.unwrap();
    ledger.flush().await.unwrap();
    let secrets = SecretStore::open(&config.data_dir).unwrap();
    (ledger, load(plugins, &config, &secrets).await.unwrap())
}

/// Starts to feed a sink in a folder.
async fn fed(dir: &Path, plugin: &str, plugins: &PluginHost) -> SinkTasks {
    let (ledger, sinks) = loaded(dir, PluginTable::new(plugin), plugins).await;
    SinkTasks::start(sinks, &ledger, &Receivers::default())
}

/// Returns the configuration of a plugin that traps at each record with this text.
fn trapping(text: &str) -> PluginTable {
    PluginTable::new(&guest("scribe").display().to_string()).settings(json!({ "trap": text })).key("file", "sink.jsonl")
}

/// Records a line of a source's log.
async fn record(ledger: &Ledger, line: &str) {
    ledger.append(Event::new(EventKind::SourceLog, EventBody::new().with("line", line))).await.unwrap();
}

/// Returns all records of the ledger.
async fn recorded(ledger: &Ledger) -> Vec<String> {
    ledger.batch("a reader", usize::MAX).await.unwrap().into_iter().map(|(_, text)| text).collect()
}

/// Delivers without the pauses until there is nothing left, at most so often. Returns how often it failed.
async fn deliver_everything(feed: &mut Feed, ledger: &Ledger) -> usize {
    let mut failures = 0;
    for _ in 0..1_000 {
        ledger.flush().await.unwrap();
        match feed.deliver(MAX_OWN_FAILURES).await {
            Ok(0) => return failures,
            Ok(_) => {}
            Err(_) => failures += 1,
        }
    }
    panic!("the feed is wedged");
}

#[tokio::test]
async fn a_sink_that_fails_once_at_the_end_still_gets_its_records() {
    for (failures, got_any) in [(1, true), (9, false)] {
        let dir = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new((failures, 0)));
        let mut natives = NativePlugins::default();
        natives.sinks.insert("failing".to_owned(), Arc::new(Failing(Arc::clone(&state))));
        let plugins = plugins().clone().with_natives(natives);
        // The task does not run before it is told to finish: this thread is the only one.
        fed(dir.path(), "native:failing", &plugins).await.finish().await;
        assert_eq!(state.lock().1 > 0, got_any, "{failures}");
    }
}

#[tokio::test]
async fn a_plugin_that_traps_at_a_record_gets_a_substitute_for_it_and_all_other_records_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, mut sinks) = loaded(dir.path(), trapping("odd"), plugins()).await;
    for line in ["before", "odd", "after", "odd again", "last"] {
        record(&ledger, line).await;
    }
    let receiver = sinks.remove(0).receiver;
    let mut feed = Feed::new("sink-1".to_owned(), receiver, ledger.clone(), &Receivers::default());
    deliver_everything(&mut feed, &ledger).await;
    assert_eq!(feed.alone_until, None);

    let written = std::fs::read_to_string(dir.path().join("sink.jsonl")).unwrap();
    let records = recorded(&ledger).await;
    assert_eq!(written.lines().count(), records.len());
    let (mut substitutes, mut reports) = (0, 0);
    for (written, record) in written.lines().zip(&records) {
        let (got, all): (Value, Value) =
            (serde_json::from_str(written).unwrap(), serde_json::from_str(record).unwrap());
        reports += usize::from(all["kind"] == "plugin.failed" && all["body"]["code"] == "plugin-trap");
        if !record.contains("odd") {
            assert_eq!(written, record);
            continue;
        }
        substitutes += 1;
        let mut expected = all.clone();
        expected["body"] = json!({ "left_out_bytes": record.len(), "undelivered": "plugin-trap" });
        assert_eq!(got, expected);
        assert!(written.starts_with(r#"{"at":"#) && written.ends_with(r#","v":1}"#), "{written}");
    }
    assert_eq!((substitutes, reports), (2, 2));
}

#[tokio::test]
async fn a_plugin_that_traps_at_the_substitute_too_gets_the_records_that_follow() {
    let dir = tempfile::tempdir().unwrap();
    // The substitute has the kind of its record.
    let (ledger, mut sinks) = loaded(dir.path(), trapping("source.log"), plugins()).await;
    record(&ledger, "a line").await;
    let receiver = sinks.remove(0).receiver;
    let mut feed = Feed::new("sink-1".to_owned(), receiver, ledger.clone(), &Receivers::default());
    assert!(deliver_everything(&mut feed, &ledger).await >= 2 * MAX_OWN_FAILURES as usize);
    let written = std::fs::read_to_string(dir.path().join("sink.jsonl")).unwrap();
    let expected: Vec<_> = recorded(&ledger).await.into_iter().filter(|text| !text.contains("source.log")).collect();
    assert_eq!(written.lines().collect::<Vec<_>>(), expected);
    assert!(expected.last().unwrap().contains("plugin.failed"));
}

#[tokio::test]
async fn a_plugin_that_traps_at_everything_is_not_reported_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, mut sinks) = loaded(dir.path(), trapping("chain"), plugins()).await;
    let receiver = sinks.remove(0).receiver;
    deliver_everything(&mut Feed::new("sink-1".to_owned(), receiver, ledger.clone(), &Receivers::default()), &ledger)
        .await;
    assert_eq!(std::fs::read_to_string(dir.path().join("sink.jsonl")).unwrap(), "");
}

#[tokio::test]
async fn a_sink_that_is_down_gets_every_record_however_often_it_failed() {
    const FAILURES: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let state = Arc::new(Mutex::new((FAILURES, 0)));
    let mut natives = NativePlugins::default();
    natives.sinks.insert("down".to_owned(), Arc::new(Failing(Arc::clone(&state))));
    let plugins = plugins().clone().with_natives(natives);
    let (ledger, mut sinks) = loaded(dir.path(), PluginTable::new("native:down"), &plugins).await;
    record(&ledger, "a line").await;
    let receiver = sinks.remove(0).receiver;
    let failures = deliver_everything(
        &mut Feed::new("sink-1".to_owned(), receiver, ledger.clone(), &Receivers::default()),
        &ledger,
    )
    .await;
    let delivered = state.lock().1;
    assert_eq!((failures, delivered), (FAILURES, recorded(&ledger).await.len()));
}

#[tokio::test]
async fn an_error_of_a_plugin_and_a_panic_of_native_code_are_no_reason_to_pass_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut natives = NativePlugins::default();
    natives.sinks.insert("panicking".to_owned(), Arc::new(Panicking));
    let plugins = plugins().clone().with_natives(natives);
    for (folder, sink) in [("native", PluginTable::new("native:panicking")), ("guest", trapping("nothing"))] {
        let folder = dir.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let (ledger, mut sinks) = loaded(&folder, sink, &plugins).await;
        record(&ledger, "before").await;
        ledger.append(Event::new(EventKind::SourceLog, EventBody::new().with("fail", true))).await.unwrap();
        let receiver = sinks.remove(0).receiver;
        let first = ledger.batch("sink-1", 1).await.unwrap();
        let mut feed = Feed::new("sink-1".to_owned(), receiver, ledger.clone(), &Receivers::default());
        for _ in 0..20 {
            assert_eq!(feed.deliver(MAX_OWN_FAILURES).await.unwrap_err().own, None);
        }
        assert_eq!(ledger.batch("sink-1", 1).await.unwrap(), first);
    }
}

#[tokio::test]
async fn a_feed_that_ends_goes_past_a_record_at_which_its_plugin_traps() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, sinks) = loaded(dir.path(), trapping("odd"), plugins()).await;
    for line in ["odd", "last"] {
        record(&ledger, line).await;
    }
    // The task does not run before it is told to finish: this thread is the only one.
    SinkTasks::start(sinks, &ledger, &Receivers::default()).finish().await;
    let written = std::fs::read_to_string(dir.path().join("sink.jsonl")).unwrap();
    assert!(written.contains("left_out_bytes") && written.contains(r#"{"line":"last"}"#), "{written}");
}
