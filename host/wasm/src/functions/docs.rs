//! The doc comments of the WIT functions, if a component carries them in the section `package-docs`: a version byte and
//! JSON, as the WIT tools write it.

use serde_json::Value;

use super::bare;

/// The most bytes of one description. Longer ones are cut: it is text for a model, written by a third party.
const MAX_BYTES: usize = 4096;

/// The documentation of functions; empty if the component has none, or none that can be read.
pub(super) struct Docs(Value);

impl Docs {
    pub(super) fn of(section: Option<&[u8]>) -> Self {
        let read = section.and_then(|section| match section {
            [0 | 1, json @ ..] => serde_json::from_slice(json).ok(),
            _ => None,
        });
        Self(read.unwrap_or_default())
    }

    pub(super) fn function(&self, interface: Option<&str>, function: &str) -> Option<String> {
        let found = match interface.map(bare) {
            Some(interface) => self.0.get("interfaces")?.get(interface)?.get("funcs")?.get(function)?,
            None => {
                let worlds = self.0.get("worlds")?.as_object()?;
                let functions = worlds.values().flat_map(|world| [world.get("func_exports"), world.get("funcs")]);
                functions.flatten().find_map(|functions| functions.get(function))?
            }
        };
        let text = found.as_str().or_else(|| found.get("docs")?.as_str())?.trim();
        let cut = text.floor_char_boundary(MAX_BYTES);
        Some(text.get(..cut)?.to_owned()).filter(|text| !text.is_empty())
    }
}
