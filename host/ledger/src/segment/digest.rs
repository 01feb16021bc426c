//! The digest of a segment's file, by which a verification recognises what an earlier one read.

use std::io::Read as _;
use std::path::Path;

use crate::LedgerError;
use crate::storage::{ChainPosition, SegmentDigest};

/// The bytes that are read at a time: enough that reading costs little compared with hashing.
const READ_BYTES: usize = 1024 * 1024;

/// Reads the digest of a segment up to a place, with whether anything but zeros follows; `None` if the file is shorter.
pub(super) fn read(path: &Path, upto: ChainPosition) -> Result<Option<(SegmentDigest, bool)>, LedgerError> {
    let failed = |error| LedgerError::file("read", path, error);
    let Some(mut file) = super::open(path)? else { return Ok(None) };
    let mut digest = SegmentDigest::of(upto.segment);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        let left = usize::try_from(upto.offset - digest.place.offset).unwrap_or(usize::MAX);
        let (covered, rest) = buffer.get(..read).unwrap_or_default().split_at(left.min(read));
        digest.push(covered);
        // Space that was reserved holds zeros.
        if rest.iter().any(|byte| *byte != 0) {
            return Ok(Some((digest, true)));
        }
        if read == 0 {
            return Ok((left == 0).then_some((digest, false)));
        }
    }
}
