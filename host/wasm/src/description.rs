//! The description that a plugin may carry of itself: JSON in a custom section, which is read without running the
//! plugin. `plugin describe` writes it into any component; the SDK for Rust has a macro for it.

use portcullis_core::call::CallView;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::PluginError;
use super::load::PluginBytes;

/// A plugin's description of itself. It is a claim of the author, and grants nothing. Members that this version does
/// not know are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PluginDescription {
    /// The plugin's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The plugin's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The phases of a call in which the plugin has something to decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<String>,
    /// The calls that the plugin, a policy, passes whatever else they are, so that the broker need not ask it:
    /// `without-effect` are calls that can have no effect outside their source, and `nothing-seen` those of a session that
    /// has seen no result with a label. Other words are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<String>,
    /// The JSON Schema of the settings. A plugin is loaded only with settings that fit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
}

/// The calls that a policy passes without being asked, as its description says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassedCalls {
    without_effect: bool,
    nothing_seen: bool,
}

impl PassedCalls {
    pub(crate) fn of(description: Option<&PluginDescription>) -> Self {
        let passes = |word: &str| description.is_some_and(|it| it.passes.iter().any(|passed| passed == word));
        Self { without_effect: passes("without-effect"), nothing_seen: passes("nothing-seen") }
    }

    /// Reports whether a call is one of these. Where its information flow is unknown, none is.
    pub(crate) fn has(self, view: &CallView) -> bool {
        view.flow.as_deref().is_some_and(|flow| {
            self.without_effect && flow.effects().is_empty() || self.nothing_seen && flow.labels().is_empty()
        })
    }
}

#[cfg(feature = "compiler")]
mod section {
    use jsonschema::Validator;
    use wasmparser::{BinaryReaderError, Parser, Payload};

    use super::{PluginBytes, PluginDescription, PluginError, Value};
    use crate::load::PluginCode;

    /// The name of the custom section.
    const NAME: &str = "portcullis:description";

    /// The largest description, in bytes: room for a schema of hundreds of settings.
    const MAX_BYTES: usize = 64 << 10;

    /// The way out for a schema with another keyword.
    const WITH: &str = "references are to be written in their place, and the plugin itself can check the rest";

    /// The keywords of a schema that have no schemas in them.
    const SIMPLE: [&str; 25] = [
        "$comment",
        "$schema",
        "const",
        "default",
        "deprecated",
        "description",
        "enum",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "readOnly",
        "required",
        "title",
        "type",
        "uniqueItems",
    ];

    /// The keywords whose value is a schema.
    const OF_ONE_SCHEMA: [&str; 8] =
        ["additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"];

    /// The keywords whose value is a list of schemas, or schemas by name.
    const OF_MANY_SCHEMAS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "properties"];

    impl PluginDescription {
        /// Returns the description in a plugin's bytes. Where there are several, the last one counts: it was added to
        /// the finished component.
        ///
        /// # Errors
        /// [`PluginError::Description`] if the description cannot be used.
        pub(crate) fn of(wasm: &PluginBytes) -> Result<Option<Self>, PluginError> {
            let PluginCode::Wasm(bytes) = &wasm.form else { return Ok(None) };
            // Most plugins have none, and looking for the name is faster than parsing.
            if memchr::memmem::find(bytes, NAME.as_bytes()).is_none() {
                return Ok(None);
            }
            let refuse = |reason| PluginError::Description { plugin: wasm.plugin.clone(), reason };
            let not_wasm = |error: BinaryReaderError| PluginError::NotAComponent {
                plugin: wasm.plugin.clone(),
                reason: error.to_string(),
            };
            match find(bytes).map_err(not_wasm)? {
                Some(json) => Self::parse(json).map(Some).map_err(refuse),
                None => Ok(None),
            }
        }

        /// Parses a description and checks that its schema can be used.
        fn parse(json: &[u8]) -> Result<Self, String> {
            if json.len() > MAX_BYTES {
                return Err(format!("it has {} bytes; at most {MAX_BYTES} are read", json.len()));
            }
            let description: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
            description.validator()?;
            Ok(description)
        }

        /// Returns the validator of settings, if the description has a schema.
        fn validator(&self) -> Result<Option<Validator>, String> {
            let Some(schema) = &self.settings else { return Ok(None) };
            if let Some(keyword) = refused_keyword(schema) {
                return Err(format!("`settings`: a schema of settings must not use `{keyword}`; {WITH}"));
            }
            jsonschema::validator_for(schema)
                .map(Some)
                .map_err(|error| format!("`settings` is no JSON Schema: {error}"))
        }

        /// Checks settings against the schema, if the description has one.
        fn check(&self, plugin: &str, settings: &Value) -> Result<(), PluginError> {
            let refuse = |reason| PluginError::Description { plugin: plugin.to_owned(), reason };
            let Some(validator) = self.validator().map_err(refuse)? else { return Ok(()) };
            let Err(error) = validator.validate(settings) else { return Ok(()) };
            let place = error.instance_path().to_string().replace('/', ".");
            let reason = error.to_string();
            Err(PluginError::OtherSettings { plugin: plugin.to_owned(), setting: format!("settings{place}"), reason })
        }
    }

    /// Returns the description of a plugin, if it has one, which its settings fit.
    pub(crate) fn fitting(wasm: &PluginBytes, settings: &Value) -> Result<Option<PluginDescription>, PluginError> {
        let description = PluginDescription::of(wasm)?;
        description.as_ref().map_or(Ok(()), |description| description.check(&wasm.plugin, settings))?;
        Ok(description)
    }

    /// Returns a component or core module with this description, replacing one that was added before.
    ///
    /// # Errors
    /// [`PluginError::NotAComponent`], or [`PluginError::Description`] if the JSON is not a description.
    pub fn with_description(plugin: &str, mut wasm: Vec<u8>, json: &str) -> Result<Vec<u8>, PluginError> {
        let not_wasm = |reason: String| PluginError::NotAComponent { plugin: plugin.to_owned(), reason };
        if !wasm.starts_with(b"\0asm") {
            return Err(not_wasm("it does not begin as WebAssembly does".into()));
        }
        PluginDescription::parse(json.as_bytes())
            .map_err(|reason| PluginError::Description { plugin: plugin.to_owned(), reason })?;
        let earlier = find(&wasm).map_err(|error| not_wasm(error.to_string()))?.map(encoded);
        if let Some(rest) = earlier.and_then(|earlier| Some(wasm.strip_suffix(earlier.as_slice())?.len())) {
            wasm.truncate(rest);
        }
        wasm.extend(encoded(json.as_bytes()));
        Ok(wasm)
    }

    /// Returns the content of the last section with a description.
    fn find(bytes: &[u8]) -> Result<Option<&[u8]>, BinaryReaderError> {
        let mut found = None;
        for payload in Parser::new(0).parse_all(bytes) {
            if let Payload::CustomSection(section) = payload?
                && section.name() == NAME
            {
                found = Some(section.data());
            }
        }
        Ok(found)
    }

    /// Returns a custom section with this content.
    fn encoded(content: &[u8]) -> Vec<u8> {
        let mut body = leb128(NAME.len());
        body.extend(NAME.as_bytes());
        body.extend(content);
        [&[0], leb128(body.len()).as_slice(), &body].concat()
    }

    /// Encodes a length as WebAssembly does: seven bits a byte, the lowest first.
    fn leb128(mut length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = u8::try_from(length & 0x7f).unwrap_or_default();
            length >>= 7;
            if length == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }

    /// Returns a keyword of a schema that may make a check take time or memory out of proportion to the schema's size:
    /// references, patterns, and keywords that depend on the parts of the settings that others have evaluated.
    fn refused_keyword(schema: &Value) -> Option<&str> {
        schema.as_object()?.iter().find_map(|(keyword, value)| match keyword.as_str() {
            known if SIMPLE.contains(&known) => None,
            known if OF_ONE_SCHEMA.contains(&known) => refused_keyword(value),
            known if OF_MANY_SCHEMAS.contains(&known) => match value {
                Value::Array(schemas) => schemas.iter().find_map(refused_keyword),
                Value::Object(schemas) => schemas.values().find_map(refused_keyword),
                _ => None,
            },
            other => Some(other),
        })
    }
}

#[cfg(feature = "compiler")]
pub(crate) use section::fitting;
#[cfg(feature = "compiler")]
pub use section::with_description;

#[cfg(not(feature = "compiler"))]
impl PluginDescription {
    /// Returns `None`: compiled code carries no description.
    pub(crate) fn of(_: &PluginBytes) -> Result<Option<Self>, PluginError> {
        Ok(None)
    }
}

/// Accepts all settings: compiled code carries no schema for them.
#[cfg(not(feature = "compiler"))]
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of the other build")]
pub(crate) fn fitting(_: &PluginBytes, _: &Value) -> Result<Option<PluginDescription>, PluginError> {
    Ok(None)
}
