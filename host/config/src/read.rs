//! Reads the tables of a configuration from their text.

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::error::UnlocatedProblem;
use super::place::NAMED;
use super::raw::RawConfig;

/// Reads a text.
///
/// # Errors
/// The problem of a text that is not TOML, or else the first problem of each table that cannot be read: serde reads no
/// further in it.
pub(super) fn read(text: &str) -> Result<RawConfig, Vec<UnlocatedProblem>> {
    let first = match toml::from_str(text) {
        Ok(raw) => return Ok(raw),
        Err(error) => UnlocatedProblem::of_toml(&error),
    };
    let Ok(document) = DeTable::parse(text) else { return Err(vec![first]) };
    let problems = tables(document)
        .into_iter()
        .filter_map(|table| RawConfig::deserialize(Deserializer::from(table)).err())
        .map(|error| UnlocatedProblem::of_toml(&error));
    let problems: Vec<_> = problems.collect();
    Err(if problems.is_empty() { vec![first] } else { problems })
}

/// Returns a document for each table, with only that table, at its place in the text.
fn tables(document: Spanned<DeTable<'_>>) -> Vec<Spanned<DeTable<'_>>> {
    let mut all = Vec::new();
    let span = document.span();
    for (kind, value) in document.into_inner() {
        let (at, is_named) = (value.span(), NAMED.contains(&&**kind.get_ref()));
        let mut add = |value| {
            let alone = DeTable::from_iter([(kind.clone(), Spanned::new(at.clone(), value))]);
            all.push(Spanned::new(span.clone(), alone));
        };
        match value.into_inner() {
            DeValue::Table(named) if is_named => {
                named.into_iter().for_each(|entry| add(DeValue::Table(DeTable::from_iter([entry]))));
            }
            DeValue::Array(entries) if !entries.is_empty() => {
                entries.into_iter().for_each(|entry| add(DeValue::Array([entry].into_iter().collect())));
            }
            value => add(value),
        }
    }
    all
}
