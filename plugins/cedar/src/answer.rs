//! Asks a policy about a call.
//!
//! The head of the policy is compared here, and Cedar evaluates only what follows it. Cedar itself combines both into
//! one expression for every decision, which takes many times as long, and most heads do not fit. The answer is the
//! same: a head cannot fail, and Cedar does not evaluate what follows one that does not fit.
//!
//! Of the conditions, the plugin evaluates `like` and what combines conditions. As soon as one of these has no boolean,
//! Cedar evaluates the whole: it knows what an error and an unknown argument mean.

use cedar_policy_core::ast::{
    ActionConstraint, EntityReference, EntityUID, Expr, ExprKind, Literal, PartialValue, Policy,
    PrincipalOrResourceConstraint as Constraint, SlotEnv, UnaryOp, Value, ValueKind,
};
use cedar_policy_core::evaluator::{EvaluationError, Evaluator};

use crate::like::is_like;
use crate::request::{Member, Question};

/// The answer of a policy about a call.
pub(crate) enum Answer {
    /// The policy holds.
    Yes,
    /// The policy does not hold.
    No,
    /// The answer depends on something unknown.
    Open,
    /// The policy cannot be evaluated, for this reason.
    Failure(&'static str),
}

/// Returns a policy's answer about a call. `evaluator` evaluates expressions for the call.
pub(crate) fn answer(policy: &Policy, question: &Question, evaluator: &Evaluator<'_>) -> Answer {
    if !fits(policy, question) {
        return Answer::No;
    }
    let Some(condition) = policy.non_scope_constraints() else { return Answer::Yes };
    match known(condition, policy.env(), evaluator) {
        Some(true) => Answer::Yes,
        Some(false) => Answer::No,
        None => evaluate(condition, policy.env(), evaluator),
    }
}

/// Returns whether a condition holds, if that is known and there is no error on the way.
fn known(condition: &Expr, slots: &SlotEnv, evaluator: &Evaluator<'_>) -> Option<bool> {
    let known = |condition| known(condition, slots, evaluator);
    match condition.expr_kind() {
        ExprKind::And { left, right } => Some(known(left)? && known(right)?),
        ExprKind::Or { left, right } => Some(known(left)? || known(right)?),
        ExprKind::UnaryApp { op: UnaryOp::Not, arg } => Some(!known(arg)?),
        ExprKind::Like { expr, pattern } => match literal(expr, slots, evaluator)? {
            Literal::String(text) => Some(is_like(&text, pattern)),
            _ => None,
        },
        _ => match literal(condition, slots, evaluator)? {
            Literal::Bool(holds) => Some(holds),
            _ => None,
        },
    }
}

/// Returns the value of an expression, if it is a boolean, a number, a text or an entity.
fn literal(expression: &Expr, slots: &SlotEnv, evaluator: &Evaluator<'_>) -> Option<Literal> {
    match evaluator.partial_interpret(expression, slots) {
        Ok(PartialValue::Value(Value { value: ValueKind::Lit(literal), .. })) => Some(literal),
        _ => None,
    }
}

/// Lets Cedar evaluate a condition.
fn evaluate(condition: &Expr, slots: &SlotEnv, evaluator: &Evaluator<'_>) -> Answer {
    match evaluator.partial_interpret(condition, slots) {
        Ok(PartialValue::Value(Value { value: ValueKind::Lit(Literal::Bool(true)), .. })) => Answer::Yes,
        Ok(PartialValue::Value(Value { value: ValueKind::Lit(Literal::Bool(false)), .. })) => Answer::No,
        Ok(PartialValue::Value(_)) => Answer::Failure(WRONG_TYPE),
        Ok(PartialValue::Residual(_)) => Answer::Open,
        Err(error) => Answer::Failure(cause(&error)),
    }
}

/// Reports whether the head of a policy fits a call.
fn fits(policy: &Policy, question: &Question) -> bool {
    let head = policy.template();
    let action = match head.action_constraint() {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(named) => question.action.uid == **named,
        ActionConstraint::In(named) => named.iter().any(|named| question.action.is_in(named)),
    };
    action
        && is_met(head.principal_constraint().as_inner(), &question.principal)
        && is_met(head.resource_constraint().as_inner(), &question.resource)
}

/// Reports whether an entity meets what a head requires of the principal or of the resource.
fn is_met(constraint: &Constraint, member: &Member) -> bool {
    match constraint {
        Constraint::Any => true,
        Constraint::Eq(named) => uid(named) == Some(&member.uid),
        Constraint::In(named) => uid(named).is_some_and(|named| member.is_in(named)),
        Constraint::Is(kind) => member.uid.entity_type() == &**kind,
        Constraint::IsIn(kind, named) => {
            member.uid.entity_type() == &**kind && uid(named).is_some_and(|named| member.is_in(named))
        }
    }
}

/// Returns the entity that a head names. Only templates, which are refused, leave it open.
fn uid(reference: &EntityReference) -> Option<&EntityUID> {
    match reference {
        EntityReference::EUID(uid) => Some(uid),
        EntityReference::Slot(_) => None,
    }
}

/// The reason why a policy cannot be evaluated, if a condition is not a boolean or an operator gets an operand of another type.
const WRONG_TYPE: &str = "it expects a value of another type than the call has";

/// The reason why a policy cannot be evaluated, if it is a rare one.
pub(crate) const GIVES_UP: &str = "Cedar gives up on it";

/// Says why a policy could not be evaluated, without the values that Cedar's own messages contain.
pub(crate) fn cause(error: &EvaluationError) -> &'static str {
    match error {
        EvaluationError::RecordAttrDoesNotExist(_) | EvaluationError::EntityAttrDoesNotExist(_) => {
            "it reads an attribute that is not there; test for it with `has`"
        }
        EvaluationError::TypeError(_) | EvaluationError::EntityDoesNotExist(_) => WRONG_TYPE,
        EvaluationError::IntegerOverflow(_) => "a number becomes too large",
        EvaluationError::FailedExtensionFunctionExecution(_) => "a text does not have the form that it expects",
        _ => GIVES_UP,
    }
}
