//! The keyed hashes that make up fingerprints.

/// The letters and digits of a block. Fewer would be shared by texts that have nothing to do with each other.
pub(super) const BLOCK: usize = 16;

/// The most letters and digits of a value that is kept as a whole; longer ones have blocks.
pub(super) const LONGEST: usize = 64;

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

    /// Returns the fingerprint of the letters and digits between two positions: of a word, a name, a number or a value.
    pub(super) fn run(&self, from: Position, to: Position) -> u64 {
        self.finish(self.hash(from, to), 0)
    }

    /// Returns the fingerprint of the block that ends here, before which the text has this hash.
    #[inline]
    pub(super) fn block(&self, before: u64, now: Position) -> u64 {
        self.finish(now.hash.wrapping_sub(before.wrapping_mul(self.powers[BLOCK])), 1)
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

/// A position in a text: how many letters and digits are before it, and their hash.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Position {
    pub(super) hash: u64,
    pub(super) letters: usize,
    pub(super) digits: usize,
}

impl Position {
    /// Moves behind a letter or digit. Digits are counted by the caller.
    #[inline]
    pub(super) fn push(&mut self, key: &FlowKey, c: char) {
        self.hash = self.hash.wrapping_mul(key.base()).wrapping_add(u64::from(u32::from(c)) + 1);
        self.letters += 1;
    }
}
