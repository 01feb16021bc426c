//! The list of what a configuration does, as it is shown before the question whether it is trusted. Whoever wrote the
//! file chose its texts and their number, so on a terminal both are limited: nothing scrolls the gravest lines away, and
//! no text pads itself until it looks like a line of its own.

use std::fmt::Write as _;

use crate::output::{BAD, BOLD, counted, escape_hidden, fit};

/// The most columns of a line on a terminal.
const COLUMNS: usize = 200;

/// The most lines on a terminal. The first ones give way, because the gravest stand last.
const LINES: usize = 60;

/// The longest run of blanks that is shown as it is.
const BLANKS: usize = 2;

/// The sign before a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// An effect that the configuration no longer has.
    Gone,
    /// An effect that was not trusted before.
    New,
    /// Settings that differ; the details follow.
    Changed,
    /// A part of the line before.
    Detail,
    /// A reason for a second look.
    Warning,
}

/// A heading with lines in the order of their gravity.
#[derive(Debug)]
pub(super) struct EffectList {
    file: String,
    heading: String,
    lines: Vec<(Mark, String)>,
}

impl EffectList {
    /// Begins a list about a file.
    pub(super) fn about(file: &str, heading: &str) -> Self {
        Self { file: plain(file), heading: plain(heading), lines: Vec::new() }
    }

    /// Adds a line that is graver than those before.
    pub(super) fn add(&mut self, mark: Mark, text: &str) {
        self.lines.push((mark, plain(text)));
    }

    /// Returns the list as text that is safe to show. On a terminal, lines and their number are limited.
    pub(super) fn shown(&self, is_terminal: bool) -> String {
        let cut = |text: &str| if is_terminal { fit(text, COLUMNS) } else { text.to_owned() };
        let left_out = if is_terminal { self.lines.len().saturating_sub(LINES) } else { 0 };
        let mut text = format!("{BOLD}{}{BOLD:#} {}", cut(&self.file), cut(&self.heading));
        // Writing to a string cannot fail.
        for (mark, line) in self.lines.iter().skip(left_out) {
            let line = cut(line);
            let _ = match mark {
                Mark::Gone => write!(text, "\n  - {line}"),
                Mark::New => write!(text, "\n  {BAD}+{BAD:#} {line}"),
                Mark::Changed => write!(text, "\n  {BAD}~{BAD:#} {line}"),
                Mark::Detail => write!(text, "\n      {line}"),
                Mark::Warning => write!(text, "\n  {BAD}!{BAD:#} {line}"),
            };
        }
        if left_out > 0 {
            let _ = write!(
                text,
                "\n  {BAD}!{BAD:#} {} before these {} not shown: `portcullis trust FILE 2>&1 | less` shows all",
                counted(left_out, "line"),
                if left_out == 1 { "is" } else { "are" }
            );
        }
        text
    }
}

/// Returns a text in which nothing is hidden, and a long run of blanks is its number.
fn plain(text: &str) -> String {
    let text = escape_hidden(text);
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find(char::is_whitespace) {
        let (before, from) = rest.split_at(at);
        let after = from.trim_start();
        let blanks = from.chars().count() - after.chars().count();
        plain.push_str(before);
        match blanks {
            ..=BLANKS => plain.extend(from.chars().take(blanks)),
            _ => plain.push_str(&format!(" [{blanks} blanks] ")),
        }
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_and_no_number_of_lines_pushes_the_gravest_away() {
        let mut listing =
            EffectList::about(&format!("/p/{}", "x".repeat(4000)), "is not trusted yet. It would do this:");
        for number in 0..3000 {
            listing.add(Mark::New, &format!("source a{number}: runs {}{}", " ".repeat(80), "y".repeat(10_000)));
        }
        listing.add(Mark::New, "source evil: reads and writes /home/me");
        let shown = listing.shown(true);
        let rows: Vec<&str> = shown.lines().collect();
        assert_eq!(rows.len(), 1 + LINES + 1, "{shown}");
        // A style takes a few characters.
        assert!(rows.iter().skip(1).all(|row| row.chars().count() < COLUMNS + 24), "{shown}");
        assert!(rows.iter().rev().nth(1).is_some_and(|row| row.ends_with("source evil: reads and writes /home/me")));
        assert!(rows.last().is_some_and(|row| row.contains("2941 lines before these are not shown")), "{shown}");
        assert!(shown.contains("[81 blanks]") && shown.contains("more characters"), "{shown}");
        let all = listing.shown(false);
        assert_eq!(all.lines().count(), 3002, "a pipe gets everything");
        assert!(all.contains(&"y".repeat(10_000)) && !all.contains("   "));
    }

    #[test]
    fn a_run_of_blanks_is_its_number_and_other_text_stays() {
        assert_eq!(plain("starts server  --a 'b c'"), "starts server  --a 'b c'");
        for blank in [' ', '\u{a0}', '\u{2003}', '\u{3000}'] {
            let text = format!("a{}b", String::from(blank).repeat(77));
            assert_eq!(plain(&text), "a [77 blanks] b");
        }
        assert_eq!(plain("end    "), "end [4 blanks] ");
        assert_eq!(plain("a\n\tb"), "a\\n\\tb");
    }
}
