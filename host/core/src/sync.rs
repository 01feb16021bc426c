//! A lock that stays usable after a holder has panicked.

use std::sync::PoisonError;

pub use std::sync::MutexGuard;

/// A mutex whose value stays in use after a holder has panicked.
///
/// The standard library marks such a mutex as poisoned, because the value may be half changed. Every value behind one
/// of these is consistent at each point at which a holder could panic, and it would do more harm if a broker stopped
/// serving everybody because one call panicked. A value that changes in several steps needs another kind of lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Returns a mutex around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the mutex and locks it. Blocks the thread: do not hold the guard across an `await` or during slow
    /// work.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    #[test]
    fn a_value_stays_in_use_after_a_holder_has_panicked() {
        let counter = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                *counter.lock() += 1;
                let _held = counter.lock();
                panic!("while it holds the lock");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*counter.lock(), 2);
    }
}
