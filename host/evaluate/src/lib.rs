//! Judges an untrusted server by its conduct in sealed cells under changed conditions.
//!
//! Somebody else runs the server: this crate decides which calls to make ([`planned`]) under which [`Condition`]s, and
//! makes the [`Canary`]s to plant. Each run is an [`Observation`]; [`Evaluation::of`] turns them into findings, the
//! smallest cell, and the risk under it. The crate starts nothing and reaches nothing.

mod calls;
mod canary;
mod encoding;
mod evaluation;
mod finding;
mod judge;
mod observation;
mod report;
mod supply;

pub use calls::{PlannedCall, planned};
pub use canary::{Canary, CanaryPlace};
pub use evaluation::{
    CellProposal, Evaluation, EvaluationCoverage, EvaluationTarget, FailedTool, Judgement, PriorKnowledge, RunSummary,
};
pub use finding::{EvaluationFinding, FindingLevel, FindingList, JudgeRule, RULES};
pub use observation::{Condition, Observation, ObservedCall, ObservedListing, ObservedMessage, SETTLE};
pub use report::{html, sarif};
pub use supply::{AuditedPackage, PinnedVersion, judge_by_records};
