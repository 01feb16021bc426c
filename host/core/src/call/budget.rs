//! The limits of a profile's budget, as a call finds them.

/// A limit of the budget of a profile, and its remainder for all of its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetLimit {
    /// The name of the limit: `calls`, `bytes` of arguments and results, or `time` in milliseconds.
    pub name: String,
    /// The most that can be left, as configured. It comes back at an even rate.
    pub amount: u64,
    /// The amount that was left when the call came, rounded down. Below 0 if earlier calls cost more than there was.
    pub left: i64,
}

impl BudgetLimit {
    /// Returns a limit, as a test states it.
    #[must_use]
    pub fn stated(name: &str, amount: u64, left: i64) -> Self {
        Self { name: name.to_owned(), amount, left }
    }
}
