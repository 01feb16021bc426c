//! Reading the ledger, which needs no broker and disturbs none.

mod rows;
mod texts;

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::age::Identity;
use portcullis_core::sync::Mutex;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};

pub use self::rows::{CallOrRun, CallRow, CallState, RunRow, RunState};
use self::texts::RecordTexts;
use super::index::{self, RecordIndex};
use super::record::Record;
use super::sealed_body::BodyOpener;
use super::segment::Segments;
use super::storage::{ChainPosition, Storage, StorageLimits};
use super::{LedgerError, blocking, is_live};

/// The interval at which [`Tail`] polls. SQLite cannot wake another process, and a person does not notice a quarter of
/// a second.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// The largest number of records that are read at once, and that [`Tail`] returns.
const PAGE: usize = 1000;

/// A filter for records. A record must match every field that is set.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// The kind of the record.
    pub kind: Option<String>,
    /// The session that the record is about.
    pub run: Option<String>,
    /// The call that the record is about.
    pub call: Option<String>,
    /// The chain that holds the record.
    pub chain: Option<String>,
}

/// A record and its position.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PositionedRecord {
    /// The position in the order of the index, over all chains: that of the records' times, as far as they were known
    /// when they were added. It only grows.
    #[serde(skip)]
    pub position: u64,
    /// The record.
    #[serde(flatten)]
    pub record: Record,
}

/// The text of a record, and its place.
pub(super) struct FoundText {
    position: u64,
    chain: String,
    seq: u64,
    pub(super) text: String,
}

/// A reader of the ledger of one data folder. Its methods block for milliseconds, and for longer if many records were
/// written since somebody last read: they are added to the index first.
pub struct LedgerReader {
    index: RecordIndex,
    texts: RefCell<RecordTexts>,
    /// Opens the bodies of records that are returned.
    opener: Option<BodyOpener>,
    data_dir: PathBuf,
}

impl LedgerReader {
    /// Opens the ledger for reading.
    ///
    /// # Errors
    /// [`LedgerError::Missing`] if there is none; otherwise the [`LedgerError`] that occurred.
    pub fn open(data_dir: &Path) -> Result<Self, LedgerError> {
        Self::open_with(data_dir, Arc::new(Segments::new(data_dir, StorageLimits::default())))
    }

    pub(super) fn open_with(data_dir: &Path, storage: Arc<dyn Storage>) -> Result<Self, LedgerError> {
        let index = RecordIndex::open(data_dir, Arc::clone(&storage))?;
        Ok(Self { index, texts: RefCell::new(RecordTexts::new(storage)), opener: None, data_dir: data_dir.to_owned() })
    }

    /// Opens sealed bodies in the records that are returned from now on: a payload that was sealed for one of these
    /// identities has its `body`, as one that was recorded with it. Searches for a text do not look into sealed bodies.
    #[must_use]
    pub fn opening_bodies_with(self, identities: Vec<Identity>) -> Self {
        let opener = Some(BodyOpener::new(&self.data_dir, identities));
        Self { opener, ..self }
    }

    /// Returns the last `n` records that match, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] if the file cannot be read, or a record cannot be parsed.
    pub fn tail(&self, n: usize, filter: &RecordFilter) -> Result<Vec<PositionedRecord>, LedgerError> {
        self.index.refresh()?;
        let mut records = self.records("ORDER BY row DESC", 0, n, filter)?;
        records.reverse();
        Ok(records)
    }

    /// Returns at most `n` records after a position that match, oldest first.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub fn after(&self, position: u64, n: usize, filter: &RecordFilter) -> Result<Vec<PositionedRecord>, LedgerError> {
        self.index.refresh()?;
        self.records("ORDER BY row", position, n, filter)
    }

    /// Follows the ledger from a position onwards.
    #[must_use]
    pub fn follow(self, position: u64, filter: RecordFilter) -> Tail {
        Tail { reader: Arc::new(Mutex::new(self)), position, filter }
    }

    /// Returns the call or the run with this identifier and all its records, or `None` if there is neither.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub fn show(&self, id: &str) -> Result<Option<CallOrRun>, LedgerError> {
        self.index.refresh()?;
        let conn = self.connection();
        let call = conn.query_row("SELECT * FROM call_rows WHERE call = ?1", [index::key_of(id)], |row| self.call(row));
        if let Some(row) = call.optional().map_err(|e| self.failed(&e))? {
            let filter = RecordFilter { call: Some(id.to_owned()), ..RecordFilter::default() };
            return Ok(Some(CallOrRun::Call { row, records: self.all_records(&filter)? }));
        }
        let run = conn.query_row("SELECT * FROM run_rows WHERE run = ?1", [id], |row| self.run(row));
        let Some(row) = run.optional().map_err(|e| self.failed(&e))? else { return Ok(None) };
        let filter = RecordFilter { run: Some(id.to_owned()), ..RecordFilter::default() };
        Ok(Some(CallOrRun::Run { row, records: self.all_records(&filter)? }))
    }

    /// Returns the first `n` identifiers of calls that begin with these characters, in either case.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub fn calls_beginning(&self, beginning: &str, n: usize) -> Result<Vec<String>, LedgerError> {
        self.index.refresh()?;
        let Some((first, last)) = index::keys_beginning(beginning) else { return Ok(Vec::new()) };
        let sql = "SELECT DISTINCT call FROM events WHERE call BETWEEN ?1 AND ?2 ORDER BY call LIMIT ?3";
        let calls = self.connection().prepare_cached(sql).and_then(|mut query| {
            query
                .query_map(params![first, last, limit(n)], |row| Ok(index::call_of(&row.get::<_, Vec<u8>>(0)?)))?
                .collect()
        });
        calls.map_err(|e| self.failed(&e))
    }

    /// Returns the newest `n` calls of a run, or of all runs, oldest first.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub fn calls(&self, run: Option<&str>, n: usize) -> Result<Vec<CallRow>, LedgerError> {
        self.index.refresh()?;
        // Identifiers of calls begin with their times, so the newest are found without looking at the others.
        let sql = "SELECT * FROM call_rows WHERE call IN (SELECT DISTINCT call FROM events WHERE call IS NOT NULL \
                   AND (:run IS NULL OR run = (SELECT id FROM sessions WHERE sessions.run = :run)) \
                   ORDER BY call DESC LIMIT :n) ORDER BY first";
        let rows = self.connection().prepare_cached(sql).and_then(|mut query| {
            query.query_map(named_params! {":run": run, ":n": limit(n)}, |row| self.call(row))?.collect()
        });
        rows.map_err(|e| self.failed(&e))
    }

    /// Returns the newest `n` runs, oldest first.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub fn runs(&self, n: usize) -> Result<Vec<RunRow>, LedgerError> {
        self.index.refresh()?;
        let sql = "SELECT * FROM (SELECT * FROM run_rows ORDER BY first DESC LIMIT ?1) ORDER BY first";
        let rows = self
            .connection()
            .prepare_cached(sql)
            .and_then(|mut query| query.query_map([limit(n)], |row| self.run(row))?.collect());
        rows.map_err(|e| self.failed(&e))
    }

    /// Returns all records that match, in their order.
    fn all_records(&self, filter: &RecordFilter) -> Result<Vec<PositionedRecord>, LedgerError> {
        let mut records: Vec<PositionedRecord> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.position);
            let page = self.records("ORDER BY row", after, PAGE, filter)?;
            let is_last = page.len() < PAGE;
            records.extend(page);
            if is_last {
                return Ok(records);
            }
        }
    }

    fn records(
        &self,
        order: &str,
        after: u64,
        n: usize,
        filter: &RecordFilter,
    ) -> Result<Vec<PositionedRecord>, LedgerError> {
        self.texts(order, after, n, filter)?.into_iter().map(|found| self.parsed(found)).collect()
    }

    /// Returns the texts of records that match, in an order.
    pub(super) fn texts(
        &self,
        order: &str,
        after: u64,
        n: usize,
        filter: &RecordFilter,
    ) -> Result<Vec<FoundText>, LedgerError> {
        // The query contains only the conditions that are set, so that SQLite can use the indices.
        let text = |value: &String| Value::from(value.clone());
        let wanted = [
            ("events.kind = (SELECT id FROM kinds WHERE kind = ?)", filter.kind.as_ref().map(text)),
            ("events.run = (SELECT id FROM sessions WHERE run = ?)", filter.run.as_ref().map(text)),
            ("call = ?", filter.call.as_ref().map(|call| index::key_of(call).into())),
            ("chains.chain = ?", filter.chain.as_ref().map(text)),
        ];
        let mut sql = "SELECT row, chains.chain, seq, events.segment, events.offset FROM events \
                       JOIN chains ON chains.id = events.chain WHERE row > ?"
            .to_owned();
        let mut values = vec![Value::Integer(after.cast_signed())];
        for (condition, value) in wanted {
            if let Some(value) = value {
                sql += &format!(" AND {condition}");
                values.push(value);
            }
        }
        // The index on kinds omits the two kinds that every call has. SQLite uses it only if the query excludes them
        // explicitly.
        if filter.kind.as_deref().is_some_and(|kind| !["call.intent", "tool.completed"].contains(&kind)) {
            sql += " AND events.kind > 2";
        }
        sql += &format!(" {order} LIMIT ?");
        values.push(limit(n).into());
        let found = self.connection().prepare_cached(&sql).and_then(|mut query| {
            let rows = query.query_map(rusqlite::params_from_iter(values), |row| {
                let place = ChainPosition { segment: row.get(3)?, offset: row.get::<_, i64>(4)?.cast_unsigned() };
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, place))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let found = found.map_err(|e| self.failed(&e))?.into_iter().map(|(position, chain, seq, place)| {
            let (position, seq) = (position.cast_unsigned(), seq.cast_unsigned());
            Ok(FoundText { position, text: self.text(&chain, seq, place)?, chain, seq })
        });
        found.collect()
    }

    pub(super) fn parsed(&self, found: FoundText) -> Result<PositionedRecord, LedgerError> {
        let FoundText { position, chain, seq, text } = found;
        let mut record: Record = serde_json::from_str(&text).map_err(|error| LedgerError::Damaged {
            path: self.data_dir.clone(),
            cause: format!("record {seq} of chain {chain} cannot be parsed: {error}"),
        })?;
        if let Some(opener) = &self.opener {
            opener.open(&record.chain, &mut record.body);
        }
        Ok(PositionedRecord { position, record })
    }

    /// Reads the text of a record from the place that the index names.
    fn text(&self, chain: &str, seq: u64, place: ChainPosition) -> Result<String, LedgerError> {
        self.with_text(chain, seq, place, str::to_owned)
    }

    /// Reads the text of a record from the place that the index names, and returns the result of `use_text`.
    pub(super) fn with_text<T>(
        &self,
        chain: &str,
        seq: u64,
        place: ChainPosition,
        use_text: impl FnOnce(&str) -> T,
    ) -> Result<T, LedgerError> {
        let missing = || LedgerError::Damaged {
            path: self.data_dir.clone(),
            cause: format!("record {seq} of chain {chain} is not where it was"),
        };
        if place.segment == index::LEGACY {
            return self.index.legacy_text(place.offset)?.map(|text| use_text(&text)).ok_or_else(missing);
        }
        self.texts.borrow_mut().read(chain, seq, place)?.map(use_text).ok_or_else(missing)
    }

    fn call(&self, row: &Row<'_>) -> rusqlite::Result<CallRow> {
        let chain: String = row.get("chain")?;
        let flag = |name: &str| row.get::<_, bool>(name);
        let state = if flag("denied")? {
            CallState::Denied
        } else if flag("completed")? {
            if flag("lost")? { CallState::Unknown } else { CallState::Done }
        } else if flag("deferred")? {
            CallState::Deferred
        } else {
            match (flag("intended")?, is_live(&self.data_dir, &chain)) {
                (true, true) => CallState::Running,
                (true, false) => CallState::Unknown,
                (false, true) => CallState::Waiting,
                (false, false) => CallState::Abandoned,
            }
        };
        let (started, ended) = times(row)?;
        let call = index::call_of(&row.get::<_, Vec<u8>>("call")?);
        Ok(CallRow { call, run: row.get("run")?, chain, state, started, ended })
    }

    fn run(&self, row: &Row<'_>) -> rusqlite::Result<RunRow> {
        let chain: String = row.get("chain")?;
        let state = match (row.get("failed")?, row.get("completed")?) {
            (true, _) => RunState::Error,
            (false, true) => RunState::Completed,
            (false, false) if is_live(&self.data_dir, &chain) => RunState::Running,
            (false, false) => RunState::Unknown,
        };
        let (started, ended) = times(row)?;
        Ok(RunRow {
            run: row.get("run")?,
            chain,
            state,
            error: row.get("error")?,
            principal: row.get("principal")?,
            profile: row.get("profile")?,
            calls: row.get::<_, i64>("calls")?.cast_unsigned(),
            started,
            ended,
        })
    }

    pub(super) fn refresh(&self) -> Result<(), LedgerError> {
        self.index.refresh()
    }

    pub(super) fn connection(&self) -> &Connection {
        self.index.connection()
    }

    pub(super) fn index(&self) -> &RecordIndex {
        &self.index
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(super) fn failed(&self, error: &rusqlite::Error) -> LedgerError {
        self.index.failed(error)
    }
}

impl fmt::Debug for LedgerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerReader").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// A stream of new records as they are written.
#[derive(Debug)]
pub struct Tail {
    reader: Arc<Mutex<LedgerReader>>,
    position: u64,
    filter: RecordFilter,
}

impl Tail {
    /// Waits for records and returns them, oldest first; the list is never empty. Cancellation safe: records that were
    /// not returned come with the next call.
    ///
    /// # Errors
    /// As for [`LedgerReader::tail`].
    pub async fn next(&mut self) -> Result<Vec<PositionedRecord>, LedgerError> {
        loop {
            let (reader, filter, position) = (Arc::clone(&self.reader), self.filter.clone(), self.position);
            let records = blocking(move || reader.lock().after(position, PAGE, &filter)).await?;
            if let Some(last) = records.last() {
                self.position = last.position;
                return Ok(records);
            }
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        }
    }
}

fn times(row: &Row<'_>) -> rusqlite::Result<(u64, Option<u64>)> {
    let ended: Option<i64> = row.get("ended")?;
    Ok((row.get::<_, i64>("started")?.cast_unsigned(), ended.map(i64::cast_unsigned)))
}

fn limit(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
