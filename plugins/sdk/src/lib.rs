//! An SDK for writing Portcullis plugins in Rust.
//!
//! There is one trait for each kind of plugin: [`Policy`], [`Transform`], [`Approval`], [`Audit`], and [`Tools`] with
//! [`Resources`]. Implement the trait, export the type with the macro for it, and build for `wasm32-unknown-unknown`:
//!
//! ```
//! use portcullis_plugin::{Call, Policy, Verdict};
//!
//! struct NoDeletes;
//!
//! impl Policy for NoDeletes {
//!     fn configure(_settings: &str) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//!
//!     fn check(&self, call: &impl Call) -> Result<Verdict, String> {
//!         if call.tool().starts_with("delete_") {
//!             return Ok(Verdict::deny("no-deletes", "this policy lets nothing be deleted"));
//!         }
//!         Ok(Verdict::Pass)
//!     }
//! }
//!
//! portcullis_plugin::export_policy!(NoDeletes);
//! # fn main() {}
//! ```
//!
//! Such a component imports only what it uses: no files, no clock, no environment. On any other target the same code is
//! an ordinary library, and the [`fake`] module replaces the broker in its tests.
//!
//! An error or a panic in a policy, a transform or an approval plugin denies the call. The text and place of a panic are
//! written to the operator's log; prefer an error, whose text the ledger can keep.

mod approval;
mod audit;
#[doc(hidden)]
pub mod bindings;
mod call;
pub mod caller;
mod describe;
#[cfg(not(target_arch = "wasm32"))]
pub mod fake;
mod flow;
mod glob;
mod instance;
pub mod json;
pub mod key_value;
mod log;
mod policy;
pub mod session;
pub mod settings;
mod tools;
mod transform;

pub use approval::{Approval, Ask, Grant, Offer, Scope, Settlement};
#[doc(hidden)]
pub use audit::HostLines;
pub use audit::{Audit, Lines};
pub use bindings::portcullis::plugin::types::{Concern, Denial};
pub use call::{Call, Phase, Risk, Trust};
#[doc(hidden)]
pub use describe::__bytes;
pub use flow::{Flow, FlowApproval, FlowPolicy, FlowTransform, INSTRUCTIONS, Origin, PRIVATE, UNTRUSTED};
pub use glob::{Glob, NameGlob};
#[doc(hidden)]
pub use instance::Instance;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use log::log_panics;
pub use log::{Level, log};
pub use policy::{Policy, Verdict};
pub use tools::{Effect, Failure, Resources, Tools, arguments, text_result, tool};
#[doc(hidden)]
pub use transform::HostVault;
pub use transform::{Change, Transform, Vault};

impl Denial {
    /// Creates a denial. `code` is for machines: 1 to 64 lower-case letters, digits and dashes.
    /// `message` is for people.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_string(), message: message.into() }
    }
}

impl Concern {
    /// Creates a reason to ask a person. `code` is for machines: 1 to 64 lower-case letters, digits and dashes.
    /// `message` is for the person who is asked.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_string(), message: message.into() }
    }
}
