//! What a call could do, and whether that alone is a reason to ask.

use super::Circumstances;
use crate::call::{Call, Risk};
use crate::catalog::{Acceptance, Tool};
use crate::config::{Approve, Endpoint, SourceConfig};

/// The risk of a tool's calls (product.md, R3 M12). It comes from the cell: a component of the `tools` world can neither
/// write nor reach a network, so its calls are harmless. Processes and addresses are risky, unless a person accepted the
/// tool or trusts this source's hints. A hint alone raises risk and never lowers it.
#[must_use]
pub fn risk_of(tool: &Tool, source: &SourceConfig, acceptance: &Acceptance) -> Risk {
    let sealed = matches!(source.endpoint, Endpoint::Component { .. });
    let harmless = match acceptance {
        Acceptance::Changed(_) => false,
        Acceptance::Accepted => true,
        Acceptance::Unknown => {
            let vouched = source.trust_annotations && tool.hints.claim_harmless();
            vouched || sealed && !tool.hints.raise_risk()
        }
    };
    if harmless { Risk::Harmless } else { Risk::Risky }
}

/// Why a person must be asked although no policy says so.
pub(super) fn reason(call: &Call, around: &Circumstances<'_>) -> Option<String> {
    // A pinned definition that changed asks whatever the profile says: `approve = "never"` was said of the old one.
    if let Acceptance::Changed(changes) = around.acceptance {
        let changes = changes.join("; ");
        return Some(format!("the tool is not the one that was accepted: {changes}"));
    }
    match around.approve {
        Approve::Never => None,
        Approve::Always => Some("the profile asks before every call".to_owned()),
        Approve::Risky => (call.risk == Risk::Risky).then(|| {
            "its source is not sealed off, and nobody accepted the tool with `portcullis lock accept`".to_owned()
        }),
    }
}
