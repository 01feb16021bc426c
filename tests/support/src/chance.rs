//! Chance that can be repeated.

/// Numbers at random from a seed that is not 0 (xorshift).
#[derive(Debug, Clone)]
pub struct Chance(pub u64);

impl Chance {
    /// From 0 to below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The remainder is below a `usize`.
        (self.0 % end as u64) as usize
    }

    /// One of these, of which there is one at least.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len());
        *all.get(at).unwrap_or_else(|| panic!("nothing to choose from"))
    }
}
