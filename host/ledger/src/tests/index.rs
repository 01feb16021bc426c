//! The index is derived: it can be deleted, is never believed against the records, and needs no right to write.

use portcullis_core::file_stamp::FileStamp;
use rusqlite::ffi;

use super::*;
use crate::index;

fn index(dir: &Path) -> Connection {
    Connection::open(index::path(dir)).unwrap()
}

#[tokio::test]
async fn a_deleted_damaged_or_foreign_index_is_made_again() {
    let dir = folder();
    closed(dir.path(), 5).await;
    let before = records(dir.path());
    assert_eq!(before.len(), 7);
    let damages: [fn(&Path); 4] = [
        index::remove,
        |dir| std::fs::write(index::path(dir), "garbage, and enough of it to be looked at".repeat(100)).unwrap(),
        |dir| index(dir).execute_batch("DROP VIEW call_rows; CREATE VIEW call_rows AS SELECT 1 AS call").unwrap(),
        |dir| {
            index::remove(dir);
            index(dir).execute_batch("CREATE TABLE other (x)").unwrap();
        },
    ];
    for damage in damages {
        damage(dir.path());
        assert_eq!(records(dir.path()), before);
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
    }
}

/// Another reader may use it, and to make it again takes long.
#[tokio::test]
async fn an_index_that_cannot_be_opened_for_a_moment_is_not_removed() {
    let dir = folder();
    closed(dir.path(), 5).await;
    assert_eq!(records(dir.path()).len(), 7);
    let before = FileStamp::at(&index::path(dir.path())).unwrap();
    for code in [ffi::SQLITE_CANTOPEN, ffi::SQLITE_IOERR, ffi::SQLITE_FULL, ffi::SQLITE_READONLY, ffi::SQLITE_NOMEM] {
        let fails = |_: &Path| Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        let temporary = index::shared_or_temporary(dir.path(), fails).unwrap();
        assert_eq!(temporary.path(), Some(""), "{code}");
        assert_eq!(FileStamp::at(&index::path(dir.path())), Some(before), "{code}");
    }
    for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_ERROR] {
        std::fs::write(index::path(dir.path()), "").unwrap();
        let fails = |_: &Path| Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        index::shared_or_temporary(dir.path(), fails).unwrap();
        assert!(!index::path(dir.path()).exists(), "{code}");
    }
}

/// Whoever only reads would wait for whoever adds, and the other way round.
#[tokio::test]
async fn a_damaged_chain_is_added_again_only_once_its_file_has_changed() {
    let dir = folder();
    closed(dir.path(), 5).await;
    let chain = chain::all(dir.path()).unwrap().into_iter().next().unwrap();
    let path = segment::path(dir.path(), &chain, 1);
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let reader = index::RecordIndex::open(dir.path(), Arc::new(segments(dir.path()))).unwrap();
    let count =
        || -> i64 { reader.connection().query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap() };
    // The first time it is read up to the damage, and the second time from there on.
    reader.refresh().unwrap();
    reader.refresh().unwrap();
    let good = count();
    assert!(good < 7, "{good}");
    let other = index(dir.path());
    reader.connection().busy_timeout(std::time::Duration::ZERO).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    reader.refresh().unwrap();
    other.execute_batch("COMMIT").unwrap();
    // What was damaged may come back.
    std::fs::write(&path, whole).unwrap();
    reader.refresh().unwrap();
    assert_eq!(count(), 7);
}

#[tokio::test]
async fn an_index_that_says_something_else_than_the_records_is_found_and_made_again() {
    for sql in [
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events WHERE seq >= 6",
        "DELETE FROM events",
        "UPDATE events SET call = NULL WHERE seq = 3",
        "UPDATE events SET facts = (SELECT facts FROM events WHERE seq = 1) WHERE seq = 3",
        "UPDATE events SET kind = (SELECT kind FROM events WHERE seq = 1) WHERE seq = 3",
        "UPDATE facts SET stage = 'denied' WHERE stage = 'sent'",
        "UPDATE names SET name = name || 'x'",
        "DELETE FROM calls WHERE call = (SELECT call FROM events WHERE seq = 3)",
        "INSERT INTO classes VALUES (99, 0, 0, 0, 0, 'denied'); UPDATE calls SET class = 99",
        "UPDATE classes SET stage = 'denied'",
        "UPDATE classes SET stage = 'denied' WHERE stage = 'ok'",
        "UPDATE classes SET stage = 'denied' WHERE stage = 'sent'",
        "UPDATE classes SET source = 0",
        "UPDATE blocks SET filter = zeroblob(2048)",
        "INSERT INTO blocks VALUES ((SELECT max(call) FROM calls), 0, zeroblob(2048))",
        "INSERT INTO block_groups (first, last) VALUES (x'', x'ff')",
        "UPDATE events SET offset = (SELECT offset FROM events WHERE seq = 2) WHERE seq = 3",
        // A search looks for no further records of a complete chain, nor for those before its place, nor at a place
        // where none begins.
        "UPDATE chains SET offset = 0; DELETE FROM events",
        "UPDATE chains SET offset = 0; DELETE FROM events WHERE seq >= 6",
        "UPDATE chains SET complete = 0; DELETE FROM events WHERE seq >= 6",
        "UPDATE chains SET complete = 0, offset = 1000000; DELETE FROM events WHERE seq >= 6",
        "UPDATE chains SET complete = 0, offset = (SELECT offset + 1 FROM events WHERE seq = 5); \
         DELETE FROM events WHERE seq >= 6",
        "UPDATE chains SET complete = 0, offset = (SELECT offset FROM events WHERE seq = 7); \
         DELETE FROM events WHERE seq >= 6",
        "UPDATE chains SET complete = 0, offset = 0; \
         UPDATE events SET facts = (SELECT facts FROM events WHERE seq = 1) WHERE seq = 3",
        "UPDATE chains SET removed = 5; DELETE FROM events WHERE seq <= 5",
        "INSERT INTO chains VALUES (9, '01ARZ3NDEKTSV4RRFFQ69G5FAV', 1, 64, 1, 0); \
         INSERT INTO events (chain, seq, segment, offset, at, kind, facts) VALUES (9, 1, 1, 0, 0, 1, 1)",
        "INSERT INTO events (chain, seq, segment, offset, at, kind, facts) VALUES (1, 99, 1, 0, 0, 1, 1)",
    ] {
        let dir = folder();
        let ledger = open(dir.path()).await;
        for _ in 0..5 {
            let body = json!({"tool": "files__read", "source": "files", "principal": "eve", "note": "of its own"});
            ledger.append(Event::new(EventKind::CallIntent, body).to_call(&CallId::new())).await.unwrap();
        }
        let (call, outcome) = (CallId::new(), json!({"outcome": "ok", "source": "files"}));
        for kind in [EventKind::CallIntent, EventKind::ToolCompleted] {
            ledger.append(Event::new(kind, outcome.clone()).to_call(&call)).await.unwrap();
        }
        ledger.close().await;
        let before = records(dir.path());
        index(dir.path()).execute_batch(sql).unwrap();
        let ChainStatus::Tampered { chain: None, reason, .. } = verify(dir.path()).unwrap().verdict else {
            panic!("{sql}")
        };
        assert!(reason.contains("the index has"), "{sql}: {reason}");
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "the records are good");
        assert_eq!(records(dir.path()), before, "{sql}");
    }
}

#[tokio::test]
async fn a_ledger_is_read_where_nothing_can_be_written() {
    let dir = folder();
    closed(dir.path(), 5).await;
    // A folder in place of the index cannot be opened as a file, whichever user runs this.
    std::fs::create_dir(index::path(dir.path())).unwrap();
    assert_eq!(records(dir.path()).len(), 7);
}

#[tokio::test]
async fn records_of_several_brokers_are_in_the_order_of_their_times() {
    let dir = folder();
    let brokers = [open(dir.path()).await, open(dir.path()).await];
    for i in 0..20 {
        // Times are in milliseconds.
        let now = portcullis_core::call::now_millis();
        while portcullis_core::call::now_millis() == now {
            std::thread::yield_now();
        }
        brokers[i % 2].append(event(EventKind::SourceLog)).await.unwrap();
        if i == 12 {
            assert_eq!(records(dir.path()).len(), 15, "somebody reads in between");
        }
    }
    let chains: Vec<_> = records(dir.path()).into_iter().skip(2).map(|entry| entry.record.chain).collect();
    let expected: Vec<_> = (0..20).map(|i| brokers[i % 2].chain().to_owned()).collect();
    assert_eq!(chains, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_come_together_add_each_record_once() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    for _ in 0..200 {
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
    }
    let readers = (0..8).map(|_| {
        let dir = dir.path().to_owned();
        tokio::task::spawn_blocking(move || records(&dir).len())
    });
    for found in futures_util::future::join_all(readers).await {
        assert_eq!(found.unwrap(), 201);
    }
}

#[tokio::test]
async fn a_record_that_is_not_confirmed_is_not_shown_while_its_broker_lives() {
    let dir = folder();
    closed(dir.path(), 0).await;
    let lock = chain::ChainLock::named(dir.path(), "X".to_owned()).unwrap();
    let drafts: Vec<_> = (0..3).map(|_| event(EventKind::SourceLog).draft(None).unwrap()).collect();
    let written = chained("X", &drafts);
    let mut writer = segments(dir.path()).create("X");
    let shown = || records(dir.path()).iter().filter(|entry| entry.record.chain == "X").count();
    for (n, record) in written.iter().enumerate() {
        writer.append(std::slice::from_ref(record)).unwrap();
        assert_eq!(shown(), n);
        lock.write_position(chain::ChainTip { seq: record.seq, hash: record.hash }).unwrap();
        assert_eq!(shown(), n + 1);
    }
    // Nothing replaces what a broker that died had written, confirmed or not.
    writer.append(&[ChainedRecord { seq: 4, ..written[2].clone() }]).unwrap();
    drop(lock);
    assert_eq!(shown(), 4);
}

#[tokio::test]
async fn a_chain_is_searched_to_its_end_whatever_its_lock_file_is_called() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let lock = dir.path().join("chains").join(format!("{}.lock", ledger.chain()));
    std::fs::rename(&lock, lock.with_extension("ended")).unwrap();
    assert_eq!(records(dir.path()).len(), 1);
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    assert_eq!(records(dir.path()).len(), 2);
    let verdict = verify(dir.path()).unwrap().verdict;
    assert!(matches!(&verdict, ChainStatus::Tampered { reason, .. } if reason.contains("lock file")), "{verdict:?}");
    ledger.close().await;
    assert_eq!(records(dir.path()).len(), 3);
}

#[tokio::test]
async fn what_was_missing_for_a_while_is_found_again() {
    let dir = folder();
    let chain = closed(dir.path(), 5).await;
    let (path, whole) = (segment(dir.path(), &chain), std::fs::read(segment(dir.path(), &chain)).unwrap());
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(records(dir.path()).len() < 7);
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(records(dir.path()).len(), 7);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    crate::index::remove(dir.path());
    closed(dir.path(), 0).await;
    assert_eq!(records(dir.path()).len(), 2, "a chain that cannot be read is left out, and hides no other");
    let found = verify(dir.path()).unwrap();
    assert!(
        matches!(&found.findings[..], [ChainStatus::Tampered { chain: Some(bad), .. }] if *bad == chain),
        "{found:?}"
    );
}

#[tokio::test]
async fn calls_are_found_by_the_beginnings_of_their_identifiers() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let ids = ["01KAZZZZ0000000000000000AA", "01KAZZZZ0000000000000000AB", "01KB0000000000000000000000"];
    for id in ids {
        let call = CallId::recorded(id).unwrap();
        for kind in [EventKind::CallIntent, EventKind::ToolCompleted] {
            ledger.append(event(kind).to_call(&call)).await.unwrap();
        }
    }
    ledger.close().await;
    let reader = LedgerReader::open(dir.path()).unwrap();
    let found = |beginning: &str, n| reader.calls_beginning(beginning, n).unwrap();
    assert_eq!(found("01KAZZ", 10), &ids[..2]);
    assert_eq!(found("01kaZZZZ0000000000000000A", 1), &ids[..1], "in either case, and no more than asked for");
    assert_eq!((found("01KB00", 10), found(ids[1], 10)), (vec![ids[2].to_owned()], vec![ids[1].to_owned()]));
    let none: [&str; 4] = ["01KC", "01KAZ%", "9", "01KAZZZZ0000000000000000AA0"];
    none.iter().for_each(|other| assert_eq!(found(other, 10), Vec::<String>::new(), "{other}"));
}
