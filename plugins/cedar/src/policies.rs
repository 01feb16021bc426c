//! The configured policies: their text is parsed once, and what could be meant otherwise than it works is refused.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use cedar_policy::{
    ActionConstraint, AuthorizationError, Effect, EntityUid, EvaluationError, Policy, PolicyId, PolicySet, Schema,
    ValidationMode, Validator,
};
use miette::Diagnostic;

use crate::request::{CALL_TOOL, TYPES};

/// The annotation on a permit that makes it ask a person.
const APPROVAL: &str = "requireApproval";

/// The annotation that names a policy.
const ID: &str = "id";

/// The policies, by the identifiers that Cedar gives them.
pub(crate) struct Policies {
    set: PolicySet,
    /// The position of each policy in the text, from one on.
    positions: HashMap<PolicyId, usize>,
}

/// A policy with its position. It is displayed as messages name it.
pub(crate) struct Named<'a> {
    position: usize,
    policy: &'a Policy,
}

impl Policies {
    /// Parses and checks the text of the setting `policies`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let set = PolicySet::from_str(text).map_err(|errors| located("policies", text, &errors, &errors))?;
        if set.templates().next().is_some() {
            return Err(
                "settings.policies: a template (`?principal`, `?resource`) is not possible here, because nothing \
                        links it; write the entity"
                    .into(),
            );
        }
        if set.is_empty() {
            return Err("settings.policies: there is no policy, so every call would be denied; write at least one \
                        `permit`"
                .into());
        }
        let mut policies = Self { positions: HashMap::new(), set };
        policies.positions =
            policies.set.policies().filter_map(|policy| Some((policy.id().clone(), number(policy)?))).collect();
        policies.check()?;
        Ok(policies)
    }

    /// Checks the types of the policies, whose text is `text`, against a schema in Cedar's syntax.
    pub(crate) fn validate(&self, text: &str, schema: &str) -> Result<(), String> {
        let (schema, _) =
            Schema::from_cedarschema_str(schema).map_err(|error| located("schema", schema, &error, &error))?;
        let result = Validator::new(schema).validate(&self.set, ValidationMode::Strict);
        let errors = result.validation_errors().map(|error| {
            let message = error.to_string();
            // Cedar's own names of the policies mean nothing to the reader.
            let message = message.split_once("`, ").map_or(message.as_str(), |(_, message)| message);
            (line(text, error), located("policies", text, &message, error))
        });
        errors.min_by_key(|(line, _)| *line).map_or(Ok(()), |(_, message)| Err(message))
    }

    pub(crate) fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Returns the policies with these identifiers in the order of the text.
    pub(crate) fn in_order<'a>(&'a self, ids: impl Iterator<Item = &'a PolicyId>) -> Vec<Named<'a>> {
        let mut named: Vec<_> = ids.filter_map(|id| self.named(id)).collect();
        named.sort_by_key(|named| named.position);
        named
    }

    /// Returns a message about the first policy that could not be evaluated. It has none of the arguments' values.
    pub(crate) fn first_failure<'a>(&'a self, errors: impl Iterator<Item = &'a AuthorizationError>) -> Option<String> {
        let failure = |error: &'a AuthorizationError| match error {
            AuthorizationError::PolicyEvaluationError(error) => {
                Some((self.named(error.policy_id())?, cause(error.inner())))
            }
        };
        let (policy, cause) = errors.filter_map(failure).min_by_key(|(policy, _)| policy.position)?;
        Some(format!("the {policy} cannot be evaluated for this call: {cause}"))
    }

    fn named(&self, id: &PolicyId) -> Option<Named<'_>> {
        let (&position, policy) = (self.positions.get(id)?, self.set.policy(id)?);
        Some(Named { position, policy })
    }

    /// Refuses policies that would do something else than they seem to.
    fn check(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        for policy in self.in_order(self.positions.keys()) {
            let refuse = |what: String| Err(format!("settings.policies: the {policy} {what}"));
            if let Some(id) = policy.policy.annotation(ID)
                && !ids.insert(id)
            {
                return refuse("has the name of an earlier one; give it another `@id`".into());
            }
            if policy.policy.effect() == Effect::Forbid && policy.policy.annotation(APPROVAL).is_some() {
                return refuse(format!("is a `forbid`, which never asks; write `@{APPROVAL}` on a `permit`"));
            }
            if let Some((key, _)) = policy.policy.annotations().find(|(key, _)| is_misspelt(key)) {
                return refuse(format!("has the annotation `@{key}`, which has no effect; write `@{APPROVAL}`"));
            }
            let literals = policy.policy.entity_literals();
            if let Some(unknown) = literals.iter().find(|uid| !TYPES.contains(&uid.type_name().to_string().as_str())) {
                let known = TYPES.join(", ");
                return refuse(format!(
                    "names an entity of the type `{}`, which no call has; the types are {known}",
                    unknown.type_name()
                ));
            }
            if literals.iter().filter(|uid| is_call_tool(uid)).count() != in_head(policy.policy) {
                return refuse(format!(
                    "compares the action with the group `Action::\"{CALL_TOOL}\"`, which no action equals; write `action \
                     in Action::\"{CALL_TOOL}\"` in the head of the policy"
                ));
            }
        }
        Ok(())
    }
}

impl Named<'_> {
    /// Returns the reason to ask a person, if the policy wants one to be asked.
    pub(crate) fn approval(&self) -> Option<String> {
        let reason = self.policy.annotation(APPROVAL)?;
        Some(if reason.is_empty() { format!("asked for by the {self}") } else { format!("{reason} ({self})") })
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy.annotation(ID) {
            Some(id) => write!(f, "policy `{id}`"),
            None => write!(f, "policy {}", self.position),
        }
    }
}

/// Returns the position of a policy, from one on: Cedar numbers policies in the order of their text, from `policy0` on.
fn number(policy: &Policy) -> Option<usize> {
    let id: &str = policy.id().as_ref();
    Some(id.strip_prefix("policy")?.parse::<usize>().ok()? + 1)
}

/// Reports whether an annotation looks like the one that asks for approval, and is not.
fn is_misspelt(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase();
    key != APPROVAL && (plain.starts_with("require") || plain.contains("approv"))
}

fn is_call_tool(uid: &EntityUid) -> bool {
    uid.type_name().to_string() == "Action" && uid.id().unescaped() == CALL_TOOL
}

/// Counts how often the head of a policy has the group of all tools behind `action in`.
fn in_head(policy: &Policy) -> usize {
    match policy.action_constraint() {
        ActionConstraint::In(actions) => actions.iter().filter(|uid| is_call_tool(uid)).count(),
        ActionConstraint::Any | ActionConstraint::Eq(_) => 0,
    }
}

/// Says why a policy could not be evaluated, without the values that Cedar's own messages contain.
fn cause(error: &EvaluationError) -> &'static str {
    match error {
        EvaluationError::RecordAttrDoesNotExist(_) | EvaluationError::EntityAttrDoesNotExist(_) => {
            "it reads an attribute that is not there; test for it with `has`"
        }
        EvaluationError::TypeError(_) | EvaluationError::EntityDoesNotExist(_) => {
            "it expects a value of another type than the call has"
        }
        EvaluationError::IntegerOverflow(_) => "a number becomes too large",
        EvaluationError::FailedExtensionFunctionExecution(_) => "a text does not have the form that it expects",
        _ => "Cedar gives up on it",
    }
}

/// Formats an error of Cedar in a setting with its line.
fn located(setting: &str, text: &str, error: &dyn fmt::Display, diagnostic: &dyn Diagnostic) -> String {
    match line(text, diagnostic) {
        Some(line) => format!("settings.{setting}, line {line}: {error}"),
        None => format!("settings.{setting}: {error}"),
    }
}

/// Returns the line of a text that an error is about, from one on.
fn line(text: &str, diagnostic: &dyn Diagnostic) -> Option<usize> {
    let offset = diagnostic.labels().and_then(|mut labels| labels.next()).map(|label| label.offset())?;
    Some(text.get(..offset)?.matches('\n').count() + 1)
}
