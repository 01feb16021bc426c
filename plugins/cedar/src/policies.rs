//! The configured policies: their text is parsed once, and text that would not work as it was probably meant is refused.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicySet, Schema, ValidationMode, ValidationWarning, Validator,
};
use cedar_policy_core::ast::{Expr, ExprKind, SlotEnv};
use miette::Diagnostic;
use portcullis_plugin::json::fold_key;

use crate::answer::{Answer, answer};
use crate::request::{CALL_TOOL, Names, Question, TYPES};

/// The annotation on a permit that makes it ask a person.
const APPROVAL: &str = "requireApproval";

/// The annotation that names a policy.
const ID: &str = "id";

/// The policies.
pub(crate) struct Policies {
    set: PolicySet,
    /// The policies of `set`, in the order of the text.
    ordered: Vec<Named>,
    /// The names of the attributes that they read, folded.
    read: HashSet<String>,
}

/// A policy with the texts of messages about it. They are made when it is read, because Cedar parses the name of an annotation
/// each time it is asked for one. It is displayed as messages name it.
pub(crate) struct Named {
    name: String,
    approval: Option<String>,
    policy: Policy,
}

impl Policies {
    /// Parses and checks the text of the setting `policies`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim_end().ends_with(".cedar") {
            return Err(
                "settings.policies: this is the name of a file; put the policies themselves there, between '''".into(),
            );
        }
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
        let mut numbered: Vec<_> =
            set.policies().filter_map(|policy| Some((number(policy)?, policy.clone()))).collect();
        numbered.sort_by_key(|(number, _)| *number);
        let ordered: Vec<_> = numbered.into_iter().map(|(number, policy)| Named::new(number, policy)).collect();
        if ordered.len() != set.policies().count() {
            return Err("settings.policies: Cedar names a policy in a way that this version does not know".into());
        }
        let read = ordered.iter().flat_map(|named| attributes_read(named.policy.as_ref())).collect();
        let policies = Self { set, ordered, read };
        policies.check()?;
        Ok(policies)
    }

    /// Returns the names of the attributes that the policies read, folded.
    pub(crate) fn read(&self) -> &HashSet<String> {
        &self.read
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
        errors.min_by_key(|(line, _)| *line).map_or(Ok(()), |(_, message)| Err(message))?;
        let never = result.validation_warnings().find_map(|warning| match warning {
            ValidationWarning::ImpossiblePolicy(warning) => Some(located("policies", text, &NEVER, warning)),
            _ => None,
        });
        never.map_or(Ok(()), Err)
    }

    /// Evaluates each call of a function in the policies separately, for an invented call. Cedar makes tables, such as
    /// the patterns of dates, when it first needs them, which takes longer than a decision; made here, they are part of
    /// the state from which every decision starts.
    pub(crate) fn warm_up(&self, names: &Names) -> Result<(), String> {
        let question = names.invented()?;
        let evaluator = question.evaluator();
        for Named { policy, .. } in &self.ordered {
            let policy: &cedar_policy_core::ast::Policy = policy.as_ref();
            let parts = policy.non_scope_constraints().into_iter().flat_map(|condition| condition.subexpressions());
            for part in parts.filter(|part| matches!(part.expr_kind(), ExprKind::ExtensionFunctionApp { .. })) {
                // An error is not a fault: the invented call has no arguments.
                let _ = evaluator.partial_interpret(part, policy.env());
            }
        }
        // The error about an attribute of what has none names a type, and Cedar parses that name.
        let _ = evaluator.partial_interpret(&Expr::get_attr(Expr::val(true), "any".into()), &SlotEnv::new());
        Ok(())
    }

    /// Returns each policy, in the order of the text, with its answer about a call.
    pub(crate) fn answers<'a>(&'a self, question: &'a Question) -> impl Iterator<Item = (&'a Named, Answer)> {
        let evaluator = question.evaluator();
        self.ordered.iter().map(move |named| (named, answer(named.policy.as_ref(), question, &evaluator)))
    }

    /// Refuses policies that would do something else than they seem to.
    fn check(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        for policy in &self.ordered {
            let refuse = |what: String| Err(format!("settings.policies: the {policy} {what}"));
            if let Some(id) = policy.policy.annotation(ID)
                && !ids.insert(id)
            {
                return refuse("has the name of an earlier one; give it another `@id`".into());
            }
            if policy.is_forbid() && policy.approval.is_some() {
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
            if literals.iter().filter(|uid| is_call_tool(uid)).count() != in_head(&policy.policy) {
                return refuse(format!(
                    "compares the action with the group `Action::\"{CALL_TOOL}\"`, which no action equals; write `action \
                     in Action::\"{CALL_TOOL}\"` in the head of the policy"
                ));
            }
        }
        Ok(())
    }
}

/// The error of a policy that no call can meet, as Cedar's types say.
const NEVER: &str = "this policy can never hold: it asks for an argument that the tool does not have, or for values that exclude each other";

impl Named {
    /// Names a policy, whose position in the text is `number`, from one on.
    fn new(number: usize, policy: Policy) -> Self {
        let name = policy.annotation(ID).map_or_else(|| format!("policy {number}"), |id| format!("policy `{id}`"));
        let approval = policy.annotation(APPROVAL).map(|reason| match reason {
            "" => format!("asked for by the {name}"),
            reason => format!("{reason} ({name})"),
        });
        Self { name, approval, policy }
    }

    pub(crate) fn is_forbid(&self) -> bool {
        self.policy.effect() == Effect::Forbid
    }

    /// Returns the reason to ask a person, if the policy wants one to be asked.
    pub(crate) fn approval(&self) -> Option<&str> {
        self.approval.as_deref()
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns the names of the attributes that a policy reads or tests for, folded.
fn attributes_read(policy: &cedar_policy_core::ast::Policy) -> Vec<String> {
    let parts = policy.non_scope_constraints().into_iter().flat_map(|condition| condition.subexpressions());
    let names = parts.filter_map(|part| match part.expr_kind() {
        ExprKind::GetAttr { attr, .. } | ExprKind::HasAttr { attr, .. } => Some(fold_key(attr)),
        _ => None,
    });
    names.collect()
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
