//! Reports the faults of a configuration: all problems together, each with its place and the way out.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use portcullis_core::escape::{escape_hidden, is_hidden};

use super::place;

/// The most problems that one error reports: enough to work on, and a file of garbage does not produce an endless
/// report.
const MAX_PROBLEMS: usize = 20;

/// An error that says why a configuration is refused. `Display` writes a line for each problem, with file, line and
/// column.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .problems.iter().map(ConfigProblem::line).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    problems: Vec<ConfigProblem>,
    missing: bool,
}

impl ConfigError {
    /// Returns each problem, in the order of the file; at least one. Each can be shown with its own snippet.
    #[must_use]
    #[doc(hidden)]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Reports whether no configuration exists, as opposed to a bad one.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.missing
    }

    /// Returns the error for a configuration that was not found.
    pub(super) fn missing(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { missing: true, ..Self::without_place(message, help) }
    }

    /// Returns an error with one problem that has no place in a file.
    pub(super) fn without_place(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problems: vec![UnlocatedProblem::new(0..0, message).help(help).place(None)], missing: false }
    }

    /// Returns an error with the problems found in a text. `file` is `None` if the configuration was made in memory.
    pub(super) fn of(problems: Vec<UnlocatedProblem>, file: Option<&Path>, content: &str) -> Self {
        let problems = in_order(problems);
        let mut content = content.to_owned();
        for span in problems.iter().filter(|problem| problem.hidden).map(|problem| problem.span.clone()) {
            let stars = "*".repeat(span.len());
            if content.get(span.clone()).is_some() {
                content.replace_range(span, &stars);
            }
        }
        let text =
            file.map(|file| Arc::new(NamedSource::new(escape_hidden(&file.to_string_lossy()), printable(&content))));
        Self { problems: problems.into_iter().map(|problem| problem.place(text.clone())).collect(), missing: false }
    }

    /// Returns an error with the problems found in tables that a program made and whose text is `content`: each names
    /// its table.
    pub(super) fn of_tables(problems: Vec<UnlocatedProblem>, content: &str) -> Self {
        let placed = in_order(problems).into_iter().map(|problem| match place::of(content, &problem.span) {
            Some(place) => problem.within(place),
            None => problem,
        });
        Self { problems: placed.map(|problem| problem.place(None)).collect(), missing: false }
    }
}

/// Returns the problems in the order of the text, each once, and no more than a person reads.
fn in_order(mut problems: Vec<UnlocatedProblem>) -> Vec<UnlocatedProblem> {
    problems.sort_by_key(|problem| (problem.span.start, problem.span.end));
    problems.dedup_by(|a, b| a.span == b.span && a.message == b.message);
    problems.truncate(MAX_PROBLEMS);
    problems
}

/// One problem in a configuration. It is a `miette` diagnostic: message, labelled snippet, help.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .problem.message)]
pub struct ConfigProblem {
    problem: UnlocatedProblem,
    text: Option<Arc<NamedSource<String>>>,
}

impl ConfigProblem {
    /// Returns the line and column of the problem, counted from one, or `None` if it is not in a file.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        let before = self.text.as_ref()?.inner().get(..self.problem.span.start)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..)?.chars().count();
        Some((before.matches('\n').count() + 1, column + 1))
    }

    /// Returns `file:line:column: message (way out)`.
    fn line(&self) -> String {
        let place = match (&self.text, self.position()) {
            (Some(text), Some((line, column))) => format!("{}:{line}:{column}: ", text.name()),
            _ => String::new(),
        };
        let help = self.problem.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
        format!("{place}{}{help}", self.problem.message)
    }
}

impl Diagnostic for ConfigProblem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.text.as_deref().map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.text.as_ref()?;
        let label = LabeledSpan::new_with_span(Some(self.problem.label.to_owned()), self.problem.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// A problem before its file is known.
#[derive(Debug, Clone)]
pub(super) struct UnlocatedProblem {
    span: Range<usize>,
    message: String,
    label: &'static str,
    help: Option<String>,
    hidden: bool,
}

impl UnlocatedProblem {
    /// Creates a problem. The message is lower case, without a full stop, and contains the value.
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), label: "here", help: None, hidden: false }
    }

    /// Adds the way out.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Hides the text at this place from snippets, as it may be a secret.
    pub(super) fn hidden_if(mut self, hidden: bool) -> Self {
        self.hidden = hidden;
        self
    }

    /// Names the table of a configuration that has no file, and gives a way out if there is no better one.
    pub(super) fn within(self, table: impl fmt::Display) -> Self {
        let help = self.help.or_else(|| Some("write the table as in `portcullis.toml`".to_owned()));
        Self { span: 0..0, message: format!("{table}: {}", self.message), help, ..self }
    }

    /// Returns the problem in the form in which it is shown. Message and help quote the file, which may be somebody
    /// else's: this is the one place where characters that act on a terminal are escaped, so that no rule needs to
    /// consider them.
    fn place(self, text: Option<Arc<NamedSource<String>>>) -> ConfigProblem {
        let message = escape_hidden(&self.message).into_owned();
        let help = self.help.map(|help| escape_hidden(&help).into_owned());
        ConfigProblem { problem: Self { message, help, ..self }, text }
    }

    /// Rewords an error of the TOML parser or of serde, and adds a suggestion.
    pub(super) fn of_toml(error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        let message = escape_hidden(error.message()).replace('\n', ", ");
        // The name of the Rust type means nothing to a person.
        let message = match message.split_once(", expected struct ") {
            Some((found, _)) => format!("{found}, expected a table"),
            None => message,
        };
        let mut quoted = message.split('`').skip(1).step_by(2).map(str::to_owned);
        let Some(word) = quoted.next() else {
            let help = type_hint(&message);
            return Self { help, ..Self::new(span, message) };
        };
        let known: Vec<String> = quoted.collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        if message.starts_with("unknown field") {
            let help = match word.as_str() {
                "mcpServers" => "`portcullis import FILE` turns such a configuration into this one".to_owned(),
                "data-dir" | "ask-timeout" | "max-message" | "plugin-keys" => "write it under `[broker]`".to_owned(),
                _ => suggest(&word, &known, "known keys"),
            };
            Self { label: "unknown key", ..Self::new(span, format!("unknown key `{word}`")).help(help) }
        } else if message.starts_with("unknown variant") {
            Self::new(span, format!("unknown value {word:?}")).help(suggest(&word, &known, "possible values"))
        } else if message.starts_with("missing field") {
            Self { label: "in this table", ..Self::new(span, format!("missing key `{word}`")) }
        } else {
            let help = of_other_type(&message, &word).or_else(|| type_hint(&message));
            Self { help, ..Self::new(span, message) }
        }
    }
}

/// Returns how a value of the wrong type is written, if the text of the value shows what was meant.
fn of_other_type(message: &str, value: &str) -> Option<String> {
    let number = message.starts_with("invalid type: integer") || message.starts_with("invalid type: floating point");
    if number && message.ends_with("expected a string") {
        return Some(format!(
            "write it in quotes; a time has a unit, as in \"{value}s\", so has a size, as in \"{value}MiB\", and an address has a \
             host, as in \"127.0.0.1:{value}\""
        ));
    }
    None
}

/// Returns how a value of the wrong type is written, if a message of serde names the expected type.
#[must_use]
pub fn type_hint(message: &str) -> Option<String> {
    let (_, types) = message.split_once("invalid type: ")?;
    let (found, expected) = types.rsplit_once(", expected ")?;
    match expected {
        "a boolean" if found.starts_with("string") => Some("write true or false, without quotes".to_owned()),
        "a sequence" if found == "map" => {
            Some("write a list; a list of tables has two brackets, as in [[policies]]".to_owned())
        }
        "a sequence" => {
            let item = found.strip_prefix("string ").unwrap_or("\"…\"");
            Some(format!("write a list: [{item}]"))
        }
        "a map" => Some("write a table, such as { NAME = \"VALUE\" }".to_owned()),
        _ => None,
    }
}

/// Returns the known word that is most similar to `word`, if one is similar enough to have been meant.
#[must_use]
pub fn most_similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let distances = known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&word.to_lowercase(), &known.to_lowercase()), known));
    distances.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns "did you mean …?" if a known word is similar, and otherwise a list of all known words.
pub(super) fn suggest(word: &str, known: &[&str], they_are: &str) -> String {
    let near = most_similar(word, known.iter().copied());
    let list = || known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
    match near {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None if known.is_empty() => format!("there are no {they_are} here"),
        None => format!("{they_are}: {}", list()),
    }
}

/// Returns the text for a snippet on a terminal: each character that would act on the terminal is replaced by one of
/// the same length, so that positions stay right.
fn printable(text: &str) -> String {
    let shown = |c: char| match c.len_utf8() {
        _ if !is_hidden(c) || matches!(c, '\n' | '\r' | '\t') => c,
        1 => '?',
        2 => '¿',
        3 => '\u{fffd}',
        _ => '🚫',
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn no_message_and_no_help_of_any_problem_acts_on_a_terminal() {
        let hostile = "\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{202e}\u{200b}\u{9b}m";
        let problem = || UnlocatedProblem::new(0..1, format!("a value {hostile}")).help(format!("write {hostile}"));
        let errors = [
            ConfigError::of(vec![problem()], Some(Path::new("a.toml")), hostile),
            ConfigError::of_tables(vec![problem()], ""),
            ConfigError::without_place(hostile, hostile),
            ConfigError::missing(hostile, hostile),
        ];
        for error in errors {
            let report = format!("{:?}", miette::Report::new(error.problems().first().unwrap().clone()));
            for shown in [error.to_string(), error.problems().first().unwrap().help().unwrap().to_string(), report] {
                assert!(shown.contains("\\u{1b}") && !shown.contains(|c: char| is_hidden(c) && c != '\n'), "{shown:?}");
            }
        }
    }
}
