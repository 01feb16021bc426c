//! The constants that policies compare with and the arguments that they name, found in their settings. No language is
//! parsed as a whole: policies in Cedar, conditions in CEL and tables of rules name arguments in the same few ways.

use std::collections::{BTreeMap, BTreeSet};

use portcullis::config::PluginConfig;
use serde_json::Value;

/// The longest text that is used as the name of a member, in bytes.
const MAX_NAME: usize = 128;

/// The most patterns that are joined, each with each: more would make most of the sample.
const MAX_JOINED: usize = 12;

/// The constants that policies compare with, as far as their settings show them.
#[derive(Debug, Default)]
pub(super) struct Constants {
    pub(super) texts: BTreeSet<String>,
    pub(super) integers: BTreeSet<i64>,
    /// The arguments that policies name, with members within them.
    pub(super) arguments: NamedMembers,
    /// The members that policies name of a value that was calculated or bound to a variable: they can be anywhere.
    pub(super) members: BTreeSet<String>,
    /// The constants with `*`, which matches any text.
    patterns: BTreeSet<String>,
}

/// Names of members, each with those of the members within it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedMembers(pub(super) BTreeMap<String, NamedMembers>);

impl NamedMembers {
    fn insert(&mut self, path: &[&str]) {
        // A position in a list leads to an item, whose members are named like those of the list.
        let mut names = path.iter().filter(|name| name.parse::<usize>().is_err());
        let mut within = self;
        while let Some(name) = names.next().filter(|name| !name.is_empty() && name.len() <= MAX_NAME) {
            within = within.0.entry((*name).to_owned()).or_default();
        }
    }
}

impl Constants {
    /// Finds the constants in the settings of policies.
    pub(super) fn of(policies: &[&PluginConfig]) -> Self {
        let mut found = Self::default();
        for policy in policies {
            found.add(&policy.settings, false);
        }
        found.join_patterns();
        found
    }

    /// Adds texts that fit two patterns at once, such as `/srv//.git/` for `/srv/*` and `*/.git/*`: policies often permit
    /// by one and forbid by the other.
    fn join_patterns(&mut self) {
        let patterns = || self.patterns.iter().take(MAX_JOINED);
        let pairs = patterns().flat_map(|outer| patterns().map(move |inner| (outer, inner)));
        let joined = pairs.filter(|(outer, inner)| outer != inner).map(|(outer, inner)| {
            let filling = inner.replace('*', "");
            outer.replacen('*', &filling, 1).replace('*', "").replace('?', "x")
        });
        self.texts.extend(joined);
    }

    fn add_constant(&mut self, text: &str) {
        if text.contains('*') {
            self.patterns.insert(text.to_owned());
        }
        self.texts.extend(instances(text));
    }

    fn add(&mut self, value: &Value, are_arguments: bool) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.integers.extend(number.as_i64()),
            Value::Array(items) => items.iter().for_each(|item| self.add(item, are_arguments)),
            Value::Object(members) => {
                for (key, member) in members {
                    if are_arguments {
                        self.arguments.insert(&key.split('.').collect::<Vec<_>>());
                    }
                    self.add(member, key == "arguments");
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Takes in a setting: its text, and the quoted texts and names in it if it is a policy or a condition in some
    /// language.
    fn add_text(&mut self, text: &str) {
        if text.len() <= 128 && !text.contains('\n') {
            self.add_constant(text);
        }
        let tokens = tokens(text);
        for token in &tokens {
            match token {
                Token::Quoted(constant) => self.add_constant(constant),
                Token::Word(word) => self.integers.extend(word.parse::<i64>().ok()),
                Token::Sign(_) => {}
            }
        }
        // Other settings have dots as well, such as the host of an address.
        let is_about_a_call = |token: &Token<'_>| matches!(token, Token::Word("arguments" | "input"));
        let mut rest = if tokens.iter().any(is_about_a_call) { tokens.as_slice() } else { &[] };
        while !rest.is_empty() {
            rest = self.add_access(rest);
        }
    }

    /// Takes in the members that an expression at the beginning of these tokens names, and returns the tokens behind
    /// it.
    fn add_access<'t>(&mut self, tokens: &'t [Token<'t>]) -> &'t [Token<'t>] {
        let (root, mut rest) = match tokens {
            [Token::Word(root), rest @ ..] => (Some(*root), rest),
            // `"key" in arguments`
            [Token::Quoted(name), Token::Word("in"), Token::Word("arguments"), rest @ ..] => {
                self.arguments.insert(&[name]);
                return rest;
            }
            // A value that was calculated has members, too.
            [Token::Sign(')' | ']'), rest @ ..] => (None, rest),
            [_, rest @ ..] => return rest,
            [] => return tokens,
        };
        let mut path = Vec::new();
        loop {
            rest = match rest {
                // The name of a function is not that of a member.
                [Token::Sign('.'), Token::Word(_), Token::Sign('('), rest @ ..] => {
                    self.add_path(root, &path);
                    return rest;
                }
                [Token::Sign('.'), Token::Word(name), rest @ ..] => {
                    path.push(*name);
                    rest
                }
                [Token::Sign('['), Token::Quoted(name), Token::Sign(']'), rest @ ..] => {
                    path.push(*name);
                    rest
                }
                [Token::Sign('['), Token::Word(position), Token::Sign(']'), rest @ ..] => {
                    path.push(*position);
                    rest
                }
                [Token::Word("has"), Token::Word(name) | Token::Quoted(name), rest @ ..] => {
                    path.push(*name);
                    rest
                }
                _ => break,
            };
        }
        self.add_path(root, &path);
        rest
    }

    /// Takes in members that are named one within the other, the first one in the value with this name.
    fn add_path(&mut self, root: Option<&str>, path: &[&str]) {
        match (root, path) {
            (Some("arguments"), path) | (Some("context"), ["input", path @ ..]) => self.arguments.insert(path),
            (Some("context" | "principal" | "resource" | "action"), _) => {}
            (_, path) => self.members.extend(
                path.iter()
                    .filter(|name| !name.is_empty() && name.len() <= MAX_NAME && name.parse::<i64>().is_err())
                    .map(|name| (*name).to_owned()),
            ),
        }
    }
}

/// A part of a text in some language of policies.
enum Token<'t> {
    /// A name, a keyword or a number.
    Word(&'t str),
    /// A text within quotation marks, without them.
    Quoted(&'t str),
    Sign(char),
}

/// Cuts a text into parts. Comments are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let after = if rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, after)| after)
        } else if let '"' | '\'' = first {
            let inner = rest.get(1..).unwrap_or_default();
            let (quoted, after) = until_quote(inner, first);
            tokens.push(Token::Quoted(quoted));
            after
        } else if is_of_word(first) {
            let (word, after) = rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()));
            tokens.push(Token::Word(word));
            after
        } else {
            tokens.push(Token::Sign(first));
            rest.get(first.len_utf8()..).unwrap_or_default()
        };
        rest = after.trim_start();
    }
    tokens
}

/// Splits a text at the quotation mark that ends it. One behind a backslash does not.
fn until_quote(text: &str, quote: char) -> (&str, &str) {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !is_escaped {
            let (quoted, after) = text.split_at(at);
            return (quoted, after.get(1..).unwrap_or_default());
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    (text, "")
}

/// Returns texts that a pattern matches, the shortest and a longer one; the text itself if it is not a pattern.
fn instances(pattern: &str) -> Vec<String> {
    if !pattern.contains(['*', '?']) {
        return vec![pattern.to_owned()];
    }
    ["", "x"].map(|filling| pattern.replace('*', filling).replace('?', "x")).to_vec()
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis::config::Config;
    use serde_json::json;

    use super::*;

    /// Returns the constants of a policy with these settings.
    pub(crate) fn constants(settings: Value) -> Constants {
        let config =
            Config::builder("/srv").policy(json!({ "plugin": "builtin:rules", "settings": settings })).build().unwrap();
        Constants::of(&config.policies.iter().collect::<Vec<_>>())
    }

    /// Returns the named arguments, a path for each.
    fn paths(names: &NamedMembers) -> Vec<String> {
        let of_one = |(name, within): (&String, &NamedMembers)| {
            let further = paths(within).into_iter().map(|path| format!("{name}/{path}")).collect::<Vec<_>>();
            if further.is_empty() { vec![name.clone()] } else { further }
        };
        names.0.iter().flat_map(of_one).collect()
    }

    #[test]
    fn constants_are_found_in_every_language_of_policies() {
        let cedar = "// it's a comment with \"one\n\
                     permit (principal in Profile::\"team\", action, resource)\n\
                     when { context.input.path like \"/srv/*\" && context.input.size > 4096 };";
        let found = constants(json!({
            "policies": cedar,
            "deny": [{ "tool": "shop__*", "arguments": { "deep.b": { "not": "/etc/*" } }, "when": "arguments.n < 7 && name != 'pay'" }],
            "limit": -3,
        }));
        for text in ["team", "/srv/", "/srv/x", "shop__", "/etc/x", "pay", "/srv//etc/"] {
            assert!(found.texts.contains(text), "{text}: {found:?}");
        }
        assert_eq!(found.integers, BTreeSet::from([-3, 7, 4096]));
        assert_eq!(paths(&found.arguments), ["deep/b", "n", "path", "size"]);
    }

    #[test]
    fn the_name_of_a_member_is_found_wherever_a_policy_names_one() {
        for (text, arguments, members) in [
            ("context.input has force", vec!["force"], vec![]),
            ("context.input has \"x-force\"", vec!["x-force"], vec![]),
            ("context.input has opt.force && true", vec!["opt/force"], vec![]),
            ("!(context.input.opt has force)", vec!["opt/force"], vec![]),
            ("context . input [\"a b\"] . c == 1", vec!["a b/c"], vec![]),
            ("(if context.input has a then context.input else context.input) has force", vec!["a"], vec!["force"]),
            ("arguments['to']['name'] == \"x\"", vec!["to/name"], vec![]),
            ("has(arguments.opt.force)", vec!["opt/force"], vec![]),
            ("'force' in arguments", vec!["force"], vec![]),
            ("arguments.path.startsWith('/etc')", vec!["path"], vec![]),
            ("arguments.edits[0].path == ''", vec!["edits/path"], vec![]),
            ("arguments.edits.all(e, e.path != '')", vec!["edits"], vec!["path"]),
            ("principal has trust && resource.name like \"a\" && context.risk == \"b\"", vec![], vec![]),
            ("arguments.say == \"\\\" has no.name\"", vec!["say"], vec![]),
        ] {
            let found = constants(json!({ "when": text }));
            assert_eq!(
                (paths(&found.arguments), Vec::from_iter(&found.members)),
                (
                    arguments.into_iter().map(str::to_owned).collect(),
                    members.iter().map(|name: &&str| (*name).to_owned()).collect::<Vec<_>>().iter().collect(),
                ),
                "{text}"
            );
        }
    }
}
