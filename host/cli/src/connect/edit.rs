//! Adds an entry to a client's file and removes it again. Comments, order and everything else stay.

use anyhow::{Context as _, bail, ensure};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::client::{Client, FileSyntax};
use crate::config_file::in_style_of;

/// JSON as editors write it: with comments and trailing commas, and otherwise strict.
pub(crate) const JSON: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Returns the entry of this name, if the file has one.
///
/// # Errors
/// If the text is not of the client's form.
pub(crate) fn entry(text: &str, client: Client, name: &str) -> anyhow::Result<Option<Value>> {
    let key = client.servers_key();
    if client.syntax() == FileSyntax::Toml {
        let document = toml(text)?;
        let found = document.get(key).and_then(|servers| servers.get(name));
        return Ok(found.and_then(|found| found.clone().into_value().ok()).map(|found| json_value(&found)));
    }
    let root = json(text)?;
    let Some(servers) = servers(&root, key)? else { return Ok(None) };
    Ok(only(&servers, name)?.and_then(|found| found.value()?.to_serde_value()))
}

/// Returns the text with this entry, which replaces an older one of the name.
///
/// # Errors
/// If the text is not of the client's form.
pub(crate) fn with_entry(text: &str, client: Client, name: &str, entry: &Value) -> anyhow::Result<String> {
    let key = client.servers_key();
    if client.syntax() == FileSyntax::Toml {
        return with_toml_entry(text, key, name, entry);
    }
    let (mark, body) = without_mark(text);
    let root = json(body)?;
    let top = root.object_value_or_create().context("its top level is not an object")?;
    let servers = match servers(&root, key)? {
        Some(servers) => servers,
        None => top.append(key, CstInputValue::Object(Vec::new())).object_value_or_set(),
    };
    match only(&servers, name)? {
        Some(found) => found.set_value(input(entry)),
        None => drop(servers.append(name, input(entry))),
    }
    let end = if body.trim().is_empty() { "\n" } else { "" };
    Ok(format!("{mark}{root}{end}"))
}

/// Returns the text without the entry of this name.
///
/// # Errors
/// If the text is not of the client's form.
pub(crate) fn without_entry(text: &str, client: Client, name: &str) -> anyhow::Result<String> {
    let key = client.servers_key();
    if client.syntax() == FileSyntax::Toml {
        let mut document = toml(text)?;
        if let Some(servers) = document.get_mut(key).and_then(Item::as_table_like_mut) {
            servers.remove(name);
        }
        return Ok(in_style_of(text, &document.to_string()));
    }
    let (mark, body) = without_mark(text);
    let root = json(body)?;
    if let Some(servers) = servers(&root, key)?
        && let Some(found) = only(&servers, name)?
    {
        found.remove();
    }
    Ok(format!("{mark}{root}"))
}

fn json(text: &str) -> anyhow::Result<CstRootNode> {
    CstRootNode::parse(without_mark(text).1, &JSON).map_err(|error| anyhow::anyhow!("it is not JSON: {error}"))
}

/// Returns the object with the servers, if there is one.
fn servers(root: &CstRootNode, key: &str) -> anyhow::Result<Option<CstObject>> {
    let Some(value) = root.value() else { return Ok(None) };
    let top = value.as_object().context("its top level is not an object")?;
    let Some(found) = only(&top, key)? else { return Ok(None) };
    found.object_value().map(Some).with_context(|| format!("its `{key}` is not an object"))
}

/// Returns the member of this name. Programs differ in which of two they read, so two are refused.
fn only(object: &CstObject, name: &str) -> anyhow::Result<Option<CstObjectProp>> {
    let mut found = object.properties().into_iter().filter(|prop| prop.decoded_name().as_deref() == Some(name));
    let first = found.next();
    ensure!(found.next().is_none(), "it has `{name}` twice: remove one of the two by hand");
    Ok(first)
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(yes) => CstInputValue::Bool(*yes),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

fn toml(text: &str) -> anyhow::Result<DocumentMut> {
    let body = without_mark(text).1;
    body.parse().map_err(|error: toml_edit::TomlError| {
        // The error itself quotes the line, which may hold a key of another server.
        let before = error.span().and_then(|span| body.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        anyhow::anyhow!("it is not TOML: {} on line {line}", error.message().trim_end())
    })
}

fn with_toml_entry(text: &str, key: &str, name: &str, entry: &Value) -> anyhow::Result<String> {
    let mut document = toml(text)?;
    let is_first = document.is_empty();
    let servers = document.entry(key).or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let mut table = Table::new();
    for (key, value) in entry.as_object().into_iter().flatten() {
        table.insert(key, toml_edit::value(toml_value(value)));
    }
    match servers {
        Item::Table(servers) => {
            match servers.get(name).and_then(Item::as_table) {
                Some(old) => {
                    *table.decor_mut() = old.decor().clone();
                    table.set_position(old.position());
                }
                None if !is_first => table.decor_mut().set_prefix("\n"),
                None => {}
            }
            servers.insert(name, Item::Table(table));
        }
        Item::Value(toml_edit::Value::InlineTable(servers)) => {
            servers.insert(name, table.into_inline_table().into());
        }
        _ => bail!("its `{key}` is not a table"),
    }
    // The library that edits the text writes line feeds alone.
    Ok(in_style_of(text, &document.to_string()))
}

fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Bool(yes) => (*yes).into(),
        Value::Array(items) => items.iter().map(toml_value).collect::<toml_edit::Array>().into(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.as_str(), toml_value(value)));
            members.collect::<toml_edit::InlineTable>().into()
        }
        Value::String(text) => text.as_str().into(),
        // Our entries have no other numbers.
        Value::Number(number) => number.as_i64().unwrap_or_default().into(),
        Value::Null => "".into(),
    }
}

/// Returns a value of TOML as JSON.
fn json_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(yes) => (*yes.value()).into(),
        toml_edit::Value::Datetime(moment) => moment.value().to_string().into(),
        toml_edit::Value::Array(items) => items.iter().map(json_value).collect(),
        toml_edit::Value::InlineTable(members) => {
            members.iter().map(|(key, value)| (key.to_owned(), json_value(value))).collect()
        }
    }
}

/// Separates the byte order mark, which stays at the beginning.
fn without_mark(text: &str) -> (&str, &str) {
    text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body))
}
