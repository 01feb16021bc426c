//! The reports of the launcher: why a cell was refused, and which cells this machine can build.

use serde::{Deserialize, Serialize};

use crate::cell::Tier;

/// An error that says why a cell was not built. The source was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("step `{step}` failed: {cause}{}", self.hint())]
pub struct CellRefusal {
    /// The step that failed, such as `namespaces` or `mount /proc`.
    pub step: String,
    /// The error that the system reported, with the value concerned.
    pub cause: String,
    /// The error number, if a system call failed.
    pub errno: Option<i32>,
    /// The setting of the machine that decides the step, such as `user.max_user_namespaces`.
    pub setting: Option<String>,
    /// The remedy that a person can apply.
    pub remedy: Option<String>,
}

impl CellRefusal {
    fn hint(&self) -> String {
        let setting = self.setting.as_ref().map(|setting| format!(" (decided by {setting})")).unwrap_or_default();
        let remedy = self.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        setting + &remedy
    }
}

/// The tiers that this machine can build, found by building them up to the last step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// The result for [`Tier::Full`].
    pub full: Result<EnforcementReport, CellRefusal>,
    /// The result for [`Tier::FullViaBwrap`]. It is tried only if the full tier is refused.
    pub bwrap: Result<EnforcementReport, CellRefusal>,
    /// The result for [`Tier::Reduced`]. It is tried only if neither of the others can be built.
    pub reduced: Result<EnforcementReport, CellRefusal>,
}

impl ProbeReport {
    /// Returns the strongest tier that can be built. The operator must accept [`Tier::Reduced`] before it is used.
    #[must_use]
    pub fn best(&self) -> Option<Tier> {
        let tiers = [(Tier::Full, &self.full), (Tier::FullViaBwrap, &self.bwrap), (Tier::Reduced, &self.reduced)];
        tiers.into_iter().find(|(_, built)| built.is_ok()).map(|(tier, _)| tier)
    }
}

/// The mechanisms that enforce a cell that was built, as far as they differ between machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcementReport {
    /// The version of Landlock; 0 if the kernel has none, which only the full tiers accept.
    pub landlock: u32,
    /// True if a delegated cgroup limits memory, processes and processors of all the cell's processes together.
    pub cgroup: bool,
    /// True if [`CellSpec::protected_names`](crate::CellSpec::protected_names) are protected. False for a cell without
    /// any, and on a kernel without Landlock or older than 5.19.
    pub protects_names: bool,
    /// The user outside that the source's processes belong to.
    pub user: u32,
}
