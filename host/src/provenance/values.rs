//! The texts in a JSON value: every string and number, and those inside of strings that hold JSON themselves.

use super::letters::JOINT;
use crate::protocol::{Json, string_end};

/// How deep strings of JSON are opened that hold strings of JSON.
const MAX_DEPTH: usize = 3;

/// The letters and digits of each end of a value that are looked up together with the neighbouring values: as many as a
/// value has that is kept as a whole, and more than a block.
const EDGE: usize = 64;

/// The largest arguments, in bytes, that are looked up.
const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// The most bytes of the place of a text in arguments. A longer one is cut: the names of members are the agent's words.
const MAX_POINTER: usize = 256;

/// Visits every text of a result: its strings, the names of members among them, and its numbers. `json` must be valid.
pub(super) fn each(json: &str, visit: &mut impl FnMut(&str)) {
    each_to(json, MAX_DEPTH, visit);
}

fn each_to(json: &str, depth: usize, visit: &mut dyn FnMut(&str)) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let rest = json.get(at..).unwrap_or_default();
                let length = string_end(rest);
                let quoted = rest.get(..length).unwrap_or_default();
                let inner = quoted.get(1..length - 1).unwrap_or_default();
                if memchr::memchr(b'\\', inner.as_bytes()).is_some() {
                    // Half of a surrogate pair is no text; what surrounds it is read as it stands.
                    let text = serde_json::from_str::<String>(quoted).unwrap_or_else(|_| inner.to_owned());
                    text_to(&text, depth, visit);
                } else {
                    text_to(inner, depth, visit);
                }
                at += length;
            }
            b'0'..=b'9' => {
                let rest = bytes.get(at..).unwrap_or_default();
                let length = rest.iter().take_while(|b| b.is_ascii_digit() || b".eE+-".contains(b)).count();
                visit(json.get(at..at + length).unwrap_or_default());
                at += length;
            }
            _ => at += 1,
        }
    }
}

fn text_to(text: &str, depth: usize, visit: &mut dyn FnMut(&str)) {
    match opened(text).filter(|_| depth > 0) {
        Some(json) => each_to(json.as_str(), depth - 1, visit),
        None => visit(text),
    }
}

/// Returns the JSON that a text holds, if it is an object or a list.
fn opened(text: &str) -> Option<Json> {
    let begins = text.trim_ascii_start().as_bytes().first().is_some_and(|byte| matches!(byte, b'{' | b'['));
    begins.then(|| Json::parse(text.to_owned()).ok()).flatten()
}

/// The role of a text in arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// One value.
    Value,
    /// The name of a member.
    Name,
    /// All values as one, which may be encoded.
    All,
    /// The ends of all values as one.
    Edges,
}

/// Visits every text of arguments with its place, then all values as one, in their order and in the reverse order: a
/// value may be split across them. Returns true if the arguments are too large to be visited.
pub(super) fn each_in_arguments(arguments: &Json, visit: &mut dyn FnMut(Part, &str, &str)) -> bool {
    if arguments.as_bytes().len() > MAX_ARGUMENT_BYTES {
        return true;
    }
    // As many bytes as the JSON has are room for its values, in nearly all cases.
    let mut values = Values { text: String::with_capacity(arguments.as_bytes().len()), ends: vec![0] };
    each_argument(arguments, &mut PointerBuilder::default(), MAX_DEPTH, &mut values, visit);
    if values.each().nth(1).is_some() {
        visit(Part::All, "", &values.text);
        visit(Part::All, "", &values.each().rev().collect::<String>());
        visit(Part::Edges, "", &joined_edges(values.each()));
        visit(Part::Edges, "", &joined_edges(values.each().rev()));
    }
    false
}

/// Returns the beginnings and ends of values as one text, with a joint between two values: of the first one only the end,
/// and of the last one only the beginning, as nothing joins their other ends.
fn joined_edges<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let (mut joined, mut values, mut is_first) = (String::new(), values.peekable(), true);
    while let Some(value) = values.next() {
        if !is_first {
            joined.push(JOINT);
        }
        let beginning = || end_of_beginning(value);
        match (is_first, values.peek().is_none()) {
            (true, _) => joined.push_str(value.get(start_of_end(value)..).unwrap_or_default()),
            (_, true) => joined.push_str(value.get(..beginning()).unwrap_or_default()),
            _ => {
                let (beginning, end) = (beginning(), start_of_end(value));
                let parts = [value.get(..beginning), Some("\n"), value.get(end..)];
                if beginning < end { joined.extend(parts.into_iter().flatten()) } else { joined.push_str(value) }
            }
        }
        is_first = false;
    }
    joined
}

/// Returns the place behind the first [`EDGE`] letters and digits of a text.
fn end_of_beginning(text: &str) -> usize {
    let letters = text.char_indices().filter(|(_, c)| c.is_alphanumeric());
    letters.map(|(at, _)| at).nth(EDGE).unwrap_or(text.len())
}

/// Returns the place before the last [`EDGE`] letters and digits of a text.
fn start_of_end(text: &str) -> usize {
    let letters = text.char_indices().rev().filter(|(_, c)| c.is_alphanumeric());
    letters.map(|(at, c)| at + c.len_utf8()).nth(EDGE).unwrap_or_default()
}

/// All values of arguments, one after the other.
struct Values {
    text: String,
    /// Where each value ends, after a zero.
    ends: Vec<usize>,
}

impl Values {
    fn push(&mut self, value: &str) {
        self.text.push_str(value);
        self.ends.push(self.text.len());
    }

    fn each(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.ends.windows(2).map(move |ends| match ends {
            [from, to] => self.text.get(*from..*to).unwrap_or_default(),
            _ => "",
        })
    }
}

/// The place of a text in arguments: a JSON Pointer, which ends with `…` if it is cut.
#[derive(Default)]
struct PointerBuilder {
    text: String,
    /// True if nothing is added any more: the pointer is cut, or the text is inside of a string that holds JSON.
    closed: bool,
}

impl PointerBuilder {
    /// Visits the content of the value at this place, under a name or a number.
    fn inside(&mut self, name: &str, visit: impl FnOnce(&mut Self)) {
        let (length, closed) = (self.text.len(), self.closed);
        self.add("/");
        let mut rest = name.chars();
        // Nothing is read of a name that does not fit.
        while !self.closed
            && let Some(c) = rest.next()
        {
            match c {
                '~' => self.add("~0"),
                '/' => self.add("~1"),
                c => self.add(c.encode_utf8(&mut [0; 4])),
            }
        }
        visit(self);
        self.text.truncate(length);
        self.closed = closed;
    }

    fn add(&mut self, text: &str) {
        if self.closed {
            return;
        }
        self.closed = self.text.len() + text.len() > MAX_POINTER;
        self.text.push_str(if self.closed { "…" } else { text });
    }
}

fn each_argument(
    value: &Json,
    pointer: &mut PointerBuilder,
    depth: usize,
    values: &mut Values,
    visit: &mut dyn FnMut(Part, &str, &str),
) {
    match value.as_bytes().first() {
        Some(b'"') => {
            // Half of a surrogate pair is no text; what surrounds it is read as it stands.
            let text = value.read::<String>().unwrap_or_else(|_| value.as_str().trim_matches('"').to_owned());
            if let Some(json) = opened(&text).filter(|_| depth > 0) {
                // The text of the JSON is visited under the place of the string that holds it.
                let closed = std::mem::replace(&mut pointer.closed, true);
                each_argument(&json, pointer, depth - 1, values, visit);
                pointer.closed = closed;
            }
            visit(Part::Value, &pointer.text, &text);
            values.push(&text);
        }
        Some(b'-' | b'0'..=b'9') => {
            visit(Part::Value, &pointer.text, value.as_str());
            values.push(value.as_str());
        }
        Some(b'[') => {
            for (index, item) in value.items().unwrap_or_default().iter().enumerate() {
                pointer.inside(&index.to_string(), |pointer| each_argument(item, pointer, depth, values, visit));
            }
        }
        Some(b'{') => {
            for (name, member) in value.members().unwrap_or_default() {
                pointer.inside(&name, |pointer| {
                    visit(Part::Name, &pointer.text, &name);
                    each_argument(&member, pointer, depth, values, visit);
                });
            }
        }
        _ => {}
    }
}
