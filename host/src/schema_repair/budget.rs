//! The work that the repair of one schema, or the restoring of the arguments of one call, may take.

use serde_json::Value;

/// The number of bytes of text whose copy counts as much as the copy of one value.
const TEXT_BYTES: usize = 64;

/// The work that was done so far, and the most that may be done. Work is counted before it is done: data that is copied
/// before it is counted has already taken the memory.
#[derive(Debug)]
pub(super) struct WorkBudget {
    spent: usize,
    limit: usize,
}

impl WorkBudget {
    pub(super) const fn new(limit: usize) -> Self {
        Self { spent: 0, limit }
    }

    /// Counts work. Returns false if that is more than the remainder, and then for all further work.
    #[must_use]
    pub(super) fn spend(&mut self, work: usize) -> bool {
        self.spent = self.spent.saturating_add(work);
        !self.is_spent()
    }

    /// Reports whether more work was asked for than may be done.
    pub(super) fn is_spent(&self) -> bool {
        self.spent > self.limit
    }
}

/// Returns the work of copying a value: 1 for each value in it, and 1 for each 64 bytes of a text.
pub(super) fn weight(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            1 + members.iter().map(|(key, value)| weight_of_text(key) + weight(value)).sum::<usize>()
        }
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::String(text) => 1 + weight_of_text(text),
        _ => 1,
    }
}

/// Returns the work of copying a text beyond that of copying what holds it.
pub(super) fn weight_of_text(text: &str) -> usize {
    text.len() / TEXT_BYTES
}
