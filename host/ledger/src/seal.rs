//! Seals. The chain of a broker that died has no end of its own; the next broker records its end in its own chain. From
//! then on the dead chain is complete, and a missing or an additional record is tampering.

use std::path::Path;

use portcullis_core::digest::hex;
use serde_json::json;

use super::chain::{self, ChainTip, DeadChainLock};
use super::record::{Event, EventKind, Record};
use super::state::State;
use super::storage::{ChainEnd, Place, Storage};
use super::{LedgerError, legacy};

/// The end of the chain of a broker that died.
#[derive(Debug)]
pub(super) struct ChainSeal {
    pub(super) chain: String,
    end: ChainTip,
    lock: DeadChainLock,
}

impl ChainSeal {
    /// Returns the event that seals the chain.
    pub(super) fn event(&self) -> Event {
        let ChainTip { seq, hash } = self.end;
        Event::new(EventKind::ChainSealed, json!({ "chain": self.chain, "seq": seq, "hash": hex(&hash) }))
    }

    /// Notes that the event is durable.
    pub(super) fn done(self) {
        self.lock.mark_ended();
    }
}

/// Returns the seals for chains without an end whose brokers are certainly dead. A chain with fewer records than its
/// broker had written is sealed where the broker had come, so that the missing records are noticed.
pub(super) fn due(state: &State, storage: &dyn Storage, data_dir: &Path) -> Result<Vec<ChainSeal>, LedgerError> {
    let unended = chain::unended(data_dir)?;
    let has_legacy = state.run(legacy::is_present)?;
    let ended_in_legacy = if has_legacy { state.run(legacy::ended)? } else { Default::default() };
    let mut due = Vec::new();
    for chain in unended {
        let Some(lock) = DeadChainLock::take(data_dir, &chain) else { continue };
        let mut end = match end_of(storage, &chain) {
            Ok(end) => end,
            Err(error) => {
                tracing::warn!(chain, %error, "the records of a broker that died cannot be read, and are not sealed");
                continue;
            }
        };
        if has_legacy && end.tip.seq == 0 {
            end.tip = state.run(|conn| legacy::tip(conn, &chain))?.unwrap_or_default();
        }
        if end.is_stopped || ended_in_legacy.contains(&chain) {
            lock.mark_ended();
            continue;
        }
        let end = match chain::witness(data_dir, &chain) {
            Some(witness) if witness.seq > end.tip.seq => witness,
            _ => end.tip,
        };
        due.push(ChainSeal { chain, end, lock });
    }
    Ok(due)
}

/// The end of a dead broker's chain as it is found.
#[derive(Default)]
struct FoundEnd {
    tip: ChainTip,
    is_stopped: bool,
}

/// Finds the end of a chain, and makes durable what was written of it.
fn end_of(storage: &dyn Storage, chain: &str) -> Result<FoundEnd, LedgerError> {
    let mut reader = storage.read(chain, Place::default())?;
    let (mut last, mut place) = (None, reader.place());
    while let Some(tip) = reader.skip()? {
        last = Some((tip, place));
        place = reader.place();
    }
    storage.finish(chain, place, reader.end()? == ChainEnd::Clean)?;
    let Some((tip, place)) = last else { return Ok(FoundEnd::default()) };
    let batch = storage.read(chain, place)?.next()?;
    let record = batch.as_ref().and_then(|batch| batch.records.last());
    let record = record.and_then(|record| serde_json::from_str::<Record>(&record.text).ok());
    Ok(FoundEnd { tip, is_stopped: record.is_some_and(|record| record.kind == EventKind::BrokerStopped.as_str()) })
}
