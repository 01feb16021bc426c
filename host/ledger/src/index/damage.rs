//! Damage that an index has met: a chain that has its end and cannot be read up to there. It is read again only once its
//! files have changed, because adding its records takes the lock that other readers wait for.

use std::path::Path;

use portcullis_core::file_stamp::FileStamp;

use crate::segment;
use crate::storage::ChainPosition;

/// The state of the files of a damaged chain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChainDamage {
    /// The place up to which the index has the chain.
    place: ChainPosition,
    /// The number of its last record according to its lock file.
    written: u64,
    /// The files from the place on, up to the first that is missing.
    files: Vec<FileStamp>,
}

impl ChainDamage {
    pub(super) fn of(data_dir: &Path, chain: &str, place: ChainPosition, written: u64) -> Self {
        let numbers = place.segment.max(1)..;
        let files = numbers.map_while(|number| FileStamp::at(&segment::path(data_dir, chain, number))).collect();
        Self { place, written, files }
    }
}
