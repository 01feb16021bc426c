//! Variables that are left literal: no shell reads the configuration, so `$HOME` stays five characters.

use portcullis_core::secret::ConfigValue;

use super::{Endpoint, SourceConfig};

/// The shells, whose scripts may use variables of their own.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

impl SourceConfig {
    /// Returns the values of the source that hold `$NAME` or `${NAME}`, each with the place where it is written. The
    /// source gets them as they are, because no variable is replaced in a configuration.
    #[must_use]
    pub fn literal_variables(&self) -> Vec<(String, String)> {
        let found = |(place, text): (String, &str)| Some((place, variable_in(text)?.to_owned()));
        let plain = |value: &'_ ConfigValue| match value {
            ConfigValue::Plain(text) => Some(text.clone()),
            ConfigValue::Secret(_) => None,
        };
        let of_values = |key: &str, values: &std::collections::BTreeMap<String, ConfigValue>| {
            let texts = values.iter().filter_map(|(name, value)| Some((format!("`{key}.{name}`"), plain(value)?)));
            texts.filter_map(|(place, text)| found((place, &text))).collect::<Vec<_>>()
        };
        match &self.endpoint {
            Endpoint::Command { argv, env, .. } => {
                let shell = argv.first().and_then(|program| program.rsplit('/').next());
                let script = shell.is_some_and(|shell| SHELLS.contains(&shell));
                let words = argv.iter().filter(|_| !script).map(|word| ("`command`".to_owned(), word.as_str()));
                words.filter_map(found).chain(of_values("env", env)).collect()
            }
            Endpoint::Url { url, headers, .. } => {
                let url = url.as_str().replace("%7B", "{").replace("%7D", "}");
                found(("`url`".to_owned(), &url)).into_iter().chain(of_values("headers", headers)).collect()
            }
            Endpoint::Component { env, .. } => of_values("env", env),
        }
    }
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
                    [sources.c]\nurl = \"https://example.com/${TEAM}\"\nheaders = { X-Key = \"$API_KEY\" }\n";
        let config = Config::parse(text, Path::new("/portcullis.toml")).unwrap();
        let found: Vec<_> = config.sources.values().flat_map(SourceConfig::literal_variables).collect();
        let found: Vec<_> = found.iter().map(|(place, variable)| (place.as_str(), variable.as_str())).collect();
        let expected = [
            ("`command`", "$HOME"),
            ("`env.KEY`", "${API_KEY}"),
            ("`url`", "${TEAM}"),
            ("`headers.x-key`", "$API_KEY"),
        ];
        assert_eq!(found, expected);
    }
}
