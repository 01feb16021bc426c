#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;

use futures_util::FutureExt as _;

use super::*;

fn store(folder: &Path, source: &str, profile: &str) -> KeyValueStore {
    KeyValue::new(folder, &source.parse().unwrap()).of(&profile.parse().unwrap())
}

fn set(key: &str, value: &str) -> KeyValueChange {
    (key.to_owned(), Some(value.into()))
}

#[tokio::test]
async fn a_written_value_outlives_the_broker_and_is_visible_to_one_source_and_profile_only() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path(), "notes", "me").write(vec![set("a", "1"), set("b", "2")]).await.unwrap();
    let again = store(dir.path(), "notes", "me");
    assert_eq!(again.get("a".into()).await, Ok(Some(b"1".to_vec())));
    again.write(vec![("a".into(), None), set("b", "3")]).await.unwrap();
    assert_eq!((again.get("a".into()).await, again.get("b".into()).await), (Ok(None), Ok(Some(b"3".to_vec()))));
    for (source, profile) in [("notes", "you"), ("other", "me")] {
        assert_eq!(store(dir.path(), source, profile).get("b".into()).await, Ok(None), "{source} {profile}");
    }
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir.path().join("key-value/notes")), 0o700);
    assert_eq!(mode(dir.path().join("key-value/notes/me.sqlite")), 0o600);
}

#[tokio::test]
async fn keys_are_scanned_in_order_page_by_page_and_within_their_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), "notes", "me");
    store.write(["b/2", "a/1", "b/10", "b/é", "c"].map(|key| set(key, key)).to_vec()).await.unwrap();
    let keys = async |prefix: &str, after: &str, limit| {
        let found = store.scan(prefix.into(), after.into(), limit).await.unwrap();
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(keys("b/", "", 100).await, ["b/10", "b/2", "b/é"]);
    assert_eq!(keys("b/", "", 2).await, ["b/10", "b/2"]);
    assert_eq!(keys("b/", "b/2", 2).await, ["b/é"]);
    assert_eq!(keys("b/", "b/é", 2).await, [""; 0]);
    assert_eq!(keys("", "", 100).await.len(), 5);
    assert_eq!(keys("b%", "", 100).await, [""; 0]);
}

#[tokio::test]
async fn a_write_is_whole_or_not_at_all_and_everything_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), "notes", "me");
    let long = "x".repeat(VALUE_BYTES + 1);
    for (changes, why) in [
        (vec![set("a", "1"), set("", "2")], "a key of 0 bytes"),
        (vec![set("a", "1"), set(&"k".repeat(513), "2")], "a key of 513 bytes; a key has 1 to 512"),
        (vec![set("a", "1"), set("b", &long)], "a value of 262145 bytes; at most 262144 are allowed"),
        ((0..1001).map(|n| set(&n.to_string(), "")).collect(), "1001 changes at once; at most 1000 are allowed"),
    ] {
        let error = store.write(changes).await.unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(store.scan(String::new(), String::new(), 10).await, Ok(vec![]));

    // 50 MiB fit; as much again does not, and none of it is kept.
    let many = |name: &str| -> Vec<KeyValueChange> {
        (0..200).map(|n| set(&format!("{name}{n:03}"), &"x".repeat(VALUE_BYTES))).collect()
    };
    store.write(many("a")).await.unwrap();
    let error = store.write(many("b")).await.unwrap_err();
    assert_eq!(error, "the store is full: each profile may store 64 MiB");
    assert_eq!(store.get("b000".into()).await, Ok(None));
    let page = store.scan("a".into(), String::new(), 200).await.unwrap();
    assert!((1..=4).contains(&page.len()), "a scan ends at 1 MiB: {}", page.len());
    assert_eq!(store.write(vec![("a000".into(), None)]).await, Ok(()), "deleting entries works on a full store");
}

#[tokio::test]
async fn many_writers_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Two connections, as two brokers would have.
    let stores = [store(dir.path(), "notes", "me"), store(dir.path(), "notes", "me")];
    let writes = (0..100).map(|n| stores[n % 2].write(vec![set(&n.to_string(), "x")]));
    for written in futures_util::future::join_all(writes).await {
        written.unwrap();
    }
    assert_eq!(stores[0].scan(String::new(), String::new(), 1000).await.unwrap().len(), 100);
}

/// The runtime has a limited number of threads for work that blocks, and every other part of the broker uses them too.
#[test]
fn calls_that_were_given_up_hold_no_thread_and_no_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), "notes", "me");
        let busy = store.connection.lock().await;
        for _ in 0..64 {
            let written = store.write(vec![set("a", "1")]);
            assert!(written.now_or_never().is_none());
        }
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        drop(busy);
        assert_eq!(store.get("a".into()).await, Ok(None), "what waited for its turn was done");
    });
}
