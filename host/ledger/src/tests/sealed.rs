//! Sealed bodies: who can read them, and how they are forgotten.

use jiff::civil::{Date, date};
use portcullis_core::age::{Identity, Recipient};

use super::*;

const DAY: Date = date(2026, 11, 25);

/// Records an intent whose arguments are sealed on a day for a recipient.
async fn seal(ledger: &Ledger, recipient: Recipient, day: Date, text: &str) {
    seal_body(ledger, recipient, day, &serde_json::to_vec(&json!({ "text": text })).unwrap()).await;
}

async fn seal_body(ledger: &Ledger, recipient: Recipient, day: Date, body: &[u8]) {
    let hash = ledger.fingerprint(body);
    let sealed = ledger.inner.sealer.seal(&[recipient].into(), day, &hash, body).unwrap();
    let arguments = json!({ "bytes": body.len(), "hash": hash, "sealed": sealed, "shape": { "text": "string" } });
    let facts = json!({ "verdicts": [{ "verdict": { "ask": arguments } }], "arguments": arguments });
    ledger.append(Event::new(EventKind::CallIntent, facts)).await.unwrap();
}

/// Returns the texts that an identity opens; a body that it does not open is `None`.
fn opened(dir: &Path, identity: Identity) -> Vec<Option<String>> {
    let reader = LedgerReader::open(dir).unwrap().opening_bodies_with(vec![identity]);
    let filter = RecordFilter { kind: Some("call.intent".to_owned()), ..RecordFilter::default() };
    let records = reader.tail(usize::MAX, &filter).unwrap().into_iter();
    let opened = records.map(|entry| {
        let arguments = &entry.record.body["arguments"];
        let text = arguments["body"]["text"].as_str().map(str::to_owned);
        assert_eq!(text.is_some(), arguments["sealed"].is_null() && arguments["shape"].is_null());
        assert_eq!(&entry.record.body["verdicts"][0]["verdict"]["ask"], arguments, "wherever a payload stands");
        text
    });
    opened.collect()
}

/// Returns the names of the data keys, without the chain.
fn keys(dir: &Path) -> Vec<String> {
    let names = crate::files::names_in(&crate::sealed_body::folder(dir)).unwrap();
    let mut names: Vec<_> = names.iter().map(|name| name.split_once('-').unwrap().1.to_owned()).collect();
    names.sort_unstable();
    names
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| (!text.is_empty()).then(|| (*text).to_owned())).collect()
}

fn copy(identity: &Identity) -> Identity {
    Identity::of_bytes(*identity.expose())
}

#[tokio::test]
async fn a_sealed_body_is_read_by_the_holder_of_an_identity_alone() {
    let dir = folder();
    let ((one, to_one), (two, to_two)) = (new_identity().unwrap(), new_identity().unwrap());
    let ledger = open(dir.path()).await;
    seal(&ledger, to_one, DAY, "a secret").await;
    seal(&ledger, to_two, DAY, "for others").await;
    seal(&ledger, to_one, DAY, "in turns").await;
    seal(&ledger, to_two, DAY, "and more").await;
    ledger.close().await;
    assert_eq!(keys(dir.path()), ["2026-11-25.1.age", "2026-11-25.2.age"], "other recipients get another key");
    assert_eq!(opened(dir.path(), copy(&one)), some(&["a secret", "", "in turns", ""]));
    assert_eq!(opened(dir.path(), two), some(&["", "for others", "", "and more"]));
    for folder in ["records", "keys"] {
        for name in crate::files::names_in(&dir.path().join(folder)).unwrap() {
            let content = std::fs::read(dir.path().join(folder).join(&name)).unwrap();
            assert!(!content.windows(8).any(|part| part == b"a secret"), "{name}");
        }
    }
}

/// As it is with a body that is not sealed.
#[tokio::test]
async fn a_body_that_no_value_stands_for_is_opened_as_a_text() {
    let dir = folder();
    let (identity, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    let bodies = [r#"{"a":-0}"#, r#"{"a":1e400}"#, r#"{"a":1,"a":2}"#];
    for body in bodies {
        seal_body(&ledger, recipient, DAY, body.as_bytes()).await;
    }
    ledger.close().await;
    let reader = LedgerReader::open(dir.path()).unwrap().opening_bodies_with(vec![identity]);
    let filter = RecordFilter { kind: Some("call.intent".to_owned()), ..RecordFilter::default() };
    let records = reader.tail(usize::MAX, &filter).unwrap();
    let opened: Vec<_> = records.iter().map(|entry| &entry.record.body["arguments"]["body"]).collect();
    assert_eq!(opened, bodies);
}

#[tokio::test]
async fn a_body_of_another_payload_or_chain_is_not_opened() {
    let dir = folder();
    let (identity, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    seal(&ledger, recipient, DAY, "the first").await;
    let records = records(dir.path());
    let mut moved = records.last().unwrap().record.body.clone();
    moved["arguments"]["hash"] = json!(ledger.fingerprint(b"another"));
    moved["verdicts"][0]["verdict"]["ask"] = moved["arguments"].clone();
    ledger.append(Event::new(EventKind::CallIntent, moved)).await.unwrap();
    ledger.close().await;
    let other = open(dir.path()).await;
    other.append(Event::new(EventKind::CallIntent, records.last().unwrap().record.body.clone())).await.unwrap();
    other.close().await;
    assert_eq!(opened(dir.path(), identity), some(&["the first", "", ""]));
}

#[tokio::test]
async fn a_deleted_key_takes_its_day_with_it_and_no_record_changes() {
    let dir = folder();
    let (identity, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    seal(&ledger, recipient, date(2026, 11, 23), "an old one").await;
    seal(&ledger, recipient, date(2026, 11, 24), "a newer one").await;
    seal(&ledger, recipient, date(2026, 11, 24), "another").await;
    assert_eq!(keys(dir.path()).len(), 2, "one key a day");
    assert_eq!(ledger.forget_bodies_before(date(2026, 11, 23)).await.unwrap(), 0);
    assert_eq!(ledger.forget_bodies_before(date(2026, 11, 24)).await.unwrap(), 1);
    assert_eq!(opened(dir.path(), copy(&identity)), some(&["", "a newer one", "another"]));
    let removed = records(dir.path()).pop().unwrap().record;
    assert_eq!((removed.kind.as_str(), removed.body), ("keys.removed", json!({ "before": "2026-11-24", "keys": 1 })));
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

/// A record names its chain, which is a part of the path of a key.
#[tokio::test]
async fn a_key_is_looked_for_in_its_folder_alone() {
    let dir = folder();
    let (identity, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    seal(&ledger, recipient, DAY, "text").await;
    ledger.close().await;
    let key = crate::sealed_body::folder(dir.path()).join(format!("{}-2026-11-25.1.age", ledger.chain()));
    std::fs::copy(key, dir.path().join("outside-2026-11-25.1.age")).unwrap();
    let opener = BodyOpener::new(dir.path(), vec![identity]);
    let mut facts =
        records(dir.path()).into_iter().find(|entry| entry.record.kind == "call.intent").unwrap().record.body;
    let sealed = facts.clone();
    opener.open("../outside", &mut facts);
    assert_eq!(facts, sealed);
    // A body that was recorded unsealed is not opened, whatever it looks like.
    let mut whole = json!({ "arguments": { "body": sealed } });
    let before = whole.clone();
    opener.open(ledger.chain(), &mut whole);
    assert_eq!(whole, before);
    opener.open(ledger.chain(), &mut facts);
    assert_ne!(facts, sealed);
}

#[tokio::test]
async fn retention_removes_the_keys_of_old_bodies_and_keeps_those_of_evidence() {
    let dir = folder();
    let (identity, recipient) = new_identity().unwrap();
    for text in ["old", "evidence"] {
        let ledger = open(dir.path()).await;
        seal(&ledger, recipient, DAY, text).await;
        ledger.close().await;
        if text == "evidence" {
            rewrite(dir.path(), ledger.chain(), |records| records.truncate(3));
        }
    }
    let ledger = open(dir.path()).await;
    let soon = portcullis_core::call::now_millis() + 3_600_000;
    assert_eq!(ledger.remove_before(soon).await.unwrap().chains, 1);
    assert_eq!(keys(dir.path()).len(), 1);
    assert_eq!(opened(dir.path(), identity), some(&["evidence"]));
    let recorded = records(dir.path()).into_iter().filter(|entry| entry.record.kind == "keys.removed");
    assert_eq!(recorded.map(|entry| entry.record.body["keys"].clone()).collect::<Vec<_>>(), [json!(1)]);
    ledger.close().await;
}

/// The key of today is in use: bodies sealed with it later could never be read.
#[tokio::test]
async fn the_key_of_today_is_not_forgotten() {
    let dir = folder();
    let (_, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await.sealing_for(&[recipient]);
    ledger.seal_body("hash", b"{}").unwrap();
    assert_eq!(ledger.forget_bodies_before(date(9999, 1, 1)).await.unwrap(), 0);
    ledger.close().await;
    assert_eq!(keys(dir.path()).len(), 1);
}

#[tokio::test]
async fn the_keys_of_days_that_are_older_than_the_records_are_removed_with_them() {
    let dir = folder();
    let (_, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    seal(&ledger, recipient, date(2026, 11, 20), "an old one").await;
    seal(&ledger, recipient, date(2026, 11, 21), "a newer one").await;
    let moment = "2026-11-21T12:00:00Z".parse::<jiff::Timestamp>().unwrap();
    ledger.remove_before(moment.as_millisecond().cast_unsigned()).await.unwrap();
    ledger.close().await;
    assert_eq!(keys(dir.path()), ["2026-11-21.2.age"], "its day had not ended");
}

#[tokio::test]
async fn nothing_is_sealed_without_a_recipient_or_a_place_for_the_key() {
    let dir = folder();
    let (_, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    assert_eq!(ledger.seal_body("hash", b"{}"), Err(LedgerError::NoRecipient));
    std::fs::remove_dir(crate::sealed_body::folder(dir.path())).unwrap();
    let error = ledger.sealing_for(&[recipient]).seal_body("hash", b"{}").unwrap_err().to_string();
    assert!(error.contains("create") && error.contains(".age"), "{error}");
    ledger.close().await;
}

/// A key that is nowhere would open nothing.
#[tokio::test]
async fn nothing_is_sealed_with_a_key_in_whose_place_another_file_is() {
    let dir = folder();
    let (_, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    let path = crate::sealed_body::folder(dir.path()).join(format!("{}-2026-11-25.1.age", ledger.chain()));
    std::fs::write(path, "another").unwrap();
    let error = ledger.inner.sealer.seal(&[recipient].into(), DAY, "hash", b"{}").unwrap_err().to_string();
    assert!(error.contains("another file"), "{error}");
    ledger.inner.sealer.seal(&[recipient].into(), DAY, "hash", b"{}").unwrap();
    ledger.close().await;
}

/// A copy of the ledger is one with which bodies can be opened.
#[tokio::test]
async fn the_data_keys_are_among_the_files_of_a_ledger() {
    let dir = folder();
    let (_, recipient) = new_identity().unwrap();
    let ledger = open(dir.path()).await;
    seal(&ledger, recipient, DAY, "text").await;
    ledger.close().await;
    let mut paths = Vec::new();
    let files = LedgerFiles::of(dir.path()).unwrap();
    let listed = files.copy_each(|path, _| {
        paths.push(path.to_owned());
        Ok::<_, LedgerError>(())
    });
    assert_eq!(listed.unwrap(), paths.len());
    assert!(paths.iter().any(|path| path.starts_with("keys")), "{paths:?}");
}

fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

#[test]
fn a_key_is_made_on_no_thread_of_the_runtime_and_holds_up_nobody_who_has_one() {
    let dir = folder();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let ledger = open(dir.path()).await;
        let recipients = || [new_identity().unwrap().1];
        let (one, two) = (ledger.sealing_for(&recipients()), ledger.sealing_for(&recipients()));
        let (done, wait) = std::sync::mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || wait.recv()));
        let mut prepared = std::pin::pin!(one.prepare_sealing());
        assert!(is_pending(prepared.as_mut()));
        assert!(!crate::sealed_body::folder(dir.path()).read_dir().is_ok_and(|mut keys| keys.next().is_some()));
        drop(done);
        prepared.await;
        assert_eq!(keys(dir.path()).len(), 1);

        let making = ledger.inner.sealer.making.lock();
        let sealed = one.seal_body(&one.fingerprint(b"text"), b"text").unwrap();
        assert!(sealed.contains(".1:"), "it has the key that was prepared: {sealed}");
        let mut waits = std::pin::pin!(two.prepare_sealing());
        assert!(is_pending(waits.as_mut()), "its key is made after the other one");
        drop(making);
        waits.await;
        assert_eq!(keys(dir.path()).len(), 2);
        ledger.close().await;
    });
}
