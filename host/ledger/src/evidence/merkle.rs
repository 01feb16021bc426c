//! Merkle trees over the records of a chain, in the shape of RFC 9162, section 2.1. The leaves are the hashes of the
//! records, so that a tree is built without their texts.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::record::RecordHash;

/// The tree over the first records of a chain. It keeps only the roots of its largest whole subtrees, at most 64.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MerkleTree {
    size: u64,
    /// The roots of the whole subtrees, largest first. Their sizes are the bits of `size`.
    roots: Vec<RecordHash>,
}

impl MerkleTree {
    /// Adds the next record, by its hash in the chain.
    pub(crate) fn push(&mut self, record: &RecordHash) {
        let mut hash = leaf(record);
        let mut size = self.size;
        while size & 1 == 1 {
            // Each bit that is set has its root.
            hash = node(&self.roots.pop().unwrap_or_default(), &hash);
            size >>= 1;
        }
        self.roots.push(hash);
        self.size += 1;
    }

    /// Returns the number of records.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the tree of this size with these whole subtrees, largest first, or `None` if a tree of this size has
    /// another number of them.
    pub(crate) fn of(size: u64, roots: Vec<RecordHash>) -> Option<Self> {
        (roots.len() == size.count_ones() as usize).then_some(Self { size, roots })
    }

    /// Returns the roots of the whole subtrees, largest first.
    pub(crate) fn roots(&self) -> &[RecordHash] {
        &self.roots
    }

    /// Returns the tree over those of its records that are in a range which a proof about a later record names, or
    /// `None` if only a part of a whole subtree is in it.
    pub(crate) fn part(&self, range: &Range<u64>) -> Option<Self> {
        let Some(size) = self.size.checked_sub(range.start).filter(|size| *size > 0) else {
            return Some(Self::default());
        };
        // A whole subtree begins where the lower bits of the size end.
        if range.start & (u64::MAX >> size.leading_zeros()) != 0 {
            return None;
        }
        let roots = self.roots.get(range.start.count_ones() as usize..)?;
        let (size, roots) = match 1 << size.ilog2() {
            first if range.end < self.size => ((range.end - range.start == first).then_some(first)?, roots.get(..1)?),
            _ => (size, roots),
        };
        Some(Self { size, roots: roots.to_vec() })
    }

    /// Returns the root: `MTH` of RFC 9162, section 2.1.1.
    pub(crate) fn root(&self) -> RecordHash {
        let mut roots = self.roots.iter().rev();
        match roots.next() {
            Some(last) => roots.fold(*last, |right, left| node(left, &right)),
            None => Sha256::digest([]).into(),
        }
    }
}

/// Returns the records whose subtrees form the proof that a record is in the tree of this size, from the leaf upwards:
/// `PATH` of RFC 9162, section 2.1.3.1. `index` counts from 0 and is less than `size`.
pub(crate) fn inclusion_ranges(index: u64, size: u64) -> Vec<Range<u64>> {
    let (mut whole, mut ranges) = (0..size, Vec::new());
    while whole.end - whole.start > 1 {
        let (left, right) = split(&whole);
        let (inside, beside) = if index < right.start { (left, right) } else { (right, left) };
        ranges.push(beside);
        whole = inside;
    }
    ranges.reverse();
    ranges
}

/// Returns the records whose subtrees form the proof that the tree of `old` records is the beginning of that of `new`:
/// `PROOF` of RFC 9162, section 2.1.4.1. `old` is at least 1 and at most `new`.
pub(crate) fn consistency_ranges(old: u64, new: u64) -> Vec<Range<u64>> {
    let (mut whole, mut ranges) = (0..new, Vec::new());
    while whole.end != old {
        let (left, right) = split(&whole);
        let (inside, beside) = if old <= right.start { (left, right) } else { (right, left) };
        ranges.push(beside);
        whole = inside;
    }
    // The checker of the proof knows the old tree itself.
    if whole.start > 0 {
        ranges.push(whole);
    }
    ranges.reverse();
    ranges
}

/// Splits a range of two or more records after the largest power of two that is smaller than its length.
fn split(whole: &Range<u64>) -> (Range<u64>, Range<u64>) {
    let length = whole.end - whole.start;
    let middle = whole.start + (1 << (length - 1).ilog2());
    (whole.start..middle, middle..whole.end)
}

/// Checks that a record is in a tree: RFC 9162, section 2.1.3.2.
pub(crate) fn is_included(record: &RecordHash, index: u64, size: u64, path: &[RecordHash], root: &RecordHash) -> bool {
    if index >= size {
        return false;
    }
    let (mut index, mut last, mut hash) = (index, size - 1, leaf(record));
    for beside in path {
        if last == 0 {
            return false;
        }
        if index & 1 == 1 || index == last {
            hash = node(beside, &hash);
            while index & 1 == 0 && index != 0 {
                (index, last) = (index >> 1, last >> 1);
            }
        } else {
            hash = node(&hash, beside);
        }
        (index, last) = (index >> 1, last >> 1);
    }
    last == 0 && hash == *root
}

/// Checks that a tree is the beginning of a larger one: RFC 9162, section 2.1.4.2. Each tree is its size and its root.
pub(crate) fn is_consistent(old: (u64, &RecordHash), new: (u64, &RecordHash), proof: &[RecordHash]) -> bool {
    if old.0 == new.0 {
        return proof.is_empty() && old.1 == new.1;
    }
    if old.0 == 0 || old.0 > new.0 {
        return false;
    }
    // The proof of a whole subtree begins with the old tree itself, which is left out.
    let first = old.0.is_power_of_two().then_some(old.1);
    let mut path = first.into_iter().chain(proof);
    let Some(first) = path.next() else { return false };
    let (mut index, mut last) = (old.0 - 1, new.0 - 1);
    while index & 1 == 1 {
        (index, last) = (index >> 1, last >> 1);
    }
    let (mut old_root, mut new_root) = (*first, *first);
    for beside in path {
        if last == 0 {
            return false;
        }
        if index & 1 == 1 || index == last {
            (old_root, new_root) = (node(beside, &old_root), node(beside, &new_root));
            while index & 1 == 0 && index != 0 {
                (index, last) = (index >> 1, last >> 1);
            }
        } else {
            new_root = node(&new_root, beside);
        }
        (index, last) = (index >> 1, last >> 1);
    }
    last == 0 && old_root == *old.1 && new_root == *new.1
}

fn leaf(record: &RecordHash) -> RecordHash {
    Sha256::new().chain_update([0]).chain_update(record).finalize().into()
}

fn node(left: &RecordHash, right: &RecordHash) -> RecordHash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn records(count: u64) -> Vec<RecordHash> {
        (0..count).map(|at| Sha256::digest(at.to_le_bytes()).into()).collect()
    }

    fn tree(records: &[RecordHash]) -> MerkleTree {
        let mut tree = MerkleTree::default();
        records.iter().for_each(|record| tree.push(record));
        tree
    }

    /// Each proof about a later record can be made once the first records are gone, from the tree over them.
    #[test]
    fn the_tree_over_the_first_records_stands_for_them_in_proofs_about_later_ones() {
        let all = records(40);
        for gone in 0..all.len() {
            let removed = tree(&all[..gone]);
            assert_eq!(MerkleTree::of(gone as u64, removed.roots().to_vec()), Some(removed.clone()));
            for size in gone as u64 + 1..=40 {
                let later = (gone as u64..size).flat_map(|index| inclusion_ranges(index, size));
                let older = (gone as u64..size).filter(|old| *old > 0).flat_map(|old| consistency_ranges(old, size));
                for range in later.chain(older) {
                    let mut part = removed.part(&range).unwrap();
                    let (start, end) = (range.start as usize, range.end as usize);
                    all[start.max(gone).min(end)..end].iter().for_each(|record| part.push(record));
                    assert_eq!((part.size(), part.root()), (range.end - range.start, defined(&all[start..end])));
                }
            }
        }
        let removed = tree(&all[..6]);
        assert_eq!(removed.part(&(0..2)), None, "a part of the first four");
        assert_eq!(removed.part(&(2..4)), None);
        assert_eq!(MerkleTree::of(6, removed.roots()[..1].to_vec()), None);
    }

    /// Follows the definition of RFC 9162, section 2.1.1, word for word.
    fn defined(records: &[RecordHash]) -> RecordHash {
        match records {
            [] => Sha256::digest([]).into(),
            [one] => leaf(one),
            many => {
                let (left, right) = split(&(0..many.len() as u64));
                let part = |range: Range<u64>| &many[range.start as usize..range.end as usize];
                node(&defined(part(left)), &defined(part(right)))
            }
        }
    }

    fn hashes(records: &[RecordHash], ranges: &[Range<u64>]) -> Vec<RecordHash> {
        ranges.iter().map(|range| defined(&records[range.start as usize..range.end as usize])).collect()
    }

    #[test]
    fn the_root_of_every_tree_is_that_of_the_standard() {
        let records = records(70);
        let mut tree = MerkleTree::default();
        for size in 0..=records.len() {
            assert_eq!(tree.root(), defined(&records[..size]), "{size}");
            if let Some(next) = records.get(size) {
                tree.push(next);
            }
        }
    }

    #[test]
    fn the_root_of_three_records_is_the_one_that_another_program_computed() {
        let mut tree = MerkleTree::default();
        records(3).iter().for_each(|record| tree.push(record));
        let hex: String = tree.root().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "27058f4ae7a0ab5ea062e301665d2fd2e749c6a4ec31cf8deacb139f40cd3c07");
    }

    #[test]
    fn every_record_of_a_tree_is_proved_and_no_other() {
        for size in 1..=33 {
            let records = records(size);
            let root = defined(&records);
            for index in 0..size {
                let path = hashes(&records, &inclusion_ranges(index, size));
                let check = |index: u64, record: &RecordHash, path: &[RecordHash]| {
                    is_included(record, index, size, path, &root)
                };
                assert!(check(index, &records[index as usize], &path), "{index} of {size}");
                for other in (0..size + 2).filter(|other| *other != index) {
                    assert!(!check(other, &records[index as usize], &path), "{index} as {other} of {size}");
                }
                assert!(!check(index, &root, &path));
                let longer: Vec<RecordHash> = path.iter().copied().chain([root]).collect();
                assert!(!check(index, &records[index as usize], &longer));
                for at in 0..path.len() {
                    let mut changed = path.clone();
                    changed[at][31] ^= 1;
                    assert!(!check(index, &records[index as usize], &changed));
                    assert!(!check(index, &records[index as usize], &path[..at]));
                }
            }
        }
    }

    #[test]
    fn every_beginning_of_a_tree_is_proved_and_nothing_else() {
        let records = records(33);
        let root = |size: u64| defined(&records[..size as usize]);
        for new in 1..=33 {
            for old in 1..=new {
                let proof = hashes(&records, &consistency_ranges(old, new));
                let check = |old: (u64, &RecordHash), new: (u64, &RecordHash), proof: &[RecordHash]| {
                    is_consistent(old, new, proof)
                };
                let (roots, others) = ((root(old), root(new)), (root(old - 1), root(new - 1)));
                assert!(check((old, &roots.0), (new, &roots.1), &proof), "{old} of {new}");
                assert!(!check((old, &others.0), (new, &roots.1), &proof));
                assert!(!check((old, &roots.0), (new, &others.1), &proof));
                assert!(!check((new + 1, &roots.0), (new, &roots.1), &proof));
                assert!(!check((0, &roots.0), (new, &roots.1), &proof));
                for at in 0..proof.len() {
                    let mut changed = proof.clone();
                    changed[at][0] ^= 1;
                    assert!(!check((old, &roots.0), (new, &roots.1), &changed));
                    assert!(!check((old, &roots.0), (new, &roots.1), &proof[..at]));
                }
            }
        }
    }
}
