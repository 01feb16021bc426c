//! One rule: a glob, or a table of matchers.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use portcullis_plugin::json::Json;
use portcullis_plugin::{Call, NameGlob, Risk, Trust};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::arguments::{Matcher, Path};
use crate::condition::{Condition, Fact, Facts, Failure};

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
    when: Option<Condition>,
    message: Option<String>,
}

/// The values that rules compare. The broker is asked only once for each name, however many rules there are.
pub(crate) struct Subject<'a, C> {
    call: &'a C,
    exposed: String,
    tool: OnceCell<String>,
    source: OnceCell<String>,
    method: OnceCell<String>,
    principal: OnceCell<String>,
    profile: OnceCell<String>,
    tags: OnceCell<Vec<String>>,
    arguments: Option<&'a Json<'a>>,
}

impl<'a, C: Call> Subject<'a, C> {
    /// Creates a subject. Without arguments, as in the list phase, only the matchers of tool and source are evaluated.
    pub(crate) fn new(call: &'a C, arguments: Option<&'a Json<'a>>) -> Self {
        let exposed = call.exposed_name();
        let (tool, source, method, principal, profile) = Default::default();
        Self { call, exposed, tool, source, method, principal, profile, tags: OnceCell::new(), arguments }
    }

    /// Returns the subject with the arguments of the call.
    pub(crate) fn with_arguments<'b>(self, arguments: &'b Json<'b>) -> Subject<'b, C>
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

impl<C: Call> Facts for Subject<'_, C> {
    fn text(&self, fact: Fact) -> &str {
        match fact {
            Fact::Tool => &self.exposed,
            Fact::Name => self.tool(),
            Fact::Source => self.source(),
            Fact::Method => self.method(),
            Fact::Principal => self.principal.get_or_init(|| self.call.principal()),
            Fact::Profile => self.profile.get_or_init(|| self.call.profile()),
            Fact::Trust => match self.call.trust() {
                Trust::Sandbox => "sandbox",
                Trust::Low => "low",
                Trust::Medium => "medium",
                Trust::High => "high",
            },
            Fact::Risk => match self.call.risk() {
                Risk::Harmless => "harmless",
                Risk::Risky => "risky",
            },
            Fact::Arguments | Fact::Tags => "",
        }
    }

    fn tags(&self) -> &[String] {
        self.tags.get_or_init(|| self.call.tags())
    }

    fn arguments(&self) -> Option<&Json<'_>> {
        self.arguments
    }
}

impl Rule {
    /// Reports whether the rule matches.
    ///
    /// # Errors
    /// Everything else matches, and the condition cannot be evaluated.
    pub(crate) fn matches(&self, subject: &Subject<'_, impl Call>, reading: Reading) -> Result<bool, Failure> {
        match self {
            Self::Name(glob) => Ok(glob.matches(&subject.exposed)),
            Self::Table(table) => table.matches(subject, reading),
        }
    }

    /// Reports whether the rule reads the arguments of a call of this tool.
    pub(crate) fn reads_arguments(&self, subject: &Subject<'_, impl Call>) -> bool {
        matches!(self, Self::Table(table) if table.reads_arguments() && table.names_match(subject, Reading::Against))
    }

    /// Reports whether the rule depends on more than the tool.
    pub(crate) fn needs_a_call(&self) -> bool {
        matches!(self, Self::Table(table) if table.method.is_some() || !table.arguments.is_empty()
            || table.when.as_ref().is_some_and(|condition| condition.needs_a_call))
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
    fn matches(&self, subject: &Subject<'_, impl Call>, reading: Reading) -> Result<bool, Failure> {
        let others_match = self.names_match(subject, reading)
            && subject.arguments.is_none_or(|arguments| {
                self.method.as_ref().is_none_or(|glob| glob.matches(subject.method()))
                    && self
                        .arguments
                        .iter()
                        .all(|(path, matcher)| matcher.matches(&path.find(arguments, reading), reading))
            });
        match &self.when {
            Some(condition) if others_match && (subject.arguments.is_some() || !condition.needs_a_call) => {
                condition.holds(subject)
            }
            _ => Ok(others_match),
        }
    }

    fn reads_arguments(&self) -> bool {
        !self.arguments.is_empty() || self.when.as_ref().is_some_and(|condition| condition.reads_arguments)
    }

    fn names_match(&self, subject: &Subject<'_, impl Call>, reading: Reading) -> bool {
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
        let condition = table.when.iter().map(|condition| format!("when = {condition}"));
        write!(f, "`{}`", names.chain(arguments).chain(condition).collect::<Vec<_>>().join(", "))
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GlobOrTable;
        impl<'de> Visitor<'de> for GlobOrTable {
            type Value = Rule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a glob or a table with tool, source, method, arguments, when, message")
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
                    && table.when.is_none()
                {
                    return Err(A::Error::custom("a table without a matcher; write \"*\" for every call"));
                }
                Ok(Rule::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(GlobOrTable)
    }
}
