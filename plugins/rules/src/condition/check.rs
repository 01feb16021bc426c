//! Finds what cannot hold whatever the call: a condition whose parts have types that do not fit. The types of arguments are
//! known when a call is there.

use std::fmt;

use super::Fault;
use super::tree::{Constant, Expr, Fact, Macro, Node};

/// The known type of a value before there is a call.
#[derive(Debug, Clone, PartialEq)]
enum Type {
    /// Any value: it comes from the arguments.
    Any,
    Null,
    Bool,
    Number,
    String,
    /// One of these strings.
    Word(&'static [&'static str]),
    List(Box<Self>),
    Map,
}

const TRUST: &[&str] = &["sandbox", "low", "medium", "high"];
const RISK: &[&str] = &["harmless", "risky"];

/// Checks a condition, whose value must be true or false.
pub(super) fn check(condition: &Node) -> Result<(), Fault> {
    let mut checker = Checker { bound: Vec::new() };
    checker.expect(condition, &Type::Bool)
}

struct Checker {
    /// The types of the variables of the macros around this place.
    bound: Vec<Type>,
}

impl Checker {
    fn of(&mut self, node: &Node) -> Result<Type, Fault> {
        Ok(match &node.expr {
            Expr::Literal(Constant::Null) => Type::Null,
            Expr::Literal(Constant::Bool(_)) => Type::Bool,
            Expr::Literal(Constant::Number(_)) => Type::Number,
            Expr::Literal(Constant::String(_)) => Type::String,
            Expr::Fact(fact) => of_fact(*fact),
            Expr::Bound(position) => self.bound.get(*position).cloned().unwrap_or(Type::Any),
            Expr::List(items) => self.of_list(items)?,
            Expr::Select(operand, _) => {
                self.expect(operand, &Type::Map)?;
                Type::Any
            }
            Expr::Has(operand, _) => {
                self.expect(operand, &Type::Map)?;
                Type::Bool
            }
            Expr::Index(nodes) => self.of_index(nodes)?,
            Expr::Not(operand) => {
                self.expect(operand, &Type::Bool)?;
                Type::Bool
            }
            Expr::Negate(operand) => {
                self.expect(operand, &Type::Number)?;
                Type::Number
            }
            Expr::And(operands) | Expr::Or(operands) => {
                for operand in operands {
                    self.expect(operand, &Type::Bool)?;
                }
                Type::Bool
            }
            Expr::Conditional(nodes) => {
                let [condition, then, otherwise] = nodes.as_ref();
                self.expect(condition, &Type::Bool)?;
                let (then, otherwise) = (self.of(then)?, self.of(otherwise)?);
                if then == otherwise { then } else { Type::Any }
            }
            Expr::Equal(nodes) | Expr::NotEqual(nodes) => {
                let [left, right] = nodes.as_ref();
                let (left_type, right_type) = (self.of(left)?, self.of(right)?);
                comparable([left, right], [&left_type, &right_type], node.at)?;
                Type::Bool
            }
            Expr::Order(_, nodes) => {
                let types = self.comparable_types(nodes, node.at)?;
                if let Some(Type::Word(words)) = types.iter().find(|it| matches!(it, Type::Word(_))) {
                    let words = words.join("', '");
                    return Err(Fault::new(
                        node.at,
                        format!("texts are ordered by their letters; list some of '{words}' with `in`"),
                    ));
                }
                if let Some(found) = types.into_iter().find(|it| !it.fits(&Type::Number) && !it.fits(&Type::String)) {
                    return Err(Fault::new(node.at, format!("numbers and strings have an order, {found} has none")));
                }
                Type::Bool
            }
            Expr::Arithmetic(super::tree::Arithmetic::Add, nodes) => {
                let [left, right] = self.comparable_types(nodes, node.at)?;
                let known = if left == Type::Any { right } else { left };
                match known {
                    Type::Number | Type::Any => known,
                    Type::String | Type::Word(_) => Type::String,
                    other => {
                        return Err(Fault::new(node.at, format!("numbers and strings can be added, {other} cannot")));
                    }
                }
            }
            Expr::Arithmetic(_, nodes) => {
                for operand in nodes.iter() {
                    self.expect(operand, &Type::Number)?;
                }
                Type::Number
            }
            Expr::In(nodes) => self.of_in(nodes)?,
            Expr::Size(operand) => {
                let found = self.of(operand)?;
                if ![Type::String, Type::Map, Type::List(Box::new(Type::Any))].iter().any(|sized| found.fits(sized)) {
                    return Err(Fault::new(operand.at, format!("{found} has no size")));
                }
                Type::Number
            }
            Expr::Text(_, nodes) => {
                for operand in nodes.iter() {
                    self.expect(operand, &Type::String)?;
                }
                Type::Bool
            }
            Expr::LowerAscii(operand) => {
                self.expect(operand, &Type::String)?;
                Type::String
            }
            Expr::Macro(kind, nodes) => self.of_macro(*kind, nodes)?,
        })
    }

    fn of_list(&mut self, items: &[Node]) -> Result<Type, Fault> {
        let mut found = Vec::new();
        for item in items {
            found.push(self.of(item)?);
        }
        let first = found.first().cloned().unwrap_or(Type::Any);
        let item = if found.iter().all(|it| *it == first) { first } else { Type::Any };
        Ok(Type::List(Box::new(item)))
    }

    fn of_index(&mut self, nodes: &[Node; 2]) -> Result<Type, Fault> {
        let [operand, index] = nodes;
        Ok(match self.of(operand)? {
            Type::List(item) => {
                self.expect(index, &Type::Number)?;
                *item
            }
            Type::Map => {
                self.expect(index, &Type::String)?;
                Type::Any
            }
            Type::Any => {
                self.of(index)?;
                Type::Any
            }
            other => return Err(Fault::new(operand.at, format!("{other} has no parts"))),
        })
    }

    fn of_in(&mut self, nodes: &[Node; 2]) -> Result<Type, Fault> {
        let [item, list] = nodes;
        let found = self.of(item)?;
        if let Expr::List(items) = &list.expr {
            for listed in items {
                comparable([item, listed], [&found, &self.of(listed)?], listed.at)?;
            }
            return Ok(Type::Bool);
        }
        match self.of(list)? {
            Type::List(listed) if !found.fits(&listed) => {
                return Err(Fault::new(item.at, format!("{found} is never equal to {listed}")));
            }
            Type::List(_) => {}
            Type::Map if !found.fits(&Type::String) => {
                return Err(Fault::new(item.at, format!("{} must stand here, not {found}", Type::String)));
            }
            Type::Map => {}
            Type::Any => {}
            Type::String | Type::Word(_) => {
                return Err(Fault::new(list.at, "`in` looks into lists and maps; a string has `contains`"));
            }
            other => return Err(Fault::new(list.at, format!("`in` looks into lists and maps, not into {other}"))),
        }
        Ok(Type::Bool)
    }

    fn of_macro(&mut self, kind: Macro, nodes: &[Node; 2]) -> Result<Type, Fault> {
        let [range, body] = nodes;
        let item = match self.of(range)? {
            Type::List(item) => *item,
            Type::Map => Type::String,
            Type::Any => Type::Any,
            other => return Err(Fault::new(range.at, format!("{other} has no items"))),
        };
        self.bound.push(item.clone());
        let found =
            if kind == Macro::Map { self.of(body) } else { self.expect(body, &Type::Bool).map(|()| Type::Bool) };
        self.bound.pop();
        Ok(match (kind, found?) {
            (Macro::Map, found) => Type::List(Box::new(found)),
            (Macro::Filter, _) => Type::List(Box::new(item)),
            _ => Type::Bool,
        })
    }

    fn expect(&mut self, node: &Node, wanted: &Type) -> Result<(), Fault> {
        let found = self.of(node)?;
        if found.fits(wanted) {
            Ok(())
        } else {
            Err(Fault::new(node.at, format!("{wanted} must stand here, not {found}")))
        }
    }

    fn comparable_types(&mut self, nodes: &[Node; 2], at: usize) -> Result<[Type; 2], Fault> {
        let [left, right] = nodes;
        let types = [self.of(left)?, self.of(right)?];
        let [left, right] = &types;
        if left.fits(right) { Ok(types) } else { Err(Fault::new(at, format!("{left} does not go with {right}"))) }
    }
}

/// Refuses two values of these types that are never equal, because of the types or because a word is misspelt.
fn comparable([left, right]: [&Node; 2], types: [&Type; 2], at: usize) -> Result<(), Fault> {
    let [left_type, right_type] = types;
    for (words, literal) in [(left_type, right), (right_type, left)] {
        if let (Type::Word(words), Expr::Literal(Constant::String(text))) = (words, &literal.expr)
            && !words.contains(&text.as_str())
        {
            return Err(Fault::new(literal.at, format!("`{text}` is none of the words {}", words.join(", "))));
        }
    }
    if types.contains(&&Type::Null) || left_type.fits(right_type) {
        Ok(())
    } else {
        Err(Fault::new(at, format!("{left_type} is never equal to {right_type}")))
    }
}

impl Type {
    /// Reports whether a value of this type can be one of the other.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) | (Self::String | Self::Word(_), Self::String | Self::Word(_)) => true,
            (Self::List(item), Self::List(other)) => item.fits(other),
            _ => self == other,
        }
    }
}

fn of_fact(fact: Fact) -> Type {
    match fact {
        Fact::Arguments => Type::Map,
        Fact::Tags => Type::List(Box::new(Type::String)),
        Fact::Trust => Type::Word(TRUST),
        Fact::Risk => Type::Word(RISK),
        Fact::Source | Fact::Tool | Fact::Name | Fact::Method | Fact::Principal | Fact::Profile => Type::String,
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "a value",
            Self::Null => "null",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::String | Self::Word(_) => "a string",
            Self::List(_) => "a list",
            Self::Map => "a map",
        })
    }
}
