//! Short values of several words, such as a name or a title. Nothing else in them identifies them, so they are found by
//! their words: in the result, each word of the value must follow the one before it as well.

use super::fingerprint::STEP;
use super::flow_key::{BLOCK, FlowKey, Position};
use super::letters::each_letter;

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
    let (mut now, mut word, mut pair) = (Position::default(), Position::default(), Position::default());
    let mut letters = 0;
    each_letter(value, |c| {
        if c.is_alphanumeric() {
            letters += usize::from(c.is_alphabetic());
            now.push(key, c);
        } else {
            pairs.extend(key.end_pair(&mut pair, std::mem::replace(&mut word, now), now));
        }
    });
    pairs.extend(key.end_pair(&mut pair, word, now));
    // A longer value has a block.
    if letters < LETTERS || now.letters >= BLOCK + STEP {
        pairs.clear();
    }
    pairs
}
