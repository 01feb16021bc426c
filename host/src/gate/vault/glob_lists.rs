//! The lists of globs that transforms give for the values that they hide.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// The longest glob, in bytes, as in the configuration. A longer one could nest so deeply that its compilation
/// overflows a stack.
const MAX_GLOB_BYTES: usize = 256;

/// The most bytes of all lists of one vault together. A compiled glob takes many times its own size.
const MAX_BYTES: usize = 64 * 1024;

/// The bytes that a glob counts in addition to its text.
const GLOB_BYTES: usize = 64;

/// The different lists of globs of one vault, compiled. A transform has few, and gives one with each value.
#[derive(Default)]
pub(super) struct GlobLists {
    lists: Vec<(Vec<String>, GlobSet)>,
    bytes: usize,
}

impl GlobLists {
    /// Returns the number of a list, which is added if it is new. `None` if it is too large, or would make all lists
    /// together too large. A glob that is not valid fits no name.
    pub(super) fn number_of(&mut self, globs: Vec<String>) -> Option<usize> {
        if let Some(known) = self.lists.iter().position(|(list, _)| *list == globs) {
            return Some(known);
        }
        let bytes = self.bytes + globs.iter().map(|glob| GLOB_BYTES + glob.len()).sum::<usize>();
        if bytes > MAX_BYTES || globs.iter().any(|glob| glob.len() > MAX_GLOB_BYTES) {
            return None;
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs.iter().filter_map(|glob| Glob::new(glob).ok()) {
            set.add(glob);
        }
        self.lists.push((globs, set.build().ok()?));
        self.bytes = bytes;
        self.lists.len().checked_sub(1)
    }

    /// Reports whether a glob of a list fits a name.
    pub(super) fn fits(&self, number: usize, name: &str) -> bool {
        self.lists.get(number).is_some_and(|(_, set)| set.is_match(name))
    }
}
