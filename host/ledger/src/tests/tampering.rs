//! Random changes to a ledger with one checkpoint kept elsewhere.

use proptest::prelude::*;

use super::evidence::{Signed, rehash};
use super::*;
use crate::verify::verify_against;

/// The ways in which somebody who can write the data folder may change a chain.
#[derive(Debug, Clone, Copy)]
enum Tampering {
    Edit,
    Delete,
    Insert,
    Reorder,
    Cut,
    /// An old copy of the whole chain.
    Rollback,
    /// An edit after which all hashes are recomputed.
    Rewrite,
    /// Bytes of the file.
    Bytes,
}

const TAMPERINGS: [Tampering; 8] = [
    Tampering::Edit,
    Tampering::Delete,
    Tampering::Insert,
    Tampering::Reorder,
    Tampering::Cut,
    Tampering::Rollback,
    Tampering::Rewrite,
    Tampering::Bytes,
];

/// Changes a chain of `n` records, and returns the number of the first changed one. It is 0 where that cannot be told:
/// a checkpoint does not reveal which record was replaced before all hashes were recomputed, and a byte of a file may
/// belong to several.
fn tamper(dir: &Path, chain: &str, tampering: Tampering, place: usize, n: usize) -> u64 {
    let at = place % n;
    let next = if at + 1 < n { at + 1 } else { at - 1 };
    let mut first = at;
    match tampering {
        Tampering::Edit => rewrite(dir, chain, |records| {
            records[at].text = records[at].text.replacen("1", "2", 1);
        }),
        Tampering::Delete => rewrite(dir, chain, |records| drop(records.remove(at))),
        Tampering::Insert => {
            first = at + 1;
            rewrite(dir, chain, |records| records.insert(at, records[at].clone()));
        }
        Tampering::Reorder => {
            first = at.min(next);
            rewrite(dir, chain, |records| records.swap(at, next));
        }
        Tampering::Cut => rewrite(dir, chain, |records| records.truncate(at)),
        Tampering::Rollback => rewrite(dir, chain, |records| {
            records.truncate(at);
            rehash(records);
        }),
        Tampering::Rewrite => {
            rewrite(dir, chain, |records| {
                let mut json: serde_json::Value = serde_json::from_str(&records[at].text).unwrap();
                json["body"].as_object_mut().unwrap().insert("zz".to_owned(), place.into());
                records[at].text = json.to_string();
                rehash(records);
            });
            return 0;
        }
        Tampering::Bytes => {
            let path = segment(dir, chain);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = place % bytes.len();
            bytes[at] ^= 1 << (place % 8);
            std::fs::write(path, bytes).unwrap();
            return 0;
        }
    }
    first as u64 + 1
}

/// `PROPTEST_CASES=10000` runs the whole table.
#[test]
fn every_tampering_with_what_a_checkpoint_covers_is_found_and_the_first_bad_record_is_named() {
    const RECORDS: usize = 12;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let signed = Signed::new();
    let mut chains = Vec::new();
    for _ in 0..3 {
        chains.push(runtime.block_on(signed.closed(RECORDS)));
    }
    let kept = signed.checkpoints();
    signed.forget();
    let read = |chain: &String| std::fs::read(segment(signed.dir(), chain)).unwrap();
    let whole: Vec<_> = chains.iter().map(read).collect();
    let counts: Vec<usize> = chains.iter().map(|chain| stored(&segments(signed.dir()), chain).0.len()).collect();
    assert_eq!(verify_against(signed.dir(), &kept, &[]).unwrap().verdict, ChainStatus::Good);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(which in 0..chains.len(), kind in 0..TAMPERINGS.len(), place in any::<u32>())| {
        let (chain, kind) = (&chains[which], TAMPERINGS[kind]);
        let expected = tamper(signed.dir(), chain, kind, place as usize, counts[which]);
        let changed = std::fs::read(segment(signed.dir(), chain)).ok();
        let verdict = verify_against(signed.dir(), &kept, &[]).unwrap().verdict;
        std::fs::write(segment(signed.dir(), chain), &whole[which]).unwrap();
        prop_assume!(changed.as_ref() != Some(&whole[which]));
        match verdict {
            ChainStatus::Tampered { chain: Some(named), seq: Some(seq), .. } => {
                prop_assert_eq!(&named, chain, "{:?} at {}", kind, place);
                prop_assert!(expected == 0 || seq == expected, "{:?}: {} instead of {}", kind, seq, expected);
            }
            other => prop_assert!(false, "{:?} of {} at {}: {:?}", kind, which, place, other),
        }
    });
}
