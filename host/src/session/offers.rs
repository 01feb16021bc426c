//! The capabilities of a session's sources together, and their instructions for a model.

use serde_json::{Value, json};

use super::ServerInfo;
use super::listing::Listing;
use crate::protocol::Era;

impl Listing {
    /// Returns the capabilities of the sources together. The tools of a legacy session are announced as unchanging,
    /// unless a source is live or missing; a modern agent subscribes if it wants to hear of changes.
    pub(super) fn offers(&self, era: Era) -> ServerInfo {
        let mut merged = json!({});
        for (_, met) in self.sources() {
            merge(&mut merged, met.capabilities.to_value());
        }
        if let Value::Object(capabilities) = &mut merged
            && era == Era::Modern
        {
            // The modern era has tasks as an extension.
            capabilities.remove("tasks");
        }
        // The tools are a snapshot, unless a source is live, or is missing and will be added when it is there.
        let tracks = self.is_live() || self.is_partial();
        if let Value::Object(capabilities) = &mut merged
            && (tracks || era == Era::Legacy || !capabilities.contains_key("tools"))
        {
            capabilities.insert("tools".to_owned(), json!({ "listChanged": tracks }));
        }
        let said = self.sources().filter_map(|(upstream, met)| {
            let name = &upstream.config.name;
            let said = met.instructions.as_ref().filter(|_| !self.is_silenced(name))?;
            Some(format!("{name}: {}", said.instructions()?))
        });
        let said: Vec<_> = self.told_missing().into_iter().chain(said).collect();
        ServerInfo {
            capabilities: merged,
            instructions: (!said.is_empty()).then(|| said.join("\n\n")),
            only_era: self.only_era(),
        }
    }

    /// Returns the sentence that tells an agent which sources are missing, if any are. It repeats nothing that a source
    /// said.
    fn told_missing(&self) -> Option<String> {
        let missing: Vec<_> = self.missing().into_iter().map(|name| format!("`{name}`")).collect();
        (!missing.is_empty()).then(|| {
            let missing = missing.join(", ");
            format!("What these sources offer is not available now, and is added to the lists when it is: {missing}.")
        })
    }

    /// Returns the only era that the only source speaks, if there is one source and it speaks one era.
    fn only_era(&self) -> Option<Era> {
        match self.answered.as_slice() {
            [(only, Ok(_))] => only.source.only_era(),
            _ => None,
        }
    }
}

/// Merges capabilities: objects are merged, and of two flags the one that is set wins.
fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (key, value) in other {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into @ (Value::Null | Value::Bool(false)), other) => *into = other,
        _ => {}
    }
}
