//! The changes within the settings of a plugin, for a person who decides whether to trust it.

use serde_json::{Map, Value};

use crate::output::escape_hidden;

/// The words before the settings, in a line about what a configuration does.
const BEFORE: &str = " the settings ";

/// A line about settings, as `broker: gives the policy plugin builtin:rules the settings {…}`.
#[derive(Debug, PartialEq)]
pub(crate) struct SettingsLine<'a> {
    /// The part of the configuration that gets them.
    pub(crate) about: &'a str,
    settings: Value,
}

impl<'a> SettingsLine<'a> {
    /// Reads a line; `None` if it is about something else.
    pub(crate) fn of(line: &'a str) -> Option<Self> {
        let (about, settings) = line.split_once(BEFORE)?;
        let settings = serde_json::from_str(settings).ok().filter(Value::is_object)?;
        Some(Self { about, settings })
    }

    /// Returns what is different in `now`: one line each, safe to show, in the order of the keys. A line begins with
    /// `-` for removed parts, with `+` for new ones, and with the key of a changed value.
    pub(crate) fn changes_to(&self, now: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        of_value("", &self.settings, &now.settings, &mut lines);
        lines.iter().map(|line| escape_hidden(line).into_owned()).collect()
    }
}

fn of_value(at: &str, before: &Value, now: &Value, lines: &mut Vec<String>) {
    match (before, now) {
        (before, now) if before == now => {}
        (Value::Object(before), Value::Object(now)) => of_objects(at, before, now, lines),
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() && all_objects(before, now) => {
            for (index, (before, now)) in before.iter().zip(now).enumerate() {
                of_value(&format!("{at}[{}]", index + 1), before, now, lines);
            }
        }
        (Value::Array(before), Value::Array(now)) => of_lists(at, before, now, lines),
        // A text of several lines, such as policies in Cedar, is compared line by line.
        (Value::String(before), Value::String(now)) if before.contains('\n') || now.contains('\n') => {
            let lines_of = |text: &str| text.lines().map(Value::from).collect::<Vec<_>>();
            of_lists(at, &lines_of(before), &lines_of(now), lines);
        }
        (before, now) => lines.push(format!("{at}: {before} → {now}")),
    }
}

fn of_objects(at: &str, before: &Map<String, Value>, now: &Map<String, Value>, lines: &mut Vec<String>) {
    let inner = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    for (key, before) in before {
        match now.get(key) {
            Some(now) => of_value(&inner(key), before, now, lines),
            None => lines.push(format!("- {}: {before}", inner(key))),
        }
    }
    let new = now.iter().filter(|(key, _)| !before.contains_key(*key));
    lines.extend(new.map(|(key, now)| format!("+ {}: {now}", inner(key))));
}

/// Adds the entries that only one of two lists has. An entry counts as often as it occurs.
fn of_lists(at: &str, before: &[Value], now: &[Value], lines: &mut Vec<String>) {
    let (gone, new) = (without(before, now), without(now, before));
    if gone.is_empty() && new.is_empty() {
        lines.push(format!("{at}: the same in another order"));
    }
    lines.extend(gone.into_iter().map(|entry| format!("- {at}: {entry}")));
    lines.extend(new.into_iter().map(|entry| format!("+ {at}: {entry}")));
}

fn without<'a>(list: &'a [Value], other: &[Value]) -> Vec<&'a Value> {
    let mut other: Vec<&Value> = other.iter().collect();
    let is_alone = |entry: &&Value| match other.iter().position(|one| one == entry) {
        Some(found) => {
            other.swap_remove(found);
            false
        }
        None => true,
    };
    list.iter().filter(is_alone).collect()
}

fn all_objects(before: &[Value], now: &[Value]) -> bool {
    before.iter().chain(now).all(Value::is_object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn changes(before: &Value, now: &Value) -> Vec<String> {
        let line = |settings: &Value| format!("broker: gives the policy plugin x the settings {settings}");
        let (before, now) = (line(before), line(now));
        let (before, now) = (SettingsLine::of(&before).unwrap(), SettingsLine::of(&now).unwrap());
        assert_eq!((before.about, now.about), ("broker: gives the policy plugin x", before.about));
        before.changes_to(&now)
    }

    #[test]
    fn each_key_says_what_it_was_and_what_it_is() {
        let before = json!({ "ask": ["a", "b", "b"], "max": 5, "old": true, "deep": { "same": 1, "limit": "1h" } });
        let now = json!({ "ask": ["b", "c", "a"], "max": 50, "deep": { "same": 1, "limit": "9h" }, "new": [1] });
        let expected =
            ["- ask: \"b\"", "+ ask: \"c\"", "max: 5 → 50", "- old: true", "deep.limit: \"1h\" → \"9h\"", "+ new: [1]"];
        let mut found = changes(&before, &now);
        found.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(changes(&json!({ "a": [1, 2] }), &json!({ "a": [2, 1] })), ["a: the same in another order"]);
        assert!(changes(&before, &before).is_empty());
    }

    #[test]
    fn rules_are_compared_one_by_one_and_long_texts_line_by_line() {
        let before = json!({ "when": [{ "tool": "a", "if": "x" }, { "tool": "b" }], "cedar": "permit;\nforbid a;\n" });
        let now =
            json!({ "when": [{ "tool": "a", "if": "y" }, { "tool": "b" }], "cedar": "permit;\nforbid \u{1b};\n" });
        let expected = ["- cedar: \"forbid a;\"", "+ cedar: \"forbid \\u001b;\"", "when[1].if: \"x\" → \"y\""];
        let mut found = changes(&before, &now);
        found.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
        let more = json!({ "when": [{ "tool": "b" }], "cedar": "permit;\nforbid a;\n" });
        assert_eq!(changes(&before, &more), ["- when: {\"tool\":\"a\",\"if\":\"x\"}"]);
    }

    #[test]
    fn a_line_about_something_else_is_none_about_settings() {
        for line in ["source a: reads /b", "source a: runs the settings x", "x the settings [1]"] {
            assert_eq!(SettingsLine::of(line), None, "{line}");
        }
    }
}
