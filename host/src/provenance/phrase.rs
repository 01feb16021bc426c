//! Short values of several words, such as a name or a title. Nothing else in them identifies them, so they are found by
//! their words: in the result, each word of the value must follow the one before it as well.

use std::ops::ControlFlow;

use super::fingerprint::STEP;
use super::flow_key::{BLOCK, FlowKey, Position};
use super::letters::each_letter;

/// The fewest letters, without digits, of a value that is found by its words. Shorter ones and dates occur everywhere.
const LETTERS: usize = 8;

/// The letters and digits of a value that has a block: it is found by that.
const TOO_LONG: usize = BLOCK + STEP;

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
        if now.letters < TOO_LONG { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    pairs.extend(key.end_pair(&mut pair, word, now));
    if letters < LETTERS || now.letters >= TOO_LONG {
        pairs.clear();
    }
    pairs
}
