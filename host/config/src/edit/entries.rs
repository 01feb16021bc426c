//! Adds, removes and sets whole entries of a configuration file.

use portcullis_core::escape::{is_hidden, toml_string};
use toml_edit::{Array, Decor, DocumentMut, InlineTable, Item, Key, Table, TableLike, Value};

use super::EditError;

/// The profile that always exists.
const DEFAULT_PROFILE: &str = "default";

/// A source to add to a file.
#[derive(Debug, Clone, Default)]
pub struct NewSource {
    /// The program and its arguments; empty for a source of another kind.
    pub command: Vec<String>,
    /// The address of a server.
    pub url: Option<String>,
    /// True if the address may be a loopback or private one: `dangerous-allow-private`.
    pub private: bool,
    /// The file, registry reference or `builtin:` name of a component.
    pub component: Option<String>,
    /// The arguments of a component.
    pub args: Vec<String>,
    /// The working directory of a program.
    pub cwd: Option<String>,
    /// The environment variables that the source sees.
    pub env: Vec<(String, String)>,
    /// The environment variables whose values are secrets, with the names of these in the store.
    pub secret_env: Vec<(String, String)>,
    /// The headers that are sent to a server.
    pub headers: Vec<(String, String)>,
    /// The headers whose values are secrets, with the names of these in the store.
    pub secret_headers: Vec<(String, String)>,
    /// The lists of the cell by key, such as `("read", ["./docs"])`. Empty lists are not written.
    pub cell: Vec<(&'static str, Vec<String>)>,
}

/// Returns a string in which what acts on a terminal, and line breaks, are written as escapes.
fn string(text: &str) -> Value {
    let plain = Value::from(text);
    if text.contains(is_hidden) { toml_string(text).parse().unwrap_or(plain) } else { plain }
}

/// Returns the text of a configuration with another source after those that it has.
///
/// # Errors
/// [`EditError`] if there is a source of this name, or the file is not TOML.
pub fn add_source(text: &str, name: &str, new: &NewSource) -> Result<String, EditError> {
    let mut document = parse(text)?;
    if document.get("sources").and_then(Item::as_table_like).is_some_and(|sources| sources.contains_key(name)) {
        return Err(EditError::Exists(name.to_owned()));
    }
    let mut table = Table::new();
    let list = |values: &[String]| values.iter().map(|value| string(value)).collect::<Array>();
    if !new.command.is_empty() {
        table.insert("command", toml_edit::value(list(&new.command)));
    }
    for (key, value) in [("url", &new.url), ("component", &new.component), ("cwd", &new.cwd)] {
        if let Some(value) = value {
            table.insert(key, toml_edit::value(string(value)));
        }
    }
    if !new.args.is_empty() {
        table.insert("args", toml_edit::value(list(&new.args)));
    }
    if new.private {
        table.insert("dangerous-allow-private", toml_edit::value(true));
    }
    for (key, plain, secret) in [("env", &new.env, &new.secret_env), ("headers", &new.headers, &new.secret_headers)] {
        let secret = secret.iter().map(|(key, name)| (key.as_str(), Value::from_iter([("secret", name.as_str())])));
        let values = plain.iter().map(|(key, value)| (key.as_str(), string(value))).chain(secret);
        let values: InlineTable = values.collect();
        if !values.is_empty() {
            table.insert(key, toml_edit::value(values));
        }
    }
    let cell: InlineTable =
        new.cell.iter().filter(|(_, all)| !all.is_empty()).map(|(key, all)| (*key, list(all))).collect();
    if !cell.is_empty() {
        table.insert("cell", toml_edit::value(cell));
    }
    if document.is_empty() {
        // The comments of a file that has nothing else stay before the added text.
        let comments = document.trailing().as_str().unwrap_or_default().to_owned();
        document.set_trailing("");
        table.decor_mut().set_prefix(if comments.is_empty() { comments } else { format!("{comments}\n") });
    } else {
        table.decor_mut().set_prefix("\n");
    }
    let sources = document.entry("sources").or_insert_with(|| {
        let mut sources = Table::new();
        sources.set_implicit(true);
        Item::Table(sources)
    });
    match sources {
        Item::Table(sources) => sources.insert(name, Item::Table(table)),
        Item::Value(Value::InlineTable(sources)) => {
            sources.insert(name, Value::InlineTable(table.into_inline_table()));
            None
        }
        _ => return Err(EditError::Shape("sources".to_owned(), "table")),
    };
    Ok(document.to_string())
}

/// Returns the text of a configuration with a comment above the table of a source's cell: a line for each of these.
///
/// # Errors
/// [`EditError`] if there is no such table.
pub fn comment_on_cell(text: &str, source: &str, lines: &[String]) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let cell = document.get_mut("sources").and_then(|sources| sources.get_mut(source)?.get_mut("cell"));
    let cell = cell.and_then(Item::as_table_mut);
    let cell = cell.ok_or_else(|| EditError::Shape(format!("sources.{source}.cell"), "table"))?;
    let comment = lines.iter().map(|line| format!("# {}\n", line.replace(char::is_control, " ")));
    cell.decor_mut().set_prefix(comment.collect::<String>());
    Ok(document.to_string())
}

/// Returns the text of a configuration without a source. The comment directly above it is removed with it.
///
/// # Errors
/// [`EditError`] if there is no such source, or the file is not TOML.
pub fn remove_source(text: &str, name: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let missing = || EditError::NoSource(name.to_owned());
    let own_position = document.get("sources").and_then(Item::as_table).and_then(Table::position);
    let sources = document.get_mut("sources").and_then(Item::as_table_like_mut).ok_or_else(missing)?;
    let above_key =
        sources.key(name).and_then(|key| key.leaf_decor().prefix()?.as_str()).unwrap_or_default().to_owned();
    let following = sources.iter().map(|(key, _)| key.to_owned()).skip_while(|key| key != name).nth(1);
    let removed = sources.remove(name).ok_or_else(missing)?;
    let (above, position) = match removed.as_table() {
        Some(table) => {
            let above = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            (above.to_owned(), table.position())
        }
        None => (above_key, own_position),
    };
    let kept = kept_comments(&above);
    if kept.trim().is_empty() {
        return Ok(document.to_string());
    }
    if removed.is_value()
        && let Some(mut next) = following.and_then(|key| sources.key_mut(&key))
    {
        prepend(next.leaf_decor_mut(), &kept);
        return Ok(document.to_string());
    }
    match next_table(document.as_table_mut(), position.unwrap_or_default()) {
        Some(next) => prepend(next.decor_mut(), &kept),
        None => {
            let own = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{kept}{own}"));
        }
    }
    Ok(document.to_string())
}

/// Puts a text in front of what stands before an item.
fn prepend(decor: &mut Decor, text: &str) {
    let own = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_owned();
    decor.set_prefix(format!("{text}{own}"));
}

/// Returns the part of the text above a source that belongs to the file: everything before the last blank line.
fn kept_comments(above: &str) -> String {
    let lines: Vec<&str> = above.split_inclusive('\n').collect();
    let last_blank = lines.iter().rposition(|line| line.ends_with('\n') && line.trim().is_empty());
    lines.get(..last_blank.unwrap_or_default()).unwrap_or_default().concat()
}

/// Returns the first table that is written after this position.
fn next_table(table: &mut Table, after: isize) -> Option<&mut Table> {
    let mut next: Option<&mut Table> = None;
    for (_, item) in table.iter_mut() {
        let Item::Table(inner) = item else { continue };
        let found = match inner.position() {
            Some(position) if position > after && !inner.is_implicit() => Some(inner),
            _ => next_table(inner, after),
        };
        if let Some(found) = found
            && next.as_ref().is_none_or(|next| found.position() < next.position())
        {
            next = Some(found);
        }
    }
    next
}

/// Returns the text of a configuration with a value under a dotted key such as `sources.files.timeout`. Tables that are
/// missing are made, but no source and no profile: a name that is spelled wrong must not look as if it worked. A value
/// that is not TOML is a text, and so is a date.
///
/// # Errors
/// [`EditError`] if the key names a source that does not exist, or something else is in its place.
pub fn set_value(text: &str, dotted: &str, value: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let keys = Key::parse(dotted).map_err(|error| EditError::Key(dotted.to_owned(), error.to_string()))?;
    // No key takes a date.
    let value = value.parse::<Value>().ok().filter(|value| !value.is_datetime()).unwrap_or_else(|| Value::from(value));
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    if let ["sources", name, ..] = names.as_slice()
        && document.get("sources").and_then(|sources| sources.get(name)).is_none()
    {
        return Err(EditError::NoSource((*name).to_owned()));
    }
    if let ["profiles", name, ..] = names.as_slice()
        && *name != DEFAULT_PROFILE
        && document.get("profiles").and_then(|profiles| profiles.get(name)).is_none()
    {
        return Err(EditError::NoProfile((*name).to_owned()));
    }
    let Some((last, path)) = names.split_last() else { return Err(EditError::Key(dotted.to_owned(), "empty".into())) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut way = String::new();
    let mut inline = false;
    for name in path {
        way.push_str(&format!("{}{name}", if way.is_empty() { "" } else { "." }));
        if inline && !table.contains_key(name) {
            // In a table on one line, new entries are on the same line.
            let space = super::move_space_from_last(table);
            table.insert(name, Item::Value(Value::InlineTable(InlineTable::new()).decorated(" ", space)));
        }
        let item = table.entry(name).or_insert(Item::Table(Table::new()));
        inline = item.is_inline_table();
        table = item.as_table_like_mut().ok_or_else(|| EditError::Shape(way.clone(), "table"))?;
    }
    match table.get_mut(last) {
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        Some(_) => return Err(EditError::Shape(dotted.to_owned(), "value")),
        None => {
            let space = if inline { super::move_space_from_last(table) } else { Default::default() };
            table.insert(last, Item::Value(value.decorated(" ", space)));
        }
    }
    Ok(document.to_string())
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| EditError::Syntax(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    const FILE: &str = "# My servers\n\n# The first\n[sources.b] # here\ncommand = \"b\" # the program\n\n# The second\n\
                        [sources.a]\ncommand = [\"a\"]\n\n[serve]\n# where\nlisten = \"127.0.0.1:1\"\n# the end\n";

    #[test]
    fn a_source_is_added_after_the_others_and_everything_else_stays() {
        let new = NewSource {
            command: vec!["npx".into(), "-y".into(), "server".into()],
            env: vec![("LEVEL".into(), "info".into())],
            cell: vec![("read", vec!["./docs".into()]), ("write", Vec::new())],
            ..NewSource::default()
        };
        let changed = add_source(FILE, "c", &new).unwrap();
        let expected = "\n[sources.c]\ncommand = [\"npx\", \"-y\", \"server\"]\nenv = { LEVEL = \"info\" }\n\
                        cell = { read = [\"./docs\"] }\n";
        let before = "command = [\"a\"]\n";
        assert_eq!(changed, FILE.replace(before, &format!("{before}{expected}")));
        let url = NewSource { url: Some("https://example.com/mcp".into()), ..NewSource::default() };
        assert_eq!(add_source("", "w", &url).unwrap(), "[sources.w]\nurl = \"https://example.com/mcp\"\n");
        let inline = add_source("sources = { a = { command = \"a\" } }\n", "w", &url).unwrap();
        assert!(inline.contains("a = { command = \"a\" }") && inline.contains("w = { url ="), "{inline}");
        assert_eq!(add_source(FILE, "a", &url).unwrap_err(), EditError::Exists("a".into()));
    }

    #[test]
    fn what_acts_on_a_terminal_is_written_out_and_keeps_its_value() {
        let hostile = "a\u{9b}2J\u{202e}\nb = 1";
        let command = vec!["npx".to_owned(), hostile.to_owned()];
        let new = NewSource { command, env: vec![("KEY".to_owned(), hostile.to_owned())], ..NewSource::default() };
        let added = add_source("", "new", &new).unwrap();
        assert!(!added.contains(|c: char| is_hidden(c) && c != '\n'), "{added:?}");
        let source = &added.parse::<DocumentMut>().unwrap()["sources"]["new"];
        assert_eq!((source["command"][1].as_str(), source["env"]["KEY"].as_str()), (Some(hostile), Some(hostile)));
        assert_eq!(added.lines().count(), 3, "a value makes no line of its own: {added:?}");
    }

    #[test]
    fn a_source_is_removed_with_its_own_comment_and_no_other() {
        let changed = remove_source(FILE, "b").unwrap();
        let expected = FILE.replace("# The first\n[sources.b] # here\ncommand = \"b\" # the program\n\n", "");
        assert_eq!(changed, expected);
        let changed = remove_source(FILE, "a").unwrap();
        assert_eq!(changed, FILE.replace("\n# The second\n[sources.a]\ncommand = [\"a\"]\n", ""));
        assert_eq!(remove_source(FILE, "z").unwrap_err(), EditError::NoSource("z".into()));
        // A blank line may have spaces, and end as on Windows.
        for blank in ["\r\n\r\n", "\n  \n"] {
            let text = FILE.replacen("\n\n", blank, 1);
            assert!(remove_source(&text, "b").unwrap().starts_with("# My servers"), "{blank:?}");
        }
        let inline =
            "[sources]\n# My servers\n\n# The first\na = { command = \"a\" }\n# The second\nb = { command = \"b\" }\n";
        let changed = remove_source(inline, "a").unwrap();
        assert_eq!(changed, "[sources]\n# My servers\n# The second\nb = { command = \"b\" }\n");
        let last = "[sources]\n# My servers\n\n# The first\na = { command = \"a\" }\n\n[serve]\n";
        assert_eq!(remove_source(last, "a").unwrap(), "[sources]\n# My servers\n\n[serve]\n");
    }

    #[test]
    fn a_value_is_set_in_its_place_and_keeps_its_comment() {
        let changed = set_value(FILE, "sources.b.command", "c").unwrap();
        assert_eq!(changed, FILE.replace("command = \"b\"", "command = \"c\""));
        let changed = set_value(FILE, "sources.a.enabled", "false").unwrap();
        assert_eq!(changed, FILE.replace("command = [\"a\"]\n", "command = [\"a\"]\nenabled = false\n"));
        let changed = set_value(FILE, "sources.a.timeout", "30s").unwrap();
        assert!(changed.contains("timeout = \"30s\"\n"), "{changed}");
        let changed = set_value(FILE, "sources.a.cell.read", "[\"/x\"]").unwrap();
        assert!(changed.contains("[sources.a.cell]\nread = [\"/x\"]\n"), "{changed}");
        let changed = set_value("sources.a = { command = \"a\" }\n", "sources.a.cell.read", "[\"/x\"]").unwrap();
        assert_eq!(changed, "sources.a = { command = \"a\", cell = { read = [\"/x\"] } }\n");
    }

    #[test]
    fn what_cannot_be_set_is_an_error() {
        assert_eq!(set_value(FILE, "sources.z.timeout", "1s").unwrap_err(), EditError::NoSource("z".into()));
        assert_eq!(
            set_value(FILE, "profiles.defualt.approve", "always").unwrap_err(),
            EditError::NoProfile("defualt".into())
        );
        assert!(set_value(FILE, "profiles.default.approve", "always").is_ok());
        assert!(matches!(set_value(FILE, "sources.a.command.x", "1"), Err(EditError::Shape(..))));
        assert!(matches!(set_value(FILE, "sources.a", "1"), Err(EditError::Shape(..))));
        assert!(matches!(set_value(FILE, "sources..a", "1"), Err(EditError::Key(..))));
    }
}
