//! Policies: plugins that judge calls.

pub use crate::bindings::policy::exports::portcullis::plugin::policy::Verdict;
use crate::{Call, Concern, Denial};

/// A plugin that decides whether a call may continue. It must be pure: the same call and settings give the same
/// verdict, so that history can be replayed.
pub trait Policy: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON. Prepare here what you can: this usually runs once,
    /// and the fresh instance of each decision starts from the resulting state.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start. See [`crate::settings::parse`].
    fn configure(settings: &str) -> Result<Self, String>;

    /// Judges one call. If any policy denies, the call is denied; otherwise, if any policy asks, a person is asked.
    ///
    /// # Errors
    /// Says why the call could not be judged; the call is denied.
    fn check(&self, call: &impl Call) -> Result<Verdict, String>;
}

impl Verdict {
    /// Asks a person, with a code for machines and a message for the person.
    #[must_use]
    pub fn ask(code: &str, message: impl Into<String>) -> Self {
        Self::Ask(Concern::new(code, message))
    }

    /// Denies the call, with a code for machines and a message for people.
    #[must_use]
    pub fn deny(code: &str, message: impl Into<String>) -> Self {
        Self::Deny(Denial::new(code, message))
    }
}

/// Exports a type that implements [`Policy`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_policy {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Policy, policy, export_policy_world, {
            fn check(
                call: $crate::bindings::portcullis::plugin::calls::Call,
            ) -> ::std::result::Result<$crate::Verdict, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Policy::check(plugin.get()?, &call))
            }
        } }
    };
}

/// The part that the export macros share. On targets other than WebAssembly it only checks that the
/// trait is implemented.
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($plugin:ty: $trait:ident, $world:ident, $export:ident, { $($body:tt)* } $({ $($more:tt)* })?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            ::std::thread_local! {
                static PLUGIN: $crate::Instance<$plugin> = const { $crate::Instance::new() };
            }

            struct Exported;

            impl $crate::bindings::$world::exports::portcullis::plugin::$world::Guest for Exported {
                fn configure(settings: ::std::string::String) -> ::std::result::Result<(), ::std::string::String> {
                    $crate::log_panics();
                    PLUGIN.with(|plugin| plugin.configure(<$plugin as $crate::$trait>::configure(&settings)))
                }

                $($body)*
            }

            $($($more)*)?

            $crate::bindings::$world::$export!(Exported with_types_in $crate::bindings::$world);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const fn implements<P: $crate::$trait>() {}
            implements::<$plugin>();
        };
    };
}
