//! Short values of several words, such as a name or a title. Nothing else in them identifies them, so they are found by
//! their words: in the result, each word of the value must follow the one before it as well.

use super::fingerprint::{BLOCK, FlowKey, Run, STEP, code, normalized};

/// The fewest letters, without digits, of a value that is found by its words. Shorter ones and dates occur everywhere.
const LETTERS: usize = 8;

/// The bytes of a value above which its letters are not counted.
const LONGEST: usize = 256;

/// Returns the fingerprints of the pairs of words of a value, or nothing if the value is not found by its words.
pub(super) fn pairs(key: &FlowKey, value: &str) -> Vec<u64> {
    let mut pairs = Vec::new();
    if value.len() > LONGEST {
        return pairs;
    }
    let (mut pair, mut word) = (Run::default(), Run::default());
    let (mut letters, mut all) = (0, 0);
    for c in normalized(value).chain([' ']) {
        if c.is_alphanumeric() {
            letters += usize::from(c.is_alphabetic());
            all += 1;
            pair.push(key.base, code(c), c);
            word.push(key.base, code(c), c);
        } else {
            pairs.extend(key.end_pair(&mut pair, &std::mem::take(&mut word)));
        }
    }
    // A longer value has a block.
    if letters < LETTERS || all >= BLOCK + STEP {
        pairs.clear();
    }
    pairs
}
