//! The settings of the plugin.

use portcullis_plugin::{NameGlob, settings};
use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::kind::{Kind, Kinds};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    #[serde(default)]
    pub(crate) detect: Kinds,
    #[serde(default)]
    pub(crate) patterns: Vec<Pattern>,
    #[serde(default)]
    pub(crate) restore: Restore,
    #[serde(default)]
    pub(crate) one_way: OneWay,
}

/// A kind of value that the user describes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pattern {
    #[serde(deserialize_with = "kind")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "regex")]
    pub(crate) regex: Regex,
}

/// Globs over the exposed names of the tools that may get values back. If empty, only the source that a
/// value came from gets it.
#[derive(Default)]
pub(crate) struct Restore(pub(crate) Vec<String>);

/// The kinds whose values are not kept, so that nobody gets them back.
pub(crate) enum OneWay {
    All,
    Kinds(Vec<String>),
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Names the setting that is wrong, its value, and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let given: Self = settings::parse(text)?;
        if let OneWay::Kinds(kinds) = &given.one_way {
            for (i, kind) in kinds.iter().enumerate() {
                if !given.finds(kind) {
                    return Err(format!(
                        "settings.one-way[{i}]: {kind:?} is not searched for; add it to `detect` or to `patterns`, or leave it out"
                    ));
                }
            }
        } else if !given.restore.0.is_empty() {
            return Err("settings.restore: nothing is put back if one-way is \"all\"; leave one of the two out".into());
        }
        Ok(given)
    }

    /// Reports whether values of the kind are searched for.
    fn finds(&self, kind: &str) -> bool {
        let known = Kind::ALL.iter().any(|known| known.name() == kind && self.detect.has(*known));
        known || self.patterns.iter().any(|pattern| pattern.kind == kind)
    }
}

impl OneWay {
    pub(crate) fn includes(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Kinds(kinds) => kinds.iter().any(|one| one == kind),
        }
    }
}

impl Default for OneWay {
    fn default() -> Self {
        Self::Kinds(Vec::new())
    }
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let kind = String::deserialize(deserializer)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=32).contains(&kind.len()) && kind.bytes().all(plain) {
        return Ok(kind);
    }
    Err(D::Error::custom(format!("{kind:?} is not a kind; use up to 32 lower-case letters, digits and dashes")))
}

fn regex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
    let text = String::deserialize(deserializer)?;
    let regex = Regex::new(&text).map_err(|error| {
        D::Error::custom(format!("`{text}` is not a regex: {error}; look-around and back-references do not exist here"))
    })?;
    if regex.is_match("") {
        return Err(D::Error::custom(format!(
            "`{regex}` matches the empty text, so it cannot identify a value; use `+` in place of `*`, or add what the value begins with"
        )));
    }
    Ok(regex)
}

/// A setting that is a word or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Word(String),
    List(Vec<String>),
}

/// Reads a setting that is this word or a list that is not empty. For the word it returns `None`.
fn word_or_list<'de, D: Deserializer<'de>>(
    deserializer: D,
    word: &str,
    what: &str,
) -> Result<Option<Vec<String>>, D::Error> {
    let expected = || D::Error::custom(format!("expected \"{word}\" or a list of {what}"));
    match Either::deserialize(deserializer).map_err(|_| expected())? {
        Either::Word(given) if given == word => Ok(None),
        Either::Word(given) => {
            Err(D::Error::custom(format!("{given:?} is not \"{word}\"; {what} are given as a list")))
        }
        Either::List(list) if list.is_empty() => {
            Err(D::Error::custom(format!("an empty list; leave it out, or name {what}")))
        }
        Either::List(list) => Ok(Some(list)),
    }
}

impl<'de> Deserialize<'de> for Restore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let globs = word_or_list(deserializer, "same-source", "globs over exposed names")?.unwrap_or_default();
        globs.iter().try_for_each(|glob| NameGlob::new(glob).map(drop)).map_err(D::Error::custom)?;
        Ok(Self(globs))
    }
}

impl<'de> Deserialize<'de> for OneWay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(word_or_list(deserializer, "all", "kinds")?.map_or(Self::All, Self::Kinds))
    }
}
