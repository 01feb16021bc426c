//! The calls that the broker can make of those that the schema of Cedar allows: a tool has one name, one source, and
//! the hints that it has; a caller has one profile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use cedar_policy::{EntityUid, Policy, PolicyId, PolicySet};
use portcullis::item::{Item, ItemKind};
use portcullis::name::ProfileName;

use super::symbolic::KnownCalls;

/// A profile that no policy names.
const OTHER_PROFILE: &str = "another-profile";

/// The calls that there can be, by their sources and profiles.
pub(super) struct Possible<'a> {
    world: &'a KnownCalls<'a>,
    /// The sources, with their tags.
    sources: BTreeMap<String, Vec<String>>,
    /// These, and those that only policies name.
    named_sources: BTreeSet<String>,
    profiles: BTreeSet<String>,
}

impl<'a> Possible<'a> {
    /// Takes in the sources and profiles that are configured, and those that policies name.
    pub(super) fn new(world: &'a KnownCalls<'a>, policies: &[&PolicySet]) -> Self {
        let literals = policies.iter().flat_map(|set| set.policies()).flat_map(Policy::entity_literals);
        let literals: Vec<EntityUid> = literals.collect();
        let named = |kind: &str| -> BTreeSet<String> {
            let of_kind = literals.iter().filter(|uid| uid.type_name().to_string() == kind);
            of_kind.map(|uid| uid.id().unescaped().to_owned()).collect()
        };
        let profiles = named("Profile").into_iter().filter(|name| name.parse::<ProfileName>().is_ok());
        let configured = world.config.profiles.keys().map(ToString::to_string);
        let profiles = profiles.chain(configured).chain([OTHER_PROFILE.to_owned()]).collect();
        // One that lists nothing can be called, too: by its methods, and for resources that it does not list.
        let sources = world.config.sources.values();
        let sources: BTreeMap<_, _> = sources.map(|source| (source.name.to_string(), source.tags.clone())).collect();
        let named_sources = named("Source").into_iter().chain(sources.keys().cloned()).collect();
        Self { world, sources, named_sources, profiles }
    }

    /// Returns a policy that forbids impossible calls with this action; `None` if every such call is impossible.
    ///
    /// # Errors
    /// The result is not a valid policy: a name cannot be written in Cedar.
    pub(super) fn calls_of(&self, action: &EntityUid) -> Option<Result<Policy, String>> {
        let resource = match action.id().unescaped() {
            "get_prompt" => self.any(ItemKind::Prompt, "Prompt", None),
            "read_resource" => self.resources(),
            "use_method" => self.sources_themselves(),
            tool => self.any(ItemKind::Tool, "Tool", Some(tool)),
        }?;
        let mut text = format!(
            "forbid (principal, action == {action}, resource) unless {{ ({resource}) \
             && [\"sandbox\", \"low\", \"medium\", \"high\"].contains(principal.trust) \
             && [\"harmless\", \"risky\"].contains(context.risk) && ("
        );
        let profiles: Vec<String> = self.profiles.iter().map(|name| format!("Profile::{}", quote(name))).collect();
        for (at, profile) in profiles.iter().enumerate() {
            let others: Vec<&str> = profiles.iter().filter(|other| *other != profile).map(String::as_str).collect();
            let or = if at == 0 { "" } else { " || " };
            let _ = write!(text, "{or}(principal in {profile} && !(principal in [{}]))", others.join(", "));
        }
        text.push_str(") };");
        Some(Policy::parse(Some(PolicyId::new("possible-calls")), text).map_err(|error| error.to_string()))
    }

    /// Says that the resource is one of the items of a kind, or of those with this name: the sources of a group have
    /// one each.
    fn any(&self, kind: ItemKind, entity: &str, exposed: Option<&str>) -> Option<String> {
        let is_meant = |item: &&Arc<Item>| item.kind == kind && exposed.is_none_or(|name| &*item.exposed == name);
        let items = self.world.items.iter().filter(is_meant);
        let items: Vec<String> = items.map(|item| format!("({})", self.item(item, entity))).collect();
        let method = kind.use_method();
        (!items.is_empty()).then(|| format!("context.method == \"{}\" && ({})", method.as_str(), items.join(" || ")))
    }

    /// Says that the resource is this item.
    fn item(&self, item: &Item, entity: &str) -> String {
        let uid = format!("{entity}::{}", quote(&item.exposed));
        let mut text = format!("resource == {uid} && {}", self.in_source(item.source.as_str(), &item.tags));
        let _ = write!(text, " && resource.name == {}", quote(&item.name));
        if entity == "Tool" {
            // The defaults of MCP for a hint that is missing.
            for (attribute, hint) in [
                ("readOnly", item.hints.read_only.unwrap_or(false)),
                ("destructive", item.hints.destructive.unwrap_or(true)),
                ("idempotent", item.hints.idempotent.unwrap_or(false)),
                ("openWorld", item.hints.open_world.unwrap_or(true)),
            ] {
                let _ = write!(text, " && resource.{attribute} == {hint}");
            }
        }
        text
    }

    /// Says that the resource is one of any source, listed or not.
    fn resources(&self) -> Option<String> {
        let sources = self.sources.iter().map(|(name, tags)| format!("({})", self.in_source(name, tags)));
        let sources: Vec<String> = sources.collect();
        (!sources.is_empty()).then(|| format!("context.method == \"resources/read\" && ({})", sources.join(" || ")))
    }

    /// Says that the resource is a source, and the method none of those about items.
    fn sources_themselves(&self) -> Option<String> {
        let is = |(name, tags): (&String, &Vec<String>)| {
            format!("(resource == Source::{} && {})", quote(name), tagged(tags))
        };
        let sources: Vec<String> = self.sources.iter().map(is).collect();
        (!sources.is_empty()).then(|| {
            let methods = "[\"tools/call\", \"prompts/get\", \"resources/read\"].contains(context.method)";
            format!("!{methods} && ({})", sources.join(" || "))
        })
    }

    fn in_source(&self, source: &str, tags: &[String]) -> String {
        let others = self.named_sources.iter().filter(|other| *other != source);
        let others: Vec<String> = others.map(|other| format!("Source::{}", quote(other))).collect();
        let outside =
            if others.is_empty() { String::new() } else { format!(" && !(resource in [{}])", others.join(", ")) };
        format!("resource in Source::{}{outside} && {}", quote(source), tagged(tags))
    }
}

fn tagged(tags: &[String]) -> String {
    if tags.is_empty() {
        return "resource.tags.isEmpty()".to_owned();
    }
    let tags: Vec<String> = tags.iter().map(|tag| quote(tag)).collect();
    format!("resource.tags == [{}]", tags.join(", "))
}

/// Returns a name as a text of Cedar, whose escapes are those of Rust.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.escape_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis::config::Config;
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_that_list_nothing_and_all_sources_of_a_tool_are_possible() {
        let config = Config::builder("/srv").source("quiet", json!({ "command": ["a"], "tags": ["t"] }));
        let config = config.source("b", json!({ "command": ["b"] })).source("c", json!({ "command": ["c"] }));
        let config = config.build().unwrap();
        let items =
            ["b", "c"].map(|source| Arc::new(Item::unlisted_tool(&source.parse().unwrap(), "find", "search__find")));
        let world = KnownCalls { config: &config, items: &items, schema: "" };
        let possible = Possible::new(&world, &[]);
        let of = |action: &str| {
            let action: EntityUid = format!("Action::\"{action}\"").parse().unwrap();
            possible.calls_of(&action).map(|policy| policy.unwrap().to_string())
        };
        for action in ["use_method", "read_resource"] {
            let policy = of(action).unwrap();
            assert!(policy.contains("Source::\"quiet\"") && policy.contains("\"t\""), "{policy}");
        }
        let find = of("search__find").unwrap();
        for source in ["b", "c"] {
            assert!(find.contains(&format!("resource in Source::\"{source}\"")), "{find}");
        }
        assert_eq!((of("search__other"), of("get_prompt")), (None, None));
    }
}
