//! Changes to the file are detected, and the first bad record is named.

use proptest::prelude::*;

use super::*;

/// Returns the number of the record that the verdict names, or the verdict as an error if it names none.
fn named(dir: &Path) -> Result<u64, String> {
    match verify(dir).unwrap().verdict {
        ChainStatus::Tampered { seq: Some(seq), .. } => Ok(seq),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn edits_deletions_insertions_and_new_orders_are_named() {
    let cases = [
        ("edit", "UPDATE events SET record = replace(record, 'read', 'rent') WHERE seq = 4", 4),
        (
            "edit that keeps no record",
            "\
            UPDATE events SET record = '\"x\"' WHERE seq = 4",
            4,
        ),
        ("hash", "UPDATE events SET hash = zeroblob(32) WHERE seq = 4", 4),
        ("short hash", "UPDATE events SET hash = x'00' WHERE seq = 4", 4),
        ("delete", "DELETE FROM events WHERE seq = 4", 4),
        ("delete the first", "DELETE FROM events WHERE seq = 1", 1),
        (
            "delete and close the gap",
            "DELETE FROM events WHERE seq = 4; UPDATE events SET seq = seq - 1 WHERE seq > 4",
            4,
        ),
        (
            "swap texts",
            "UPDATE events SET record = (SELECT e.record FROM events e WHERE e.seq = 9 - events.seq) \
            WHERE seq IN (4, 5)",
            4,
        ),
        (
            "swap hashes",
            "UPDATE events SET hash = (SELECT e.hash FROM events e WHERE e.seq = 9 - events.seq) \
            WHERE seq IN (4, 5)",
            4,
        ),
        (
            "swap numbers",
            "UPDATE events SET seq = 100 WHERE seq = 4; UPDATE events SET seq = 4 WHERE seq = 5; \
            UPDATE events SET seq = 5 WHERE seq = 100",
            4,
        ),
        (
            "swap places",
            "UPDATE events SET row = 100 WHERE row = 4; UPDATE events SET row = 4 WHERE row = 5; \
            UPDATE events SET row = 5 WHERE row = 100",
            4,
        ),
        (
            "insert",
            "UPDATE events SET row = row + 100, seq = seq + 100 WHERE seq >= 4; \
            INSERT INTO events (row, chain, seq, record, hash) SELECT 50, chain, 4, record, hash FROM events WHERE seq = 3; \
            UPDATE events SET seq = seq - 99 WHERE seq > 100",
            4,
        ),
        (
            "append",
            "INSERT INTO events (chain, seq, record, hash) SELECT chain, 9, record, hash FROM events WHERE seq = 8",
            9,
        ),
        (
            "roll one back",
            "UPDATE events SET record = (SELECT e.record FROM events e WHERE e.seq = 3), \
            hash = (SELECT e.hash FROM events e WHERE e.seq = 3) WHERE seq = 4",
            4,
        ),
        ("other chain's name", "UPDATE events SET chain = 'x'", 1),
    ];
    for (what, sql, expected) in cases {
        let dir = folder();
        closed(dir.path(), 6).await;
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
        shell(dir.path()).execute_batch(sql).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(named(dir.path()), Ok(expected), "{what}");
    }
}

#[tokio::test]
async fn a_cut_tail_a_removed_chain_and_an_old_copy_are_named() {
    let dir = folder();
    let first = closed(dir.path(), 6).await;
    let copy = std::fs::read(store::path(dir.path())).unwrap();
    let second = closed(dir.path(), 6).await;
    let missing = |from: u64| match verify(dir.path()).unwrap().verdict {
        ChainStatus::Tampered { chain: Some(chain), seq: Some(seq), reason } if seq == from => {
            assert!(reason.contains("had written 8 records"), "{reason}");
            chain
        }
        other => panic!("{other:?}"),
    };
    shell(dir.path()).execute("DELETE FROM events WHERE chain = ?1 AND seq > 5", [&first]).unwrap();
    assert_eq!(missing(6), first);
    shell(dir.path()).execute("DELETE FROM events WHERE chain = ?1", [&first]).unwrap();
    assert_eq!(missing(1), first);
    std::fs::write(store::path(dir.path()), copy).unwrap();
    assert_eq!(missing(1), second);
    std::fs::remove_file(store::path(dir.path())).unwrap();
    assert_eq!(missing(1), first);
    assert_eq!(verify(dir.path()).unwrap().findings.len(), 2, "every bad chain is listed");
}

#[tokio::test]
async fn changed_tables_and_views_are_found() {
    for sql in [
        "DROP VIEW calls; CREATE VIEW calls AS SELECT 1 AS call",
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events WHERE row = new.row; END",
        "DROP INDEX events_run",
    ] {
        let dir = folder();
        closed(dir.path(), 2).await;
        shell(dir.path()).execute_batch(sql).unwrap();
        let verdict = verify(dir.path()).unwrap().verdict;
        assert!(matches!(verdict, ChainStatus::Tampered { chain: None, .. }), "{sql}: {verdict:?}");
    }
}

#[tokio::test]
async fn a_torn_file_is_a_finding_and_no_crash() {
    let dir = folder();
    closed(dir.path(), 100).await;
    let whole = std::fs::read(store::path(dir.path())).unwrap();
    for keep in [50, 100, 4096, 5000, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(store::path(dir.path()), &whole[..keep]).unwrap();
        let verdict = verify(dir.path()).unwrap().verdict;
        assert!(matches!(verdict, ChainStatus::Tampered { .. }), "{keep}: {verdict:?}");
    }
    // The byte that is missing may have been zero, and SQLite reads it as zero.
    let torn = format!("{:?}", verify(dir.path()).unwrap().findings);
    assert!(torn.contains("within a page"), "{torn}");
    // To SQLite these are empty databases, but the lock file shows that records are missing.
    for empty in [b"".as_slice(), b"x"] {
        std::fs::write(store::path(dir.path()), empty).unwrap();
        assert_eq!(named(dir.path()), Ok(1));
    }
}

#[test]
fn every_flipped_bit_of_a_record_or_hash_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = folder();
    runtime.block_on(closed(dir.path(), 20));
    let whole = std::fs::read(store::path(dir.path())).unwrap();
    // Find where the bytes of each record and hash are in the file.
    let conn = shell(dir.path());
    let mut query = conn.prepare("SELECT seq, CAST(record AS BLOB), hash FROM events").unwrap();
    let rows =
        query.query_map([], |row| Ok((row.get::<_, i64>(0)?, [row.get::<_, Vec<u8>>(1)?, row.get(2)?]))).unwrap();
    let mut spans: Vec<(u64, Vec<usize>, usize)> = Vec::new();
    for row in rows {
        let (seq, values) = row.unwrap();
        for value in values {
            // Splitting a page leaves stale copies in its free space; all copies are changed.
            let copies = memchr::memmem::find_iter(&whole, &value).collect();
            spans.push((seq.cast_unsigned(), copies, value.len()));
        }
    }
    assert_eq!(spans.len(), 44);
    drop(query);
    drop(conn);

    let choice = (0..spans.len(), any::<prop::sample::Index>(), 0..8u8);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }, |((span, byte, bit) in choice)| {
        let (seq, copies, len) = &spans[span];
        let mut changed = whole.clone();
        for start in copies {
            changed[start + byte.index(*len)] ^= 1 << bit;
        }
        std::fs::write(store::path(dir.path()), &changed).unwrap();
        prop_assert_eq!(named(dir.path()), Ok(*seq));
    });
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }, |(at in 0..whole.len(), bit in 0..8u8)| {
        let mut changed = whole.clone();
        changed[at] ^= 1 << bit;
        std::fs::write(store::path(dir.path()), &changed).unwrap();
        // A change anywhere in the file causes no crash. Changes of free space, grants and a few header fields may go
        // unnoticed.
        let _ = verify(dir.path());
    });
}
