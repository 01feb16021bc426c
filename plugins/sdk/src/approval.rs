//! Approvals: how an ask is settled, and what may be remembered of the answer.

pub use crate::bindings::approval::exports::portcullis::plugin::approval::{Offer, Settlement};
use crate::bindings::portcullis::plugin::asks;
pub use crate::bindings::portcullis::plugin::asks::Scope;
use crate::{Call, Denial};

/// Decides how an ask is settled. Only a person can say yes.
pub trait Approval: Sized + 'static {
    /// Takes the `settings` table as JSON.
    ///
    /// # Errors
    /// Which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Settles one ask.
    ///
    /// # Errors
    /// Why it could not; the call is refused.
    fn settle(&self, call: &dyn Call, ask: &dyn Ask) -> Result<Settlement, String>;
}

/// One question: a call that needs a person.
pub trait Ask {
    /// Why: one reason for each policy that asks, and one for the risk.
    fn reasons(&self) -> Vec<String>;
    /// Earlier answers that would cover this call; the broker has checked each.
    fn grants(&self) -> Vec<Grant>;
    /// Whether the tool may be destructive or reach an open world. True when in doubt.
    fn grave(&self) -> bool;
}

/// An earlier answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// For [`Settlement::Remembered`].
    pub id: String,
    /// How far it reaches.
    pub scope: Scope,
    /// Seconds since a person gave it.
    pub age: u32,
}

impl Settlement {
    /// Refuses without asking.
    #[must_use]
    pub fn refuse(code: &str, message: impl Into<String>) -> Self {
        Self::Refuse(Denial::new(code, message))
    }
}

impl Ask for asks::Ask {
    fn reasons(&self) -> Vec<String> {
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

/// Makes the component export an [`Approval`]. Once per crate.
#[macro_export]
macro_rules! export_approval {
    ($plugin:ty) => {
        $crate::__component! { $plugin: Approval, approval, export_approval_world, {
            fn settle(
                call: &$crate::bindings::portcullis::plugin::calls::Call,
                ask: &$crate::bindings::portcullis::plugin::asks::Ask,
            ) -> ::std::result::Result<$crate::Settlement, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Approval::settle(plugin.get()?, call, ask))
            }
        } }
    };
}
