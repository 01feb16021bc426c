//! Entities, and the keys that they are kept under.

use std::fmt;

use portcullis_plugin::key_value::{self, Change};

/// Between the parts of a key.
const SEPARATOR: char = '\u{1f}';

/// Bytes of a name: three of them and what stands between fit into a key.
const NAME_BYTES: usize = 160;

/// Facts that are read at a time.
const PAGE: u32 = 256;

/// Before the name of an entity in the URI of its resource.
const SCHEME: &str = "memory:///";

/// The name of an entity or a relation: not empty, on one line, of a length that fits into a key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.len() > NAME_BYTES || trimmed.contains(char::is_control) {
            return Err(format!("{text:?} is no name: it has one line of 1 to {NAME_BYTES} bytes"));
        }
        Ok(Self(trimmed.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// What makes the entity known. A kind that was told before stays unless another is told.
    pub(crate) fn known(&self, kind: Option<&str>) -> Result<Vec<Change>, String> {
        let key = format!("e{SEPARATOR}{self}");
        match kind {
            Some(kind) => Ok(vec![Change::set(key, kind.trim().as_bytes())]),
            None if key_value::get(&key)?.is_some() => Ok(Vec::new()),
            None => Ok(vec![Change::set(key, b"")]),
        }
    }

    pub(crate) fn observation(&self, text: &str) -> String {
        format!("o{SEPARATOR}{self}{SEPARATOR}{:016x}", fnv1a(text.as_bytes()))
    }

    pub(crate) fn relation(&self, relation: &Name, to: &Name) -> String {
        format!("r{SEPARATOR}{self}{SEPARATOR}{relation}{SEPARATOR}{to}")
    }

    /// Every key of the entity, with the relations of others to it.
    pub(crate) fn keys(&self) -> Result<Vec<String>, String> {
        let mut keys = vec![format!("e{SEPARATOR}{self}")];
        let all = |prefix: String| -> Result<Vec<String>, String> {
            Ok(scan(&prefix)?.into_iter().map(|(key, _)| key).collect())
        };
        keys.extend(all(format!("o{SEPARATOR}{self}{SEPARATOR}"))?);
        let end = format!("{SEPARATOR}{self}");
        let begin = format!("r{SEPARATOR}{self}{SEPARATOR}");
        let relations = all(format!("r{SEPARATOR}"))?.into_iter();
        keys.extend(relations.filter(|key| key.starts_with(&begin) || key.ends_with(&end)));
        Ok(keys)
    }
}

/// What is known of an entity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    name: Name,
    kind: String,
    observations: Vec<String>,
    /// Relation and other entity.
    relations: Vec<(String, String)>,
}

impl Entity {
    /// None of an entity that is not known.
    pub(crate) fn read(name: &Name) -> Result<Option<Self>, String> {
        let Some(kind) = key_value::get(&format!("e{SEPARATOR}{name}"))? else { return Ok(None) };
        let observations = scan(&format!("o{SEPARATOR}{name}{SEPARATOR}"))?;
        let prefix = format!("r{SEPARATOR}{name}{SEPARATOR}");
        let relations = scan(&prefix)?.into_iter().filter_map(|(key, _)| {
            let (relation, to) = key.strip_prefix(&prefix)?.split_once(SEPARATOR)?;
            Some((relation.to_owned(), to.to_owned()))
        });
        Ok(Some(Self {
            name: name.clone(),
            kind: text(&kind),
            observations: observations.into_iter().map(|(_, value)| text(&value)).collect(),
            relations: relations.collect(),
        }))
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if !self.kind.is_empty() {
            write!(f, " ({})", self.kind)?;
        }
        for observation in &self.observations {
            write!(f, "\n- {observation}")?;
        }
        for (relation, to) in &self.relations {
            write!(f, "\n- {relation}: {to}")?;
        }
        Ok(())
    }
}

/// All entities with their kinds, in the order of their names.
pub(crate) fn names() -> Result<Vec<(String, String)>, String> {
    let prefix = format!("e{SEPARATOR}");
    let found = scan(&prefix)?.into_iter();
    Ok(found.filter_map(|(key, kind)| Some((key.strip_prefix(&prefix)?.to_owned(), text(&kind)))).collect())
}

/// The URI of an entity's resource.
pub(crate) fn uri(name: &str) -> String {
    let mut uri = SCHEME.to_owned();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// The entity that a URI names. None for one that is not of ours.
pub(crate) fn named_by(uri: &str) -> Option<Name> {
    let mut bytes = Vec::new();
    let mut rest = uri.strip_prefix(SCHEME)?.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    Name::try_from(String::from_utf8(bytes).ok()?).ok()
}

/// All keys with this prefix.
fn scan(prefix: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    loop {
        let after = all.last().map_or("", |(key, _)| key);
        let page = key_value::scan(prefix, after, PAGE)?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Tells texts of one entity apart (FNV-1a); the texts themselves are the values.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
