//! The decisions of Cedar itself: every value is one of Cedar's public expressions, and Cedar's authorizer evaluates
//! all policies, heads included.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid, Policy,
    PolicyId, PolicySet, Request, RestrictedExpression as Expression,
};
use portcullis_plugin::fake::FakeCall;
use portcullis_plugin::json::{Json, Value};
use portcullis_plugin::{Call, Phase, Risk, Verdict};

use crate::answer::cause;
use crate::arguments::{normal, whole};
use crate::not_permitted;

/// Judges a call as the plugin should.
pub(super) fn verdict(policies: &PolicySet, call: &FakeCall) -> Verdict {
    let (request, entities) = question(call);
    if call.phase() == Phase::List {
        let response = Authorizer::new().is_authorized_partial(&request, policies, &entities);
        return match response.decision() {
            _ if response.definitely_errored().next().is_some() => {
                Verdict::deny("policy-error", format!("a policy fails on every call of {}", call.exposed_name()))
            }
            Some(Decision::Deny) => not_permitted(call),
            Some(Decision::Allow) | None => Verdict::Pass,
        };
    }
    let response = Authorizer::new().is_authorized(&request, policies, &entities);
    let mut reasons: Vec<_> = response.diagnostics().reason().map(|id| policies.policy(id).unwrap()).collect();
    reasons.sort_by_key(|policy| position(policy.id()));
    let names: Vec<_> = reasons.iter().map(|policy| name(policy)).collect();
    if response.decision() == Decision::Deny && !names.is_empty() {
        return Verdict::deny("forbidden", format!("forbidden by the {}", names.join(" and the ")));
    }
    let failures = response.diagnostics().errors().map(|error| {
        let AuthorizationError::PolicyEvaluationError(error) = error;
        error
    });
    if let Some(error) = failures.min_by_key(|error| position(error.policy_id())) {
        let (name, cause) = (name(policies.policy(error.policy_id()).unwrap()), cause(error.inner()));
        return Verdict::deny("policy-error", format!("the {name} cannot be evaluated for this call: {cause}"));
    }
    if response.decision() == Decision::Deny {
        return not_permitted(call);
    }
    let ask = |policy: &&Policy| Some(format!("{} ({})", policy.annotation("requireApproval")?, name(policy)));
    let approvals: Vec<_> = reasons.iter().filter_map(ask).collect();
    if approvals.is_empty() { Verdict::Pass } else { Verdict::ask("approval-required", approvals.join("; ")) }
}

/// Returns the position of a policy in the text: Cedar calls them `policy0`, `policy1` and so on.
fn position(id: &PolicyId) -> usize {
    let id: &str = id.as_ref();
    id.strip_prefix("policy").unwrap().parse().unwrap()
}

fn name(policy: &Policy) -> String {
    format!("policy `{}`", policy.annotation("id").unwrap())
}

fn question(call: &FakeCall) -> (Request, Entities) {
    let (method, exposed) = (call.method(), call.exposed_name());
    let source = uid("Source", &call.source());
    let (action, resource) = match method.as_str() {
        "tools/call" => (exposed.as_str(), uid("Tool", &exposed)),
        "prompts/get" => ("get_prompt", uid("Prompt", &exposed)),
        "resources/read" => ("read_resource", uid("Resource", &exposed)),
        _ => ("use_method", source.clone()),
    };
    let (principal, action) = (uid("Client", &call.principal()), uid("Action", action));
    let tools = (method == "tools/call").then(|| uid("Action", "call_tool"));
    let trust = text(&format!("{:?}", call.trust()).to_lowercase());
    let entities = [
        entity(&principal, [("trust".to_owned(), trust)].into(), Some(uid("Profile", &call.profile()))),
        entity(&action, HashMap::new(), tools),
        entity(&resource, attributes(call, &method), (resource != source).then_some(source)),
    ];
    let input = match call.phase() {
        Phase::List => Expression::new_unknown("input"),
        _ => convert(&Json::parse(&call.arguments()).unwrap().value),
    };
    let context = Context::from_pairs([
        ("input".to_owned(), input),
        ("method".to_owned(), text(&method)),
        ("risk".to_owned(), text(if call.risk() == Risk::Harmless { "harmless" } else { "risky" })),
    ]);
    let request = Request::new(principal, action, resource, context.unwrap(), None).unwrap();
    (request, Entities::from_entities(entities, None).unwrap())
}

fn attributes(call: &FakeCall, method: &str) -> HashMap<String, Expression> {
    let tags = Expression::new_set(call.tags().iter().map(|tag| text(tag)));
    let mut attributes = HashMap::from([("tags".to_owned(), tags)]);
    let name = if method == "resources/read" { "uri" } else { "name" };
    if matches!(method, "tools/call" | "prompts/get" | "resources/read") {
        attributes.insert(name.into(), text(&call.tool()));
    }
    if method == "tools/call" {
        let annotations = call.annotations();
        let annotations = Json::parse(&annotations).unwrap();
        for (name, default) in [("readOnly", false), ("destructive", true), ("idempotent", false), ("openWorld", true)]
        {
            let given = match annotations.get(&format!("{name}Hint")).map(|hint| &hint.value) {
                Some(Value::Bool(given)) => *given,
                _ => default,
            };
            attributes.insert(name.into(), Expression::new_bool(given));
        }
    }
    attributes
}

fn convert(value: &Value<'_>) -> Expression {
    match value {
        Value::Null => Expression::new_entity_uid(uid("Json", "null")),
        Value::Bool(value) => Expression::new_bool(*value),
        Value::Number(spelling) => whole(spelling)
            .map_or_else(|| Expression::new_entity_uid(uid("Json", &normal(spelling))), Expression::new_long),
        Value::String(text) => Expression::new_string(text.to_string()),
        Value::Array(items) => Expression::new_set(items.iter().map(|item| convert(&item.value))),
        Value::Object(members) => {
            let fields = members.iter().map(|(key, member)| (key.to_string(), convert(&member.value)));
            Expression::new_record(fields).unwrap()
        }
    }
}

fn entity(uid: &EntityUid, attributes: HashMap<String, Expression>, parent: Option<EntityUid>) -> Entity {
    Entity::new(uid.clone(), attributes, HashSet::from_iter(parent)).unwrap()
}

fn uid(kind: &str, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(EntityTypeName::from_str(kind).unwrap(), EntityId::new(id))
}

fn text(text: &str) -> Expression {
    Expression::new_string(text.to_owned())
}
