//! Evaluates a condition about one call.

use std::borrow::Cow;

use portcullis_plugin::json::Json;

use super::number::Number;
use super::tree::{Arithmetic, Constant, Expr, Fact, Macro, Node, TextTest};
use super::value::{Value, all, look_up};
use super::{Failure, MAX_STEPS};

/// The facts of a call.
pub(crate) trait Facts {
    /// Returns a fact that is a text.
    fn text(&self, fact: Fact) -> &str;
    fn tags(&self) -> &[String];
    /// Returns the arguments; `None` if there is no call yet.
    fn arguments(&self) -> Option<&Json<'_>>;
}

/// Bytes of text, or members of a map, that are compared in one step.
const BYTES_OF_STEP: usize = 32;

/// Evaluates a condition.
pub(super) fn evaluate(condition: &Node, facts: &dyn Facts) -> Result<bool, Failure> {
    let mut evaluator = Evaluator { facts, steps: MAX_STEPS, bound: Vec::new() };
    evaluator.bool(condition)
}

struct Evaluator<'s> {
    facts: &'s dyn Facts,
    /// The steps that are left.
    steps: usize,
    /// The values of the variables of the macros around this place.
    bound: Vec<Value<'s>>,
}

impl<'s> Evaluator<'s> {
    fn value(&mut self, node: &'s Node) -> Result<Value<'s>, Failure> {
        self.spend(1)?;
        Ok(match &node.expr {
            Expr::Literal(constant) => match constant {
                Constant::Null => Value::Null,
                Constant::Bool(value) => Value::Bool(*value),
                Constant::Number(number) => Value::Number(*number),
                Constant::String(text) => Value::String(Cow::Borrowed(text)),
            },
            Expr::Fact(fact) => self.fact(*fact)?,
            Expr::Bound(position) => {
                let value = self.bound.get(*position).cloned().unwrap_or(Value::Null);
                self.copied(value)?
            }
            Expr::List(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| self.value(item)).collect();
                Value::List(items?.into())
            }
            Expr::Select(operand, field) => {
                let found = self.member(operand, field)?;
                Value::of(found.ok_or_else(|| Failure::Missing(field.clone()))?)?
            }
            Expr::Has(operand, field) => Value::Bool(self.member(operand, field)?.is_some()),
            Expr::Index(nodes) => self.index(nodes)?,
            Expr::Not(operand) => Value::Bool(!self.bool(operand)?),
            Expr::Negate(operand) => Value::Number(self.number(operand)?.negate().ok_or(TOO_LARGE)?),
            Expr::And(operands) => Value::Bool(all(operands.iter().map(|operand| self.bool(operand)))?),
            Expr::Or(operands) => Value::Bool(!all(operands.iter().map(|operand| self.bool(operand).map(|it| !it)))?),
            Expr::Conditional(nodes) => {
                let [condition, then, otherwise] = nodes.as_ref();
                if self.bool(condition)? { self.value(then)? } else { self.value(otherwise)? }
            }
            Expr::Equal(nodes) => Value::Bool(self.equal(nodes)?),
            Expr::NotEqual(nodes) => Value::Bool(!self.equal(nodes)?),
            Expr::Order(order, nodes) => {
                let ordering = match self.both(nodes)? {
                    (Value::Number(left), Value::Number(right)) => left.compare(right),
                    (Value::String(left), Value::String(right)) => {
                        self.spend(left.len().min(right.len()) / BYTES_OF_STEP)?;
                        left.cmp(&right)
                    }
                    _ => return Err(OTHER_TYPE),
                };
                Value::Bool(order.holds(ordering))
            }
            Expr::Arithmetic(operation, nodes) => self.arithmetic(*operation, nodes)?,
            Expr::In(nodes) => Value::Bool(self.is_in(nodes)?),
            Expr::Size(operand) => Value::Number(self.size(operand)?),
            Expr::Text(test, nodes) => {
                let (Value::String(text), Value::String(part)) = self.both(nodes)? else { return Err(OTHER_TYPE) };
                self.spend(text.len() / BYTES_OF_STEP)?;
                Value::Bool(match test {
                    TextTest::Contains => text.contains(&*part),
                    TextTest::StartsWith => text.starts_with(&*part),
                    TextTest::EndsWith => text.ends_with(&*part),
                })
            }
            Expr::LowerAscii(operand) => {
                let Value::String(text) = self.value(operand)? else { return Err(OTHER_TYPE) };
                self.spend(text.len() / BYTES_OF_STEP)?;
                Value::String(Cow::Owned(text.to_ascii_lowercase()))
            }
            Expr::Macro(kind, nodes) => self.run(*kind, nodes)?,
        })
    }

    fn bool(&mut self, node: &'s Node) -> Result<bool, Failure> {
        match self.value(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(OTHER_TYPE),
        }
    }

    fn number(&mut self, node: &'s Node) -> Result<Number, Failure> {
        match self.value(node)? {
            Value::Number(number) => Ok(number),
            _ => Err(OTHER_TYPE),
        }
    }

    fn both(&mut self, nodes: &'s [Node; 2]) -> Result<(Value<'s>, Value<'s>), Failure> {
        let [left, right] = nodes;
        Ok((self.value(left)?, self.value(right)?))
    }

    fn fact(&self, fact: Fact) -> Result<Value<'s>, Failure> {
        Ok(match fact {
            Fact::Arguments => Value::of(self.facts.arguments().ok_or(Failure::Fixed("there are no arguments"))?)?,
            Fact::Tags => {
                Value::List(self.facts.tags().iter().map(|tag| Value::String(Cow::Borrowed(tag.as_str()))).collect())
            }
            fact => Value::String(Cow::Borrowed(self.facts.text(fact))),
        })
    }

    /// Returns the member of a map, or `None` if it has none with this key.
    fn member(&mut self, operand: &'s Node, key: &str) -> Result<Option<&'s Json<'s>>, Failure> {
        let Value::Map(members) = self.value(operand)? else { return Err(OTHER_TYPE) };
        self.spend(members.len() / BYTES_OF_STEP)?;
        look_up(members, key)
    }

    fn index(&mut self, nodes: &'s [Node; 2]) -> Result<Value<'s>, Failure> {
        match self.both(nodes)? {
            (Value::Map(members), Value::String(key)) => {
                self.spend(members.len() / BYTES_OF_STEP)?;
                Value::of(look_up(members, &key)?.ok_or(Failure::Fixed("a map does not have the key"))?)
            }
            (list @ (Value::List(_) | Value::Array(_)), Value::Number(index)) => {
                let item = list.item(index.index().ok_or(Failure::Fixed("a list has fewer items"))?);
                item.and_then(|item| self.copied(item))
            }
            _ => Err(OTHER_TYPE),
        }
    }

    fn equal(&mut self, nodes: &'s [Node; 2]) -> Result<bool, Failure> {
        let (left, right) = self.both(nodes)?;
        self.compare(&left, &right)
    }

    /// Compares two values. Each item of a list takes a step, at any depth, and a text as many as its bytes need.
    fn compare(&mut self, left: &Value<'_>, right: &Value<'_>) -> Result<bool, Failure> {
        match (left, right) {
            (Value::List(_) | Value::Array(_), Value::List(_) | Value::Array(_)) => {
                let length = left.items().unwrap_or_default();
                if Some(length) != right.items() {
                    return Ok(false);
                }
                let is_same = |index| {
                    self.spend(1)?;
                    self.compare(&left.borrowed_item(index)?, &right.borrowed_item(index)?)
                };
                all((0..length).map(is_same))
            }
            (Value::String(one), Value::String(other)) => {
                self.spend(one.len().min(other.len()) / BYTES_OF_STEP)?;
                left.equals(right)
            }
            _ => left.equals(right),
        }
    }

    fn arithmetic(&mut self, operation: Arithmetic, nodes: &'s [Node; 2]) -> Result<Value<'s>, Failure> {
        match self.both(nodes)? {
            (Value::Number(left), Value::Number(right)) => {
                left.calculate(operation, right).map(Value::Number).ok_or(TOO_LARGE)
            }
            (Value::String(left), Value::String(right)) if operation == Arithmetic::Add => {
                self.spend((left.len() + right.len()) / BYTES_OF_STEP)?;
                Ok(Value::String(Cow::Owned(left.into_owned() + &right)))
            }
            _ => Err(OTHER_TYPE),
        }
    }

    fn is_in(&mut self, nodes: &'s [Node; 2]) -> Result<bool, Failure> {
        let (item, container) = self.both(nodes)?;
        let [_, within] = nodes;
        if let (Value::Map(members), Value::String(key), Expr::Fact(_)) = (&container, &item, &within.expr) {
            self.spend(members.len() / BYTES_OF_STEP)?;
            return Ok(look_up(members, key)?.is_some());
        }
        let (Value::List(_) | Value::Array(_), Some(length)) = (&container, container.items()) else {
            return Err(OTHER_TYPE);
        };
        let is_other = |index| {
            self.spend(1)?;
            self.compare(&item, &container.borrowed_item(index)?).map(|equal| !equal)
        };
        Ok(!all((0..length).map(is_other))?)
    }

    fn size(&mut self, operand: &'s Node) -> Result<Number, Failure> {
        let size = match self.value(operand)? {
            Value::String(text) => {
                self.spend(text.len() / BYTES_OF_STEP)?;
                text.chars().count()
            }
            other => items_of(operand, &other)?,
        };
        i128::try_from(size).ok().and_then(Number::whole).ok_or(TOO_LARGE)
    }

    /// Runs a macro: its body is evaluated for each item of the range.
    fn run(&mut self, kind: Macro, nodes: &'s [Node; 2]) -> Result<Value<'s>, Failure> {
        let [range_node, body] = nodes;
        let range = self.value(range_node)?;
        let length = items_of(range_node, &range)?;
        let mut items = 0..length;
        Ok(match kind {
            Macro::All => Value::Bool(all(items.map(|index| self.test(range.item(index)?, body)))?),
            Macro::Exists => Value::Bool(!all(items.map(|index| self.test(range.item(index)?, body).map(|it| !it)))?),
            Macro::ExistsOne => {
                let found =
                    items.try_fold(0, |found, index| Ok(found + usize::from(self.test(range.item(index)?, body)?)))?;
                Value::Bool(found == 1)
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                for index in items {
                    if self.test(range.item(index)?, body)? {
                        kept.push(range.item(index)?);
                    }
                }
                Value::List(kept.into())
            }
            Macro::Map => {
                let mapped: Result<Vec<_>, _> =
                    items.map(|index| self.with(range.item(index)?, |it| it.value(body))).collect();
                Value::List(mapped?.into())
            }
        })
    }

    fn test(&mut self, item: Value<'s>, body: &'s Node) -> Result<bool, Failure> {
        self.with(item, |it| it.bool(body))
    }

    /// Does something with a further variable.
    fn with<T>(&mut self, item: Value<'s>, run: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let item = self.copied(item)?;
        self.bound.push(item);
        let result = run(self);
        self.bound.pop();
        result
    }

    /// Charges for a value that was copied out of a list or a variable.
    fn copied(&mut self, value: Value<'s>) -> Result<Value<'s>, Failure> {
        if let Value::String(Cow::Owned(text)) = &value {
            self.spend(text.len() / BYTES_OF_STEP)?;
        }
        Ok(value)
    }

    fn spend(&mut self, steps: usize) -> Result<(), Failure> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or_default();
        left.map(|_| ()).ok_or(Failure::Fixed("it takes too many steps"))
    }
}

/// Returns the number of items of a list, or of the arguments as a whole. A map within the arguments has none: the caller
/// could send one in the place of a list, whose items the condition is about.
fn items_of(node: &Node, value: &Value<'_>) -> Result<usize, Failure> {
    match (value, &node.expr) {
        (Value::Map(_), Expr::Fact(_)) | (Value::List(_) | Value::Array(_), _) => value.items().ok_or(OTHER_TYPE),
        _ => Err(OTHER_TYPE),
    }
}

const OTHER_TYPE: Failure = Failure::Fixed("a value has another type than the condition expects");

const TOO_LARGE: Failure = Failure::Fixed(
    "a number becomes too large, or is divided by zero, or a whole number by one that leaves a remainder",
);
