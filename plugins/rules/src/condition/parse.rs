//! Makes a tree of the tokens of a condition, in CEL's grammar.

use super::number::Number;
use super::token::{Kind, Token, tokens};
use super::tree::{Arithmetic, Constant, Expr, Fact, Macro, Node, Order, TextTest};
use super::{Fault, MAX_NESTING};

/// Parses a condition.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, bound: Vec::new() };
    let node = parser.expression()?;
    match &parser.peek().kind {
        Kind::End => Ok(node),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    /// The variables of the macros around this place.
    bound: Vec<String>,
}

/// The token behind the last one.
static END: Token = Token { kind: Kind::End, at: 0 };

impl Parser {
    fn expression(&mut self) -> Result<Node, Fault> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(Fault::too_deep(self.peek().at));
        }
        let mut read = self.either()?;
        let at = self.peek().at;
        if self.take("?") {
            let then = self.either()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            read = Node::new(Expr::Conditional(Box::new([read, then, otherwise])), at)?;
        }
        self.depth -= 1;
        Ok(read)
    }

    fn either(&mut self) -> Result<Node, Fault> {
        self.chain("||", Self::both, Expr::Or)
    }

    fn both(&mut self) -> Result<Node, Fault> {
        self.chain("&&", Self::relation, Expr::And)
    }

    /// Reads operands with the same operator between them. A chain of any length is one node.
    fn chain(
        &mut self,
        operator: &str,
        operand: fn(&mut Self) -> Result<Node, Fault>,
        join: fn(Vec<Node>) -> Expr,
    ) -> Result<Node, Fault> {
        let first = operand(self)?;
        let at = self.peek().at;
        let mut operands = vec![first];
        while self.take(operator) {
            operands.push(operand(self)?);
        }
        match (operands.pop(), operands.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                operands.extend(last);
                Node::new(join(operands), at)
            }
        }
    }

    fn relation(&mut self) -> Result<Node, Fault> {
        let mut left = self.sum()?;
        loop {
            let token = self.peek();
            let (at, operator) = match &token.kind {
                Kind::Symbol(symbol) => (token.at, *symbol),
                Kind::Name(name) if name == "in" => (token.at, "in"),
                _ => return Ok(left),
            };
            let join: fn(Box<[Node; 2]>) -> Expr = match operator {
                "==" => Expr::Equal,
                "!=" => Expr::NotEqual,
                "in" => Expr::In,
                "<" => |nodes| Expr::Order(Order::Less, nodes),
                "<=" => |nodes| Expr::Order(Order::AtMost, nodes),
                ">" => |nodes| Expr::Order(Order::Greater, nodes),
                ">=" => |nodes| Expr::Order(Order::AtLeast, nodes),
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.sum()?;
            left = Node::new(join(Box::new([left, right])), at)?;
        }
    }

    fn sum(&mut self) -> Result<Node, Fault> {
        self.arithmetic(Self::product, &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)])
    }

    fn product(&mut self) -> Result<Node, Fault> {
        let operators = [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];
        self.arithmetic(Self::unary, &operators)
    }

    fn arithmetic(
        &mut self,
        operand: fn(&mut Self) -> Result<Node, Fault>,
        operators: &[(&str, Arithmetic)],
    ) -> Result<Node, Fault> {
        let mut left = operand(self)?;
        loop {
            let at = self.peek().at;
            let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.take(symbol)) else { return Ok(left) };
            let right = operand(self)?;
            left = Node::new(Expr::Arithmetic(*operator, Box::new([left, right])), at)?;
        }
    }

    fn unary(&mut self) -> Result<Node, Fault> {
        let at = self.peek().at;
        let join: fn(Box<Node>) -> Expr = match &self.peek().kind {
            Kind::Symbol("!") => Expr::Not,
            Kind::Symbol("-") => Expr::Negate,
            _ => return self.member(),
        };
        self.next += 1;
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(Fault::too_deep(at));
        }
        let operand = self.unary()?;
        self.depth -= 1;
        Node::new(join(Box::new(operand)), at)
    }

    fn member(&mut self) -> Result<Node, Fault> {
        let mut operand = self.primary()?;
        loop {
            let at = self.peek().at;
            if self.take("[") {
                let index = self.expression()?;
                self.expect("]")?;
                operand = Node::new(Expr::Index(Box::new([operand, index])), at)?;
            } else if self.take(".") {
                let at = self.peek().at;
                let field = self.name()?;
                operand = if self.take("(") {
                    self.method(operand, &field, at)?
                } else {
                    Node::new(Expr::Select(Box::new(operand), field), at)?
                };
            } else {
                return Ok(operand);
            }
        }
    }

    /// Reads the arguments of a function or macro of a value, behind the opening bracket.
    fn method(&mut self, target: Node, name: &str, at: usize) -> Result<Node, Fault> {
        let text = match name {
            "contains" => Some(TextTest::Contains),
            "startsWith" => Some(TextTest::StartsWith),
            "endsWith" => Some(TextTest::EndsWith),
            _ => None,
        };
        if let Some(test) = text {
            let operand = self.expression()?;
            self.expect(")")?;
            return Node::new(Expr::Text(test, Box::new([target, operand])), at);
        }
        let kind = match name {
            "all" => Macro::All,
            "exists" => Macro::Exists,
            "exists_one" => Macro::ExistsOne,
            "filter" => Macro::Filter,
            "map" => Macro::Map,
            "size" | "lowerAscii" => {
                self.expect(")")?;
                let expr = if name == "size" { Expr::Size } else { Expr::LowerAscii };
                return Node::new(expr(Box::new(target)), at);
            }
            _ => return Err(unknown_function(name, at)),
        };
        let variable_at = self.peek().at;
        let variable = self.name()?;
        if Fact::named(&variable).is_some() || self.bound.contains(&variable) {
            return Err(Fault::new(variable_at, format!("`{variable}` is already a name; choose another one")));
        }
        self.expect(",")?;
        self.bound.push(variable);
        let body = self.expression()?;
        self.bound.pop();
        self.expect(")")?;
        Node::new(Expr::Macro(kind, Box::new([target, body])), at)
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        let Token { kind, at } = self.peek().clone();
        self.next += 1;
        let constant = match kind {
            Kind::String(text) => Constant::String(text),
            Kind::Number(spelling) => Constant::Number(
                Number::of(&spelling).ok_or_else(|| Fault::new(at, "the number is too large or too exact"))?,
            ),
            Kind::Name(name) => match name.as_str() {
                "true" => Constant::Bool(true),
                "false" => Constant::Bool(false),
                "null" => Constant::Null,
                _ => return self.named(&name, at),
            },
            Kind::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Symbol("[") => {
                let items = self.items()?;
                return Node::new(Expr::List(items), at);
            }
            Kind::Symbol(_) | Kind::End => {
                self.next -= 1;
                return Err(self.unexpected("a value"));
            }
        };
        Node::new(Expr::Literal(constant), at)
    }

    /// Reads what a name refers to: a variable, or a function with its arguments.
    fn named(&mut self, name: &str, at: usize) -> Result<Node, Fault> {
        if !self.take("(") {
            let bound = self.bound.iter().position(|bound| bound == name).map(Expr::Bound);
            let expr = bound.or_else(|| Fact::named(name).map(Expr::Fact)).ok_or_else(|| {
                let known = Fact::ALL.map(|(name, _)| name).join(", ");
                Fault::new(at, format!("there is no `{name}`; a condition can use {known}"))
            })?;
            return Node::new(expr, at);
        }
        let operand = match name {
            "size" | "has" => self.expression()?,
            _ => return Err(unknown_function(name, at)),
        };
        self.expect(")")?;
        if name == "size" {
            return Node::new(Expr::Size(Box::new(operand)), at);
        }
        match operand.expr {
            Expr::Select(operand, field) => Node::new(Expr::Has(operand, field), at),
            _ => Err(Fault::new(
                at,
                "`has` tests for a key, as in `has(arguments.path)`; or write `\"a key\" in arguments`",
            )),
        }
    }

    fn items(&mut self) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        while !self.take("]") {
            items.push(self.expression()?);
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(items)
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&END)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(&self.peek().kind, Kind::Symbol(found) if *found == symbol);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Fault> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn name(&mut self) -> Result<String, Fault> {
        match &self.peek().kind {
            Kind::Name(name) if !["true", "false", "null", "in"].contains(&name.as_str()) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn unexpected(&self, expected: &str) -> Fault {
        let Token { kind, at } = self.peek();
        let found = match kind {
            Kind::Name(name) => format!("`{name}`"),
            Kind::String(_) => "a string".to_owned(),
            Kind::Number(spelling) => format!("`{spelling}`"),
            Kind::Symbol(symbol) => format!("`{symbol}`"),
            Kind::End => "the end".to_owned(),
        };
        Fault::new(*at, format!("{expected} must stand here, not {found}"))
    }
}

fn unknown_function(name: &str, at: usize) -> Fault {
    let what = match name {
        "matches" => {
            "`matches` is left out, because regular expressions would make every rule slower to load; use `startsWith`, \
             `endsWith` and `contains`, or the key `arguments` with a glob"
                .to_owned()
        }
        _ => format!(
            "there is no function `{name}`; there is size, has, contains, startsWith, endsWith, lowerAscii, all, exists, \
             exists_one, filter, map"
        ),
    };
    Fault::new(at, what)
}
