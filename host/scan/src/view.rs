//! Views of a text in which the same order has the same letters: lower case, without marks, one sentence to a line.

use std::iter::Peekable;
use std::str::CharIndices;

use portcullis_core::escape::is_hidden;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// A sentence longer than this is broken at the next space, so that words that are far apart do not meet.
const SENTENCE: usize = 400;
/// One offset of the original is kept for this many bytes of the view.
const STEP: usize = 32;

/// A normalised text, with offsets into the original.
pub(crate) struct NormalizedText {
    pub(crate) text: String,
    anchors: Vec<usize>,
}

impl NormalizedText {
    /// Normalises a text: lower case; letters that look Latin in a Latin word become Latin; quotes, backticks,
    /// asterisks and hidden characters vanish; escaped blanks are blanks; a line is a sentence.
    pub(crate) fn of(text: &str) -> Self {
        Self::build(text, |c, _| c)
    }

    /// Reads digits and signs inside words as letters (`c0mmand`), if the text has such words.
    pub(crate) fn unspelled(text: &str) -> Option<Self> {
        let spelled = |word: &str| {
            let word = word.trim_end_matches(['!', '.', ',', '?', ':', ';']);
            word.bytes().any(|byte| leet(byte as char).is_some())
                && word.bytes().filter(u8::is_ascii_alphabetic).count() * 2 >= word.len()
                && !word.contains(['_', '/', '.'])
        };
        let count = text.split_whitespace().filter(|word| spelled(word)).take(2).count();
        (count == 2).then(|| Self::build(text, |c, word| if word { leet(c).unwrap_or(c) } else { c }))
    }

    /// Returns where in the original an offset of the view is, or shortly before.
    pub(crate) fn origin(&self, at: usize) -> usize {
        self.anchors.get(at / STEP).copied().unwrap_or_default()
    }

    fn build(text: &str, read: impl Fn(char, bool) -> char) -> Self {
        let mut view = Self { text: String::with_capacity(text.len()), anchors: vec![0] };
        let (mut start, mut before, mut latin) = (0, ' ', false);
        let mut rest = text.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            if is_mark_on_latin(c, &view.text) {
                continue;
            }
            let c = if c == '\\' { of_escape(&mut rest) } else { c };
            while view.anchors.len() <= view.text.len() / STEP {
                view.anchors.push(at);
            }
            let next = after_marks(c, &mut rest);
            let ends = match c {
                '.' | '!' | '?' => next.is_whitespace(),
                '\u{3002}' | '\u{ff01}' | '\u{ff1f}' => true,
                '\n' => matches!(next, '\n' | '-' | '*' | '#' | '\u{2022}') || next.is_ascii_digit(),
                _ => false,
            };
            if ends {
                view.end(&mut start);
            } else if c.is_whitespace() {
                latin = false;
                if view.text.len() - start > SENTENCE {
                    view.end(&mut start);
                } else if !view.text.ends_with([' ', '\n']) {
                    view.text.push(' ');
                }
            } else if matches!(c, '\u{2010}'..='\u{2015}' | '\u{2022}' | '\u{2212}') {
                view.text.push('-');
            } else if is_pictogram(c) {
                // It means nothing to a rule.
            } else if !is_hidden(c) && !matches!(c, '`' | '*' | '"' | '\'' | '\u{2018}'..='\u{201d}') {
                let inside = before.is_ascii_alphabetic() || next.is_ascii_alphabetic();
                for c in read(c, inside).to_lowercase() {
                    push_plain(c, latin || next.is_ascii_alphabetic(), &mut view.text);
                    latin |= view.text.as_bytes().last().is_some_and(u8::is_ascii_alphabetic);
                }
            }
            before = c;
        }
        view
    }

    fn end(&mut self, start: &mut usize) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        *start = self.text.len();
    }
}

/// Returns the character that an escape sequence stands for in a text quoted in another one, as in YAML and JSON: an
/// escaped line break, tab or blank, or a line that continues in the next one.
fn of_escape(rest: &mut Peekable<CharIndices<'_>>) -> char {
    match rest.peek() {
        Some((_, 'n' | 'r' | 't')) => {
            rest.next();
            ' '
        }
        Some((_, next)) if next.is_whitespace() => ' ',
        _ => '\\',
    }
}

fn leet(c: char) -> Option<char> {
    Some(match c {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        '8' => 'b',
        _ => return None,
    })
}

/// Reports whether a character is a mark on a letter that looks Latin, or on none. Marks of other scripts on their own
/// letters are vowels and the like, which the words of the rules have.
fn is_mark_on_latin(c: char, before: &str) -> bool {
    let common = |c| matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}');
    !c.is_ascii() && is_combining_mark(c) && (common(c) || before.ends_with(|last: char| last.is_ascii()))
}

/// Returns the next character after `c` and its marks, or a line break at the end. The marks in a run are not searched
/// again from each of them.
fn after_marks(c: char, rest: &mut Peekable<CharIndices<'_>>) -> char {
    match rest.peek() {
        Some((_, next)) if !next.is_ascii() && !is_combining_mark(c) => {
            rest.clone().find(|(_, c)| !is_combining_mark(*c)).map_or('\n', |(_, next)| next)
        }
        next => next.map_or('\n', |(_, next)| *next),
    }
}

/// Reports whether a character is a picture, and not a letter in a circle or a square.
fn is_pictogram(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}')
        && !decomposed(c).is_ascii_alphabetic()
}

/// Returns the first character of a compatibility decomposition: the letter without its mark, circle, width or style.
fn decomposed(c: char) -> char {
    let mut first = None;
    decompose_compatible(c, |part| first = first.or(Some(part)));
    first.unwrap_or(c)
}

/// Adds a character of a view. Letters with marks, in circles, of another width or style are read as Latin ones, and in
/// a Latin word those that look alike.
fn push_plain(c: char, latin: bool, text: &mut String) {
    if c.is_ascii() {
        return text.push(c);
    }
    let first = decomposed(c);
    if first.is_ascii_alphabetic() {
        // A ligature is several letters.
        decompose_compatible(c, |part| {
            if !is_combining_mark(part) {
                text.extend(part.to_lowercase());
            }
        });
    } else {
        let letter = look_alike(first, latin);
        text.push(if letter.is_ascii() { letter } else { c });
    }
}

/// Reads small capitals and letters with a stroke as Latin ones, and in a Latin word letters that look alike.
fn look_alike(c: char, latin: bool) -> char {
    match c {
        'ᴀ' => 'a',
        'ʙ' | 'ƀ' => 'b',
        'ᴄ' => 'c',
        'ᴅ' | 'đ' => 'd',
        'ᴇ' => 'e',
        'ꜰ' => 'f',
        'ɢ' => 'g',
        'ʜ' | 'ħ' => 'h',
        'ɪ' | 'ɨ' => 'i',
        'ᴊ' => 'j',
        'ᴋ' => 'k',
        'ʟ' | 'ł' => 'l',
        'ᴍ' => 'm',
        'ɴ' => 'n',
        'ᴏ' | 'ø' => 'o',
        'ᴘ' => 'p',
        'ꞯ' => 'q',
        'ʀ' => 'r',
        'ꜱ' => 's',
        'ᴛ' | 'ŧ' => 't',
        'ᴜ' => 'u',
        'ᴠ' => 'v',
        'ᴡ' => 'w',
        'ʏ' => 'y',
        'ᴢ' => 'z',
        _ if !latin => c,
        'а' | 'α' => 'a',
        'в' | 'β' => 'b',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'ε' => 'e',
        'һ' => 'h',
        'і' | 'ι' | 'ı' => 'i',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'ӏ' => 'l',
        'м' => 'm',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'υ' => 'u',
        'ν' => 'v',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        c => c,
    }
}
