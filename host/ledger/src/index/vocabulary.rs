//! The numbers that represent texts in the index.

use std::collections::HashMap;
use std::hash::Hash;

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::facts::{CallStage, FactName, IndexedFacts, RecordNames};

/// The number of an absent name.
pub(crate) const ABSENT: i64 = 0;

/// The number of a name that is not listed.
pub(crate) const UNLISTED: i64 = -1;

/// The number of names from which on no more items are listed, so that a search goes over a short list.
const MAX_NAMES: i64 = 20_000;

/// The number of runs whose numbers are kept in memory.
const MAX_SESSIONS: usize = 100_000;

/// The class of a call: its values of everything that searches filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct CallClass {
    pub(crate) names: RecordNames<i64>,
    pub(crate) stage: CallStage,
}

/// The numbers that were looked up or given. They never change.
#[derive(Default)]
pub(super) struct Vocabulary {
    kinds: HashMap<String, i64>,
    sessions: HashMap<String, i64>,
    names: HashMap<String, i64>,
    facts: HashMap<(CallClass, String), i64>,
    classes: HashMap<CallClass, i64>,
}

impl CallClass {
    /// Returns the class of a call after another record. The first of several names counts.
    pub(super) fn then(self, later: Self) -> Self {
        let first = |own: i64, later: i64| if own == ABSENT { later } else { own };
        let (own, later_names) = (self.names, later.names);
        let names = RecordNames {
            principal: first(own.principal, later_names.principal),
            profile: first(own.profile, later_names.profile),
            source: first(own.source, later_names.source),
            item: first(own.item, later_names.item),
        };
        Self { names, stage: self.stage.then(later.stage) }
    }

    /// Reads a class from a row that begins with its columns.
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let names =
            RecordNames { principal: row.get(0)?, profile: row.get(1)?, source: row.get(2)?, item: row.get(3)? };
        let stage = CallStage::of_word(row.get_ref(4)?.as_str()?).unwrap_or_default();
        Ok(Self { names, stage })
    }
}

impl Vocabulary {
    pub(super) fn kind(&mut self, conn: &Connection, kind: &str) -> rusqlite::Result<i64> {
        text_id(conn, &mut self.kinds, kind, ("kinds", "kind"))
    }

    pub(super) fn session(&mut self, conn: &Connection, run: &str) -> rusqlite::Result<i64> {
        if self.sessions.len() > MAX_SESSIONS {
            self.sessions.clear();
        }
        text_id(conn, &mut self.sessions, run, ("sessions", "run"))
    }

    /// Returns a record's facts as numbers, and their count.
    pub(super) fn facts(&mut self, conn: &Connection, facts: &IndexedFacts<'_>) -> rusqlite::Result<(CallClass, i64)> {
        let RecordNames { principal, profile, source, item } = &facts.names;
        let names = RecordNames {
            principal: self.name(conn, principal, i64::MAX)?,
            profile: self.name(conn, profile, i64::MAX)?,
            source: self.name(conn, source, i64::MAX)?,
            item: self.name(conn, item, MAX_NAMES)?,
        };
        let own = CallClass { names, stage: facts.stage };
        let key = (own, facts.outcome.clone().into_owned());
        if let Some(id) = self.facts.get(&key) {
            return Ok((own, *id));
        }
        let sql =
            "INSERT INTO facts (principal, profile, source, item, stage, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let find = "SELECT id FROM facts WHERE principal = ?1 AND profile = ?2 AND source = ?3 AND item = ?4 \
                    AND stage = ?5 AND outcome = ?6";
        let stage = own.stage.as_str();
        let values = params![names.principal, names.profile, names.source, names.item, stage, facts.outcome];
        let id = found_or_added(conn, find, sql, values)?;
        self.facts.insert(key, id);
        Ok((own, id))
    }

    pub(super) fn class(&mut self, conn: &Connection, class: CallClass) -> rusqlite::Result<i64> {
        if let Some(id) = self.classes.get(&class) {
            return Ok(*id);
        }
        let sql = "INSERT INTO classes (principal, profile, source, item, stage) VALUES (?1, ?2, ?3, ?4, ?5)";
        let find =
            "SELECT id FROM classes WHERE principal = ?1 AND profile = ?2 AND source = ?3 AND item = ?4 AND stage = ?5";
        let RecordNames { principal, profile, source, item } = class.names;
        let id = found_or_added(conn, find, sql, params![principal, profile, source, item, class.stage.as_str()])?;
        self.classes.insert(class, id);
        Ok(id)
    }

    /// Returns the number of a name, which is listed if there are fewer than this many names.
    fn name(&mut self, conn: &Connection, name: &FactName<'_>, most: i64) -> rusqlite::Result<i64> {
        let name = match name {
            FactName::Absent => return Ok(ABSENT),
            FactName::Unlisted => return Ok(UNLISTED),
            FactName::Listed(name) => &**name,
        };
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let sql =
            "SELECT EXISTS (SELECT 1 FROM names WHERE name = ?1) OR (SELECT coalesce(max(id), 0) FROM names) < ?2";
        let is_listed: bool = conn.prepare_cached(sql)?.query_row(params![name, most], |row| row.get(0))?;
        if !is_listed {
            return Ok(UNLISTED);
        }
        text_id(conn, &mut self.names, name, ("names", "name"))
    }
}

/// Returns the number of a text in a table, which gets it if it is new.
fn text_id(
    conn: &Connection,
    known: &mut HashMap<String, i64>,
    text: &str,
    (table, column): (&str, &str),
) -> rusqlite::Result<i64> {
    if let Some(id) = known.get(text) {
        return Ok(*id);
    }
    let find = format!("SELECT id FROM {table} WHERE {column} = ?1");
    let id = found_or_added(conn, &find, &format!("INSERT INTO {table} ({column}) VALUES (?1)"), &[&text])?;
    known.insert(text.to_owned(), id);
    Ok(id)
}

/// Returns the number of the row that a query finds, which is inserted if it is not there.
fn found_or_added(conn: &Connection, find: &str, insert: &str, values: &[&dyn ToSql]) -> rusqlite::Result<i64> {
    let found = conn.prepare_cached(find)?.query_row(values, |row| row.get(0)).optional()?;
    match found {
        Some(id) => Ok(id),
        None => {
            conn.prepare_cached(insert)?.execute(values)?;
            Ok(conn.last_insert_rowid())
        }
    }
}
