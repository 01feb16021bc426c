//! Transforms: plugins that rewrite arguments and outcomes.

pub use crate::bindings::transform::exports::portcullis::plugin::transform::Change;
use crate::{Call, bindings::portcullis::plugin::vault};

/// A plugin that rewrites arguments (phase call) or outcomes (phase result).
pub trait Transform: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Decides what happens to the arguments or the outcome. Policies judge the new value before anything else happens.
    ///
    /// # Errors
    /// Says why the value could not be rewritten; the call is denied.
    fn rewrite(&self, call: &impl Call, vault: &impl Vault) -> Result<Change, String>;
}

/// Keeps values that the agent must not see.
pub trait Vault {
    /// Keeps `value` and returns its placeholder, which is the same for the same value and kind from the same source
    /// within a session. The broker puts the value back for tools whose exposed name matches a glob of `restore_to`; if that is empty, only
    /// for the source that the value came from.
    fn protect(&self, kind: &str, value: &str, restore_to: &[String]) -> String;
}

/// The broker's vault. It can only be used inside a component.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HostVault;

impl Vault for HostVault {
    fn protect(&self, kind: &str, value: &str, restore_to: &[String]) -> String {
        vault::protect(kind, value, restore_to)
    }
}

/// Exports a type that implements [`Transform`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_transform {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Transform, transform, export_transform_world, {
            fn rewrite(
                call: $crate::bindings::portcullis::plugin::calls::Call,
            ) -> ::std::result::Result<$crate::Change, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Transform::rewrite(plugin.get()?, &call, &$crate::HostVault))
            }
        } }
    };
}
