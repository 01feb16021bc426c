//! Reloads that are dropped, openings during the shutdown, and sources that are slow.

use std::pin::pin;

use async_trait::async_trait;
use futures_util::poll;
use tokio::io::DuplexStream;

use super::*;
use crate::config::SourceTable;
use crate::control;
use crate::item::ItemKind;
use crate::plugin::NativeError;
use crate::source::NativeSource;

/// A native server that never says anything.
struct Mute;

#[async_trait]
impl NativeSource for Mute {
    fn version(&self) -> &str {
        "1"
    }

    async fn serve(&self, _stream: DuplexStream) -> Result<(), NativeError> {
        std::future::pending().await
    }
}

fn recorded(folder: &std::path::Path, kind: &str) -> Vec<serde_json::Value> {
    let filter = RecordFilter { kind: Some(kind.to_owned()), ..RecordFilter::default() };
    let entries = LedgerReader::open(folder).unwrap().tail(100, &filter).unwrap();
    entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect()
}

/// Each reload is dropped one poll later than the one before, until one ends.
#[tokio::test]
async fn a_reload_that_is_dropped_is_recorded_if_it_came_into_force_and_otherwise_not() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), &[]).await;
    let (data_dir, started) = (broker.config().data_dir.clone(), broker.config_digest());
    for polls in 1.. {
        let table = SourceTable::component("builtin:calculator").key("timeout", format!("{polls}s"));
        let config = Config::builder(folder.path()).source("calc", table).build().unwrap();
        let mut left = polls;
        let reloaded = {
            let mut reload = pin!(broker.reload(config));
            std::future::poll_fn(|context| {
                left -= 1;
                let polled = reload.as_mut().poll(context).map(Some);
                if polled.is_pending() && left == 0 { std::task::Poll::Ready(None) } else { polled }
            })
            .await
        };
        // A task that continues without its requester holds this lock.
        drop(broker.inner.reloading.lock().await);
        broker.inner.core.ledger.flush().await.unwrap();
        let last = recorded(&data_dir, "config.reloaded").last().map(|entry| entry["body"]["digest"].clone());
        let in_force = (broker.config_digest() != started).then(|| json!(broker.config_digest()));
        assert_eq!(last, in_force, "after {polls} polls");
        if reloaded.is_some() {
            break;
        }
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_being_opened_when_the_broker_shuts_down_has_an_end_and_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), &[]).await;
    let (profile, me) = ("default".parse().unwrap(), "me".parse().unwrap());
    let mut opening = pin!(broker.open_session(&profile, &me, "late"));
    assert!(poll!(opening.as_mut()).is_pending());
    broker.shutdown().await;
    let refused = opening.await.unwrap_err();
    assert!(refused.to_string().contains("the broker has shut down"), "{refused}");
    let data_dir = &broker.config().data_dir;
    let begun = recorded(data_dir, "run.started");
    let ended = recorded(data_dir, "run.completed");
    assert_eq!((begun.len(), ended.len()), (1, 1));
    assert_eq!((&begun[0]["run"], &ended[0]["body"]["status"]), (&ended[0]["run"], &json!("interrupted")));
}

#[tokio::test]
async fn sources_that_do_not_answer_are_waited_for_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let slow = || SourceTable::native("mute");
    let config = Config::builder(folder.path()).source("one", slow()).source("two", slow()).build().unwrap();
    let broker = Broker::builder(config, Launcher::SelfExec).source("mute", Mute).build().await.unwrap();
    tokio::time::pause();
    let compared = crate::broker::lock_comparison::compare(&broker.inner, ItemKind::Tool);
    let compared = tokio::time::timeout(control::DEADLINE, compared).await.unwrap().unwrap();
    assert_eq!(compared["missing"].as_object().unwrap().len(), 2, "{compared}");
    tokio::time::resume();
    broker.shutdown().await;
}

/// One change reads the configuration in force, and a newer one comes before it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_goes_back_to_an_older_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), &[]).await;
    let session = session(&broker).await;
    let mut contexts = Vec::new();
    for trust in ["high", "low"] {
        let profile = crate::config::ProfileTable::new().key("trust", trust);
        let config = Config::builder(folder.path()).source("calc", SourceTable::component("builtin:calculator"));
        broker.reload(config.profile("default", profile).build().unwrap()).await.unwrap();
        contexts.push(broker.inner.context());
    }
    let [older, newer] = contexts.try_into().unwrap();
    let (begun, is_begun) = std::sync::mpsc::channel();
    let (applied, is_applied) = std::sync::mpsc::channel::<()>();
    let slow = tokio::task::spawn_blocking({
        let session = Arc::clone(&session);
        move || {
            session.reconfigure(|| {
                begun.send(()).unwrap();
                // The newer one waits for its turn, so that this ends with the time.
                let _ = is_applied.recv_timeout(std::time::Duration::from_millis(100));
                older
            });
        }
    });
    is_begun.recv().unwrap();
    session.reconfigure(|| newer);
    let _ = applied.send(());
    slow.await.unwrap();
    assert_eq!(session.caller().trust, crate::call::TrustLevel::Low);
    broker.shutdown().await;
}
