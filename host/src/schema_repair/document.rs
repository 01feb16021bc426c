//! Finds the parts of a schema that references lead to.

use std::collections::HashMap;

use serde_json::Value;

/// A whole schema, with its anchors: a schema may have thousands of references, and each would search the whole schema.
pub(super) struct Document<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        collect_anchors(root, &mut anchors);
        Self { root, anchors }
    }

    /// Returns the part that a reference leads to, or `None` if it leads nowhere or to another document.
    pub(super) fn find(&self, reference: &str) -> Option<&'a Value> {
        let root = self.root;
        let own = root.get("$id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let reference = own.and_then(|own| reference.strip_prefix(own)).unwrap_or(reference);
        let fragment = match reference {
            "" => "",
            _ => reference.strip_prefix('#')?,
        };
        if fragment.is_empty() {
            return Some(root);
        }
        if !fragment.starts_with('/') {
            return self.anchors.get(fragment).copied();
        }
        root.pointer(fragment).or_else(|| root.pointer(&percent_decoded(fragment)?))
    }
}

/// Collects each part that has an `$anchor`. Of several with the same one, the first counts.
fn collect_anchors<'a>(schema: &'a Value, anchors: &mut HashMap<&'a str, &'a Value>) {
    match schema {
        Value::Object(members) => {
            if let Some(anchor) = members.get("$anchor").and_then(Value::as_str) {
                anchors.entry(anchor).or_insert(schema);
            }
            members.values().for_each(|value| collect_anchors(value, anchors));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_anchors(item, anchors)),
        _ => {}
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
