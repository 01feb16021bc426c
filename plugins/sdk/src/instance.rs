//! Holds what an exported component keeps between `configure` and the calls after it. The export macros use it.

use std::cell::{OnceCell, RefCell};

use crate::Failure;

/// The plugin of one WebAssembly instance, once it is configured.
#[derive(Debug, Default)]
pub struct Instance<P>(OnceCell<P>);

impl<P> Instance<P> {
    /// Creates an instance that is not configured yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Keeps the plugin that `configure` returned.
    ///
    /// # Errors
    /// The error that `configure` returned, or that the instance is already configured.
    pub fn configure(&self, made: Result<P, String>) -> Result<(), String> {
        self.0.set(made?).map_err(|_| "configured twice".to_string())
    }

    /// Returns the configured plugin.
    ///
    /// # Errors
    /// The instance is not configured yet.
    pub fn get(&self) -> Result<&P, String> {
        self.0.get().ok_or_else(|| "called before configure".to_string())
    }
}

/// A session of a [`crate::Tools`] plugin. It is opened by its first call, so that creating a session before
/// `configure` does not trap.
#[derive(Debug, Default)]
pub struct Opened<S>(RefCell<Option<S>>);

impl<S> Opened<S> {
    /// Creates a session that is not open yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Runs `call` on the session, which the first call opens.
    ///
    /// # Errors
    /// The error of `call`, or that another call is using the session.
    pub fn with(
        &self,
        open: impl FnOnce() -> S,
        call: impl FnOnce(&mut S) -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let mut slot = self.0.try_borrow_mut().map_err(|_| Failure::Failed("the session is in a call".into()))?;
        call(slot.get_or_insert_with(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_configured_once_before_it_is_used() {
        let instance = Instance::new();
        assert_eq!(instance.get(), Err("called before configure".into()));
        assert_eq!(instance.configure(Err("settings.a: bad".into())), Err("settings.a: bad".into()));
        assert_eq!(instance.configure(Ok(7)), Ok(()));
        assert_eq!(instance.get(), Ok(&7));
        assert_eq!(instance.configure(Ok(8)), Err("configured twice".into()));
    }

    #[test]
    fn a_session_keeps_its_state() {
        let session = Opened::new();
        let count = |n: &mut u8| {
            *n += 1;
            Ok(n.to_string())
        };
        assert_eq!(session.with(|| 0, count), Ok("1".into()));
        assert_eq!(session.with(|| 0, count), Ok("2".into()));
    }
}
