//! The reference plugins, which the build script builds and the binary contains.

use super::description::PluginDescription;
use super::error::PluginError;
use super::load::PluginBytes;

// static BUILTINS: [(&str, &[u8]); N]
include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

/// Returns the names of the built-in plugins and components, without `builtin:`. There are none without the feature
/// `compiler`.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|(name, _)| *name)
}

/// Returns the built-in plugins and components with their descriptions, without running or compiling them.
///
/// # Errors
/// [`PluginError`] if a description cannot be used.
pub fn builtin_descriptions() -> Result<Vec<(&'static str, PluginDescription)>, PluginError> {
    let described = |(name, bytes): &(&'static str, &[u8])| {
        let bytes = PluginBytes::new(format!("builtin:{name}"), bytes.to_vec());
        Ok(PluginDescription::of(&bytes)?.map(|description| (*name, description)))
    };
    BUILTINS.iter().filter_map(|builtin| described(builtin).transpose()).collect()
}

/// Returns the bytes of `builtin:NAME`.
pub(crate) fn find(name: &str) -> Result<&'static [u8], PluginError> {
    if cfg!(not(feature = "compiler")) {
        return Err(PluginError::NoCompiler { plugin: format!("builtin:{name}") });
    }
    let found = BUILTINS.iter().find(|(known, _)| *known == name);
    let unknown = || PluginError::UnknownBuiltin { name: name.to_owned(), known: builtin_names().collect() };
    found.map(|(_, bytes)| *bytes).ok_or_else(unknown)
}
