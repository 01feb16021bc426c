//! Transforms: what becomes of arguments and outcomes.

pub use crate::bindings::transform::exports::portcullis::plugin::transform::Change;
use crate::{Call, bindings::portcullis::plugin::vault};

/// Rewrites arguments (phase call) or outcomes (phase result).
pub trait Transform: Sized + 'static {
    /// Takes the `settings` table as JSON.
    ///
    /// # Errors
    /// Which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Says what becomes of the value that the phase is about. Policies see the new value before anything else happens.
    ///
    /// # Errors
    /// Why it could not; the call is denied.
    fn rewrite(&self, call: &dyn Call, vault: &dyn Vault) -> Result<Change, String>;
}

/// Where values are kept that the agent must not see.
pub trait Vault {
    /// Keeps `value` and returns its placeholder: the same one for the same value and kind in a session. The broker puts
    /// the value back for tools whose exposed name fits `restore_to`; if that is empty, for the source it came from.
    fn protect(&self, kind: &str, value: &str, restore_to: &[String]) -> String;
}

/// The broker's vault; exists inside a component.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct HostVault;

impl Vault for HostVault {
    fn protect(&self, kind: &str, value: &str, restore_to: &[String]) -> String {
        vault::protect(kind, value, restore_to)
    }
}

/// Makes the component export a [`Transform`]. Once per crate.
#[macro_export]
macro_rules! export_transform {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Transform, transform, export_transform_world, {
            fn rewrite(
                call: &$crate::bindings::portcullis::plugin::calls::Call,
            ) -> ::std::result::Result<$crate::Change, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Transform::rewrite(plugin.get()?, call, &$crate::HostVault))
            }
        } }
    };
}
