//! The reading of chains: one thread reads, all processors check single records, and the caller gets the findings in
//! the order of the chains.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use portcullis_core::sync::Mutex;

use super::check::CheckedRecord;
use crate::LedgerError;
use crate::index::{IndexComparison, IndexPlaces};
use crate::record::{RecordHash, RecordMembers};
use crate::storage::{ChainEnd, ChainPosition, SegmentDigest, Storage, StoredBatch};

/// The number of records after which those that were read are checked: few calls have some in one part and some in the
/// next.
const JOB_RECORDS: usize = 8192;

/// The text after which those that were read are checked, in bytes, so that long records do not fill the memory.
const JOB_BYTES: usize = 8 * 1024 * 1024;

/// The number of jobs that wait to be checked or taken: enough that neither the reader nor the others wait long.
const JOBS: usize = 4;

/// A chain to be read.
pub(super) struct ChainPlan {
    pub(super) chain: Arc<str>,
    /// The place of the first record that is read; the default is the beginning.
    pub(super) from: ChainPosition,
    /// The hash of the record before it.
    pub(super) before: RecordHash,
    /// The digest of the segment up to that place; `None` at the beginning.
    pub(super) digest: Option<SegmentDigest>,
    /// The number of the last record that is certainly confirmed. Later records may still be replaced.
    pub(super) confirmed: u64,
}

/// A finding in a chain.
pub(super) enum Found {
    /// The next records, and how the index compares with them.
    Records(Vec<CheckedRecord>, IndexComparison),
    /// The records so far are all of a segment, or all that are confirmed; the digest is that of what holds them.
    Segment(SegmentDigest),
    /// The end of the chain.
    End(ChainEnd),
}

/// Records to be checked.
struct Job {
    chain: Arc<str>,
    before: RecordHash,
    batches: Vec<StoredBatch>,
    answer: SyncSender<Result<Found, LedgerError>>,
}

/// The next item for the caller: a finding, or a pending one.
enum Next {
    Found(Found),
    Checked(Receiver<Result<Found, LedgerError>>),
}

/// Reads chains and checks their records. Calls `take` with the chain and the findings, in order.
///
/// # Errors
/// The [`LedgerError`] of `take`, or that of the index. A chain that cannot be read is damaged.
pub(super) fn read_chains(
    storage: &dyn Storage,
    data_dir: &Path,
    index: &IndexPlaces,
    plans: Vec<ChainPlan>,
    mut take: impl FnMut(&str, Found) -> Result<(), LedgerError>,
) -> Result<(), LedgerError> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (jobs, waiting) = sync_channel::<Job>(JOBS);
        let (in_order, found) = sync_channel(JOBS);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..workers {
            let waiting = Arc::clone(&waiting);
            scope.spawn(move || check_jobs(&waiting, data_dir, index));
        }
        // The queue ends when the last worker or the reader is gone, and not with this thread.
        drop(waiting);
        scope.spawn(move || {
            let mut reading = Reading { jobs, in_order };
            // Nobody takes any more: the caller has an error.
            let _ended = plans.into_iter().try_for_each(|plan| reading.read(storage, plan));
        });
        for (chain, next) in found {
            let found = match next {
                Next::Found(found) => found,
                Next::Checked(answer) => answer.recv().unwrap_or(Err(LedgerError::Closed))?,
            };
            take(&chain, found)?;
        }
        Ok(())
    })
}

/// Checks records until there are no more.
fn check_jobs(waiting: &Mutex<Receiver<Job>>, data_dir: &Path, index: &IndexPlaces) {
    let comparer = index.comparer(data_dir);
    loop {
        let Ok(job) = waiting.lock().recv() else { return };
        let Job { chain, mut before, batches, answer } = job;
        let mut comparison = IndexComparison::default();
        let (mut records, mut failed) = (Vec::new(), None);
        for batch in &batches {
            let members: Vec<Option<RecordMembers<'_>>> =
                batch.records.iter().map(|record| serde_json::from_str(&record.text).ok()).collect();
            match &comparer {
                Ok(comparer) => failed = failed.or(comparer.compare(&chain, batch, &members, &mut comparison).err()),
                Err(error) => failed = failed.or_else(|| Some(error.clone())),
            }
            for (record, members) in batch.records.iter().zip(&members) {
                records.push(CheckedRecord::of_read(&chain, record, members.as_ref(), &before));
                before = record.hash;
            }
        }
        if let (Ok(comparer), None) = (&comparer, &failed) {
            failed = comparer.end(&mut comparison).err();
        }
        // Nobody waits for it if the caller has an error.
        let _ = answer.send(failed.map_or(Ok(Found::Records(records, comparison)), Err));
    }
}

/// The reader's ends of the queues. Its methods return `None` if nobody takes the findings.
struct Reading {
    jobs: SyncSender<Job>,
    in_order: SyncSender<(Arc<str>, Next)>,
}

impl Reading {
    fn read(&mut self, storage: &dyn Storage, plan: ChainPlan) -> Option<()> {
        let chain = Arc::clone(&plan.chain);
        // A chain that cannot be read is a bad one, and the others are checked.
        let end = match self.records(storage, plan) {
            Ok(end) => end?,
            Err(error) => ChainEnd::Damaged(error.to_string()),
        };
        self.found(&chain, Found::End(end))
    }

    fn records(&mut self, storage: &dyn Storage, plan: ChainPlan) -> Result<Option<ChainEnd>, LedgerError> {
        let ChainPlan { chain, from, mut before, digest, confirmed } = plan;
        let mut reader = storage.read(&chain, from)?;
        let first = reader.place().segment;
        reader.keep_digest(digest.unwrap_or_else(|| SegmentDigest::of(first)));
        let (mut batches, mut count, mut bytes) = (Vec::new(), 0, 0);
        let mut is_confirmed = true;
        loop {
            let so_far = reader.digest().filter(|_| is_confirmed);
            let next = reader.next()?;
            let last = next.as_ref().and_then(|batch| batch.records.last()).map(|record| (record.seq, record.hash));
            let goes_beyond = last.is_none_or(|(seq, _)| seq > confirmed);
            let mut ended = reader.ended_segments();
            if goes_beyond && ended.is_empty() {
                ended.extend(so_far);
            }
            let is_full = count >= JOB_RECORDS || bytes >= JOB_BYTES || !ended.is_empty() || next.is_none();
            if is_full && !batches.is_empty() {
                let read = std::mem::take(&mut batches);
                if self.check(&chain, &mut before, read).is_none() {
                    return Ok(None);
                }
                (count, bytes) = (0, 0);
            }
            for digest in ended.into_iter().filter(|_| is_confirmed) {
                if self.found(&chain, Found::Segment(digest)).is_none() {
                    return Ok(None);
                }
            }
            is_confirmed &= !goes_beyond;
            let Some(batch) = next else { return reader.end().map(Some) };
            count += batch.records.len();
            bytes += batch.records.iter().map(|record| record.text.len()).sum::<usize>();
            batches.push(batch);
        }
    }

    /// Passes on records to be checked; `before` becomes the hash of the last of them.
    fn check(&mut self, chain: &Arc<str>, before: &mut RecordHash, batches: Vec<StoredBatch>) -> Option<()> {
        let last = batches.last().and_then(|batch| batch.records.last()).map_or(*before, |record| record.hash);
        let (answer, answered) = sync_channel(1);
        let job = Job { chain: Arc::clone(chain), before: std::mem::replace(before, last), batches, answer };
        self.jobs.send(job).ok()?;
        self.in_order.send((Arc::clone(chain), Next::Checked(answered))).ok()
    }

    fn found(&mut self, chain: &Arc<str>, found: Found) -> Option<()> {
        self.in_order.send((Arc::clone(chain), Next::Found(found))).ok()
    }
}
