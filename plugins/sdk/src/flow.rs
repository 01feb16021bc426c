//! Information flow: the labels of what a session has seen, and the results that the arguments of a call came from.

use crate::bindings::portcullis::plugin::calls;
use crate::{Ask, Call, Change, Settlement, Vault, Verdict};

/// The label of a source that reaches a network, or that is on one: its results may hold what strangers write.
pub const UNTRUSTED: &str = "untrusted";

/// The label of a source that is granted files, secrets or an account: its results may hold what strangers must not
/// read.
pub const PRIVATE: &str = "private";

/// The label of a session that was shown text that reads like an instruction to a model, if its profile says
/// `instructions = "mark"`. No result has it, only the session.
pub const INSTRUCTIONS: &str = "instructions";

/// The information flow of a call. The broker keeps the data for this only if a plugin asks for it, so it is separate
/// from [`Call`].
pub trait Flow {
    /// Returns the labels of the source: [`UNTRUSTED`], [`PRIVATE`], and those that the configuration names. They never
    /// depend on the source's claims.
    fn source_labels(&self) -> Vec<String>;
    /// Returns the ways in which the call can have an effect outside its source: `network`, `write`, and in later
    /// brokers others. Empty if the source can have none.
    fn effects(&self) -> Vec<String>;
    /// Returns the labels of all results that the session saw before this call.
    fn labels(&self) -> Vec<String>;
    /// Reports whether the arguments come only from the results that `origins` names: the broker has kept enough of the
    /// results to find them, and no person has refused a call of the session. If not, treat the arguments as coming
    /// from everything that the session has seen.
    fn traced(&self) -> bool;
    /// Returns the earlier results from which values of the arguments came, the latest first.
    fn origins(&self) -> Vec<Origin>;
}

/// An earlier result from which a value of the arguments came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The configured name of the source that gave the result.
    pub source: String,
    /// The name of the item whose call gave the result, as the agent sees it.
    pub exposed_name: String,
    /// The broker's identifier of that call.
    pub call_id: String,
    /// The number of results since then: 1 for the last one before this call.
    pub calls_ago: u32,
    /// The labels of the result.
    pub labels: Vec<String>,
    /// The place of the value in the arguments, as a JSON Pointer (RFC 6901). One that is longer than 256 bytes is cut, and ends
    /// with `…`.
    pub pointer: String,
}

/// A policy that also judges by information flow. Otherwise it is like [`Policy`](crate::Policy).
pub trait FlowPolicy: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start. See [`crate::settings::parse`].
    fn configure(settings: &str) -> Result<Self, String>;

    /// Judges one call. If any policy denies, the call is denied; otherwise, if any policy asks, a person is asked.
    ///
    /// # Errors
    /// Says why the call could not be judged; the call is denied.
    fn check(&self, call: &impl Call, flow: &impl Flow) -> Result<Verdict, String>;
}

impl Flow for calls::Call {
    fn source_labels(&self) -> Vec<String> {
        calls::Call::source_labels(self)
    }

    fn effects(&self) -> Vec<String> {
        calls::Call::effects(self)
    }

    fn labels(&self) -> Vec<String> {
        calls::Call::labels(self)
    }

    fn traced(&self) -> bool {
        calls::Call::traced(self)
    }

    fn origins(&self) -> Vec<Origin> {
        let origins = calls::Call::origins(self).into_iter().map(|origin| Origin {
            source: origin.source(),
            exposed_name: origin.exposed_name(),
            call_id: origin.call_id(),
            calls_ago: origin.calls_ago(),
            labels: origin.labels(),
            pointer: origin.pointer(),
        });
        origins.collect()
    }
}

/// A transform that also rewrites by information flow. Otherwise it is like [`Transform`](crate::Transform).
pub trait FlowTransform: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Decides what happens to the arguments or the outcome.
    ///
    /// # Errors
    /// Says why the value could not be rewritten; the call is denied.
    fn rewrite(&self, call: &impl Call, flow: &impl Flow, vault: &impl Vault) -> Result<Change, String>;
}

/// An approval plugin that also settles by information flow. Otherwise it is like [`Approval`](crate::Approval).
pub trait FlowApproval: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Settles one ask.
    ///
    /// # Errors
    /// Says why the ask could not be settled; the call is refused.
    fn settle(&self, call: &impl Call, flow: &impl Flow, ask: &impl Ask) -> Result<Settlement, String>;
}

/// Exports a type that implements [`FlowPolicy`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_flow_policy {
    ($plugin:ty) => {
        $crate::__component! { $plugin: FlowPolicy, policy, export_policy_world, {
            fn check(
                call: $crate::bindings::portcullis::plugin::calls::Call,
            ) -> ::std::result::Result<$crate::Verdict, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::FlowPolicy::check(plugin.get()?, &call, &call))
            }
        } }
    };
}

/// Exports a type that implements [`FlowTransform`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_flow_transform {
    ($plugin:ty) => {
        $crate::__component! { $plugin: FlowTransform, transform, export_transform_world, {
            fn rewrite(
                call: $crate::bindings::portcullis::plugin::calls::Call,
            ) -> ::std::result::Result<$crate::Change, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::FlowTransform::rewrite(plugin.get()?, &call, &call, &$crate::HostVault))
            }
        } }
    };
}

/// Exports a type that implements [`FlowApproval`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_flow_approval {
    ($plugin:ty) => {
        $crate::__component! { $plugin: FlowApproval, approval, export_approval_world, {
            fn settle(
                call: $crate::bindings::portcullis::plugin::calls::Call,
                ask: $crate::bindings::portcullis::plugin::asks::Ask,
            ) -> ::std::result::Result<$crate::Settlement, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::FlowApproval::settle(plugin.get()?, &call, &call, &ask))
            }
        } }
    };
}
