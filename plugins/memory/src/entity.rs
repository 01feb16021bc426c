//! Entities, and the keys under which they are stored.

use std::collections::VecDeque;
use std::fmt;

use portcullis_plugin::key_value::{self, Change};

/// The character between the parts of a key.
const SEPARATOR: char = '\u{1f}';

/// The prefix of a key with the name of a known entity. Its value is empty.
const KNOWN: &str = "e\u{1f}";

/// The prefix of a key with the name of an entity. Its value is the entity's kind.
const KIND: &str = "k\u{1f}";

/// The prefix of a key with the name of an entity and the hash of an observation. Its value is the observation.
const OBSERVED: &str = "o\u{1f}";

/// The prefix of a key with the names of an entity, a relation and another entity. Its value is empty.
const RELATED: &str = "r\u{1f}";

/// The most bytes of a name: three names, the prefix and the separators fit into a key.
const NAME_BYTES: usize = 160;

/// The number of facts that are read at a time.
const PAGE: u32 = 256;

/// The start of the URI of an entity's resource; the name follows.
const SCHEME: &str = "memory:///";

/// The name of an entity or a relation: not empty, on one line, and short enough for a key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.len() > NAME_BYTES || trimmed.contains(char::is_control) {
            return Err(format!("{text:?} is not a name: a name is one line of 1 to {NAME_BYTES} bytes"));
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
    /// Returns the changes that make the entity known. A kind that was set before stays unless another is given.
    pub(crate) fn known(&self, kind: Option<&str>) -> Vec<Change> {
        let kind = kind.map(|kind| Change::set(format!("{KIND}{self}"), kind.trim().as_bytes()));
        std::iter::once(Change::set(format!("{KNOWN}{self}"), b"")).chain(kind).collect()
    }

    pub(crate) fn observation(&self, text: &str) -> String {
        format!("{OBSERVED}{self}{SEPARATOR}{:016x}", fnv1a(text.as_bytes()))
    }

    pub(crate) fn relation(&self, relation: &Name, to: &Name) -> String {
        format!("{RELATED}{self}{SEPARATOR}{relation}{SEPARATOR}{to}")
    }

    /// Returns the keys of all facts about the entity, including relations of other entities to it. The keys that make
    /// it known come last.
    pub(crate) fn keys(&self) -> Result<Vec<String>, String> {
        let (begin, end) = (format!("{RELATED}{self}{SEPARATOR}"), format!("{SEPARATOR}{self}"));
        let mut keys: Vec<_> = all(&format!("{OBSERVED}{self}{SEPARATOR}"))?.into_iter().map(|(key, _)| key).collect();
        let relations = all(RELATED)?.into_iter().map(|(key, _)| key);
        keys.extend(relations.filter(|key| key.starts_with(&begin) || key.ends_with(&end)));
        for key in [format!("{KIND}{self}"), format!("{KNOWN}{self}")] {
            keys.extend(key_value::get(&key)?.map(|_| key));
        }
        Ok(keys)
    }
}

/// The facts that are known about an entity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entity {
    name: String,
    kind: String,
    observations: Vec<String>,
    /// The relations: how the entity is related, and to which other entity.
    relations: Vec<(String, String)>,
}

impl Entity {
    /// Reads an entity; `None` if it is not known.
    pub(crate) fn read(name: &Name) -> Result<Option<Self>, String> {
        if key_value::get(&format!("{KNOWN}{name}"))?.is_none() {
            return Ok(None);
        }
        let kind = key_value::get(&format!("{KIND}{name}"))?.unwrap_or_default();
        let facts = |kind: &str| {
            let prefix = format!("{kind}{name}{SEPARATOR}");
            let found = all(&prefix)?.into_iter();
            Ok::<_, String>(
                found.filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value))).collect(),
            )
        };
        Ok(Some(Self::of(name.to_string(), &kind, facts(OBSERVED)?, facts(RELATED)?)))
    }

    /// Makes an entity from the parts of the keys that follow its name, and from their values.
    fn of(name: String, kind: &[u8], observed: Vec<Fact>, related: Vec<Fact>) -> Self {
        let relation = |(key, _): Fact| key.split_once(SEPARATOR).map(|(how, to)| (how.to_owned(), to.to_owned()));
        Self {
            name,
            kind: text(kind),
            observations: observed.into_iter().map(|(_, value)| text(&value)).collect(),
            relations: related.into_iter().filter_map(relation).collect(),
        }
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

/// All entities in the order of their names. The store is read only once, page by page, because the facts about
/// entities are in the same order under each prefix.
pub(crate) struct Entities {
    known: Facts,
    kinds: Facts,
    observed: Facts,
    related: Facts,
}

impl Entities {
    pub(crate) fn all() -> Self {
        Self {
            known: Facts::under(KNOWN),
            kinds: Facts::under(KIND),
            observed: Facts::under(OBSERVED),
            related: Facts::under(RELATED),
        }
    }

    /// Reads the next entity.
    pub(crate) fn read(&mut self) -> Result<Option<Entity>, String> {
        let Some((name, _)) = self.known.next()? else { return Ok(None) };
        let kind = self.kinds.of(&name)?.pop().map(|(_, kind)| kind).unwrap_or_default();
        let (observed, related) = (self.observed.of(&name)?, self.related.of(&name)?);
        Ok(Some(Entity::of(name, &kind, observed, related)))
    }
}

/// Returns the names of all entities with their kinds, in the order of the names.
pub(crate) fn names() -> Result<Vec<(String, String)>, String> {
    let mut kinds = Facts::under(KIND);
    let known = all(KNOWN)?.into_iter().filter_map(|(key, _)| Some(key.strip_prefix(KNOWN)?.to_owned()));
    let with_kind = |name: String| {
        let kind = kinds.of(&name)?.pop().map(|(_, kind)| text(&kind)).unwrap_or_default();
        Ok((name, kind))
    };
    known.map(with_kind).collect()
}

/// Returns the URI of an entity's resource.
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

/// Returns the entity that a URI names, or `None` if the URI is not one of ours.
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

/// A key, or the part of it that its reader does not know yet, and its value.
type Fact = (String, Vec<u8>);

/// The facts under a prefix, in the order of the keys and without the prefix, read page by page.
struct Facts {
    prefix: &'static str,
    page: VecDeque<Fact>,
    /// The last key that was read.
    last: String,
    ended: bool,
}

impl Facts {
    fn under(prefix: &'static str) -> Self {
        Self { prefix, page: VecDeque::new(), last: String::new(), ended: false }
    }

    fn next(&mut self) -> Result<Option<Fact>, String> {
        self.turn()?;
        Ok(self.page.pop_front())
    }

    /// Returns the facts about one entity, which must come after the entity of the previous call. Facts left over from
    /// an entity that was forgotten meanwhile are skipped.
    fn of(&mut self, entity: &str) -> Result<Vec<Fact>, String> {
        let mut found = Vec::new();
        loop {
            self.turn()?;
            let Some((key, _)) = self.page.front() else { return Ok(found) };
            let (name, rest) = key.split_once(SEPARATOR).unwrap_or((key, ""));
            match name.cmp(entity) {
                std::cmp::Ordering::Greater => return Ok(found),
                std::cmp::Ordering::Less => drop(self.page.pop_front()),
                std::cmp::Ordering::Equal => {
                    let rest = rest.to_owned();
                    found.extend(self.page.pop_front().map(|(_, value)| (rest, value)));
                }
            }
        }
    }

    /// Reads the next page if the current one is used up.
    fn turn(&mut self) -> Result<(), String> {
        if !self.page.is_empty() || self.ended {
            return Ok(());
        }
        let page = key_value::scan(self.prefix, &self.last, PAGE)?;
        match page.last() {
            Some((key, _)) => self.last.clone_from(key),
            None => self.ended = true,
        }
        let bare = |(key, value): Fact| Some((key.strip_prefix(self.prefix)?.to_owned(), value));
        self.page = page.into_iter().filter_map(bare).collect();
        Ok(())
    }
}

/// Returns all facts whose key has this prefix.
fn all(prefix: &str) -> Result<Vec<Fact>, String> {
    let mut all: Vec<Fact> = Vec::new();
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

/// Distinguishes the observations of one entity (FNV-1a); the texts themselves are the values.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
