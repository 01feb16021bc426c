//! Policies of the built-in policy `cedar` that name a source, a profile, an item or a caller that there is not, or compare
//! an attribute with a word that it never has. A `forbid` about it would forbid nothing, and nobody would notice.

use std::collections::BTreeSet;

use crate::call::{Risk, TrustLevel};
use crate::config::{Config, PluginConfig, PluginRef, most_similar};
use crate::item::{Item, ItemKind};
use crate::protocol::Method;

/// The principals of callers without their own name.
const NAMELESS: [&str; 4] = ["token", "local", "cli", "anonymous"];

/// The prefix of the principals that an issuer's tokens give, which nobody lists.
const ISSUED: &str = "jwt:";

/// An entity that a text in Cedar names, such as `Source::"calc"`.
#[derive(Debug, PartialEq, Eq)]
struct NamedEntity {
    kind: String,
    id: String,
    /// The name and the sign before it, if it is compared: `principal`, `==`.
    compared: Option<(String, String)>,
    line: usize,
}

/// A token of Cedar, as far as it matters here.
#[derive(PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Text(String),
    Sign(&'a str),
}

/// Returns a sentence for each entity that does not exist, or that nothing can equal, and for each word that an attribute
/// never has.
pub(super) fn unknown(config: &Config, items: &[&Item]) -> Vec<String> {
    let is_cedar = |policy: &&PluginConfig| policy.plugin == PluginRef::Builtin("cedar".to_owned());
    let texts = config.policies.iter().filter(is_cedar).filter_map(|policy| policy.settings.get("policies")?.as_str());
    let faults = |text| {
        let tokens = tokens(text);
        let entities = entities(&tokens).into_iter().filter_map(|entity| fault(&entity, config, items));
        entities.chain(words_without_effect(&tokens)).collect::<Vec<_>>()
    };
    texts.flat_map(faults).collect()
}

/// Returns a sentence for each text that is compared with an attribute of few values but is not one of them.
fn words_without_effect(tokens: &[(usize, Token<'_>)]) -> Vec<String> {
    let compared = tokens.windows(5).filter_map(|window| match window {
        [
            (_, Token::Name(of)),
            (_, Token::Sign(".")),
            (_, Token::Name(attribute)),
            (line, Token::Sign("==" | "!=")),
            (_, Token::Text(word)),
        ] => Some((*of, *attribute, *line, word)),
        _ => None,
    });
    let fault = |(of, attribute, line, word): (&str, &str, usize, &String)| {
        let known: BTreeSet<&str> = match (of, attribute) {
            ("principal", "trust") => TrustLevel::ALL.map(TrustLevel::as_str).into(),
            ("context", "risk") => [Risk::Harmless, Risk::Risky].map(Risk::as_str).into(),
            // A source may have its own methods, but none that looks like one of the protocol.
            ("context", "method") => match Method::from(word.as_str()) {
                unknown @ Method::Unknown(_) if unknown.is_reserved() => BTreeSet::new(),
                _ => return None,
            },
            _ => return None,
        };
        let place = format!("`builtin:cedar`, line {line} of its policies: `{of}.{attribute}` is never \"{word}\"");
        match known.iter().map(|word| format!("\"{word}\"")).reduce(|all, word| format!("{all}, {word}")) {
            _ if known.contains(word.as_str()) => None,
            Some(known) => Some(format!("{place}, but one of {known}")),
            None => Some(format!("{place}, which is no method of MCP")),
        }
    };
    compared.filter_map(fault).collect()
}

fn fault(entity: &NamedEntity, config: &Config, items: &[&Item]) -> Option<String> {
    let NamedEntity { kind, id, compared, line } = entity;
    let place = format!("`builtin:cedar`, line {line} of its policies: `{kind}::\"{id}\"`");
    if let ("Profile", Some((left, sign))) = (kind.as_str(), compared)
        && left == "principal"
        && sign == "=="
    {
        return Some(format!("{place} equals no principal: write `principal in {kind}::\"{id}\"`"));
    }
    let exposed = |kind| items.iter().filter(move |item| item.kind == kind).map(|item| &*item.exposed).collect();
    let known: BTreeSet<&str> = match kind.as_str() {
        "Source" => {
            let groups = config.sources.values().map(|source| source.offered_as().as_str());
            groups.chain(config.sources.keys().chain(config.disabled.keys()).map(|name| name.as_str())).collect()
        }
        "Profile" => config.profiles.keys().map(|name| name.as_str()).collect(),
        "Tool" => exposed(ItemKind::Tool),
        "Prompt" => exposed(ItemKind::Prompt),
        "Client" if id.starts_with(ISSUED) => return None,
        "Client" => {
            let named = config.serve.callers.keys().any(|caller| id.strip_prefix("token:") == Some(caller));
            return (!named && !NAMELESS.contains(&id.as_str())).then(|| {
                format!("{place} is no caller of this broker: callers are {}, `token:NAME` for [serve.callers.NAME], and `jwt:…`", NAMELESS.map(|name| format!("`{name}`")).join(", "))
            });
        }
        _ => return None,
    };
    if known.contains(id.as_str()) {
        return None;
    }
    let near = most_similar(id, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Some(format!("{place} does not exist, so nothing is permitted or forbidden by it{near}"))
}

/// Returns the entities that a text names, in their order.
fn entities(tokens: &[(usize, Token<'_>)]) -> Vec<NamedEntity> {
    let mut found = Vec::new();
    for (at, window) in tokens.windows(3).enumerate() {
        if let [(line, Token::Name(kind)), (_, Token::Sign("::")), (_, Token::Text(id))] = window {
            let compared = match tokens.get(at.saturating_sub(2)..at) {
                Some([(_, Token::Name(left)), (_, Token::Sign(sign))]) => {
                    Some(((*left).to_owned(), (*sign).to_owned()))
                }
                _ => None,
            };
            found.push(NamedEntity { kind: (*kind).to_owned(), id: id.clone(), compared, line: *line });
        }
    }
    found
}

/// Splits a text into tokens, each with its line. Text that is not Cedar becomes tokens, too: the plugin refuses it.
fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                line += 1;
                1
            }
            '"' => {
                let (id, length) = quoted(rest);
                tokens.push((line, Token::Text(id)));
                line += rest.get(..length).unwrap_or_default().matches('\n').count();
                length
            }
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if first.is_whitespace() => first.len_utf8(),
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push((line, Token::Name(rest.get(..length).unwrap_or_default())));
                length
            }
            _ => {
                let is_double = ["::", "==", "!="].iter().any(|sign| rest.starts_with(sign));
                let length = if is_double { 2 } else { first.len_utf8() };
                tokens.push((line, Token::Sign(rest.get(..length).unwrap_or_default())));
                length
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    tokens
}

/// Returns the text of the string with which `rest` begins, and its length with both quotes.
fn quoted(rest: &str) -> (String, usize) {
    let (mut text, mut chars) = (String::new(), rest.char_indices().skip(1));
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, at + 1),
            // Names of sources, profiles and tools need no other escapes.
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            c => text.push(c),
        }
    }
    (text, rest.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn entities_are_found_outside_of_comments_and_texts() {
        let text = "// Source::\"no\"\npermit (principal == Profile::\"p\", action, resource in [Source::\"a\", Tool::\"b\"])\n\
                    when { context.input.x like \"Source::\\\"c\\\"\" && resource == Source :: \"d\" };";
        let found = entities(&tokens(text));
        let plain: Vec<_> = found.iter().map(|it| (it.kind.as_str(), it.id.as_str(), it.line)).collect();
        assert_eq!(plain, [("Profile", "p", 2), ("Source", "a", 2), ("Tool", "b", 2), ("Source", "d", 3)]);
        assert_eq!(found[0].compared, Some(("principal".to_owned(), "==".to_owned())));
    }

    #[test]
    fn a_word_that_an_attribute_never_has_is_named_with_its_line() {
        let text = "permit (principal, action, resource) when { principal.trust == \"hihg\" || principal.trust == \"high\" };\n\
                    forbid (principal, action, resource) when { context.risk != \"harmles\" && context.input.risk == \"any\" };\n\
                    forbid (principal, action, resource) when { context.method == \"prompts/gett\" };\n\
                    forbid (principal, action, resource) when { context.method == \"acme/reindex\" };";
        assert_eq!(
            words_without_effect(&tokens(text)),
            [
                "`builtin:cedar`, line 1 of its policies: `principal.trust` is never \"hihg\", but one of \"high\", \"low\", \"medium\", \"sandbox\"",
                "`builtin:cedar`, line 2 of its policies: `context.risk` is never \"harmles\", but one of \"harmless\", \"risky\"",
                "`builtin:cedar`, line 3 of its policies: `context.method` is never \"prompts/gett\", which is no method of MCP",
            ]
        );
    }

    #[test]
    fn what_does_not_exist_is_named_with_its_line_and_what_was_meant() {
        let policies = "forbid (principal, action, resource in Source::\"clac\");\n\
                        forbid (principal == Client::\"ci\", action, resource);\n\
                        forbid (principal == Profile::\"default\", action, resource);\n\
                        permit (principal == Client::\"token:ci\", action, resource in Source::\"calc\");\n\
                        permit (principal in Profile::\"default\", action, resource == Tool::\"calc__ad\");";
        let config = Config::builder("/srv")
            .source("calc", serde_json::json!({ "component": "builtin:calculator" }))
            .serve(
                serde_json::json!({ "callers": { "ci": { "token": "a-token-of-some-length", "profile": "default" } } }),
            )
            .policy(serde_json::json!({ "plugin": "builtin:cedar", "settings": { "policies": policies } }))
            .build()
            .unwrap();
        let found = unknown(&config, &[]);
        assert_eq!(found.len(), 4, "{found:?}");
        for (sentence, expected) in found.iter().zip([
            "line 1 of its policies: `Source::\"clac\"` does not exist",
            "line 2 of its policies: `Client::\"ci\"` is no caller",
            "line 3 of its policies: `Profile::\"default\"` equals no principal",
            "line 5 of its policies: `Tool::\"calc__ad\"` does not exist",
        ]) {
            assert!(sentence.contains(expected), "{sentence}");
        }
        assert!(found[0].ends_with("did you mean `calc`?"), "{found:?}");
    }
}
