//! Words of a command that mean something else than their author thought: no shell reads the configuration, so `$HOME`
//! stays five characters, and a program starts in a private home.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_core::secret::ConfigValue;

use super::{Endpoint, SourceConfig};

/// The shells, whose scripts may use variables of their own.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// The options after which programs take a script.
const SCRIPT_OPTIONS: [&str; 4] = ["-c", "-e", "-p", "--eval"];

impl SourceConfig {
    /// Returns an argument that is the path of something in `folder`, that of the configuration, but which the program
    /// will look for in its private home. Whether there is one changes with what lies in the folder.
    #[must_use]
    pub fn misplaced_argument(&self, folder: &Path) -> Option<&str> {
        let Endpoint::Command { argv, cwd: None, .. } = &self.endpoint else { return None };
        let meant = |word: &&String| {
            !word.starts_with(['-', '/']) && word.contains(['/', '.']) && folder.join(word.as_str()).exists()
        };
        argv.iter().skip(1).find(meant).map(String::as_str)
    }

    /// Returns the values of the source that hold `$NAME` or `${NAME}`, each with the place where it is written. The
    /// source gets them unchanged, because no variable is replaced in a configuration.
    #[must_use]
    pub fn literal_variables(&self) -> Vec<LiteralVariable> {
        let of_values = |key: &str, values: &BTreeMap<String, ConfigValue>| {
            let found = values.iter().filter_map(|(name, value)| {
                let ConfigValue::Plain(text) = value else { return None };
                let variable = variable_in(text)?;
                // A password may happen to hold a dollar sign and capitals.
                let is_surely_one = variable == text || variable.ends_with('}');
                let variable = is_surely_one.then(|| variable.to_owned());
                Some(LiteralVariable { place: format!("`{key}.{name}`"), variable })
            });
            found.collect::<Vec<_>>()
        };
        let in_text = |place: &str, text: &str| {
            let variable = variable_in(text)?.to_owned();
            Some(LiteralVariable { place: place.to_owned(), variable: Some(variable) })
        };
        match &self.endpoint {
            Endpoint::Command { argv, env, .. } => {
                let words = argv.iter().filter(|_| !runs_script(argv));
                words.filter_map(|word| in_text("`command`", word)).chain(of_values("env", env)).collect()
            }
            Endpoint::Url { url, headers, .. } => {
                let url = url.as_str().replace("%7B", "{").replace("%7D", "}");
                in_text("`url`", &url).into_iter().chain(of_values("headers", headers)).collect()
            }
            Endpoint::Component { env, args, .. } => {
                args.iter().filter_map(|word| in_text("`args`", word)).chain(of_values("env", env)).collect()
            }
            Endpoint::Native { .. } => Vec::new(),
        }
    }
}

/// A variable that is left literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiteralVariable {
    /// The place where it is written, such as `` `env.API_KEY` ``.
    pub place: String,
    /// The variable as written, or `None` if the value may be a secret that only looks as if it held one.
    pub variable: Option<String>,
}

/// Reports whether a command hands a script to a program, which may use variables of its own.
fn runs_script(argv: &[String]) -> bool {
    let program = argv.first().and_then(|program| program.rsplit('/').next());
    program.is_some_and(|program| SHELLS.contains(&program))
        || argv.iter().any(|word| SCRIPT_OPTIONS.contains(&word.as_str()))
}

/// Returns the first `$NAME` or `${NAME}` of a text. Names are those that shells and clients use: letters, digits and
/// underscores, and in braces also `env:NAME`.
fn variable_in(text: &str) -> Option<&str> {
    text.match_indices('$').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let length = match rest.strip_prefix('{') {
            Some(inner) => {
                let name = inner.split_once('}')?.0;
                (starts(name) && name.chars().all(|c| is_name(c) || c == ':' || c == '-')).then_some(name.len() + 3)?
            }
            // Without braces, lower-case words occur in passwords and patterns.
            None => {
                let name = rest.split(|c: char| !is_name(c)).next()?;
                let upper = !name.chars().any(|c| c.is_ascii_lowercase());
                (name.len() > 1 && starts(name) && upper).then_some(name.len() + 1)?
            }
        };
        text.get(at..at + length)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;
    use crate::Config;

    #[test]
    fn variables_are_found_where_people_write_them() {
        for (text, found) in [
            ("$HOME/docs", Some("$HOME")),
            ("--root=${HOME}", Some("${HOME}")),
            ("${env:API_KEY}", Some("${env:API_KEY}")),
            ("costs $5", None),
            ("pa$word", None),
            ("^a$", None),
            ("${", None),
            ("$", None),
        ] {
            assert_eq!(variable_in(text), found, "{text}");
        }
    }

    #[test]
    fn each_place_of_a_source_is_named_and_scripts_of_a_shell_are_left_alone() {
        let text = "[sources.a]\ncommand = [\"server\", \"$HOME/docs\"]\nenv = { KEY = \"${API_KEY}\" }\n\
                    [sources.b]\ncommand = [\"/bin/sh\", \"-c\", \"echo $HOME\"]\n\
                    [sources.d]\ncommand = [\"node\", \"-e\", \"const $FOO = 1\"]\nenv = { PW = \"abc$TOKEN99\" }\n\
                    [sources.c]\nurl = \"https://example.com/${TEAM}\"\nheaders = { X-Key = \"$API_KEY\" }\n";
        let config = Config::parse(text, Path::new("/portcullis.toml")).unwrap();
        let found: Vec<_> = config.sources.values().flat_map(SourceConfig::literal_variables).collect();
        let found: Vec<_> =
            found.iter().map(|it| (it.place.as_str(), it.variable.as_deref().unwrap_or("hidden"))).collect();
        let expected = [
            ("`command`", "$HOME"),
            ("`env.KEY`", "${API_KEY}"),
            ("`url`", "${TEAM}"),
            ("`headers.x-key`", "$API_KEY"),
            ("`env.PW`", "hidden"),
        ];
        assert_eq!(found, expected);
    }
}
