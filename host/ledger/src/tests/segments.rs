//! The format of segments, and what a crash leaves of an append.

use proptest::prelude::*;

use super::*;

fn drafts(n: usize) -> Vec<UnchainedRecord> {
    let definition = Digest::of(b"definition");
    let event = |i| {
        let body =
            json!({"tool": "files__read", "definition": definition, "n": i, "arguments": CallId::new().as_str()});
        Event::new(EventKind::CallIntent, body)
    };
    (0..n).map(|i| event(i).draft(None).unwrap()).collect()
}

/// Writes records into a chain in appends of these sizes, and returns the file before and after the last of them, and
/// the records.
fn appended(dir: &Path, sizes: &[usize]) -> (Vec<u8>, Vec<u8>, Vec<ChainedRecord>) {
    let records = chained("X", &drafts(sizes.iter().sum()));
    std::fs::create_dir_all(dir.join("records")).unwrap();
    let mut writer = segments(dir).create("X");
    let (mut from, mut before) = (0, Vec::new());
    for size in sizes {
        before = std::fs::read(segment(dir, "X")).unwrap_or_default();
        writer.append(&records[from..from + size]).unwrap();
        from += size;
    }
    (before, std::fs::read(segment(dir, "X")).unwrap(), records)
}

/// Returns the range in which two files of one size differ.
fn difference(before: &[u8], after: &[u8]) -> std::ops::Range<usize> {
    let differs = |i: &usize| before[*i] != after[*i];
    let range = 0..before.len();
    range.clone().find(differs).unwrap()..range.rev().find(differs).unwrap() + 1
}

#[test]
fn an_append_that_is_cut_at_any_byte_leaves_what_was_confirmed() {
    // The second case begins with a dictionary, and its last append needs two frames.
    for sizes in [&[1, 2, 3][..], &[40, 700]] {
        let dir = folder();
        let (before, after, records) = appended(dir.path(), sizes);
        assert_eq!(before.len(), after.len(), "the space was reserved before");
        let confirmed = records.len() - sizes.last().unwrap();
        let written = difference(&before, &after);
        let step = if written.len() > 5000 { 97 } else { 1 };
        let mut kept = Vec::new();
        for cut in written.clone().step_by(step).chain([written.end]) {
            let mut image = before.clone();
            image[..cut].copy_from_slice(&after[..cut]);
            // A crash may also take the space that was reserved and not used.
            for end in [image.len(), cut.max(written.start)] {
                std::fs::write(segment(dir.path(), "X"), &image[..end]).unwrap();
                let (found, end) = stored(&segments(dir.path()), "X");
                assert!(found.len() >= confirmed && records.starts_with(&found), "cut at {cut}");
                assert!(!matches!(end, ChainEnd::Damaged(_)), "cut at {cut}: {end:?}");
                kept.push(found.len());
            }
        }
        assert_eq!((kept[0], *kept.last().unwrap()), (confirmed, records.len()));
    }
}

#[test]
fn an_append_of_which_any_sectors_are_missing_leaves_what_was_confirmed() {
    const SECTOR: usize = 512;
    // The second case begins with a dictionary, and its last append needs two frames.
    for sizes in [&[10, 60], &[40, 700]] {
        lose_sectors(sizes, SECTOR);
    }
}

fn lose_sectors(sizes: &[usize], sector_bytes: usize) {
    let dir = folder();
    let (before, after, records) = appended(dir.path(), sizes);
    let written = difference(&before, &after);
    let sectors = written.start / sector_bytes..written.end.div_ceil(sector_bytes);
    let lost = prop::collection::vec(any::<bool>(), sectors.len());
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }, |(lost in lost)| {
        let mut image = after.clone();
        for (sector, lost) in sectors.clone().zip(&lost) {
            if *lost {
                let bytes = sector * sector_bytes..(sector + 1) * sector_bytes;
                image[bytes.clone()].copy_from_slice(&before[bytes]);
            }
        }
        std::fs::write(segment(dir.path(), "X"), &image).unwrap();
        let (found, end) = stored(&segments(dir.path()), "X");
        prop_assert!(found.len() >= sizes[0] && records.starts_with(&found));
        prop_assert!(!matches!(end, ChainEnd::Damaged(_)));
    });
}

#[test]
fn damage_before_the_last_append_is_no_crash() {
    let dir = folder();
    let (_, whole, records) = appended(dir.path(), &[1, 1, 1]);
    let frames: Vec<usize> = memchr::memmem::find_iter(&whole, b"PLF2").collect();
    for damage in
        [|bytes: &mut [u8]| bytes[50] ^= 1, |bytes: &mut [u8]| bytes.fill(0), |bytes: &mut [u8]| bytes[0] ^= 1]
    {
        let mut changed = whole.clone();
        damage(&mut changed[frames[2]..frames[3]]);
        std::fs::write(segment(dir.path(), "X"), &changed).unwrap();
        let (found, end) = stored(&segments(dir.path()), "X");
        assert_eq!(found, records[..1]);
        assert!(matches!(end, ChainEnd::Damaged(_)), "{end:?}");
    }
}

#[test]
fn a_hostile_segment_ends_the_reading_and_takes_no_time() {
    let dir = folder();
    let (_, whole, records) = appended(dir.path(), &[1, 1]);
    let frames: Vec<usize> = memchr::memmem::find_iter(&whole, b"PLF2").collect();
    let mut empty = whole[frames[2]..frames[2] + 32].to_vec();
    empty[10..16].fill(0);
    let mut longest = empty.clone();
    longest[10] = 1;
    longest[12..16].copy_from_slice(&8_388_608_u32.to_le_bytes());
    longest[16..20].copy_from_slice(&8_388_608_u32.to_le_bytes());
    for (what, garbage) in
        [("names", b"PLF2".repeat(4_000_000)), ("no records", empty.repeat(1000)), ("lengths", longest.repeat(300_000))]
    {
        let mut changed = whole[..frames[2]].to_vec();
        changed.extend_from_slice(&garbage);
        std::fs::write(segment(dir.path(), "X"), &changed).unwrap();
        assert_eq!(stored(&segments(dir.path()), "X").0, records[..1], "{what}");
    }
}

#[test]
fn segments_follow_each_other_and_a_missing_or_changed_one_is_damage() {
    let write = |dir: &Path| {
        std::fs::create_dir_all(dir.join("records")).unwrap();
        let storage = Segments::new(dir, StorageLimits { segment: Some(2000), ..StorageLimits::default() });
        let records = chained("X", &drafts(60));
        let mut writer = storage.create("X");
        records.chunks(5).for_each(|some| writer.append(some).unwrap());
        writer.finish().unwrap();
        (storage, records)
    };
    let dir = folder();
    let (small, records) = write(dir.path());
    let path = |number| segment::path(dir.path(), "X", number);
    assert!(path(3).exists() && std::fs::metadata(path(1)).unwrap().len() < 4000);
    assert_eq!(stored(&small, "X"), (records.clone(), ChainEnd::Clean));
    // A reader can begin at every place that it passed.
    let mut reader = small.read("X", ChainPosition::default()).unwrap();
    let mut read = 0;
    while let Some(batch) = reader.next().unwrap() {
        let again = small.read("X", batch.place).unwrap().next().unwrap().unwrap();
        assert_eq!(again.records, records[read..read + again.records.len()]);
        read += again.records.len();
    }
    assert_eq!(read, 60);
    let second = std::fs::read(path(2)).unwrap();
    let other = folder();
    write(other.path());
    std::fs::copy(segment::path(other.path(), "X", 2), path(2)).unwrap();
    let (found, end) = stored(&small, "X");
    assert!(
        records.starts_with(&found) && matches!(end, ChainEnd::Damaged(_)),
        "another chain's under its name: {end:?}"
    );
    std::fs::remove_file(path(2)).unwrap();
    assert!(matches!(stored(&small, "X").1, ChainEnd::Damaged(_)), "missing");
    std::fs::rename(path(3), path(2)).unwrap();
    assert!(matches!(stored(&small, "X").1, ChainEnd::Damaged(_)), "out of place");
    std::fs::write(path(2), &second[..second.len() / 2]).unwrap();
    std::fs::copy(path(1), path(3)).unwrap();
    assert!(matches!(stored(&small, "X").1, ChainEnd::Damaged(_)), "cut in the middle");
}

#[test]
fn records_are_compressed_with_those_before_them() {
    let dir = folder();
    let (before, after, records) = appended(dir.path(), &[20, 1, 1]);
    let text = records.last().unwrap().text.len();
    let size = difference(&before, &after).len();
    assert!(size < text, "{size} bytes for a record of {text} bytes, its hash and a header among them");
}
