//! The differences between two definitions, for people.

/// Returns the members, at any depth, in which two definitions in JSON differ, one line each.
#[must_use]
pub fn differences(old: &str, new: &str) -> Vec<String> {
    // Both are within the nesting limit, so parsing and recursion are bounded.
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let mut found = Vec::new();
    compare("", &parse(old), &parse(new), &mut found);
    found
}

fn compare(at: &str, old: &serde_json::Value, new: &serde_json::Value, found: &mut Vec<String>) {
    use serde_json::Value::Object;
    if let (Object(a), Object(b)) = (old, new) {
        for (key, value) in a {
            let at = format!("{at}.{key}");
            match b.get(key) {
                Some(other) => compare(&at, value, other, found),
                None => found.push(format!("{} was removed", at.trim_start_matches('.'))),
            }
        }
        let added = b.keys().filter(|key| !a.contains_key(*key));
        found.extend(added.map(|key| format!("{} was added", format!("{at}.{key}").trim_start_matches('.'))));
    } else if old != new {
        let at = at.trim_start_matches('.');
        found.push(format!("{at} changed from {} to {}", excerpt(old), excerpt(new)));
    }
}

/// Returns a value as one line for people, of at most 120 characters.
fn excerpt(value: &serde_json::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(120) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}
