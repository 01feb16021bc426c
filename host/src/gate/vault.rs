//! Placeholders for values that are hidden from the agent.

mod glob_lists;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::glob_lists::GlobLists;
use crate::call::Call;
use crate::name::SourceName;
use crate::plugin::Vault;
use crate::protocol::{Json, MAX_MESSAGE_BYTES, string_end};
use crate::sync::Mutex;

/// The most values that one vault keeps for a source. Beyond this, and beyond the limits below, a value is still replaced,
/// by a placeholder that is never restored: the agent sees nothing more, and a flood of secrets costs no memory.
const MAX_VALUES_OF_SOURCE: usize = 2_500;

/// The most bytes of values that one vault keeps for a source.
const MAX_BYTES_OF_SOURCE: usize = 4 << 20;

/// The most values that one vault keeps.
const MAX_VALUES: usize = 10_000;

/// The most bytes of values that one vault keeps.
const MAX_BYTES: usize = 16 << 20;

/// The most bytes that all vaults of this process keep together.
const MAX_BYTES_OF_ALL: usize = 256 << 20;

/// The bytes that a value counts in addition to its own: its placeholder, and the places in two tables.
const VALUE_BYTES: usize = 512;

/// The bytes that all vaults keep.
static BYTES_OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// The largest value that is kept, in bytes.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Random bytes in a placeholder: too many to guess one of another value.
const NONCE_BYTES: usize = 8;

/// The longest kind in a placeholder, in bytes.
const MAX_KIND_BYTES: usize = 32;

/// The longest placeholder, in bytes: brackets, kind, colon and nonce. Text further from the opening brackets is not
/// searched, so that a text full of brackets takes no longer than any other.
const MAX_PLACEHOLDER_BYTES: usize = OPEN.len() + MAX_KIND_BYTES + 1 + 2 * NONCE_BYTES + CLOSE.len();

/// The placeholders of one legacy session, or of all modern sessions of one principal and profile.
#[derive(Debug, Default)]
pub struct SessionVault {
    kept: Mutex<HiddenValues>,
}

#[derive(Default)]
struct HiddenValues {
    by_placeholder: HashMap<Arc<str>, Arc<Value>>,
    /// The placeholders by what they stand for. The same value of another source has its own placeholder: with a common
    /// one a source could find out which of its guesses another source holds.
    by_value: HashMap<Arc<Value>, Arc<str>>,
    /// The usage of each source.
    of_sources: HashMap<SourceName, Usage>,
    of_all: Usage,
    glob_lists: GlobLists,
}

impl Drop for HiddenValues {
    fn drop(&mut self) {
        BYTES_OF_ALL.fetch_sub(self.of_all.bytes, Ordering::Relaxed);
    }
}

/// The number and the size of the values that are kept for a source, or for all.
#[derive(Default, Clone, Copy)]
struct Usage {
    values: usize,
    bytes: usize,
}

impl std::fmt::Debug for HiddenValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.by_placeholder.len())
    }
}

/// A value that is kept.
#[derive(PartialEq, Eq, Hash)]
struct Value {
    kind: String,
    text: String,
    source: SourceName,
    /// The list of globs over the exposed names of the items whose calls may get the value; `None` for those of its source.
    restore_to: Option<usize>,
}

impl SessionVault {
    /// Returns the store in which a transform keeps values of one source.
    pub(super) fn keeper(self: &Arc<Self>, source: &SourceName) -> Arc<dyn Vault> {
        Arc::new(Keeper { vault: Arc::clone(self), source: source.clone() })
    }

    /// Returns a text for the source of this call, such as its arguments, with every placeholder restored that the
    /// source may have. `None` if there is none, or if the text would grow beyond the size of a message: the source then
    /// gets the placeholders.
    ///
    /// Only values are restored, never keys.
    pub(super) fn restore(&self, json: &Json, call: &Call) -> Option<Json> {
        let kept = self.kept.lock();
        if kept.by_placeholder.is_empty() {
            return None;
        }
        let text = json.as_str();
        memchr::memmem::find(text.as_bytes(), OPEN.as_bytes())?;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('"') {
            let (before, from) = rest.split_at(start);
            let (string, after) = from.split_at(string_end(from));
            out.push_str(before);
            if after.trim_start().starts_with(':') {
                out.push_str(string);
            } else {
                kept.restore(string, call, &mut out);
            }
            if out.len() > MAX_MESSAGE_BYTES {
                tracing::warn!(call = %call.id, "a restored text would be larger than a message may be; nothing is restored");
                return None;
            }
            rest = after;
        }
        out.push_str(rest);
        (out != text).then(|| Json::parse(out).ok()).flatten()
    }

    /// Returns a text with placeholders in place of the values that they stand for.
    pub(super) fn hide(&self, text: String) -> String {
        let kept = self.kept.lock();
        // Values are searched for only in the original text: a value may also be part of a placeholder. Of those that
        // begin at one place the longest counts, so that no more is kept than the text has places.
        let mut found: BTreeMap<usize, (usize, &Arc<str>)> = BTreeMap::new();
        for (placeholder, value) in kept.by_placeholder.iter().filter(|(_, value)| !value.text.is_empty()) {
            for (from, part) in text.match_indices(&value.text) {
                let longest = found.entry(from).or_insert((0, placeholder));
                if longest.0 < part.len() {
                    *longest = (part.len(), placeholder);
                }
            }
        }
        if found.is_empty() {
            return text;
        }
        let (mut hidden, mut at) = (String::with_capacity(text.len()), 0);
        for (from, (length, placeholder)) in found {
            if from + length > at {
                hidden.push_str(text.get(at..from).unwrap_or_default());
                hidden.push_str(placeholder);
                at = from + length;
            }
        }
        hidden.push_str(text.get(at..).unwrap_or_default());
        hidden
    }

    fn protect(&self, source: &SourceName, kind: &str, value: &str, restore_to: Vec<String>) -> String {
        let kind: String =
            kind.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(MAX_KIND_BYTES).collect();
        let mut kept = self.kept.lock();
        // An empty list means the source that the value came from.
        let list = if restore_to.is_empty() { Some(None) } else { kept.glob_lists.number_of(restore_to).map(Some) };
        let Some(restore_to) = list.filter(|_| value.len() <= MAX_VALUE_BYTES) else { return withheld(&kind) };
        let value = Value { kind, text: value.to_owned(), source: source.clone(), restore_to };
        if let Some(placeholder) = kept.by_value.get(&value) {
            return placeholder.to_string();
        }
        // Without randomness a placeholder could be guessed, so this one is never restored.
        let nonce = nonce().filter(|_| kept.takes(source, value.text.len() + VALUE_BYTES));
        let Some(nonce) = nonce else { return withheld(&value.kind) };
        let placeholder: Arc<str> = format!("{OPEN}{}:{nonce}{CLOSE}", value.kind).into();
        let value = Arc::new(value);
        kept.by_placeholder.insert(Arc::clone(&placeholder), Arc::clone(&value));
        kept.by_value.insert(value, Arc::clone(&placeholder));
        placeholder.to_string()
    }
}

const OPEN: &str = "[[";
const CLOSE: &str = "]]";

/// Returns a placeholder that is never restored.
fn withheld(kind: &str) -> String {
    format!("{OPEN}{kind}:withheld{CLOSE}")
}

impl HiddenValues {
    /// Counts one more value of a source. Returns false if there is no room for it.
    fn takes(&mut self, source: &SourceName, bytes: usize) -> bool {
        let of_source = self.of_sources.get(source).copied().unwrap_or_default();
        let (of_source, of_all) = (of_source.with(bytes), self.of_all.with(bytes));
        let is_too_much = of_source.values > MAX_VALUES_OF_SOURCE
            || of_source.bytes > MAX_BYTES_OF_SOURCE
            || of_all.values > MAX_VALUES
            || of_all.bytes > MAX_BYTES;
        let added = |used: usize| used.checked_add(bytes).filter(|used| *used <= MAX_BYTES_OF_ALL);
        if is_too_much || BYTES_OF_ALL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_err() {
            return false;
        }
        self.of_sources.insert(source.clone(), of_source);
        self.of_all = of_all;
        true
    }

    /// Writes one JSON string with the values that may be restored in it. A placeholder holds nothing that JSON
    /// escapes.
    fn restore(&self, string: &str, call: &Call, out: &mut String) {
        let mut rest = string;
        while let Some(at) = rest.find(OPEN) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let near = from.as_bytes().get(..MAX_PLACEHOLDER_BYTES).unwrap_or(from.as_bytes());
            let end = memchr::memmem::find(near, CLOSE.as_bytes()).map(|end| end + CLOSE.len());
            let value =
                end.and_then(|end| self.by_placeholder.get(from.get(..end)?)).filter(|value| self.goes_to(value, call));
            let taken = match (value, end) {
                (Some(value), Some(end)) => {
                    let quoted = Json::of(&value.text);
                    let inside = quoted.as_str().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                    out.push_str(inside.unwrap_or_default());
                    end
                }
                // Only one bracket is taken, as the next may begin a placeholder.
                _ => {
                    out.push('[');
                    1
                }
            };
            rest = from.get(taken..).unwrap_or_default();
            if out.len() > MAX_MESSAGE_BYTES {
                return;
            }
        }
        out.push_str(rest);
    }

    fn goes_to(&self, value: &Value, call: &Call) -> bool {
        match value.restore_to {
            None => value.source == *call.source(),
            Some(list) => self.glob_lists.fits(list, &call.item.exposed),
        }
    }
}

impl Usage {
    fn with(self, bytes: usize) -> Self {
        Self { values: self.values + 1, bytes: self.bytes.saturating_add(bytes) }
    }
}

struct Keeper {
    vault: Arc<SessionVault>,
    source: SourceName,
}

impl Vault for Keeper {
    fn protect(&self, kind: &str, value: &str, restore_to: Vec<String>) -> String {
        self.vault.protect(&self.source, kind, value, restore_to)
    }
}

/// Returns a random text that begins with a letter, so that no search takes it for a number.
fn nonce() -> Option<String> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).ok()?;
    bytes.iter_mut().take(1).for_each(|first| *first |= 0xa0);
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
