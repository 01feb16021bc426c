//! Turns an example of the solver into a call.

use std::sync::Arc;

use cedar_policy::EvalResult;
use cedar_policy_symcc::Env;
use portcullis::call::{CallView, Risk, TrustLevel};
use portcullis::item::{Item, ItemKind};
use portcullis::protocol::Method;
use serde_json::Value;

use super::sample;
use super::symbolic::KnownCalls;

/// Returns the call of an example; `None` if the broker would make no such call.
pub(super) fn view(example: &Env, world: &KnownCalls<'_>) -> Option<CallView> {
    let (request, entities) = (&example.request, &example.entities);
    let (principal, resource, context) = (request.principal()?, request.resource()?, request.context()?);
    let trust = text(entities.get(principal)?.attr("trust")?.ok()?)?;
    let trust: TrustLevel = serde_json::from_value(trust.into()).ok()?;
    let is_profile = |uid: &&cedar_policy::EntityUid| uid.type_name().to_string() == "Profile";
    let profile = entities.ancestors(principal)?.find(is_profile)?;
    let caller = sample::caller(principal.id().unescaped(), profile.id().unescaped(), trust)?;
    let risk = if text(context.get("risk")?)? == "harmless" { Risk::Harmless } else { Risk::Risky };
    let method = Method::from(text(context.get("method")?)?.as_str());
    let id = resource.id().unescaped();
    let source = |name: &str| world.config.sources.values().find(|source| source.name.as_str() == name);
    let provider = || entities.ancestors(resource)?.find_map(|uid| source(uid.id().unescaped()));
    let item = match method {
        Method::ToolsCall | Method::PromptsGet => {
            let kind = if method == Method::ToolsCall { ItemKind::Tool } else { ItemKind::Prompt };
            let provider = provider()?;
            let is_meant =
                |item: &&Arc<Item>| item.kind == kind && &*item.exposed == id && item.source == provider.name;
            world.items.iter().find(is_meant).cloned()?
        }
        Method::ResourcesRead => {
            let provider = provider()?;
            let uri = text(entities.get(resource)?.attr("uri")?.ok()?)?;
            Arc::new(Item::unlisted_resource(&provider.name, &provider.tags, &uri, id))
        }
        _ => {
            let source = source(id)?;
            Arc::new(Item::of_source(&source.name, &source.tags))
        }
    };
    Some(sample::view(&item, &method, caller, risk, &json(&context.get("input")?)))
}

fn text(value: EvalResult) -> Option<String> {
    match value {
        EvalResult::String(text) => Some(text),
        _ => None,
    }
}

/// Returns a value as JSON. The schema has no types but these.
fn json(value: &EvalResult) -> Value {
    match value {
        EvalResult::Bool(value) => (*value).into(),
        EvalResult::Long(value) => (*value).into(),
        EvalResult::String(text) => text.as_str().into(),
        EvalResult::Set(items) => items.iter().map(json).collect(),
        EvalResult::Record(members) => members.iter().map(|(key, member)| (key.clone(), json(member))).collect(),
        EvalResult::EntityUid(_) | EvalResult::ExtensionValue(_) => Value::Null,
    }
}
