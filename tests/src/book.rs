//! The pages of the book that are made from the code, and what holds for all pages.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests, which read UPDATE_GOLDEN"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use portcullis::ledger::EventKind;
use portcullis_test_support::{CodeBlock, code_blocks};
use serde_json::{Map, Value};

use crate::repository::{documents, root, rust_files};

/// The page that is made from the schema of the configuration.
const REFERENCE: &str = "docs/src/reference/configuration.md";

/// The most lines of the README: as much as a newcomer reads.
const README_LINES: usize = 150;

#[test]
fn the_reference_of_the_configuration_is_made_from_its_schema() {
    let page = Schema(portcullis::config::schema()).page();
    let path = root().join(REFERENCE);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, page).unwrap();
    } else {
        let update = "run `UPDATE_GOLDEN=1 cargo test --workspace --lib -- reference_of_the_configuration`";
        assert!(fs::read_to_string(path).unwrap() == page, "{REFERENCE} is not what the schema says: {update}");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines; move what is more than {README_LINES} into the book");
}

#[test]
fn the_summary_lists_every_page_once() {
    let pages = root().join("docs/src");
    let summary = fs::read_to_string(pages.join("SUMMARY.md")).unwrap();
    let listed: Vec<&str> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let distinct: BTreeSet<String> = listed.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(listed.len(), distinct.len(), "a page is listed twice: {listed:?}");
    let written = documents().into_iter().filter_map(|file| {
        let page = file.strip_prefix(&pages).ok()?.to_str()?.to_owned();
        (page != "SUMMARY.md").then_some(page)
    });
    assert_eq!(distinct, written.collect());
}

#[test]
fn every_page_begins_with_a_title_and_says_what_it_is_for() {
    for file in documents().into_iter().filter(|file| file.starts_with(root().join("docs/src"))) {
        let text = fs::read_to_string(&file).unwrap();
        let mut paragraphs = text.split("\n\n").map(str::trim);
        let title = paragraphs.next().unwrap_or_default();
        assert!(title.starts_with("# ") && title.lines().count() == 1, "{}: {title}", file.display());
        let first = paragraphs.next().unwrap_or_default();
        let is_text = first.starts_with(|c: char| c.is_alphabetic() || "*`[".contains(c));
        assert!(is_text, "{}: after the title comes {first:?}", file.display());
    }
}

#[test]
fn every_kind_of_record_is_on_the_page_about_the_format() {
    let page = fs::read_to_string(root().join("docs/src/ledger-format.md")).unwrap();
    let missing: Vec<_> =
        EventKind::ALL.iter().filter(|kind| !page.contains(&format!("`{}`", kind.as_str()))).collect();
    assert!(missing.is_empty(), "docs/src/ledger-format.md does not name {missing:?}");
}

/// The page whose Rust is compiled as examples of this crate (`lib.rs`).
const RUST_PAGE: &str = "docs/src/extend/embedding.md";

#[test]
fn rust_stands_only_where_it_is_compiled() {
    let rust: Vec<_> = code_blocks().into_iter().filter(|block| block.is("rust")).collect();
    assert!(rust.len() > 5, "only {} blocks of Rust are found: does the test still see them?", rust.len());
    // The suite builds the policy of the page on plugins.
    let compiled = |block: &CodeBlock| block.place().starts_with(RUST_PAGE) && !block.is("ignore");
    let elsewhere = rust.iter().filter(|block| !compiled(block) && !block.is("policy-source"));
    let elsewhere: Vec<_> = elsewhere.map(|block| block.place()).collect();
    assert!(elsewhere.is_empty(), "nothing compiles the Rust at {elsewhere:?}");
}

/// The shortest part of a message that is looked for, in bytes.
const MIN_PART: usize = 5;

#[test]
fn every_message_that_the_book_explains_is_one_of_the_program() {
    let mut sources = String::new();
    let said = |file: &&PathBuf| ["host", "plugins"].iter().any(|folder| file.starts_with(root().join(folder)));
    for file in rust_files().iter().filter(said) {
        sources.push_str(&fs::read_to_string(file).unwrap());
    }
    // A long text is written over several lines of source.
    let lines: Vec<_> = sources.split("\\\n").map(str::trim_start).collect();
    let sources = lines.concat().replace("\\\"", "\"");
    let blocks: Vec<_> = code_blocks().into_iter().filter(|block| block.is("message")).collect();
    assert!(blocks.len() > 10, "only {} messages are found: does the test still see them?", blocks.len());
    for block in blocks {
        for part in block.text.lines().flat_map(|line| line.split('…')).filter(|part| part.trim().len() >= MIN_PART) {
            assert!(sources.contains(part.trim()), "{}: no message has {part:?}", block.place());
        }
    }
}

/// The JSON Schema of the configuration.
struct Schema(Value);

impl Schema {
    fn page(&self) -> String {
        let mut page = String::from(
            "# Configuration reference\n\nThis page lists every key of `portcullis.toml`, so that you can look up what it \
             takes. It is made from the\nschema in the code (`portcullis schema` prints that as JSON Schema, for editors); \
             a test keeps it so. How the parts\nwork together is in [Configuration](../guide/configuration.md).\n\n\
             Relative paths are relative to the folder of the file. Times are written like `\"30s\"`, `\"10m\"` or `\"8h\"`, \
             sizes like\n`\"64MiB\"`. An unknown key is an error. A *value* is a text, or `{ secret = \"NAME\" }` for one that \
             `portcullis secret set\nNAME` has stored.\n",
        );
        let top = self.0["properties"].as_object().unwrap();
        for (key, schema) in top {
            self.table(&mut page, key, schema, 2);
        }
        page
    }

    /// Writes the section of a table and those of the tables in it.
    fn table(&self, page: &mut String, path: &str, schema: &Value, level: usize) {
        let (heading, inner) = match self.inner(schema) {
            Inner::Table(inner) => (format!("[{path}]"), inner),
            Inner::Map(inner) => (format!("[{path}.NAME]"), inner),
            Inner::List(inner) => (format!("[[{path}]]"), inner),
            Inner::Value => return,
        };
        let _ = write!(page, "\n{} `{heading}`\n\n", "#".repeat(level));
        page.push_str(&paragraph(self.description(schema)));
        let own = self.description(inner);
        if own != self.description(schema) {
            page.push_str(&paragraph(own));
        }
        let required: Vec<&str> =
            inner["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = inner["properties"].as_object().unwrap();
        for (key, schema) in properties.iter().filter(|(_, schema)| matches!(self.inner(schema), Inner::Value)) {
            let needed = if required.contains(&key.as_str()) { ", required" } else { "" };
            let description = self.description(schema).split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(page, "- **`{key}`** ({}{needed}): {description}", self.kind(schema));
            for (value, meaning) in self.choices(schema) {
                let _ = writeln!(page, "  - `{value}`: {meaning}");
            }
        }
        let path = heading.trim_matches(['[', ']']);
        for (key, schema) in properties {
            self.table(page, &format!("{path}.{key}"), schema, (level + 1).min(4));
        }
    }

    /// Returns what a schema is about, behind references and optional values.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            return self.resolved(&self.0["$defs"][name]);
        }
        let real = schema["anyOf"].as_array().into_iter().flatten().find(|one| one["type"] != "null");
        match real {
            Some(one) if one.get("$ref").is_some() => self.resolved(one),
            _ => schema,
        }
    }

    fn inner<'a>(&'a self, schema: &'a Value) -> Inner<'a> {
        let schema = self.resolved(schema);
        let is_table = |schema: &'a Value| schema.get("properties").is_some().then_some(schema);
        if let Some(table) = is_table(schema) {
            return Inner::Table(table);
        }
        if let Some(table) = schema.get("additionalProperties").and_then(|inner| is_table(self.resolved(inner))) {
            return Inner::Map(table);
        }
        match schema.get("items").and_then(|inner| is_table(self.resolved(inner))) {
            Some(table) => Inner::List(table),
            None => Inner::Value,
        }
    }

    /// Returns the description next to a reference, or else that of its target.
    fn description<'a>(&'a self, schema: &'a Value) -> &'a str {
        let own = schema["description"].as_str();
        own.or_else(|| self.resolved(schema)["description"].as_str()).unwrap_or_default()
    }

    /// Returns the kind of a value in words.
    fn kind(&self, schema: &Value) -> String {
        let name = |schema: &Value| schema["$ref"].as_str().unwrap_or_default().rsplit('/').next() == Some("Value");
        let any_of = schema["anyOf"].as_array().cloned().unwrap_or_default();
        if name(schema) || any_of.iter().any(name) {
            return "value".to_owned();
        }
        let resolved = self.resolved(schema);
        let types: Vec<&str> = match &resolved["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).filter(|one| *one != "null").collect(),
            one => one.as_str().into_iter().collect(),
        };
        match types.first().copied() {
            Some("array") => format!("list of {}s", self.kind(&resolved["items"])),
            Some("object") => match resolved.get("additionalProperties").filter(|inner| inner.is_object()) {
                Some(inner) => format!("table of {}s", self.kind(inner)),
                None => "table".to_owned(),
            },
            Some("string") => "text".to_owned(),
            Some("integer" | "number") => "number".to_owned(),
            Some(other) => other.to_owned(),
            None if resolved.get("oneOf").is_some() => "text".to_owned(),
            // The rest may be a text or a table, as the description says.
            None => "text or table".to_owned(),
        }
    }

    /// Returns the values that are possible, with their meanings.
    fn choices<'a>(&'a self, schema: &'a Value) -> Vec<(&'a str, &'a str)> {
        let items = self.resolved(schema).get("items").unwrap_or(&Value::Null);
        let cases = |schema: &'a Value| self.resolved(schema)["oneOf"].as_array();
        let cases = cases(schema).or_else(|| cases(items)).into_iter().flatten();
        cases.filter_map(|case| Some((case["const"].as_str()?, case["description"].as_str()?))).collect()
    }
}

/// The value that a key of the configuration holds.
enum Inner<'a> {
    Table(&'a Value),
    /// Tables by name.
    Map(&'a Value),
    List(&'a Value),
    Value,
}

fn paragraph(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}\n\n") }
}

#[test]
fn a_description_beside_a_reference_comes_before_the_one_behind_it() {
    let schema = Schema(serde_json::json!({
        "$defs": { "Inner": { "type": "object", "description": "behind", "properties": Map::new() } },
        "properties": { "one": { "$ref": "#/$defs/Inner", "description": "beside" } },
    }));
    let page = schema.page();
    assert!(page.contains("## `[one]`\n\nbeside\n\nbehind\n"), "{page}");
}
