//! Changes to the files are detected, and the first bad record is named.

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
    type Change = fn(&mut Vec<ChainedRecord>);
    let cases: [(&str, Change, u64); 14] = [
        ("edit", |records| records[3].text = records[3].text.replace("read", "rent"), 4),
        ("edit that keeps no record", |records| records[3].text = "\"x\"".into(), 4),
        ("hash", |records| records[3].hash = RecordHash::default(), 4),
        ("delete", |records| drop(records.remove(3)), 4),
        ("delete the first", |records| drop(records.remove(0)), 1),
        (
            "delete and close the gap",
            |records| {
                records.remove(3);
                records[3..].iter_mut().for_each(|record| record.seq -= 1);
            },
            4,
        ),
        (
            "swap texts",
            |records| {
                let text = records[3].text.clone();
                records[3].text = std::mem::replace(&mut records[4].text, text);
            },
            4,
        ),
        (
            "swap hashes",
            |records| {
                let hash = records[3].hash;
                records[3].hash = std::mem::replace(&mut records[4].hash, hash);
            },
            4,
        ),
        ("swap numbers", |records| (records[3].seq, records[4].seq) = (5, 4), 4),
        ("swap places", |records| records.swap(3, 4), 4),
        (
            "insert",
            |records| {
                let copy = ChainedRecord { seq: 4, ..records[2].clone() };
                records[3..].iter_mut().for_each(|record| record.seq += 1);
                records.insert(3, copy);
            },
            4,
        ),
        ("append", |records| records.push(ChainedRecord { seq: 9, ..records[7].clone() }), 9),
        ("roll one back", |records| records[3] = ChainedRecord { seq: 4, ..records[2].clone() }, 4),
        ("cut", |records| records.truncate(5), 6),
    ];
    for (what, change, expected) in cases {
        let dir = folder();
        let chain = closed(dir.path(), 6).await;
        assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
        rewrite(dir.path(), &chain, change);
        assert_eq!(named(dir.path()), Ok(expected), "{what}");
    }
    let dir = folder();
    let chain = closed(dir.path(), 6).await;
    std::fs::rename(segment(dir.path(), &chain), segment(dir.path(), "X")).unwrap();
    assert_eq!(named(dir.path()), Ok(1), "another chain's name");
}

#[tokio::test]
async fn a_cut_tail_a_removed_chain_and_an_old_copy_are_named() {
    let dir = folder();
    let first = closed(dir.path(), 6).await;
    let second = closed(dir.path(), 6).await;
    let old = std::fs::read(segment(dir.path(), &second)).unwrap();
    let missing = |from: u64| match verify(dir.path()).unwrap().verdict {
        ChainStatus::Tampered { chain: Some(chain), seq: Some(seq), reason } if seq == from => {
            assert!(reason.contains("had written 8 records") || reason.contains("sealed it at record 8"), "{reason}");
            chain
        }
        other => panic!("{other:?}"),
    };
    rewrite(dir.path(), &first, |records| records.truncate(5));
    assert_eq!(missing(6), first);
    std::fs::remove_file(segment(dir.path(), &first)).unwrap();
    assert_eq!(missing(1), first);
    std::fs::write(segment(dir.path(), &second), &old[..300]).unwrap();
    assert_eq!(verify(dir.path()).unwrap().findings.len(), 2, "every bad chain is listed");
    std::fs::remove_dir_all(dir.path().join("records")).unwrap();
    std::fs::remove_file(state::path(dir.path())).unwrap();
    assert_eq!(missing(1), first);
}

#[tokio::test]
async fn changed_tables_and_views_are_found() {
    for sql in [
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON grants BEGIN DELETE FROM grants WHERE rowid = new.rowid; END",
        "DROP TABLE cursors",
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
    let chain = closed(dir.path(), 100).await;
    assert_eq!(records(dir.path()).len(), 102, "reading makes the index");
    for path in [segment(dir.path(), &chain), state::path(dir.path())] {
        let whole = std::fs::read(&path).unwrap();
        for keep in [50, 100, 4096, 5000, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
            std::fs::write(&path, &whole[..keep]).unwrap();
            let verdict = verify(dir.path()).unwrap().verdict;
            assert!(matches!(verdict, ChainStatus::Tampered { .. }), "{path:?} to {keep}: {verdict:?}");
            if path == state::path(dir.path()) {
                assert_eq!(records(dir.path()).len(), 102, "the records are elsewhere");
                LedgerFiles::of(dir.path()).unwrap();
            }
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn what_is_added_after_the_end_of_a_chain_is_a_finding() {
    let dir = folder();
    let chain = closed(dir.path(), 2).await;
    let path = segment(dir.path(), &chain);
    let mut whole = std::fs::read(&path).unwrap();
    whole.extend_from_slice(b"more");
    std::fs::write(&path, whole).unwrap();
    assert_eq!(named(dir.path()), Ok(5));
}

#[test]
fn every_flipped_bit_of_a_record_or_hash_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = folder();
    let chain = runtime.block_on(closed(dir.path(), 20));
    let path = segment(dir.path(), &chain);
    let whole = std::fs::read(&path).unwrap();
    // Each record was appended separately, so a frame is one record.
    let frames: Vec<usize> = memchr::memmem::find_iter(&whole, b"PLF2").collect();
    let has_record = |at: usize| matches!(whole[at + 8], 3 | 4);
    let mut seq = 0;
    let numbers: Vec<u64> = frames
        .iter()
        .map(|at| {
            seq += u64::from(has_record(*at));
            // Damage of the start or of the dictionary is that of the record that follows.
            if has_record(*at) { seq } else { seq + 1 }
        })
        .collect();
    assert_eq!((frames.len(), seq), (24, 22), "a start and a dictionary are among them");

    let choice = (0..frames.len(), any::<prop::sample::Index>(), 0..8u8);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }, |((frame, byte, bit) in choice)| {
        let end = frames.get(frame + 1).copied().unwrap_or(whole.len());
        let mut changed = whole.clone();
        changed[frames[frame] + byte.index(end - frames[frame])] ^= 1 << bit;
        std::fs::write(&path, &changed).unwrap();
        prop_assert_eq!(named(dir.path()), Ok(numbers[frame]));
    });
}
