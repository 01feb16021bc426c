//! Seals. Each broker records in its own chain where the chains ended whose brokers are gone. From then on those are
//! complete, also where a broker died, and a missing or an additional record is tampering. A checkpoint of the sealing
//! chain is also evidence about the sealed ones.

use std::path::Path;

use portcullis_core::digest::hex;
use serde_json::json;

use super::chain::{self, ChainTip, UnsealedChainLock};
use super::record::{Event, EventKind, Record};
use super::state::State;
use super::storage::{ChainPosition, ChainReader, SkippedBatch, Storage};
use super::{LedgerError, legacy};

/// The end of the chain of a broker that is gone.
#[derive(Debug)]
pub(super) struct ChainSeal {
    pub(super) chain: String,
    /// True if the broker ended without writing an end.
    pub(super) is_dead: bool,
    end: ChainTip,
    lock: UnsealedChainLock,
}

impl ChainSeal {
    /// Returns the event that seals the chain.
    pub(super) fn event(&self) -> Event {
        let ChainTip { seq, hash } = self.end;
        Event::new(EventKind::ChainSealed, json!({ "chain": self.chain, "seq": seq, "hash": hex(&hash) }))
    }

    /// Notes that the event is durable.
    pub(super) fn done(self) {
        self.lock.mark_sealed();
    }
}

/// The largest number of chains that one start seals; the next one seals the others. The start of a broker does not
/// wait for thousands of files.
const MAX_SEALS: usize = 256;

/// Returns the seals for chains that have none and whose brokers are certainly gone, first those of brokers that died.
/// A chain with fewer records than its broker had written is sealed where the broker had come, so that the missing
/// records are noticed. A chain whose lock file was lost is sealed too.
pub(super) fn seals_due(state: &State, storage: &dyn Storage, data_dir: &Path) -> Result<Vec<ChainSeal>, LedgerError> {
    // This is listed first: a chain has its lock file before its first record.
    let stored = storage.chains()?;
    let all = chain::all(data_dir)?;
    let (has_end, sealed) = (chain::ended(data_dir)?, chain::sealed(data_dir)?);
    let without_file: Vec<_> = stored.difference(&all).cloned().collect();
    let unsealed = all.into_iter().filter(|chain| !sealed.contains(chain));
    let (ended, dead): (Vec<_>, Vec<_>) = unsealed.partition(|chain| has_end.contains(chain));
    let has_legacy = state.run(legacy::is_present)?;
    let ended_in_legacy = if has_legacy { state.run(legacy::ended)? } else { Default::default() };
    let mut due = Vec::new();
    let locked = dead.into_iter().chain(ended).map(|chain| (chain, true));
    for (chain, has_file) in without_file.into_iter().map(|chain| (chain, false)).chain(locked) {
        if due.len() == MAX_SEALS {
            break;
        }
        let lock = match has_file {
            true => UnsealedChainLock::take(data_dir, &chain),
            false => {
                let alone = storage.lock_dead(&chain).ok().flatten();
                alone.and_then(|_alone| UnsealedChainLock::take_without_file(data_dir, &chain))
            }
        };
        let Some(lock) = lock else { continue };
        let mut end = match end_of(storage, &chain, has_end.contains(&chain)) {
            Ok(end) => end,
            Err(error) => {
                tracing::warn!(chain, %error, "the records of a broker that is gone cannot be read, and are not sealed");
                continue;
            }
        };
        if has_legacy && end.tip.seq == 0 {
            end.tip = state.run(|conn| legacy::tip(conn, &chain))?.unwrap_or_default();
        }
        let is_dead = !end.is_stopped && !ended_in_legacy.contains(&chain);
        let end = match chain::witness(data_dir, &chain) {
            Some(witness) if witness.seq > end.tip.seq => witness,
            _ => end.tip,
        };
        due.push(ChainSeal { chain, is_dead, end, lock });
    }
    Ok(due)
}

/// The end of a chain as found.
#[derive(Default)]
struct FoundEnd {
    tip: ChainTip,
    is_stopped: bool,
}

/// Finds the end of a chain. Makes its written part durable, unless its lock file states that it `has_end`: that is
/// written after the end is on disk.
fn end_of(storage: &dyn Storage, chain: &str, has_end: bool) -> Result<FoundEnd, LedgerError> {
    let mut reader = storage.read(chain, storage.last_place(chain)?)?;
    let mut last = last_batch(&mut *reader)?;
    if last.is_none() {
        reader = storage.read(chain, ChainPosition::default())?;
        last = last_batch(&mut *reader)?;
    }
    let record = match &last {
        Some(batch) => {
            storage.read(chain, batch.place)?.next()?.and_then(|batch| batch.records.into_iter().next_back())
        }
        None => None,
    };
    let record = record.and_then(|record| serde_json::from_str::<Record>(&record.text).ok());
    let is_stopped = record.is_some_and(|record| record.kind == EventKind::BrokerStopped.as_str());
    if !has_end {
        storage.finish(chain, reader.place(), &reader.end()?)?;
    }
    Ok(FoundEnd { tip: last.map(|batch| batch.tip).unwrap_or_default(), is_stopped })
}

fn last_batch(reader: &mut dyn ChainReader) -> Result<Option<SkippedBatch>, LedgerError> {
    let mut last = None;
    while let Some(batch) = reader.skip()? {
        last = Some(batch);
    }
    Ok(last)
}
