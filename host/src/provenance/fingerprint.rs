//! Fingerprints of the values in a text: of its words that identify something, of short whole values, and of blocks of
//! 16 letters and digits; of results also of the pairs of neighbouring words. Case, spacing, punctuation and forms of the same letter make no difference.

use unicode_normalization::UnicodeNormalization as _;

use crate::escape::is_hidden;

/// The letters and digits of a block. Fewer would be shared by texts that have nothing to do with each other.
pub(super) const BLOCK: usize = 16;

/// Of a result, the block at every eighth letter is kept, so that each run of 23 letters and digits that arguments
/// share with it contains one.
pub(super) const STEP: usize = 8;

/// The fewest letters and digits of a word with a digit in it, of a value, of a name with `@`, a dot or a digit, and of
/// a name of letters with dashes. Shorter ones occur everywhere.
const WORD: usize = 6;
const VALUE: usize = 8;
const NAME: usize = 8;
const LETTERS: usize = 16;

/// The fewest digits of a number that is written in groups.
const DIGITS: usize = 12;

/// The most letters and digits of a value that is kept as a whole; longer ones have blocks.
const LONGEST: usize = 64;

/// The secret of a session's fingerprints: without it they tell nothing about the values, and nobody can choose values
/// whose fingerprints are equal.
#[derive(Debug)]
pub(super) struct FlowKey {
    pub(super) base: u64,
    /// `base` to the power of [`BLOCK`].
    power: u64,
    seed: u64,
}

impl FlowKey {
    pub(super) fn random() -> Self {
        let mut bytes = [0; 16];
        // Without randomness the fingerprints still find values; they only lose their secrecy in memory.
        let _ = getrandom::fill(&mut bytes);
        let (base, seed) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
        let base = number(base) | 1;
        Self { base, power: base.wrapping_pow(16), seed: number(seed) }
    }

    /// Returns the fingerprint of two words that follow each other. Ends the second, with which the next pair begins.
    pub(super) fn end_pair(&self, pair: &mut Run, word: &Run) -> Option<u64> {
        if word.length == 0 {
            return None;
        }
        let ended = std::mem::replace(pair, word.clone());
        (ended.length > word.length).then(|| self.finish(ended.hash, 2))
    }

    fn finish(&self, hash: u64, kind: u64) -> u64 {
        // Far apart: the hashes of two runs that differ in their last letter only are close to each other.
        let mut mixed = hash ^ self.seed ^ kind.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ mixed >> 33
    }
}

/// The positions at which blocks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// At every letter or digit, for arguments.
    Every,
    /// At every eighth, for results.
    Every8th,
}

/// Hands on the fingerprints of texts.
pub(super) struct Fingerprints<'a, F> {
    key: &'a FlowKey,
    positions: Positions,
    found: F,
}

impl<'a, F: FnMut(u64)> Fingerprints<'a, F> {
    pub(super) fn new(key: &'a FlowKey, positions: Positions, found: F) -> Self {
        Self { key, positions, found }
    }

    /// Hands on the fingerprints of one text.
    pub(super) fn add(&mut self, text: &str) {
        if text.is_ascii() {
            self.scan(text.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        } else {
            self.scan(normalized(text));
        }
    }

    fn scan(&mut self, text: impl Iterator<Item = char>) {
        let base = self.key.base;
        let mut blocks = Blocks::default();
        let (mut whole, mut line, mut value) = (Run::default(), Run::default(), None::<Run>);
        let (mut word, mut name, mut digits) = (Run::default(), Run::default(), Run::default());
        let mut pair = Run::default();
        let mut before = ' ';
        for c in text {
            if c.is_alphanumeric() {
                let code = code(c);
                for run in [&mut whole, &mut line, &mut word, &mut name, &mut pair] {
                    run.push(base, code, c);
                }
                if let Some(value) = &mut value {
                    value.push(base, code, c);
                }
                if c.is_ascii_digit() {
                    digits.push(base, code, c);
                } else {
                    self.end_digits(&mut digits);
                }
                self.block(&mut blocks, code);
            } else {
                self.end_word(&mut word, &mut pair);
                match c {
                    '.' | '_' | '-' | '@' | '+' => name.join(c),
                    _ => self.end_name(&mut name),
                }
                match c {
                    ' ' | '-' if before.is_ascii_digit() => digits.join(c),
                    _ => self.end_digits(&mut digits),
                }
                if matches!(c, '\n' | '\r' | '\t' | '|' | ':' | '=' | '&' | ',' | ';') {
                    self.end_value(value.take());
                    value = matches!(c, '\t' | '|' | ':' | '=').then(Run::default);
                }
                if c == '\n' {
                    self.end_value(Some(std::mem::take(&mut line)));
                }
            }
            before = c;
        }
        self.end_word(&mut word, &mut pair);
        self.end_name(&mut name);
        self.end_digits(&mut digits);
        self.end_value(value);
        self.end_value(Some(line));
        self.end_value(Some(whole));
    }

    fn block(&mut self, blocks: &mut Blocks, code: u64) {
        let FlowKey { base, power, .. } = *self.key;
        let hash = match self.positions {
            Positions::Every => blocks.rolling(base, power, code),
            Positions::Every8th => blocks.stepping(base, code),
        };
        if let Some(hash) = hash {
            (self.found)(self.key.finish(hash, 1));
        }
    }

    fn end_word(&mut self, word: &mut Run, pair: &mut Run) {
        let word = std::mem::take(word);
        if let Some(pair) = self.key.end_pair(pair, &word).filter(|_| self.positions == Positions::Every8th) {
            (self.found)(pair);
        }
        if word.length >= WORD && word.digits > 0 {
            self.emit(&word);
        }
    }

    fn end_name(&mut self, name: &mut Run) {
        let name = std::mem::take(name);
        if !name.joined || name.is_date() {
            return;
        }
        let identifies = name.digits > 0 || name.address;
        if name.length >= if identifies { NAME } else { LETTERS } {
            self.emit(&name);
        }
    }

    fn end_digits(&mut self, digits: &mut Run) {
        let digits = std::mem::take(digits);
        if digits.joined && digits.length >= DIGITS {
            self.emit(&digits);
        }
    }

    fn end_value(&mut self, value: Option<Run>) {
        if let Some(value) = value.filter(|value| value.length >= VALUE && !value.is_date()) {
            self.emit(&value);
        }
    }

    fn emit(&mut self, run: &Run) {
        if run.length <= LONGEST {
            (self.found)(self.key.finish(run.hash, 0));
        }
    }
}

/// Returns the number of a letter or digit in hashes.
pub(super) fn code(c: char) -> u64 {
    u64::from(u32::from(c)) + 1
}

/// Returns the letters of a text without their form: no capitals, no wide letters, nothing that is not seen.
pub(super) fn normalized(text: &str) -> impl Iterator<Item = char> {
    text.nfkc().filter(|c| !is_hidden(*c)).flat_map(char::to_lowercase)
}

/// The letters and digits since the beginning of a word, a pair of words, a name or a value.
#[derive(Default, Clone)]
pub(super) struct Run {
    hash: u64,
    length: usize,
    digits: usize,
    dashes: usize,
    /// True if it has an `@` or a dot between letters or digits.
    address: bool,
    /// True if it has parts that a sign joins.
    joined: bool,
}

impl Run {
    /// Adds a letter or digit.
    pub(super) fn push(&mut self, base: u64, code: u64, c: char) {
        self.hash = self.hash.wrapping_mul(base).wrapping_add(code);
        self.length += 1;
        self.digits += usize::from(c.is_ascii_digit());
    }

    fn join(&mut self, c: char) {
        if self.length > 0 {
            self.joined = true;
            self.address |= matches!(c, '@' | '.');
            self.dashes += usize::from(c == '-');
        }
    }

    /// Reports whether it is a day, or a day and an hour, as ISO 8601 writes them. Every calendar has those.
    fn is_date(&self) -> bool {
        self.dashes == 2 && (self.length == 8 && self.digits == 8 || self.length == 11 && self.digits == 10)
    }
}

/// The last letters and digits, as blocks.
#[derive(Default)]
struct Blocks {
    /// The codes of the last letters, each at its count modulo [`BLOCK`].
    last: [u64; BLOCK],
    hash: u64,
    /// The block that began half a block later.
    later: u64,
    count: usize,
}

impl Blocks {
    /// Returns the hash of the block that ends here.
    fn rolling(&mut self, base: u64, power: u64, code: u64) -> Option<u64> {
        // Before the block is full, nothing is gone: the code is zero.
        let gone = self.last.get_mut(self.count % BLOCK).map_or(0, |place| std::mem::replace(place, code));
        self.hash = self.hash.wrapping_mul(base).wrapping_add(code).wrapping_sub(gone.wrapping_mul(power));
        self.count += 1;
        (self.count >= BLOCK).then_some(self.hash)
    }

    /// Returns the hash of the block that ends here, if it began at a multiple of [`STEP`].
    fn stepping(&mut self, base: u64, code: u64) -> Option<u64> {
        self.hash = self.hash.wrapping_mul(base).wrapping_add(code);
        self.later = self.later.wrapping_mul(base).wrapping_add(code);
        self.count += 1;
        if !self.count.is_multiple_of(STEP) {
            return None;
        }
        let ended = std::mem::replace(&mut self.hash, self.later);
        self.later = 0;
        (self.count >= BLOCK).then_some(ended)
    }
}
