//! Conditions: the key `when` of a rule, in the [Common Expression Language](https://cel.dev) (CEL).
//!
//! ```toml
//! deny = [{ tool = "pay__*", when = "arguments.amount > 100 && trust != 'high'" }]
//! ```
//!
//! | name | value |
//! |---|---|
//! | `arguments` | the arguments, as JSON |
//! | `tool`, `name` | the name that the agent sees; the source's own name |
//! | `source`, `tags` | the name of the source, and its tags |
//! | `method` | the MCP method, such as `tools/call` |
//! | `principal`, `profile` | who calls, and under which profile |
//! | `trust` | `"sandbox"`, `"low"`, `"medium"` or `"high"` |
//! | `risk` | `"harmless"` or `"risky"` |
//!
//! There are literals of JSON's scalars and lists, `a.b`, `a["b"]`, `a[0]`, `! - * / % + < <= > >= == != in && || ?:`, `has(a.b)`,
//! `size`, `contains`, `startsWith`, `endsWith`, `lowerAscii`, and the macros `all`, `exists`, `exists_one`, `filter` and `map`.
//!
//! As in CEL, an operand of `&&` and `||` that cannot be evaluated matters only if the other one does not decide. A condition
//! that cannot be evaluated as a whole counts against the call: it holds in `deny` and `ask`, and never in `allow`. So
//! that the caller cannot choose whether a condition holds, it is stricter than CEL:
//!
//! - Values of different types cannot be compared; only null differs from every other value. Maps are not compared.
//! - Only the arguments as a whole have members to go through. A map within them could stand in the place of a list.
//! - A whole number is divided by another only without a remainder, which CEL would cut off.
//! - A map that has a key in another case cannot be asked for the key.
//! - A number that is neither whole with 64 bits nor a double cannot be used. Whole numbers are exact and of one type; in
//!   arithmetic with a double they must be small enough to be exact.
//!
//! A condition takes a bounded number of steps, so that a large argument cannot use up the plugin's time.

mod check;
mod evaluate;
mod number;
mod parse;
mod token;
mod tree;
mod value;

use std::borrow::Cow;
use std::fmt;

pub(crate) use evaluate::Facts;
use serde::de::{Deserialize, Deserializer, Error};
pub(crate) use tree::Fact;
use tree::Node;

/// The largest condition, in bytes.
const MAX_BYTES: usize = 4096;

/// The deepest nesting of a condition, which bounds the stack that parsing and evaluating it take.
const MAX_NESTING: usize = 24;

/// The steps of an evaluation, each about a node of the condition or 32 bytes of text: some milliseconds. A decision has
/// 100.
const MAX_STEPS: usize = 100_000;

/// A condition on a call.
pub(crate) struct Condition {
    text: String,
    tree: Node,
    /// True if it depends on the arguments.
    pub(crate) reads_arguments: bool,
    /// True if it depends on more than the item and the caller.
    pub(crate) needs_a_call: bool,
}

/// The fault in the text of a condition, and its place.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// The offset in bytes.
    at: usize,
    what: Cow<'static, str>,
}

/// Why a condition cannot be evaluated for a call. It holds nothing that the caller chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no value under this key, which the condition names.
    Missing(String),
    /// The key stands there in another case.
    Ambiguous(String),
    Fixed(&'static str),
}

impl Condition {
    /// Parses and checks a condition.
    ///
    /// # Errors
    /// Says what is wrong, with the condition and the place in it.
    fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("a condition has at most {MAX_BYTES} bytes, not {}", text.len()));
        }
        let tree = parse::parse(text).and_then(|tree| check::check(&tree).map(|()| tree));
        let tree = tree.map_err(|Fault { at, what }| format!("{}: {what}, in `{text}`", place(text, at)))?;
        let reads_arguments = tree.reads(Fact::Arguments);
        let needs_a_call = reads_arguments || tree.reads(Fact::Method);
        Ok(Self { text: text.to_owned(), tree, reads_arguments, needs_a_call })
    }

    /// Reports whether the condition holds for a call.
    ///
    /// # Errors
    /// Says why it cannot be evaluated.
    pub(crate) fn holds(&self, facts: &dyn Facts) -> Result<bool, Failure> {
        evaluate::evaluate(&self.tree, facts)
    }
}

impl Fault {
    fn new(at: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self { at, what: what.into() }
    }

    fn too_deep(at: usize) -> Self {
        Self::new(at, format!("more than {MAX_NESTING} parts are nested here"))
    }
}

/// Names a place in a text for people: the column, and the line if there are several.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    match text.contains('\n') {
        true => format!("line {}, column {column}", before.matches('\n').count() + 1),
        false => format!("column {column}"),
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "there is no `{key}`; test for it with `has`"),
            Self::Ambiguous(key) => write!(f, "`{key}` is there in another case"),
            Self::Fixed(what) => f.write_str(what),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
