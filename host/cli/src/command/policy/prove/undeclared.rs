//! Arguments on which policies depend and which the input schema does not name. A caller may still send them, but the
//! solver does not know them: it would take a policy that depends on them for one that never applies.

use cedar_policy::{ActionConstraint, EntityUid, Policy, PolicySet};
use serde_json::{Map, Value};

/// Returns the name of a member that a policy tests for in calls with this action, and that these types of the calls do
/// not have. `schema` is Cedar's schema as JSON.
pub(super) fn undeclared(policies: &[&PolicySet], action: &EntityUid, schema: &Value) -> Option<String> {
    let context = context_of(action, schema);
    let of_action = policies.iter().flat_map(|set| set.policies()).filter(|policy| applies(policy, action));
    of_action.filter_map(|policy| policy.to_json().ok()).find_map(|policy| first_undeclared(&policy, context))
}

fn applies(policy: &Policy, action: &EntityUid) -> bool {
    match policy.action_constraint() {
        ActionConstraint::Eq(only) => only == *action,
        // An action may be in a group.
        ActionConstraint::Any | ActionConstraint::In(_) => true,
    }
}

/// Returns the type of the context of an action.
fn context_of<'a>(action: &EntityUid, schema: &'a Value) -> Option<&'a Value> {
    let namespaces = schema.as_object()?.values();
    let mut actions = namespaces.filter_map(|namespace| namespace.get("actions")?.get(action.id().unescaped()));
    actions.next()?.get("appliesTo")?.get("context")
}

/// Looks anywhere in an expression for a `has`, and for records that are used as a whole: a caller may send further
/// members.
fn first_undeclared(expression: &Value, context: Option<&Value>) -> Option<String> {
    match expression {
        Value::Array(parts) => parts.iter().find_map(|part| first_undeclared(part, context)),
        Value::Object(parts) => {
            if let Some(has) = parts.get("has").and_then(Value::as_object) {
                return not_declared(has, context);
            }
            match path(expression) {
                Path::Elsewhere => None,
                Path::InContext(keys) => {
                    // A member that no type has is refused as ill-typed, unless a `has` stands before it.
                    let of = keys.iter().try_fold(context, |record, key| member(record?, key).map(Some)).flatten();
                    of.is_some_and(has_members).then(|| keys.last().copied().unwrap_or("context").to_owned())
                }
                Path::Unknown => parts.values().find_map(|part| first_undeclared(part, context)),
            }
        }
        _ => None,
    }
}

/// Reports whether a type is a record, or a set of records.
fn has_members(of: &Value) -> bool {
    of.get("attributes").is_some() || of.get("element").is_some_and(has_members)
}

/// Returns the member that this `has` tests for, unless the types declare it.
fn not_declared(has: &Map<String, Value>, context: Option<&Value>) -> Option<String> {
    // `has a.b` names several, each within the one before.
    let names: Vec<&str> = match has.get("attr") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        name => name.and_then(Value::as_str).into_iter().collect(),
    };
    let declared = match has.get("left").map_or(Path::Unknown, path) {
        Path::Elsewhere => true,
        Path::InContext(keys) => {
            !names.is_empty()
                && keys.iter().chain(&names).try_fold(context, |record, key| member(record?, key).map(Some)).is_some()
        }
        Path::Unknown => false,
    };
    (!declared).then(|| names.join("."))
}

fn member<'a>(record: &'a Value, key: &str) -> Option<&'a Value> {
    record.get("attributes")?.get(key)
}

/// The place that a value comes from.
enum Path<'a> {
    /// A member of the context, by its keys.
    InContext(Vec<&'a str>),
    /// The caller, the item or the action, whose attributes are all known.
    Elsewhere,
    /// Something that was calculated.
    Unknown,
}

fn path(expression: &Value) -> Path<'_> {
    if let Some(variable) = expression.get("Var").and_then(Value::as_str) {
        return if variable == "context" { Path::InContext(Vec::new()) } else { Path::Elsewhere };
    }
    let Some(access) = expression.get(".") else { return Path::Unknown };
    let (Some(of), Some(key)) = (access.get("left"), access.get("attr").and_then(Value::as_str)) else {
        return Path::Unknown;
    };
    match path(of) {
        Path::InContext(mut keys) => {
            keys.push(key);
            Path::InContext(keys)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use cedar_policy::SchemaFragment;

    use super::*;

    const SCHEMA: &str = "entity Client; entity Tool; action pay, other appliesTo { principal: Client, resource: Tool, \
        context: { method: String, input: { amount: Long, opt?: { on?: Bool } } } };";

    fn found(condition: &str) -> Option<String> {
        let schema = SchemaFragment::from_cedarschema_str(SCHEMA).unwrap().0.to_json_value().unwrap();
        let policies = format!("forbid (principal, action == Action::\"pay\", resource) when {{ {condition} }};");
        let policies: PolicySet = policies.parse().unwrap();
        let of = |action: &str| undeclared(&[&policies], &format!("Action::\"{action}\"").parse().unwrap(), &schema);
        assert_eq!(of("other"), None, "the policy is about another action");
        of("pay")
    }

    #[test]
    fn a_test_for_an_argument_that_no_schema_names_is_found_at_any_depth() {
        assert_eq!(found("context.input has force"), Some("force".to_owned()));
        assert_eq!(found("true && !(context.input has opt && context.input.opt has force)"), Some("force".to_owned()));
        assert_eq!(found("context.input has opt.force"), Some("opt.force".to_owned()));
        assert_eq!(
            found("(if context.input.amount > 1 then context.input else context.input) has amount"),
            Some("amount".to_owned())
        );
        for known in
            ["context.input has opt", "context.input has opt.on", "principal has a", "context.input.amount > 1"]
        {
            assert_eq!(found(known), None, "{known}");
        }
    }
}
