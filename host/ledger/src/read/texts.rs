//! The texts of records, read from where the index says that they are.

use std::sync::Arc;

use crate::LedgerError;
use crate::record::ChainedRecord;
use crate::storage::{ChainPosition, ChainReader, Storage};

/// The texts of records. It keeps what was read last, because records that follow each other were often written
/// together.
pub(super) struct RecordTexts {
    storage: Arc<dyn Storage>,
    last: Option<LastRead>,
}

/// The records that were read last, and the reader that goes on after them.
struct LastRead {
    chain: String,
    place: ChainPosition,
    records: Vec<ChainedRecord>,
    reader: Box<dyn ChainReader>,
}

impl RecordTexts {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, last: None }
    }

    /// Returns the text of a record that was written at a place, or `None` if it is not there.
    pub(super) fn read(&mut self, chain: &str, seq: u64, place: ChainPosition) -> Result<Option<String>, LedgerError> {
        if self.last.as_ref().is_none_or(|last| last.chain != chain || last.place != place) {
            let mut reader = match self.last.take() {
                Some(last) if last.chain == chain && last.reader.place() == place => last.reader,
                _ => self.storage.read(chain, place)?,
            };
            let Some(batch) = reader.next()? else { return Ok(None) };
            self.last = Some(LastRead { chain: chain.to_owned(), place, records: batch.records, reader });
        }
        let found = self.last.iter().flat_map(|last| &last.records).find(|record| record.seq == seq);
        Ok(found.map(|record| record.text.clone()))
    }
}
