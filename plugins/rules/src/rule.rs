//! One rule: a glob, or a table of matchers.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use portcullis_plugin::json::Json;
use portcullis_plugin::{Call, NameGlob};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::arguments::{Matcher, Path};

/// The side that a rule takes if values cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A rule that denies or asks: a value that cannot be compared matches.
    Against,
    /// A rule that allows: a value that cannot be compared does not match.
    For,
}

/// A rule of one of the lists.
pub(crate) enum Rule {
    Name(NameGlob),
    Table(Box<Table>),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    tool: Option<NameGlob>,
    source: Option<NameGlob>,
    method: Option<NameGlob>,
    #[serde(default)]
    arguments: BTreeMap<Path, Matcher>,
    message: Option<String>,
}

/// The values that rules compare. The broker is asked only once for each name, however many rules there are.
pub(crate) struct Subject<'a> {
    call: &'a dyn Call,
    exposed: String,
    tool: OnceCell<String>,
    source: OnceCell<String>,
    method: OnceCell<String>,
    arguments: Option<&'a Json<'a>>,
}

impl<'a> Subject<'a> {
    /// Creates a subject. Without arguments, as in the list phase, only the matchers of tool and source are evaluated.
    pub(crate) fn new(call: &'a dyn Call, arguments: Option<&'a Json<'a>>) -> Self {
        let exposed = call.exposed_name();
        Self { call, exposed, tool: OnceCell::new(), source: OnceCell::new(), method: OnceCell::new(), arguments }
    }

    /// Returns the subject with the arguments of the call.
    pub(crate) fn with_arguments<'b>(self, arguments: &'b Json<'b>) -> Subject<'b>
    where
        'a: 'b,
    {
        Subject { arguments: Some(arguments), ..self }
    }

    fn tool(&self) -> &str {
        self.tool.get_or_init(|| self.call.tool())
    }

    fn source(&self) -> &str {
        self.source.get_or_init(|| self.call.source())
    }

    fn method(&self) -> &str {
        self.method.get_or_init(|| self.call.method())
    }
}

impl Rule {
    pub(crate) fn matches(&self, subject: &Subject<'_>, reading: Reading) -> bool {
        match self {
            Self::Name(glob) => glob.matches(&subject.exposed),
            Self::Table(table) => table.matches(subject, reading),
        }
    }

    /// Reports whether the rule looks at the arguments of a call of this tool.
    pub(crate) fn reads_arguments(&self, subject: &Subject<'_>) -> bool {
        matches!(self, Self::Table(table) if !table.arguments.is_empty() && table.names_match(subject, Reading::Against))
    }

    /// Reports whether the rule depends on more than the tool.
    pub(crate) fn needs_a_call(&self) -> bool {
        matches!(self, Self::Table(table) if table.method.is_some() || !table.arguments.is_empty())
    }

    /// Returns the message that the agent or the person reads.
    pub(crate) fn message(&self, done: &str) -> String {
        match self {
            Self::Table(table) if table.message.is_some() => table.message.clone().unwrap_or_default(),
            rule => format!("{done} by the rule {rule}"),
        }
    }
}

impl Table {
    fn matches(&self, subject: &Subject<'_>, reading: Reading) -> bool {
        self.names_match(subject, reading)
            && subject.arguments.is_none_or(|arguments| {
                self.method.as_ref().is_none_or(|glob| glob.matches(subject.method()))
                    && self.arguments.iter().all(|(path, matcher)| matcher.matches(&path.find(arguments), reading))
            })
    }

    fn names_match(&self, subject: &Subject<'_>, reading: Reading) -> bool {
        let own_name_counts = reading == Reading::Against || self.source.is_some();
        let tool =
            |glob: &NameGlob| glob.matches(&subject.exposed) || (own_name_counts && glob.matches(subject.tool()));
        self.tool.as_ref().is_none_or(tool) && self.source.as_ref().is_none_or(|glob| glob.matches(subject.source()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = match self {
            Self::Name(glob) => return write!(f, "`{glob}`"),
            Self::Table(table) => table,
        };
        let names = [("tool", &table.tool), ("source", &table.source), ("method", &table.method)];
        let names = names.into_iter().filter_map(|(key, glob)| Some(format!("{key} = \"{}\"", glob.as_ref()?)));
        let arguments = table.arguments.iter().map(|(path, matcher)| format!("arguments.{path} = {matcher}"));
        write!(f, "`{}`", names.chain(arguments).collect::<Vec<_>>().join(", "))
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GlobOrTable;
        impl<'de> Visitor<'de> for GlobOrTable {
            type Value = Rule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a glob or a table with tool, source, method, arguments, message")
            }

            fn visit_str<E: Error>(self, glob: &str) -> Result<Rule, E> {
                NameGlob::new(glob).map(Rule::Name).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rule, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                if table.tool.is_none()
                    && table.source.is_none()
                    && table.method.is_none()
                    && table.arguments.is_empty()
                {
                    return Err(A::Error::custom("a table without a matcher; write \"*\" for every call"));
                }
                Ok(Rule::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(GlobOrTable)
    }
}
