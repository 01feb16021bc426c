//! The arguments of an open question: their text, and the part that lists and events show.

use super::super::excerpt::{excerpt, shorten_strings};
use crate::protocol::Json;

/// The largest arguments, in bytes, that lists and events show in full. Each parses the shown part into a tree, which
/// takes many times its bytes, and up to 256 questions are open.
const MAX_LISTED_BYTES: usize = 16 * 1024;

/// The most characters of one string in arguments that are shown shortened.
const MAX_STRING: usize = 200;

/// The most characters to show of arguments that are too large even with shortened strings: with four bytes each they
/// take as much as arguments that are shown in full.
const MAX_TEXT: usize = MAX_LISTED_BYTES / 4;

/// The largest arguments, in bytes, that are parsed into a tree for the one question that is shown.
const MAX_TREE_BYTES: usize = 1024 * 1024;

/// The arguments of a question. Only text is kept, as a tree takes many times the memory.
#[derive(Debug)]
pub(in crate::gate) struct QuestionArguments {
    /// The whole arguments, in a buffer that holds nothing else.
    pub(in crate::gate) text: Json,
    /// The arguments as lists and events show them: JSON with shortened strings, or else a string with the two ends of
    /// their text.
    listed: Json,
    /// True if something is left out of `listed`.
    is_cut: bool,
}

impl QuestionArguments {
    pub(in crate::gate) fn of(arguments: &Json) -> Self {
        let text = arguments.detached();
        if text.as_bytes().len() <= MAX_LISTED_BYTES {
            return Self { listed: text.clone(), text, is_cut: false };
        }
        let (short, strings_are_cut) = shorten_strings(text.as_str(), MAX_STRING);
        if short.len() <= MAX_LISTED_BYTES
            && let Ok(listed) = Json::parse(short.clone())
        {
            return Self { text, listed, is_cut: strings_are_cut };
        }
        Self { text, listed: Json::of(&excerpt(&short, MAX_TEXT)), is_cut: true }
    }

    /// Returns the arguments as lists and events show them, and whether something is left out.
    pub(super) fn listed(&self) -> (serde_json::Value, bool) {
        (self.listed.to_value(), self.is_cut)
    }

    /// Returns the whole arguments: as JSON, or as their text if they are large.
    pub(super) fn whole(&self) -> serde_json::Value {
        if self.text.as_bytes().len() <= MAX_TREE_BYTES {
            self.text.to_value()
        } else {
            serde_json::Value::String(self.text.as_str().to_owned())
        }
    }

    /// Returns at most `max` bytes of the text of the arguments from this byte on, and the byte at which the next part
    /// begins, if there is one. A byte within a character begins nothing.
    pub(super) fn part(&self, from: usize, max: usize) -> (&str, Option<usize>) {
        let rest = self.text.as_str().get(from..).unwrap_or_default();
        let part = rest.get(..rest.floor_char_boundary(max)).unwrap_or_default();
        (part, (part.len() < rest.len()).then_some(from + part.len()))
    }
}
