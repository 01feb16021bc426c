//! The tree of a condition.

use std::cmp::Ordering;

use super::number::Number;
use super::{Fault, MAX_NESTING};

/// A part of a condition, and the offset in bytes at which a message about it points.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) expr: Expr,
    pub(super) at: usize,
    /// The number of nodes on the longest way down, this one included.
    height: usize,
}

/// The kinds of nodes.
#[derive(Debug)]
pub(super) enum Expr {
    Literal(Constant),
    Fact(Fact),
    /// The name of a macro's variable, by how many macros are around its own one.
    Bound(usize),
    List(Vec<Node>),
    Select(Box<Node>, String),
    /// `has(operand.field)`
    Has(Box<Node>, String),
    Index(Box<[Node; 2]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    Equal(Box<[Node; 2]>),
    NotEqual(Box<[Node; 2]>),
    Order(Order, Box<[Node; 2]>),
    Arithmetic(Arithmetic, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    Size(Box<Node>),
    Text(TextTest, Box<[Node; 2]>),
    LowerAscii(Box<Node>),
    /// A macro over a list or the keys of a map: its range, and its expression for each item.
    Macro(Macro, Box<[Node; 2]>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
}

/// A fact that a condition can query about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Source,
    Tool,
    Name,
    Method,
    Arguments,
    Principal,
    Profile,
    Trust,
    Risk,
    Tags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTest {
    Contains,
    StartsWith,
    EndsWith,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl Fact {
    pub(super) const ALL: [(&'static str, Self); 10] = [
        ("arguments", Self::Arguments),
        ("method", Self::Method),
        ("name", Self::Name),
        ("principal", Self::Principal),
        ("profile", Self::Profile),
        ("risk", Self::Risk),
        ("source", Self::Source),
        ("tags", Self::Tags),
        ("tool", Self::Tool),
        ("trust", Self::Trust),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, fact)| fact)
    }
}

impl Order {
    pub(super) fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

impl Node {
    /// Makes a node, unless its tree would be too high.
    pub(super) fn new(expr: Expr, at: usize) -> Result<Self, Fault> {
        let node = Self { expr, at, height: 0 };
        let height = node.parts().into_iter().map(|part| part.height).max().unwrap_or_default() + 1;
        if height > MAX_NESTING { Err(Fault::too_deep(at)) } else { Ok(Self { height, ..node }) }
    }

    /// Reports whether a fact occurs in this tree.
    pub(super) fn reads(&self, fact: Fact) -> bool {
        matches!(self.expr, Expr::Fact(read) if read == fact) || self.parts().into_iter().any(|part| part.reads(fact))
    }

    /// Returns the parts of a node.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match &self.expr {
            Expr::Literal(_) | Expr::Fact(_) | Expr::Bound(_) => vec![],
            Expr::List(nodes) | Expr::And(nodes) | Expr::Or(nodes) => nodes.iter().collect(),
            Expr::Select(node, _)
            | Expr::Has(node, _)
            | Expr::Not(node)
            | Expr::Negate(node)
            | Expr::Size(node)
            | Expr::LowerAscii(node) => vec![node],
            Expr::Conditional(nodes) => nodes.iter().collect(),
            Expr::Index(nodes)
            | Expr::Equal(nodes)
            | Expr::NotEqual(nodes)
            | Expr::Order(_, nodes)
            | Expr::Arithmetic(_, nodes)
            | Expr::In(nodes)
            | Expr::Text(_, nodes)
            | Expr::Macro(_, nodes) => nodes.iter().collect(),
        }
    }
}
