//! Changes a configuration file as a person would: its comments and its order stay.

mod entries;

use std::path::Path;

use toml_edit::{Array, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value};

pub use entries::{NewSource, add_source, comment_on_cell, remove_source, set_value};

/// An error that says why a file cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// It is not TOML.
    #[error("it is not TOML: {0}")]
    Syntax(String),
    /// It has no such source.
    #[error("it has no source `{0}`")]
    NoSource(String),
    /// It has no such profile.
    #[error("it has no profile `{0}`: write `[profiles.{0}]` by hand to make one")]
    NoProfile(String),
    /// It has such a source already.
    #[error("it has a source `{0}` already: choose another name, or run `portcullis remove {0}` first")]
    Exists(String),
    /// The key cannot be set.
    #[error("`{0}` is not a dotted key such as `sources.files.timeout`: {1}")]
    Key(String, String),
    /// Something else is in place of the key.
    #[error("`{0}` is not a {1} in the file; change it by hand")]
    Shape(String, &'static str),
}

/// Returns the text of a configuration with these values added to lists in a source's `cell`, which is made if it is
/// not there: `[("read", "/data/docs"), ("network", "api.example.com:443")]`. A value that is already there is not
/// repeated, and an absolute path that a new one contains is removed.
///
/// # Errors
/// [`EditError`]; the text must then be left unchanged.
pub fn add_to_cell(text: &str, source: &str, lines: &[(&str, &str)]) -> Result<String, EditError> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| EditError::Syntax(error.to_string()))?;
    let missing = || EditError::NoSource(source.to_owned());
    let sources = document.get_mut("sources").and_then(Item::as_table_like_mut).ok_or_else(missing)?;
    let found = sources.get_mut(source).ok_or_else(missing)?;
    // In a source that is written on one line, the cell is too.
    let one_line = found.is_inline_table();
    let empty = if one_line { Item::Value(Value::InlineTable(InlineTable::new())) } else { Item::Table(Table::new()) };
    let found = found.as_table_like_mut().ok_or_else(missing)?;
    let cell = found.entry("cell").or_insert(empty);
    let of_one_line = cell.is_inline_table();
    for (key, value) in lines {
        let table = cell.as_table_like_mut();
        let table = table.ok_or_else(|| EditError::Shape(format!("sources.{source}.cell"), "table"))?;
        if !table.contains_key(key) {
            let space = if of_one_line { move_space_from_last(table) } else { RawString::default() };
            let list = Value::Array(Array::new()).decorated(" ", space);
            table.insert(key, Item::Value(list));
        }
        // No grant may lie within another, and what may be written may be read.
        for narrower in ["read", "write"].iter().filter(|narrower| **narrower == *key || *key == "write") {
            let list = table.get_mut(narrower).and_then(Item::as_array_mut);
            if let (Some(list), true) = (list, value.starts_with('/')) {
                let within = |known: &str| Path::new(known).starts_with(value) && (known != *value || narrower != key);
                list.retain(|known| !known.as_str().is_some_and(within));
            }
        }
        let list = table.get_mut(key).and_then(Item::as_array_mut);
        let list = list.ok_or_else(|| EditError::Shape(format!("sources.{source}.cell.{key}"), "list"))?;
        if !list.iter().any(|known| known.as_str() == Some(value)) {
            list.push(*value);
        }
    }
    Ok(document.to_string())
}

/// Takes the space before the closing brace of a table on one line from its last value, for the value that is to
/// follow.
fn move_space_from_last(table: &mut dyn TableLike) -> RawString {
    let last = table.iter_mut().last().and_then(|(_, item)| item.as_value_mut().map(Value::decor_mut));
    let Some(last) = last else { return " ".into() };
    let space = last.suffix().cloned().unwrap_or_default();
    last.set_suffix("");
    space
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn lines_are_added_and_everything_else_stays() {
        let text = "# My servers\n[sources.b]\ncommand = \"b\" # the first\n\n[sources.a]\ncommand = [\"a\"]\ncell = { read = [\"/x\"] }\n\n[serve]\n";
        let lines = [("read", "/x"), ("read", "/y"), ("network", "api.example.com:443")];
        let changed = add_to_cell(text, "a", &lines).unwrap();
        let expected =
            text.replace("{ read = [\"/x\"] }", "{ read = [\"/x\", \"/y\"], network = [\"api.example.com:443\"] }");
        assert_eq!(changed, expected);
        let made = add_to_cell(text, "b", &[("write", "/z")]).unwrap();
        assert!(made.starts_with("# My servers\n[sources.b]\ncommand = \"b\" # the first\n"), "{made}");
        assert!(made.contains("[sources.b.cell]\nwrite = [\"/z\"]\n"), "{made}");
        let inline = add_to_cell("sources.c = { command = \"c\" }\n", "c", &[("write", "/z")]).unwrap();
        assert!(inline.contains("cell = { write = [\"/z\"] }"), "{inline}");
    }

    #[test]
    fn what_a_new_line_contains_is_taken_out() {
        let text = "[sources.a.cell]\nread = [\"/d/a\", \"/e\", \"d/b\"]\nwrite = [\"/d/c\"]\n";
        let changed = add_to_cell(text, "a", &[("write", "/d")]).unwrap();
        assert!(changed.contains("read = [ \"/e\", \"d/b\"]\n") && changed.contains("\"/d\"]"), "{changed}");
        assert!(!changed.contains("/d/"), "{changed}");
        let changed = add_to_cell(text, "a", &[("read", "/d")]).unwrap();
        assert!(changed.contains("write = [\"/d/c\"]") && !changed.contains("/d/a"), "{changed}");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert_eq!(add_to_cell("", "a", &[]).unwrap_err(), EditError::NoSource("a".to_owned()));
        let wrong = add_to_cell("[sources.a]\ncell = { read = \"/x\" }\n", "a", &[("read", "/y")]).unwrap_err();
        assert!(wrong.to_string().contains("sources.a.cell.read"), "{wrong}");
        assert!(matches!(add_to_cell("[", "a", &[]), Err(EditError::Syntax(_))));
    }
}
