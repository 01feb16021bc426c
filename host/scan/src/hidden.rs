//! Characters that a person cannot see and a model reads.

use portcullis_core::escape::is_hidden;
use unicode_normalization::char::is_combining_mark;

use crate::Severity;

/// The flags of England, Scotland and Wales are a black flag and a region in characters that are hidden elsewhere.
const FLAGS: &[&str] = &[
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
];

/// The length of a run of hidden characters from which it may carry a message: each is a bit at most.
const MESSAGE: usize = 4;

/// The number of Latin letters in a row of which each has a mark, from which on the marks are a disguise. No language
/// writes so.
const MARKED_LETTERS: usize = 5;

/// Returns how grave the hidden characters of a text are, and where the first of that gravity is.
pub(crate) fn find(text: &str) -> Option<(Severity, usize)> {
    let mut worst: Option<(Severity, usize)> = None;
    let (mut before, mut spaces, mut seen, mut run) = (' ', 0_usize, false, 0_usize);
    let (mut flag_ends, mut marked) = (0, 0_usize);
    let end = text.trim_end().len();
    for (at, c) in text.char_indices() {
        if c == '\u{1f3f4}' {
            let flag = FLAGS.iter().find(|flag| text.get(at..).is_some_and(|rest| rest.starts_with(**flag)));
            flag_ends = at + flag.map_or(0, |flag| flag.len());
        }
        run = if is_hidden(c) && !c.is_control() { run + 1 } else { 0 };
        let severity = match c {
            '\u{e0020}'..='\u{e007f}' if at < flag_ends => None,
            '\u{e0000}'..='\u{e0fff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some(Severity::Grave),
            '\u{1b}' => Some(Severity::Grave),
            // A joiner is part of emoji and of several scripts, and a mark at the start is an editor's.
            '\u{200d}' | '\u{200c}' if !before.is_ascii() && !is_hidden(before) => None,
            '\u{feff}' if at == 0 => None,
            '\n' | '\t' | '\r' => None,
            // A soft hyphen or a zero-width space or two come with pasted text; a run of them is a message.
            _ if run >= MESSAGE => Some(Severity::Grave),
            c if is_hidden(c) && (run > 1 || before.is_ascii_alphanumeric()) => Some(Severity::Warning),
            c if is_hidden(c) => Some(Severity::Note),
            _ => None,
        };
        // White space of several screens pushes what follows out of sight.
        spaces = if c.is_whitespace() { spaces + 1 } else { 0 };
        let padded = (seen && spaces == 120 && at < end).then_some(Severity::Warning);
        seen |= !c.is_whitespace();
        let is_mark = !c.is_ascii() && is_combining_mark(c);
        marked = match (is_mark, before.is_ascii_alphabetic()) {
            (true, true) => marked + 1,
            // A further mark, the next letter, or a letter after one without a mark.
            (true, false) => marked,
            (false, unmarked) if unmarked && !c.is_whitespace() => 0,
            (false, _) => marked,
        };
        let disguised = (is_mark && marked == MARKED_LETTERS).then_some(Severity::Warning);
        if let Some(severity) = severity.max(padded).max(disguised)
            && worst.is_none_or(|(known, _)| known < severity)
        {
            worst = Some((severity, at));
        }
        before = c;
    }
    worst
}
