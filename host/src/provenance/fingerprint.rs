//! Fingerprints of the values in a text: of its words that identify something, of short whole values, and of blocks of
//! 16 letters and digits; of results also of the pairs of neighbouring words. Case, spacing, punctuation and forms of
//! the same letter make no difference.

use super::flow_key::{BLOCK, FlowKey, LONGEST, Position};
use super::letters::{Class, JOINT, is_letter_or_digit, normalized};

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

/// Reports whether a text is one word that is too short for any fingerprint, such as the names of many members.
pub(super) fn is_short_word(text: &str) -> bool {
    text.len() < MIN_WORD_WITH_DIGIT && text.bytes().all(|byte| Class::of(byte).is_run())
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
        if is_short_word(text) {
            return;
        }
        let mut scan = TextScan::new(self);
        if text.is_ascii() {
            scan.ascii(text.as_bytes());
        } else {
            scan.mixed(text);
        }
        scan.end();
    }
}

/// A text that is read, from its beginning on.
struct TextScan<'a, 'key, F> {
    to: &'a mut Fingerprints<'key, F>,
    now: Position,
    line: Position,
    value: Option<Position>,
    word: Position,
    pair: Position,
    name: Run,
    digits: Option<Run>,
    blocks: Blocks,
    /// True if the last letter or sign is a digit.
    after_digit: bool,
}

impl<'a, 'key, F: FnMut(u64)> TextScan<'a, 'key, F> {
    fn new(to: &'a mut Fingerprints<'key, F>) -> Self {
        let now = Position::default();
        Self {
            to,
            now,
            line: now,
            value: None,
            word: now,
            pair: now,
            name: Run::from(now),
            digits: None,
            blocks: Blocks::default(),
            after_digit: false,
        }
    }

    /// Reads a text that is not all ASCII. The last character of a piece of ASCII goes with what follows, with which it
    /// may be one letter.
    fn mixed(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let bytes = rest.as_bytes();
            let first = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(bytes.len());
            let others = bytes.iter().skip(first).take_while(|byte| !byte.is_ascii()).count();
            let (ascii, behind) = rest.split_at(if others == 0 { first } else { first.saturating_sub(1) });
            let (other, behind) = behind.split_at(first + others - ascii.len());
            self.ascii(ascii.as_bytes());
            normalized(other).for_each(|c| self.read(c));
            rest = behind;
        }
    }

    /// Reads an ASCII text, its letters and its digits in runs.
    fn ascii(&mut self, text: &[u8]) {
        let mut rest = text.iter().copied();
        let mut next = rest.next();
        while let Some(first) = next {
            next = match Class::of(first) {
                class @ (Class::Letter | Class::Digit) => self.ascii_run(class, first, &mut rest),
                Class::Sign => {
                    self.sign(char::from(first));
                    rest.next()
                }
                Class::Joint => {
                    self.blocks.joint = self.now.letters;
                    rest.next()
                }
                Class::Hidden => rest.next(),
            };
        }
    }

    /// Reads a run of letters, or one of digits. Returns the byte behind it.
    fn ascii_run(&mut self, class: Class, first: u8, rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
        self.begin_run(class);
        let (mut now, mut byte) = (self.now, first);
        let next = loop {
            now.push(self.to.key, char::from(byte.to_ascii_lowercase()));
            self.block(now);
            match rest.next() {
                Some(next) if Class::of(next) == class => byte = next,
                next => break next,
            }
        };
        if class == Class::Digit {
            now.digits += now.letters - self.now.letters;
        }
        self.now = now;
        next
    }

    /// Reads a letter or sign that has no form any more.
    fn read(&mut self, c: char) {
        let class = match c {
            JOINT => return self.blocks.joint = self.now.letters,
            '0'..='9' => Class::Digit,
            c if is_letter_or_digit(c) => Class::Letter,
            c => return self.sign(c),
        };
        self.begin_run(class);
        self.now.push(self.to.key, c);
        self.now.digits += usize::from(class == Class::Digit);
        self.block(self.now);
    }

    /// Notes that letters follow, or digits.
    fn begin_run(&mut self, class: Class) {
        if class == Class::Digit {
            self.digits.get_or_insert(Run::from(self.now));
        } else {
            self.end_digits();
        }
        self.after_digit = class == Class::Digit;
    }

    #[inline]
    fn block(&mut self, now: Position) {
        // The block that ends at every eighth letter begins at another one.
        if self.to.positions == Positions::Every8th && !now.letters.is_multiple_of(STEP) {
            return;
        }
        let before = self.blocks.push(now);
        if now.letters < BLOCK {
            return;
        }
        let joint = self.blocks.joint;
        let is_across = || joint < now.letters && now.letters < joint + BLOCK;
        if self.to.positions != Positions::AcrossJoints || is_across() {
            (self.to.found)(self.to.key.block(before, now));
        }
    }

    fn sign(&mut self, c: char) {
        self.end_word();
        match c {
            '.' | '_' | '-' | '@' | '+' => self.name.join(c, self.now),
            _ => self.end_name(),
        }
        match (c, &mut self.digits) {
            (' ' | '-', Some(digits)) if self.after_digit => digits.join(c, self.now),
            _ => self.end_digits(),
        }
        if matches!(c, '\n' | '\r' | '\t' | '|' | ':' | '=' | '&' | ',' | ';') {
            let value = self.value.take();
            self.end_value(value);
            self.value = matches!(c, '\t' | '|' | ':' | '=').then_some(self.now);
        }
        if c == '\n' {
            self.end_value(Some(self.line));
            self.line = self.now;
        }
        self.after_digit = false;
    }

    fn end(mut self) {
        self.end_word();
        self.end_name();
        self.end_digits();
        self.end_value(self.value);
        self.end_value(Some(self.line));
        self.end_value(Some(Position::default()));
    }

    #[inline]
    fn end_word(&mut self) {
        let (key, now) = (self.to.key, self.now);
        if self.word.letters == now.letters {
            return;
        }
        let begin = std::mem::replace(&mut self.word, now);
        // Arguments have no pairs, except for phrases, which are read separately.
        if self.to.positions == Positions::Every8th
            && let Some(pair) = key.end_pair(&mut self.pair, begin, now)
        {
            (self.to.found)(pair);
        }
        if now.letters - begin.letters >= MIN_WORD_WITH_DIGIT && now.digits > begin.digits {
            self.emit(begin);
        }
    }

    #[inline]
    fn end_name(&mut self) {
        let now = self.now;
        if !self.name.joined {
            self.name.begin = now;
            return;
        }
        let name = std::mem::replace(&mut self.name, Run::from(now));
        if name.is_date(now) {
            return;
        }
        let identifies = now.digits > name.begin.digits || name.address;
        if now.letters - name.begin.letters >= if identifies { MIN_NAME } else { MIN_DASHED_NAME } {
            self.emit(name.begin);
        }
    }

    #[inline]
    fn end_digits(&mut self) {
        if let Some(digits) = self.digits.take().filter(|digits| digits.joined)
            && self.now.letters - digits.begin.letters >= DIGITS
        {
            self.emit(digits.begin);
        }
    }

    #[inline]
    fn end_value(&mut self, begin: Option<Position>) {
        if let Some(begin) = begin.filter(|begin| self.now.letters - begin.letters >= MIN_VALUE) {
            self.emit(begin);
        }
    }

    fn emit(&mut self, begin: Position) {
        if self.now.letters - begin.letters <= LONGEST {
            (self.to.found)(self.to.key.run(begin, self.now));
        }
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
