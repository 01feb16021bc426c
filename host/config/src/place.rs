//! The places of values in the tables of a configuration, in words: for tables that a program makes, which have no
//! lines.

use std::fmt;
use std::ops::Range;

use portcullis_core::escape::escape_hidden;
use toml::de::{DeTable, DeValue};

/// The tables of a configuration that contain others by name.
pub(super) const NAMED: [&str; 3] = ["sources", "groups", "profiles"];

/// A table of a configuration, or a value in it. It is displayed as `[sources.NAME] cell.network`.
#[derive(Debug, Clone)]
pub(super) struct TablePlace {
    table: String,
    keys: String,
}

impl TablePlace {
    /// Returns the place of `[KIND]`.
    pub(super) fn table(kind: &str) -> Self {
        Self { table: format!("[{}]", escape_hidden(kind)), keys: String::new() }
    }

    /// Returns the place of `[KIND.NAME]`.
    pub(super) fn named(kind: &str, name: &str) -> Self {
        Self::table(&format!("{kind}.{name}"))
    }

    /// Returns the place of an entry of `[[KIND]]` that has `before` others before it.
    pub(super) fn entry(kind: &str, before: usize) -> Self {
        let Self { table, keys } = Self::table(kind);
        Self { table: format!("[{table}] number {}", before + 1), keys }
    }

    /// Returns the place of the value under a key of this table.
    pub(super) fn key(&self, key: &str) -> Self {
        let dot = if self.keys.is_empty() { " " } else { "." };
        Self { table: self.table.clone(), keys: format!("{}{dot}{}", self.keys, escape_hidden(key)) }
    }

    /// Returns the place of a value of this list that has `before` others before it.
    pub(super) fn number(&self, before: usize) -> Self {
        Self { table: self.table.clone(), keys: format!("{} number {}", self.keys, before + 1) }
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.table, self.keys)
    }
}

/// Returns the place of a part of a configuration's text, or `None` if the text has nothing there. A key has the place
/// of its table.
pub(super) fn of(text: &str, part: &Range<usize>) -> Option<TablePlace> {
    let document = DeTable::parse(text).ok().filter(|_| !part.is_empty())?;
    document.get_ref().iter().find_map(|(kind, value)| {
        let whole = TablePlace::table(kind.get_ref());
        let inner = match value.get_ref() {
            DeValue::Table(tables) if NAMED.contains(&&**kind.get_ref()) => tables.iter().find_map(|(name, value)| {
                let table = TablePlace::named(kind.get_ref(), name.get_ref());
                let inner = within(value.get_ref(), &table, part);
                inner.or_else(|| (covers(&name.span(), part) || covers(&value.span(), part)).then_some(table))
            }),
            DeValue::Array(entries) => entries.iter().enumerate().find_map(|(before, value)| {
                let entry = TablePlace::entry(kind.get_ref(), before);
                within(value.get_ref(), &entry, part).or_else(|| covers(&value.span(), part).then_some(entry))
            }),
            value => within(value, &whole, part),
        };
        inner.or_else(|| (covers(&kind.span(), part) || covers(&value.span(), part)).then_some(whole))
    })
}

/// Returns the line, counted from one, of the setting that a plugin's error is about: that of the entry at this
/// position among those of the list with a `plugin`. An error begins with the place of a value, such as
/// `settings.deny[2]: `, or has the unknown key. `None` if the text has no such entry.
#[must_use]
pub fn setting_line(text: &str, list: &str, position: usize, error: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let DeValue::Array(entries) = document.get_ref().get(list)?.get_ref() else { return None };
    let entries = entries.iter().filter_map(|entry| entry.get_ref().as_table());
    let entry = entries.filter(|entry| entry.contains_key("plugin")).nth(position)?;
    let (key, settings) = entry.get_key_value("settings").or_else(|| entry.get_key_value("plugin"))?;
    let (mut at, mut value) = (key.span(), settings.get_ref());
    let (path, rest) = error.split_once(": ").unwrap_or(("", error));
    let named = |key: &str| error.contains(&format!("unknown field `{key}`"));
    let (steps, said) = match path.strip_prefix("settings") {
        Some(steps) => (steps, rest),
        None => ("", error),
    };
    for step in steps.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        match value {
            DeValue::Table(table) => match table.get_key_value(step) {
                Some((key, inner)) => (at, value) = (key.span(), inner.get_ref()),
                None => break,
            },
            DeValue::Array(values) => match step.parse().ok().and_then(|index: usize| values.get(index)) {
                Some(inner) => (at, value) = (inner.span(), inner.get_ref()),
                None => break,
            },
            _ => break,
        }
    }
    if let DeValue::Table(table) = value
        && said.contains("unknown field")
        && let Some((key, _)) = table.iter().find(|(key, _)| named(key.get_ref()))
    {
        at = key.span();
    }
    Some(text.get(..at.start)?.matches('\n').count() + 1)
}

/// Returns the place of a part that lies in a value.
fn within(value: &DeValue<'_>, place: &TablePlace, part: &Range<usize>) -> Option<TablePlace> {
    match value {
        DeValue::Table(table) => table.iter().find_map(|(key, value)| {
            if covers(&key.span(), part) {
                return Some(place.clone());
            }
            let place = place.key(key.get_ref());
            within(value.get_ref(), &place, part).or_else(|| covers(&value.span(), part).then_some(place))
        }),
        DeValue::Array(values) => values.iter().enumerate().find_map(|(before, value)| {
            let place = place.number(before);
            within(value.get_ref(), &place, part).or_else(|| covers(&value.span(), part).then_some(place))
        }),
        _ => None,
    }
}

fn covers(whole: &Range<usize>, part: &Range<usize>) -> bool {
    whole.start <= part.start && part.end <= whole.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[sinks]]\notlp = \"http://x\"\n\n[[sinks]]\nplugin = \"a.wasm\"\nsettings = { old = 1 }\n\n\
                        [[policies]]\nplugin = \"builtin:rules\"\n[policies.settings]\nask = [\"a\"]\ndenied = [\n  \"b\",\n  { tol = \"c\" },\n]\n";

    #[test]
    fn the_line_of_a_setting_is_that_of_the_key_or_value_that_the_error_names() {
        for (list, error, line) in [
            ("policies", "settings.denied: unknown field `denied`, expected one of `deny`", Some(12)),
            ("policies", "settings.denied[1].tol: unknown field `tol`", Some(14)),
            ("policies", "settings.denied[1]: unknown field `tol`, expected `tool`", Some(14)),
            ("policies", "unknown field `denied`, expected one of `deny`", Some(12)),
            ("policies", "settings.denied[0]: a glob is wrong: x", Some(13)),
            ("policies", "something else", Some(10)),
            ("sinks", "unknown field `old`", Some(6)),
            ("transforms", "unknown field `old`", None),
        ] {
            assert_eq!(setting_line(TEXT, list, 0, error), line, "{error}");
        }
        assert_eq!(setting_line(TEXT, "policies", 1, "x"), None);
        assert_eq!(setting_line("[", "policies", 0, "x"), None);
    }
}
