//! Filters what a profile may see and call: trust levels, allow lists and deny lists.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::call::TrustLevel;
use crate::config::{ProfileConfig, SourceConfig};
use crate::item::Item;

/// A glob that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("glob {glob:?}: {reason}")]
#[non_exhaustive]
pub struct FilterError {
    /// The glob.
    pub glob: String,
    /// The reason why the glob cannot be parsed.
    pub reason: String,
}

/// The rules for what one profile may use of one source. Compiled once, and applied to the listing *and* to every call.
#[derive(Debug, Clone)]
pub struct ItemFilter {
    trust: TrustLevel,
    source_named: bool,
    source_allow: Option<GlobSet>,
    source_deny: GlobSet,
    profile_allow: Option<GlobSet>,
    profile_deny: GlobSet,
}

impl ItemFilter {
    /// Compiles the lists of a profile and a source.
    ///
    /// # Errors
    /// [`FilterError`] if a glob cannot be parsed.
    pub fn new(profile: &ProfileConfig, source: &SourceConfig) -> Result<Self, FilterError> {
        Ok(Self {
            trust: profile.trust,
            source_named: names_source(profile, source)?,
            source_allow: source.allow.as_deref().map(globs).transpose()?,
            source_deny: globs(&source.deny)?,
            profile_allow: profile.allow.as_deref().map(globs).transpose()?,
            profile_deny: globs(&profile.deny)?,
        })
    }

    /// Reports whether the profile may use the source.
    #[must_use]
    pub fn admits_source(&self) -> bool {
        self.trust != TrustLevel::Sandbox && self.source_named
    }

    /// Reports whether the tool may be shown and called. A deny wins over every allow. The lists of a source also match
    /// a tool's own name, because its documentation uses that name; the lists of a profile match only the exposed name.
    #[must_use]
    pub fn admits(&self, tool: &Item) -> bool {
        let at_source = |set: &GlobSet| set.is_match(&*tool.exposed) || set.is_match(&*tool.name);
        let at_profile = |set: &GlobSet| set.is_match(&*tool.exposed);
        let denied = at_source(&self.source_deny) || at_profile(&self.profile_deny);
        let allowed =
            self.source_allow.as_ref().is_none_or(at_source) && self.profile_allow.as_ref().is_none_or(at_profile);
        let explicit = self.source_allow.is_some() || self.profile_allow.is_some();
        self.admits_source() && !denied && allowed && (explicit || self.trust != TrustLevel::Low)
    }
}

/// Reports whether a glob matches one of these names.
///
/// # Errors
/// [`FilterError`] if the glob cannot be parsed.
pub(crate) fn is_match(pattern: &str, names: &[&str]) -> Result<bool, FilterError> {
    let matcher = glob(pattern)?.compile_matcher();
    Ok(names.iter().any(|name| matcher.is_match(name)))
}

fn names_source(profile: &ProfileConfig, source: &SourceConfig) -> Result<bool, FilterError> {
    let named = globs(&profile.sources)?;
    Ok(source.names().any(|name| named.is_match(name.as_str())))
}

fn globs(patterns: &[String]) -> Result<GlobSet, FilterError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(glob(pattern)?);
    }
    set.build().map_err(|error| FilterError { glob: patterns.join(", "), reason: error.to_string() })
}

fn glob(pattern: &str) -> Result<Glob, FilterError> {
    let built = GlobBuilder::new(pattern).literal_separator(false).build();
    built.map_err(|error| FilterError { glob: pattern.to_owned(), reason: error.kind().to_string() })
}
