//! Approvals: how an ask is settled, and what may be remembered of the answer.

pub use crate::bindings::approval::exports::portcullis::plugin::approval::{Offer, Settlement};
use crate::bindings::portcullis::plugin::asks;
pub use crate::bindings::portcullis::plugin::asks::Scope;
use crate::{Call, Concern, Denial};

/// A plugin that decides how an ask is settled. It can reuse an earlier yes of a person, but cannot give one itself.
pub trait Approval: Sized + 'static {
    /// Reads the plugin's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Settles one ask.
    ///
    /// # Errors
    /// Says why the ask could not be settled; the call is refused.
    fn settle(&self, call: &impl Call, ask: &impl Ask) -> Result<Settlement, String>;
}

/// One ask: a call that needs the agreement of a person.
pub trait Ask {
    /// Returns the reasons to ask: one for each policy that asks, and one if the call's risk requires it.
    fn reasons(&self) -> Vec<Concern>;
    /// Returns the earlier answers that would cover this call. The broker has checked each of them.
    fn grants(&self) -> Vec<Grant>;
    /// Reports whether the tool may be destructive or may reach an open world. True when in doubt.
    fn grave(&self) -> bool;
}

/// An earlier answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The grant's identifier, for [`Settlement::Remembered`].
    pub id: String,
    /// The scope of the answer.
    pub scope: Scope,
    /// The seconds since a person gave the answer.
    pub age: u32,
}

impl Settlement {
    /// Refuses the call without asking, with a code for machines and a message for people.
    #[must_use]
    pub fn refuse(code: &str, message: impl Into<String>) -> Self {
        Self::Refuse(Denial::new(code, message))
    }
}

impl Ask for asks::Ask {
    fn reasons(&self) -> Vec<Concern> {
        asks::Ask::reasons(self)
    }

    fn grants(&self) -> Vec<Grant> {
        let grants = asks::Ask::grants(self);
        grants.into_iter().map(|grant| Grant { id: grant.id(), scope: grant.scope(), age: grant.age() }).collect()
    }

    fn grave(&self) -> bool {
        asks::Ask::grave(self)
    }
}

/// Exports a type that implements [`Approval`] as the plugin. Call it once per crate.
#[macro_export]
macro_rules! export_approval {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Approval, approval, export_approval_world, {
            fn settle(
                call: $crate::bindings::portcullis::plugin::calls::Call,
                ask: $crate::bindings::portcullis::plugin::asks::Ask,
            ) -> ::std::result::Result<$crate::Settlement, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Approval::settle(plugin.get()?, &call, &ask))
            }
        } }
    };
}
