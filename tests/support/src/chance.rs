//! Reproducible random choices.

/// A random number generator (xorshift) with a seed that must not be 0.
#[derive(Debug, Clone)]
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number from 0 to below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The remainder is below a `usize`.
        (self.0 % end as u64) as usize
    }

    /// Returns one of these values.
    ///
    /// # Panics
    /// If there are none.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len());
        *all.get(at).unwrap_or_else(|| panic!("nothing to choose from"))
    }
}
