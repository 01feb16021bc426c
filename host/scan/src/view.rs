//! Views of a text in which the same order has the same letters: lower case, without marks, one sentence to a line.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use portcullis_core::escape::is_hidden;

/// A sentence longer than this is broken at the next space, so that words that are far apart do not meet.
const SENTENCE: usize = 400;
/// One offset of the original is kept for so many bytes of the view.
const STEP: usize = 32;

/// A normalised text, with offsets into the original.
pub(crate) struct NormalizedText {
    pub(crate) text: String,
    anchors: Vec<usize>,
}

impl NormalizedText {
    /// Normalises a text: lower case; letters that look Latin in a Latin word become Latin; quotes, backticks,
    /// asterisks and hidden characters vanish; a line is a sentence.
    pub(crate) fn of(text: &str) -> Self {
        Self::build(text, |c, _| c)
    }

    /// Reads digits and signs inside words as letters (`c0mmand`), if the text has such words.
    pub(crate) fn unspelled(text: &str) -> Option<Self> {
        let spelled = |word: &str| {
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

/// Reports whether the text gives a well-known order once its spaces are taken away, and does not give it with them:
/// words were broken so that nobody searching for them finds them.
pub(crate) fn hides_order_in_spacing(view: &NormalizedText) -> bool {
    // Few texts have several fragments of two letters in a row, so few are squeezed.
    let mut short = 0_usize;
    let broken = view.text.split([' ', '\n']).filter(|word| {
        short = if (1..=3).contains(&word.len()) { short + 1 } else { 0 };
        word.len() <= 2 && short >= 1 && !COMMON.contains(word)
    });
    if broken.take(2).count() < 2 {
        return false;
    }
    let squeezed: String = view.text.chars().filter(|c| c.is_alphanumeric()).collect();
    SQUEEZED.as_ref().is_some_and(|orders| orders.is_match(&squeezed) && !spaced(&view.text))
}

fn spaced(text: &str) -> bool {
    PHRASES.iter().any(|phrase| text.contains(phrase))
}

const COMMON: &[&str] = &[
    "a", "i", "an", "as", "at", "be", "by", "do", "go", "if", "in", "is", "it", "me", "my", "no", "of", "on", "or",
    "so", "to", "up", "us", "we", "id", "ip", "ai", "-", "ok", "e", "g", "=", "|", "ui", "vs", "am", "pm", "s", "t",
    ":", "",
];

const PHRASES: &[&str] = &[
    "tell the user",
    "ignore previous",
    "ignore all",
    "disregard previous",
    "user conversation",
    "conversation history",
    "chat history",
    "system prompt",
    "private key",
    "user data",
    "without asking",
    "before using any",
    "safety check",
    "safety instructions",
    "id_rsa",
    "api keys",
    "credentials to",
    "inform the user",
    "mention this",
    "all passwords",
    "environment variables",
    "from the user",
];

static SQUEEZED: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let squeezed = PHRASES.iter().map(|phrase| phrase.chars().filter(|c| c.is_alphanumeric()).collect::<String>());
    AhoCorasick::new(squeezed).ok()
});

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
