//! Fingerprints of the values in a text: of its words that identify something, of short whole values, and of blocks of
//! 16 letters and digits; of results also of the pairs of neighbouring words. Case, spacing, punctuation and forms of
//! the same letter make no difference.

use unicode_normalization::UnicodeNormalization as _;

use crate::escape::is_hidden;

/// The letters and digits of a block. Fewer would be shared by texts that have nothing to do with each other.
pub(super) const BLOCK: usize = 16;

/// Of a result, the block at every eighth letter is kept, so that each run of 23 letters and digits that arguments
/// share with it contains one.
pub(super) const STEP: usize = 8;

/// The fewest letters and digits of a word with a digit in it. Shorter ones occur everywhere.
const MIN_WORD_WITH_DIGIT: usize = 6;

/// The fewest letters and digits of a value, for the same reason.
const MIN_VALUE: usize = 8;

/// The fewest letters and digits of a name with `@`, a dot or a digit, for the same reason.
const MIN_NAME: usize = 8;

/// The fewest letters of a name of letters and dashes. Shorter ones are ordinary words.
const MIN_DASHED_NAME: usize = 16;

/// The fewest digits of a number that is written in groups.
const DIGITS: usize = 12;

/// The most letters and digits of a value that is kept as a whole; longer ones have blocks.
const LONGEST: usize = 64;

/// The secret of a session's fingerprints: without it they tell nothing about the values, and nobody can choose values
/// whose fingerprints are equal.
#[derive(Debug)]
pub(super) struct FlowKey {
    /// The powers of the base of hashes, for runs that are no longer than [`LONGEST`].
    powers: [u64; LONGEST + 1],
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
        let powers = std::array::from_fn(|index| base.wrapping_pow(u32::try_from(index).unwrap_or_default()));
        Self { powers, seed: number(seed) }
    }

    /// Returns the fingerprint of the pair of words that begins at `pair` and whose second word begins at `word`, if a
    /// word ends here and another is before it. The next pair begins with the word that ended.
    #[inline]
    pub(super) fn end_pair(&self, pair: &mut Position, word: Position, now: Position) -> Option<u64> {
        if word.letters == now.letters {
            return None;
        }
        let began = std::mem::replace(pair, word);
        (began.letters < word.letters).then(|| self.finish(self.hash(began, now), 2))
    }

    /// Returns the hash of the letters and digits between two positions.
    fn hash(&self, from: Position, to: Position) -> u64 {
        let length = to.letters - from.letters;
        let power = self.powers.get(length).copied();
        let power = power.unwrap_or_else(|| self.base().wrapping_pow(u32::try_from(length).unwrap_or(u32::MAX)));
        to.hash.wrapping_sub(from.hash.wrapping_mul(power))
    }

    fn base(&self) -> u64 {
        self.powers[1]
    }

    fn finish(&self, hash: u64, kind: u64) -> u64 {
        // Far apart: the hashes of two runs that differ in their last letter only are close to each other.
        let mut mixed = hash ^ self.seed ^ kind.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ mixed >> 33
    }
}

/// A sign between two values that are read as one. It is not seen in a text: it divides neither words nor blocks.
pub(super) const JOINT: char = '\u{1f}';

/// The positions at which blocks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// At every letter or digit, for arguments.
    Every,
    /// At every eighth, for results.
    Every8th,
    /// At those before which a block has a [`JOINT`] inside: the other blocks are taken with the values that are joined.
    AcrossJoints,
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
            self.scan(lower_case(text));
        } else {
            self.scan(normalized(text));
        }
    }

    fn scan(&mut self, text: impl Iterator<Item = char>) {
        let mut now = Position::default();
        let (mut line, mut value, mut word, mut pair) = (now, None, now, now);
        let (mut name, mut digits) = (Run::from(now), None::<Run>);
        let mut blocks = Blocks::default();
        let mut before = ' ';
        for c in text {
            if c == JOINT {
                blocks.joint = now.letters;
                continue;
            }
            if is_letter_or_digit(c) {
                if c.is_ascii_digit() {
                    digits.get_or_insert(Run::from(now));
                } else if digits.is_some() {
                    self.end_digits(&mut digits, now);
                }
                now.push(self.key, c);
                self.block(&mut blocks, now);
            } else {
                self.end_word(&mut word, &mut pair, now);
                match c {
                    '.' | '_' | '-' | '@' | '+' => name.join(c, now),
                    _ => self.end_name(&mut name, now),
                }
                match (c, &mut digits) {
                    (' ' | '-', Some(digits)) if before.is_ascii_digit() => digits.join(c, now),
                    _ => self.end_digits(&mut digits, now),
                }
                if matches!(c, '\n' | '\r' | '\t' | '|' | ':' | '=' | '&' | ',' | ';') {
                    self.end_value(value.take(), now);
                    value = matches!(c, '\t' | '|' | ':' | '=').then_some(now);
                }
                if c == '\n' {
                    self.end_value(Some(line), now);
                    line = now;
                }
            }
            before = c;
        }
        self.end_word(&mut word, &mut pair, now);
        self.end_name(&mut name, now);
        self.end_digits(&mut digits, now);
        self.end_value(value, now);
        self.end_value(Some(line), now);
        self.end_value(Some(Position::default()), now);
    }

    #[inline]
    fn block(&mut self, blocks: &mut Blocks, now: Position) {
        let before = blocks.push(now);
        if now.letters < BLOCK {
            return;
        }
        let wanted = match self.positions {
            Positions::Every => true,
            Positions::Every8th => now.letters.is_multiple_of(STEP),
            Positions::AcrossJoints => blocks.joint < now.letters && now.letters < blocks.joint + BLOCK,
        };
        if wanted {
            let hash = now.hash.wrapping_sub(before.wrapping_mul(self.key.powers[BLOCK]));
            (self.found)(self.key.finish(hash, 1));
        }
    }

    #[inline]
    fn end_word(&mut self, word: &mut Position, pair: &mut Position, now: Position) {
        let begin = std::mem::replace(word, now);
        // Arguments have no pairs, but for phrases, which are read on their own.
        if self.positions == Positions::Every8th
            && let Some(pair) = self.key.end_pair(pair, begin, now)
        {
            (self.found)(pair);
        }
        if now.letters - begin.letters >= MIN_WORD_WITH_DIGIT && now.digits > begin.digits {
            self.emit(begin, now);
        }
    }

    #[inline]
    fn end_name(&mut self, name: &mut Run, now: Position) {
        let name = std::mem::replace(name, Run::from(now));
        if !name.joined || name.is_date(now) {
            return;
        }
        let identifies = now.digits > name.begin.digits || name.address;
        if now.letters - name.begin.letters >= if identifies { MIN_NAME } else { MIN_DASHED_NAME } {
            self.emit(name.begin, now);
        }
    }

    fn end_digits(&mut self, digits: &mut Option<Run>, now: Position) {
        if let Some(digits) = digits.take().filter(|digits| digits.joined)
            && now.letters - digits.begin.letters >= DIGITS
        {
            self.emit(digits.begin, now);
        }
    }

    fn end_value(&mut self, begin: Option<Position>, now: Position) {
        if let Some(begin) = begin.filter(|begin| now.letters - begin.letters >= MIN_VALUE) {
            self.emit(begin, now);
        }
    }

    fn emit(&mut self, begin: Position, now: Position) {
        if now.letters - begin.letters <= LONGEST {
            (self.found)(self.key.finish(self.key.hash(begin, now), 0));
        }
    }
}

/// Visits the letters and signs of a text without their form, as they have fingerprints.
pub(super) fn each_letter(text: &str, visit: impl FnMut(char)) {
    let seen = |c: &char| *c != JOINT;
    if text.is_ascii() {
        lower_case(text).filter(seen).for_each(visit);
    } else {
        normalized(text).filter(seen).for_each(visit);
    }
}

/// Reports whether a sign that has no capitals any more is a letter or a digit. Most are those of ASCII.
fn is_letter_or_digit(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9') || !c.is_ascii() && c.is_alphanumeric()
}

/// Returns the letters of an ASCII text without their form: no capitals, nothing that is not seen but joints.
fn lower_case(text: &str) -> impl Iterator<Item = char> {
    let seen = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\t' | b'\n' | b'\r' | b'\x1f');
    text.bytes().filter(seen).map(|byte| char::from(byte.to_ascii_lowercase()))
}

/// Returns the letters of a text without their form: no capitals, no wide letters, nothing that is not seen. What
/// divides lines stays, and so do joints.
fn normalized(text: &str) -> impl Iterator<Item = char> {
    let seen = |c: char| match c {
        '\t' | '\n' | '\r' | JOINT => Some(c),
        '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        c => (!is_hidden(c)).then_some(c),
    };
    text.nfkc().filter_map(seen).flat_map(char::to_lowercase)
}

/// A position in a text: how many letters and digits are before it, and their hash.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Position {
    hash: u64,
    pub(super) letters: usize,
    digits: usize,
}

impl Position {
    /// Moves behind a letter or digit.
    pub(super) fn push(&mut self, key: &FlowKey, c: char) {
        self.hash = self.hash.wrapping_mul(key.base()).wrapping_add(u64::from(u32::from(c)) + 1);
        self.letters += 1;
        self.digits += usize::from(c.is_ascii_digit());
    }
}

/// A name or a number whose parts signs may join.
struct Run {
    begin: Position,
    dashes: usize,
    /// True if it has an `@` or a dot behind a letter or digit.
    address: bool,
    /// True if it has parts that a sign joins.
    joined: bool,
}

impl Run {
    fn from(begin: Position) -> Self {
        Self { begin, dashes: 0, address: false, joined: false }
    }

    fn join(&mut self, c: char, now: Position) {
        if self.begin.letters < now.letters {
            self.joined = true;
            self.address |= matches!(c, '@' | '.');
            self.dashes += usize::from(c == '-');
        }
    }

    /// Reports whether it is a day, or a day and an hour, as ISO 8601 writes them. Every calendar has those.
    fn is_date(&self, now: Position) -> bool {
        let of_date = [(8, 8), (11, 10)];
        self.dashes == 2 && of_date.contains(&(now.letters - self.begin.letters, now.digits - self.begin.digits))
    }
}

/// The hashes of the text before each of the last [`BLOCK`] letters and digits.
#[derive(Default)]
struct Blocks {
    last: [u64; BLOCK],
    /// The letters and digits before the last [`JOINT`].
    joint: usize,
}

impl Blocks {
    /// Returns the hash of the text before the block that ends here.
    fn push(&mut self, now: Position) -> u64 {
        self.last.get_mut(now.letters % BLOCK).map_or(0, |place| std::mem::replace(place, now.hash))
    }
}
