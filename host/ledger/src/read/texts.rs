//! The texts of records, read from where the index says that they are.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::LedgerError;
use crate::record::ChainedRecord;
use crate::storage::{ChainPosition, ChainReader, Storage};

/// The number of places whose records are kept: the records of calls that ran at the same time were written at a few.
const MAX_KEPT: usize = 16;

/// The size of the records from which on fewer places are kept, in bytes of text.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The texts of records. It keeps the last batch, because consecutive records were often written together.
pub(super) struct RecordTexts {
    storage: Arc<dyn Storage>,
    /// The newest is the first.
    read: VecDeque<ReadRecords>,
    /// The reader that continues after the last records read, and its chain.
    reader: Option<(String, Box<dyn ChainReader>)>,
}

/// Records that were written together.
struct ReadRecords {
    chain: String,
    place: ChainPosition,
    records: Vec<ChainedRecord>,
    bytes: usize,
}

impl RecordTexts {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, read: VecDeque::new(), reader: None }
    }

    /// Returns the text of a record that was written at a place, or `None` if it is not there.
    pub(super) fn read(&mut self, chain: &str, seq: u64, place: ChainPosition) -> Result<Option<&str>, LedgerError> {
        let known = self.read.iter().position(|read| read.place == place && read.chain == chain);
        let read = match known.and_then(|at| self.read.remove(at)) {
            Some(read) => read,
            None => {
                let reader = match self.reader.take() {
                    Some((last, reader)) if last == chain && reader.place() == place => reader,
                    _ => self.storage.read(chain, place)?,
                };
                let (_, reader) = self.reader.insert((chain.to_owned(), reader));
                let Some(batch) = reader.next()? else { return Ok(None) };
                let bytes = batch.records.iter().map(|record| record.text.len()).sum();
                ReadRecords { chain: chain.to_owned(), place, records: batch.records, bytes }
            }
        };
        self.read.push_front(read);
        while self.read.len() > MAX_KEPT || self.read.iter().skip(1).map(|read| read.bytes).sum::<usize>() > MAX_BYTES {
            self.read.pop_back();
        }
        // They are in the order of their numbers.
        let records = self.read.front().map(|read| read.records.as_slice()).unwrap_or_default();
        let first = records.first().map_or(0, |record| record.seq);
        let at = seq.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| records.get(at)).filter(|record| record.seq == seq);
        Ok(found.map(|record| record.text.as_str()))
    }
}
