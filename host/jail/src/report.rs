//! What the launcher says: why a cell was refused, and which cells this machine gives.

use serde::{Deserialize, Serialize};

use crate::cell::Tier;

/// Why a cell was not built. The source was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("step `{step}` failed: {cause}{}", self.way_out())]
pub struct Refusal {
    /// What was being done, such as `user namespace` or `mount /usr`.
    pub step: String,
    /// What the system said, with the value that it was about.
    pub cause: String,
    /// The error number, if a system call failed.
    pub errno: Option<i32>,
    /// The setting of the machine that decides it, such as `user.max_user_namespaces`.
    pub setting: Option<String>,
    /// What a person can do.
    pub remedy: Option<String>,
}

impl Refusal {
    fn way_out(&self) -> String {
        let setting = self.setting.as_ref().map(|setting| format!(" (decided by {setting})")).unwrap_or_default();
        let remedy = self.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        setting + &remedy
    }
}

/// What this machine gives, found by running each step once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whether [`Tier::Full`] can be built.
    pub full: Result<Enforced, Refusal>,
    /// Whether [`Tier::FullViaBwrap`] can. Tried only where the full tier is refused.
    pub bwrap: Result<Enforced, Refusal>,
    /// Whether [`Tier::Reduced`] can. Tried only where neither of the others can be built.
    pub reduced: Result<Enforced, Refusal>,
}

impl Probe {
    /// The best tier that can be built. [`Tier::Reduced`] must be accepted by the operator before it is used.
    #[must_use]
    pub fn best(&self) -> Option<Tier> {
        let tiers = [(Tier::Full, &self.full), (Tier::FullViaBwrap, &self.bwrap), (Tier::Reduced, &self.reduced)];
        tiers.into_iter().find(|(_, built)| built.is_ok()).map(|(tier, _)| tier)
    }
}

/// What stands behind a cell that was built, as far as it differs from machine to machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// The version of Landlock's interface; 0 where the kernel has none, which only the full tiers bear.
    pub landlock: u32,
    /// Whether a delegated cgroup bounds memory, processes and processors of all its processes together.
    pub cgroup: bool,
    /// The user outside that the source's processes belong to.
    pub user: u32,
}
