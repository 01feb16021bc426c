//! A ledger in format 1 is read, verified, searched and continued.

use super::evidence::rehash;
use super::writing::wait_for_end;
use super::*;

/// Makes what format 1 left behind: a chain that ended, and one whose broker died, with four records each.
fn written_by_format_1(dir: &Path) {
    std::fs::create_dir(dir.join("chains")).unwrap();
    let conn = shell(dir);
    conn.execute_batch(legacy::SCHEMA).unwrap();
    conn.execute_batch(state::SCHEMA_2).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
    let run = SessionId::new();
    for (chain, last) in [("01A", EventKind::BrokerStopped), ("01B", EventKind::ToolCompleted)] {
        let kinds = [EventKind::BrokerStarted, EventKind::CallIntent, EventKind::ToolCompleted, last];
        let call = CallId::new();
        let drafts = kinds.map(|kind| event(kind).in_run(&run).to_call(&call).draft(None).unwrap());
        let mut records = chained(chain, &drafts);
        // Records had no numbers in their runs.
        for record in &mut records {
            record.text = record.text.replace(&format!(",\"run_seq\":{}", record.seq), "");
        }
        rehash(&mut records);
        for record in &records {
            let sql = "INSERT INTO events (chain, seq, record, hash) VALUES (?1, ?2, ?3, ?4)";
            conn.execute(sql, (chain, record.seq.cast_signed(), &record.text, record.hash)).unwrap();
        }
        let lock = chain::ChainLock::named(dir, chain.to_owned()).unwrap();
        let last = records.last().unwrap();
        lock.write_position(chain::ChainTip { seq: last.seq, hash: last.hash }).unwrap();
    }
}

#[tokio::test]
async fn a_ledger_of_format_1_is_read_verified_and_gone_on_with() {
    let dir = folder();
    written_by_format_1(dir.path());
    assert!(matches!(verify(dir.path()).unwrap().verdict, ChainStatus::Incomplete { chain, .. } if chain == "01B"));
    assert_eq!(records(dir.path()).len(), 8);
    let ledger = open(dir.path()).await;
    ledger.append(event(EventKind::CallIntent)).await.unwrap();
    ledger.close().await;
    let verification = verify(dir.path()).unwrap();
    assert_eq!(verification.verdict, ChainStatus::Good);
    let lives: Vec<_> = verification.chains.iter().map(|chain| (chain.records, chain.stopped, chain.sealed)).collect();
    assert_eq!(lives, [(4, true, Some(4)), (4, false, Some(4)), (5, true, None)]);
    let found = records(dir.path());
    assert_eq!(found.iter().map(|entry| &*entry.record.chain).take(8).collect::<Vec<_>>()[3..5], ["01A", "01B"]);
    let reader = LedgerReader::open(dir.path()).unwrap();
    assert_eq!(reader.calls(None, 9).unwrap().len(), 2);
    assert_eq!(reader.call_entry(found[1].record.call.as_deref().unwrap()).unwrap().unwrap().1.len(), 4);
    drop(open(dir.path()).await);
    wait_for_end(dir.path()).await;
    assert!(kinds(dir.path()).iter().filter(|kind| *kind == "chain.sealed").count() == 3, "each sealed once");
}

#[tokio::test]
async fn a_changed_record_of_format_1_is_named() {
    for (sql, seq) in [
        ("UPDATE events SET record = replace(record, 'read', 'rent') WHERE seq = 2 AND chain = '01A'", 2),
        ("UPDATE events SET hash = zeroblob(32) WHERE seq = 3 AND chain = '01A'", 3),
        ("DELETE FROM events WHERE seq = 1 AND chain = '01A'", 1),
        ("DELETE FROM events WHERE seq = 4 AND chain = '01A'", 4),
    ] {
        let dir = folder();
        written_by_format_1(dir.path());
        closed(dir.path(), 1).await;
        shell(dir.path()).execute_batch(sql).unwrap();
        let verdict = verify(dir.path()).unwrap().verdict;
        let named = matches!(&verdict, ChainStatus::Tampered { chain: Some(chain), seq: Some(found), .. }
            if chain == "01A" && *found == seq);
        assert!(named, "{sql}: {verdict:?}");
    }
}
