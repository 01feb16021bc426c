//! The calls that the broker can make of those that the schema of Cedar allows: a tool has one name, one source, and
//! the hints that it has; a caller has one profile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

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
        let sources: BTreeMap<_, _> =
            world.items.iter().map(|item| (item.source.to_string(), item.tags.to_vec())).collect();
        let named_sources = named("Source").into_iter().chain(sources.keys().cloned()).collect();
        Self { world, sources, named_sources, profiles }
    }

    /// Returns a policy that forbids the calls with this action that there cannot be; `None` if there can be none at
    /// all.
    ///
    /// # Errors
    /// It is no policy: a name cannot be written in Cedar.
    pub(super) fn calls_of(&self, action: &EntityUid) -> Option<Result<Policy, String>> {
        let resource = match action.id().unescaped() {
            "get_prompt" => self.any(ItemKind::Prompt, "Prompt"),
            "read_resource" => self.resources(),
            "use_method" => self.sources_themselves(),
            tool => {
                let mut items = self.world.items.iter();
                let item = items.find(|item| item.kind == ItemKind::Tool && &*item.exposed == tool)?;
                Some(format!("context.method == \"tools/call\" && {}", self.item(item, "Tool")))
            }
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

    /// Says that the resource is one of the items of a kind.
    fn any(&self, kind: ItemKind, entity: &str) -> Option<String> {
        let items = self.world.items.iter().filter(|item| item.kind == kind);
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
