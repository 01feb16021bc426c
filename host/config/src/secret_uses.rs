//! The places at which the text of a configuration uses a secret.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::place;

/// The key that names a secret where a value could be written: `{ secret = "NAME" }`.
const KEY: &str = "secret";

/// Returns the places where the text of a configuration uses a secret, such as `[sources.NAME] env.KEY`, in their
/// order. The text need not be valid otherwise; if it is not TOML, nothing is returned.
#[must_use]
pub fn uses_of_secret(text: &str, secret: &str) -> Vec<String> {
    let Ok(document) = DeTable::parse(text) else { return Vec::new() };
    let mut found = Vec::new();
    document.get_ref().values().for_each(|value| find(value, secret, &mut found));
    found.sort_by_key(|part| part.start);
    found.iter().filter_map(|part| place::of(text, part)).map(|place| place.to_string()).collect()
}

/// Adds the parts of the text that refer to the secret.
fn find(value: &Spanned<DeValue<'_>>, secret: &str, found: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) => match table.iter().next() {
            Some((key, name)) if table.len() == 1 && **key.get_ref() == *KEY => {
                if matches!(name.get_ref(), DeValue::String(name) if **name == *secret) {
                    // A table that is written as `KEY.secret = "NAME"` has no separate part of the text.
                    let whole = value.span();
                    found.push(if whole.contains(&name.span().start) { whole } else { name.span() });
                } else {
                    find(name, secret, found);
                }
            }
            _ => table.values().for_each(|value| find(value, secret, found)),
        },
        DeValue::Array(values) => values.iter().for_each(|value| find(value, secret, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_of_a_secret_is_found_with_its_place() {
        let text = r#"
            [serve]
            token = { secret = "key" }
            callers.ci = { token = { secret = "key" }, profile = "ci" }
            [sources.files]
            command = ["x", "key"]
            env = { KEY = { secret = "key" }, OTHER = { secret = "other" }, PLAIN = "key" }
            [sources.files.cell]
            network = ["key:1"]
            [sources.web.headers.Authorization]
            secret = "key"
            [questions.webhook]
            url = "https://x"
            secret = { secret = "key" }
            [[sinks]]
            syslog = "x"
            [[sinks]]
            otlp = "https://x"
            headers.authorization.secret = "key"
        "#;
        let found = uses_of_secret(text, "key");
        let expected = [
            "[serve] token",
            "[serve] callers.ci.token",
            "[sources.files] env.KEY",
            "[sources.web] headers.Authorization",
            "[questions] webhook.secret",
            "[[sinks]] number 2 headers.authorization",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
        assert_eq!(uses_of_secret(text, "other"), ["[sources.files] env.OTHER"]);
        assert!(uses_of_secret(text, "ey").is_empty() && uses_of_secret("no toml", "key").is_empty());
    }
}
