//! Converts the generated types to the types of this crate, and checks what a plugin returned.

use portcullis_core::protocol::Json;
use serde_json::value::RawValue;

use super::super::{
    AnswerScope, Concern, Denial, FailureCode, Offer, PluginFailure, Settlement, ToolFailure, TransformDecision,
    Verdict,
};
use super::host::imports::portcullis::plugin::{asks, types};
use super::tools::world as tools;
use super::worlds::{approval, policy, transform};

type Converted<T> = Result<T, PluginFailure>;

pub(super) fn verdict(verdict: policy::exports::portcullis::plugin::policy::Verdict) -> Converted<Verdict> {
    use policy::exports::portcullis::plugin::policy::Verdict as WitVerdict;
    let verdict = match verdict {
        WitVerdict::Pass => Verdict::Pass,
        WitVerdict::Ask(types::Concern { code, message }) => Verdict::Ask(Concern { code, message }),
        WitVerdict::Deny(types::Denial { code, message }) => Verdict::Deny(Denial { code, message }),
    };
    verdict.checked()
}

pub(super) fn change(
    change: transform::exports::portcullis::plugin::transform::Change,
) -> Converted<TransformDecision> {
    use transform::exports::portcullis::plugin::transform::Change as WitChange;
    Ok(match change {
        WitChange::Keep => TransformDecision::Keep,
        WitChange::Replace(text) => TransformDecision::Replace(object(text)?),
        WitChange::Refuse(why) => TransformDecision::Refuse(denial(why)?),
    })
}

pub(super) fn settlement(
    settlement: approval::exports::portcullis::plugin::approval::Settlement,
) -> Converted<Settlement> {
    use approval::exports::portcullis::plugin::approval::Settlement as WitSettlement;
    Ok(match settlement {
        WitSettlement::Question(offer) => Settlement::Question(Offer {
            scopes: offer.scopes.into_iter().map(our_scope).collect(),
            valid_for: offer.valid_for,
            uses: offer.uses,
        }),
        WitSettlement::Remembered(id) => Settlement::Remembered(id),
        WitSettlement::Refuse(why) => Settlement::Refuse(denial(why)?),
    })
}

pub(super) fn tool_failure(failure: tools::exports::portcullis::plugin::tools::Failure) -> ToolFailure {
    use tools::exports::portcullis::plugin::tools::Failure as WitFailure;
    match failure {
        WitFailure::UnknownTool => ToolFailure::UnknownTool,
        WitFailure::InvalidArguments(text) => ToolFailure::InvalidArguments(text),
        WitFailure::Failed(text) => ToolFailure::Failed(text),
    }
}

fn our_scope(scope: asks::Scope) -> AnswerScope {
    match scope {
        asks::Scope::Once => AnswerScope::Once,
        asks::Scope::Arguments => AnswerScope::Arguments,
        asks::Scope::Session => AnswerScope::Session,
        asks::Scope::Principal => AnswerScope::Principal,
    }
}

pub(super) fn their_concern(concern: Concern) -> types::Concern {
    let Concern { code, message } = concern;
    types::Concern { code, message }
}

pub(super) fn their_scope(scope: AnswerScope) -> asks::Scope {
    match scope {
        AnswerScope::Once => asks::Scope::Once,
        AnswerScope::Arguments => asks::Scope::Arguments,
        AnswerScope::Session => asks::Scope::Session,
        AnswerScope::Principal => asks::Scope::Principal,
    }
}

fn denial(denial: types::Denial) -> Converted<Denial> {
    let types::Denial { code, message } = denial;
    Denial { code, message }.checked()
}

/// Parses an array of objects, such as the lists of MCP.
pub(crate) fn array(what: &str, text: String) -> Converted<Vec<Json>> {
    let bad = |reason: &dyn std::fmt::Display| {
        PluginFailure::new(FailureCode::Output, format!("its {what} are not an array of objects: {reason}"))
    };
    let json = Json::parse(text).map_err(|error| bad(&error))?;
    let items: Vec<&RawValue> = json.read().map_err(|error| bad(&error))?;
    items.into_iter().map(|raw| object(raw.get().to_owned()).map_err(|failure| bad(&failure.detail))).collect()
}

/// Parses an object, such as the arguments and results of MCP.
pub(crate) fn object(text: String) -> Converted<Json> {
    let json =
        Json::parse(text).map_err(|error| PluginFailure::new(FailureCode::Output, format!("its JSON: {error}")))?;
    if json.as_bytes().first() != Some(&b'{') {
        return Err(PluginFailure::new(FailureCode::Output, "it returned JSON that is not an object"));
    }
    Ok(json)
}
