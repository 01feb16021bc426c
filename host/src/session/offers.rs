//! The capabilities of a session's sources together, and their instructions for a model.

use serde_json::{Value, json};

use super::AdvertisedCapabilities;
use super::listing::SessionCatalog;
use crate::item::Item;
use crate::name::SourceName;
use crate::protocol::{Era, Json};

impl SessionCatalog {
    /// Returns the capabilities of the sources together. The tools of a legacy session are announced as unchanging,
    /// unless a source is live or missing; a modern agent subscribes if it wants to learn of changes.
    pub(super) fn offers(&self, era: Era) -> AdvertisedCapabilities {
        let parts = self.sources().map(|(upstream, discovered)| {
            let name = &upstream.config.name;
            let instructions = discovered.instructions.as_deref().filter(|_| !self.is_silenced(name));
            OfferedPart { name, capabilities: &discovered.capabilities, instructions }
        });
        // The tools are a snapshot, unless a source is live, or is missing and will be added when it is there.
        let tracks = self.is_live() || self.is_partial();
        let away = Unavailable { missing: self.missing(), starting: Vec::new(), off: self.off_sentence() };
        let merged = merged(era, tracks, &away, parts);
        AdvertisedCapabilities { only_era: self.only_era(), ..merged }
    }

    /// Returns the only era that the only source speaks, if there is one source and it speaks one era.
    fn only_era(&self) -> Option<Era> {
        match self.answered.as_slice() {
            [only] if only.listed.is_ok() => only.upstream.only_era(),
            _ => None,
        }
    }
}

/// The capabilities and instructions that one source offers besides its items.
pub(super) struct OfferedPart<'a> {
    pub(super) name: &'a SourceName,
    /// `ServerCapabilities`
    pub(super) capabilities: &'a Json,
    /// The source's instructions, unless they are quarantined.
    pub(super) instructions: Option<&'a Item>,
}

/// The unavailable sources and tools that the answer to the handshake mentions.
#[derive(Default)]
pub(super) struct Unavailable<'a> {
    /// The sources that have failed.
    pub(super) missing: Vec<&'a SourceName>,
    /// The sources that have not answered yet.
    pub(super) starting: Vec<&'a SourceName>,
    /// The sentence about tools that are off.
    pub(super) off: Option<String>,
}

impl Unavailable<'_> {
    /// Returns the sentences that name them. They repeat no words of a source.
    fn sentences(&self) -> impl Iterator<Item = String> {
        let list = |names: &[&SourceName]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let missing = (!self.missing.is_empty()).then(|| {
            let missing = list(&self.missing);
            format!("What these sources offer is not available now; what becomes available is added to the lists: {missing}.")
        });
        let starting = (!self.starting.is_empty()).then(|| {
            let starting = list(&self.starting);
            format!(
                "These sources are starting, and the lists show what they offer as soon as they are ready: {starting}."
            )
        });
        missing.into_iter().chain(starting).chain(self.off.clone())
    }
}

/// Merges what sources offer. `tracks` is true if the tools of a legacy session may change.
pub(super) fn merged<'a>(
    era: Era,
    tracks: bool,
    away: &Unavailable<'_>,
    parts: impl Iterator<Item = OfferedPart<'a>>,
) -> AdvertisedCapabilities {
    let (mut merged, mut sentences) = (json!({}), Vec::from_iter(away.sentences()));
    for OfferedPart { name, capabilities, instructions } in parts {
        merge(&mut merged, capabilities.to_value());
        let instructions = instructions.and_then(Item::instructions);
        sentences.extend(instructions.map(|text| format!("{name}: {text}")));
    }
    if let Value::Object(capabilities) = &mut merged {
        if era == Era::Modern {
            // The modern era has tasks as an extension.
            capabilities.remove("tasks");
        }
        if tracks || era == Era::Legacy || !capabilities.contains_key("tools") {
            capabilities.insert("tools".to_owned(), json!({ "listChanged": tracks }));
        }
    }
    AdvertisedCapabilities {
        capabilities: merged,
        instructions: (!sentences.is_empty()).then(|| sentences.join("\n\n")),
        only_era: None,
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
