//! Reading the records of several blocks at once: a disk answers many reads in the time of one, and there is more than one
//! processor.

use std::collections::BTreeSet;
use std::ops::Range;
use std::thread;

use super::SearchError;
use crate::LedgerError;
use crate::index::IndexedRecord;
use crate::read::LedgerReader;
use crate::text::TextQuery;

/// The largest number of blocks that are read at once, each on a thread of its own.
pub(super) const MAX_AT_ONCE: usize = 4;

/// The keys of calls.
type Calls = BTreeSet<Vec<u8>>;

/// The readers of a search, one for each thread.
pub(super) struct BlockReaders<'a> {
    own: &'a LedgerReader,
    others: Vec<LedgerReader>,
    text: &'a TextQuery,
}

impl<'a> BlockReaders<'a> {
    pub(super) fn new(own: &'a LedgerReader, text: &'a TextQuery) -> Self {
        Self { own, others: Vec::new(), text }
    }

    /// Returns, for each span, its calls of which a record has the text, by reading all of them.
    pub(super) fn calls_with_text(&mut self, spans: &[&Range<Vec<u8>>]) -> Result<Vec<Calls>, SearchError> {
        let Some((last, first)) = spans.split_last() else { return Ok(Vec::new()) };
        while self.others.len() < first.len() {
            match self.own.beside()? {
                Some(other) => self.others.push(other),
                // Nobody else can read an index that is in this reader's memory.
                None => return spans.iter().map(|span| calls_with_text(self.own, span, self.text)).collect(),
            }
        }
        thread::scope(|scope| {
            let text = self.text;
            let read = self
                .others
                .iter_mut()
                .zip(first)
                .map(|(reader, span)| scope.spawn(move || calls_with_text(reader, span, text)));
            let threads: Vec<_> = read.collect();
            let own = calls_with_text(self.own, last, text);
            let found = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(LedgerError::Closed.into())));
            found.chain([own]).collect()
        })
    }
}

/// Returns the calls of a span of which a record has a text, by reading all of them in the order in which they stand.
fn calls_with_text(reader: &LedgerReader, span: &Range<Vec<u8>>, text: &TextQuery) -> Result<Calls, SearchError> {
    let mut found = BTreeSet::new();
    for record in reader.index().records_of_calls(span)? {
        let IndexedRecord { call, chain, seq, place } = record;
        if reader.with_text(&chain, seq, place, |record| text.is_in(record))? {
            found.insert(call);
        }
    }
    Ok(found)
}
