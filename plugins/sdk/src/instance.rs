//! Holds what an exported component keeps between `configure` and the calls after it. The export macros use it.

use std::cell::OnceCell;

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
}
