//! Ranked full-text search over tools: SQLite's FTS5 in memory, best match first by BM25.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::Connection;

use crate::item::Item;
use crate::protocol::Json;
use crate::sync::Mutex;

/// The number of words of a query that count. A model asks in a sentence; a longer text is not a question.
const MAX_WORDS: usize = 32;

/// The length in bytes from which a word also finds words that begin with it. Shorter prefixes would match nearly
/// everything.
const MIN_PREFIX: usize = 3;

/// Words of a query that say nothing about the tool and are ignored.
const FILLERS: [&str; 32] = [
    "a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "for", "from", "how", "i", "in", "is", "it",
    "me", "my", "of", "on", "or", "please", "that", "the", "this", "to", "what", "which", "with", "you",
];

/// The depth to which the schema of the arguments is read.
const MAX_DEPTH: usize = 6;

/// The full-text table: text without case and accents, reduced to stems of English words. Each part of a definition has
/// a column, weighted by how much it tells about the tool.
const SCHEMA: &str = "
    CREATE VIRTUAL TABLE tools USING fts5 (
        name, title, description, arguments, source, content = '', columnsize = 1, prefix = '3 4', tokenize = 'porter unicode61'
    );
    INSERT INTO tools (tools, rank) VALUES ('rank', 'bm25(8.0, 6.0, 3.0, 1.0, 2.0)');";

/// A search for tools. A field that is `None` excludes no tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolQuery {
    /// The words that describe the tools; the first 32 count. A tool that has one of the words is found; tools that
    /// have more of them, or rarer ones, come first.
    pub query: Option<String>,
    /// The name of the tools' source or group.
    pub source: Option<String>,
    /// A tag of the tools' source.
    pub tag: Option<String>,
}

/// A full-text index of tools.
#[derive(Debug)]
pub struct Index {
    items: Vec<Arc<Item>>,
    /// The SQLite connection, which one thread may use at a time. The row id of an item is its position in `items`.
    text: Mutex<Connection>,
}

impl Index {
    /// Builds the index from the definitions of tools. Blocks; 10,000 tools take a fraction of a second.
    ///
    /// # Errors
    /// An error of SQLite, which only a lack of memory can cause.
    pub fn of(mut items: Vec<Arc<Item>>) -> rusqlite::Result<Self> {
        items.sort_by(|a, b| a.exposed.cmp(&b.exposed));
        let mut text = Connection::open_in_memory()?;
        text.execute_batch(SCHEMA)?;
        let all = text.transaction()?;
        {
            let columns =
                "INSERT INTO tools (rowid, name, title, description, arguments, source) VALUES (?, ?, ?, ?, ?, ?)";
            let mut insert = all.prepare(columns)?;
            for (row, item) in (0_i64..).zip(&items) {
                let [title, description, schema] = item.definition.get_all(["title", "description", "inputSchema"]);
                let text = |json: Option<Json>| json.and_then(|json| json.read::<String>().ok()).unwrap_or_default();
                let mut arguments = BTreeSet::new();
                words_of_schema(&schema.unwrap_or_else(Json::null).to_value(), 0, &mut arguments);
                let arguments = arguments.into_iter().collect::<Vec<_>>().join(" ");
                let source = format!("{} {}", item.offered_by(), item.tags.join(" "));
                insert.execute((
                    row,
                    spaced(&item.name),
                    text(title),
                    text(description),
                    spaced(&arguments),
                    source,
                ))?;
            }
        }
        all.commit()?;
        Ok(Self { items, text: Mutex::new(text) })
    }

    /// Returns the tools that match, best first, or ordered by name if there is no query. Blocks for milliseconds.
    ///
    /// # Errors
    /// An error of SQLite, which only a lack of memory can cause.
    pub fn find(&self, query: &ToolQuery) -> rusqlite::Result<Vec<Arc<Item>>> {
        let of_source =
            |item: &Arc<Item>| query.source.as_ref().is_none_or(|source| item.offered_by().as_str() == source);
        let tagged = |item: &Arc<Item>| query.tag.as_ref().is_none_or(|tag| item.tags.contains(tag));
        let rest = |item: &&Arc<Item>| of_source(item) && tagged(item);
        let Some(query) = query.query.as_deref().filter(|query| !query.trim().is_empty()) else {
            return Ok(self.items.iter().filter(rest).cloned().collect());
        };
        let Some(query) = match_expression(query) else { return Ok(Vec::new()) };
        let text = self.text.lock();
        let mut ranked = text.prepare_cached("SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank, rowid")?;
        let rows = ranked.query_map([query], |row| row.get::<_, i64>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        let items = rows.into_iter().filter_map(|row| self.items.get(usize::try_from(row).ok()?));
        Ok(items.filter(rest).cloned().collect())
    }
}

/// Returns an FTS5 expression that matches any of the words, which are quoted so that they cannot be syntax themselves.
/// Returns `None` if every word is ignored.
fn match_expression(query: &str) -> Option<String> {
    let query = spaced(query);
    let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.filter(|word| !FILLERS.contains(&word.to_lowercase().as_str())).take(MAX_WORDS);
    let terms = words.map(|word| if word.len() < MIN_PREFIX { format!("\"{word}\"") } else { format!("\"{word}\"*") });
    Some(terms.collect::<Vec<_>>().join(" OR ")).filter(|terms| !terms.is_empty())
}

/// Returns the text with the words of `camelCase` separated, followed by the original text, so that both `pullRequest`
/// and `pull request` find it.
fn spaced(text: &str) -> String {
    let mut apart = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    for c in text.chars() {
        if before.is_lowercase() && c.is_uppercase() {
            apart.push(' ');
        }
        apart.push(c);
        before = c;
    }
    if apart.len() == text.len() { apart } else { format!("{apart} {text}") }
}

/// Collects the names and descriptions of properties, and the values of enumerations.
fn words_of_schema(schema: &serde_json::Value, depth: usize, words: &mut BTreeSet<String>) {
    use serde_json::Value;
    if depth > MAX_DEPTH {
        return;
    }
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => words.extend(properties.keys().cloned()),
                    ("description" | "title", Value::String(text)) => {
                        words.insert(text.clone());
                    }
                    ("enum", Value::Array(values)) => {
                        words.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    _ => {}
                }
                words_of_schema(value, depth + 1, words);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| words_of_schema(value, depth + 1, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
