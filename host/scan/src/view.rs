//! Views of a text in which the same order has the same letters: lower case, without marks, one sentence to a line.

use std::iter::Peekable;
use std::str::CharIndices;

use portcullis_core::escape::is_hidden;

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
            let c = if c == '\\' { of_escape(&mut rest) } else { c };
            while view.anchors.len() <= view.text.len() / STEP {
                view.anchors.push(at);
            }
            let next = rest.peek().map_or('\n', |(_, next)| *next);
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
            } else if matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}') {
                // A pictogram means nothing to a rule.
            } else if !is_hidden(c) && !matches!(c, '`' | '*' | '"' | '\'' | '\u{2018}'..='\u{201d}') {
                let inside = before.is_ascii_alphabetic() || next.is_ascii_alphabetic();
                for c in read(c, inside).to_lowercase() {
                    let c = plain(c, latin || next.is_ascii_alphabetic());
                    latin |= c.is_ascii_alphabetic();
                    view.text.push(c);
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

/// Takes the mark from a Latin letter, and reads wide, mathematical and, in a Latin word, look-alike letters as Latin.
fn plain(c: char, latin: bool) -> char {
    let offset = |base: u32, size: u32| char::from_u32(u32::from('a') + (u32::from(c) - base) % size).unwrap_or(c);
    match c {
        '\u{ff41}'..='\u{ff5a}' => offset(0xff41, 26),
        '\u{1d400}'..='\u{1d6a3}' => offset(0x1d400, 26),
        '\u{24d0}'..='\u{24e9}' => offset(0x24d0, 26),
        '\u{e0}'..='\u{e5}' => 'a',
        '\u{e7}' => 'c',
        '\u{e8}'..='\u{eb}' => 'e',
        '\u{ec}'..='\u{ef}' => 'i',
        '\u{f1}' => 'n',
        '\u{f2}'..='\u{f6}' => 'o',
        '\u{f9}'..='\u{fc}' => 'u',
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
