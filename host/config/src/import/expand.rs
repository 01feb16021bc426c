//! Replaces the variables that clients know, since nothing is replaced in a configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The context of a client's file: the values of its variables.
#[derive(Clone, Copy)]
pub struct ExpansionContext<'a> {
    /// The folder of the project to which the file belongs. Relative paths in the file are relative to it.
    pub workspace: Option<&'a Path>,
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// Returns a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Reports whether a file of variables that a server names (`envFile`) may be read.
    pub may_read: &'a dyn Fn(&Path) -> bool,
    /// Reports whether a secret of this name exists that no new source may get.
    pub is_taken: &'a dyn Fn(&str) -> bool,
}

/// A text in which variables were replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpandedText {
    pub text: String,
    /// The variables that have no value here. They are left as written.
    pub missing: Vec<String>,
    /// The variables that have a value in the environment. It may be a secret.
    pub from_environment: BTreeSet<String>,
}

/// The value of a variable.
enum VariableValue {
    /// A folder or a default, which the client's file itself implies.
    Known(String),
    /// A value of the environment, which may be a secret, with the name there.
    Environment {
        name: String,
        value: String,
    },
    Missing,
}

impl ExpansionContext<'_> {
    /// Replaces `${workspaceFolder}`, `${userHome}`, `${env:NAME}`, `${NAME}`, `${NAME:-default}` and a leading `~`, as
    /// clients do, and a text that is `$NAME` and nothing else.
    pub(super) fn expand(&self, text: &str) -> ExpandedText {
        self.replace(text, |_, value| value)
    }

    /// Replaces the same for a text that stands in the configuration: variables of the environment stay, as `${NAME}`.
    pub(super) fn expand_for_file(&self, text: &str) -> ExpandedText {
        self.replace(text, |name, _| format!("${{{name}}}"))
    }

    /// Replaces variables. `of_environment` returns what stands for one that the environment has, by name and value.
    fn replace(&self, text: &str, of_environment: impl Fn(&str, String) -> String) -> ExpandedText {
        let whole = |name: &&str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        let (mut out, mut missing, mut from_environment) = (String::new(), Vec::new(), BTreeSet::new());
        let mut add = |out: &mut String, name: &str, written: &str| match self.value(name) {
            VariableValue::Known(value) => out.push_str(&value),
            VariableValue::Environment { name, value } => {
                out.push_str(&of_environment(&name, value));
                from_environment.insert(name);
            }
            VariableValue::Missing => {
                out.push_str(written);
                missing.push(name.to_owned());
            }
        };
        if let Some(name) = text.strip_prefix('$').filter(whole) {
            add(&mut out, name, text);
            return ExpandedText { text: out, missing, from_environment };
        }
        let mut rest = text;
        if let (Some(below), Some(home)) = (text.strip_prefix("~/"), self.home.and_then(Path::to_str)) {
            out = format!("{home}/");
            rest = below;
        }
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, next)) = after.split_once('}') else { break };
            out.push_str(before);
            add(&mut out, name, &format!("${{{name}}}"));
            rest = next;
        }
        out.push_str(rest);
        ExpandedText { text: out, missing, from_environment }
    }

    /// Returns the folder against which a relative path is resolved, and the path there.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.workspace.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    fn value(&self, name: &str) -> VariableValue {
        let known = |path: Option<&Path>| {
            path.and_then(Path::to_str).map_or(VariableValue::Missing, |path| VariableValue::Known(path.to_owned()))
        };
        match name {
            "workspaceFolder" | "workspaceRoot" | "cwd" => known(self.workspace),
            "workspaceFolderBasename" => known(self.workspace.and_then(Path::file_name).map(Path::new)),
            "userHome" => known(self.home),
            "HOME" | "env:HOME" if self.home.is_some() => known(self.home),
            "pathSeparator" | "/" => VariableValue::Known("/".to_owned()),
            _ => {
                let name = name.strip_prefix("env:").unwrap_or(name);
                let (name, default) = name.split_once(":-").map_or((name, None), |(name, it)| (name, Some(it)));
                match ((self.variable)(name), default) {
                    (Some(value), _) => VariableValue::Environment { name: name.to_owned(), value },
                    (None, Some(default)) => VariableValue::Known(default.to_owned()),
                    (None, None) => VariableValue::Missing,
                }
            }
        }
    }
}

/// Returns the variables of a file with a `NAME=VALUE` on each line, as editors read it: comments, empty lines, an
/// `export` and quotes around a value are understood, and nothing is replaced.
pub(super) fn env_file(text: &str) -> Vec<(String, String)> {
    let entry = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let value = value.trim();
        let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
        Some((name.trim().to_owned(), quoted.unwrap_or(value).to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_each_client_are_replaced_and_what_is_missing_is_named() {
        let variable = |name: &str| (name == "SET").then(|| "value".to_owned());
        let around = ExpansionContext {
            workspace: Some(Path::new("/work/shop")),
            home: Some(Path::new("/home/me")),
            variable: &variable,
            may_read: &|_| true,
            is_taken: &|_| false,
        };
        for (text, expanded, missing) in [
            ("${workspaceFolder}/a", "/work/shop/a", ""),
            ("${workspaceFolderBasename}", "shop", ""),
            ("~/docs:${userHome}", "/home/me/docs:/home/me", ""),
            ("x-${env:SET}-${SET}", "x-value-value", ""),
            ("$SET", "value", ""),
            ("${NONE:-else}", "else", ""),
            ("${NONE}/${input:key}", "${NONE}/${input:key}", "NONE input:key"),
            ("$NONE", "$NONE", "NONE"),
            ("costs $5 or ${", "costs $5 or ${", ""),
        ] {
            let found = around.expand(text);
            assert_eq!((found.text.as_str(), found.missing.join(" ").as_str()), (expanded, missing), "{text}");
            assert_eq!(found.from_environment.is_empty(), !expanded.contains("value"), "{text}");
        }
        for (text, expanded) in [
            ("x-${env:SET}-${SET:-else}", "x-${SET}-${SET}"),
            ("$SET", "${SET}"),
            ("${HOME}/${env:HOME}", "/home/me//home/me"),
            ("$HOME", "/home/me"),
        ] {
            assert_eq!(around.expand_for_file(text).text, expanded);
        }
    }

    #[test]
    fn a_file_of_variables_is_read_as_editors_read_it() {
        let text = "# keys\n\nexport A=1\nB = \"two words\"\r\nC='$A'\nnothing\nD=\n";
        let found: Vec<String> = env_file(text).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(found, ["A=1", "B=two words", "C=$A", "D="]);
    }
}
