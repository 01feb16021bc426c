#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::testing::source;
use super::*;
use crate::call::TrustLevel;
use crate::config::{Approve, Detail, Exposure, Naming, ProfileConfig, SourceConfig};
use crate::limits::MAX_DEFINITION_BYTES;
use crate::protocol::Json;
use proptest::prelude::*;

fn profile(trust: TrustLevel) -> ProfileConfig {
    ProfileConfig {
        trust,
        sources: vec!["*".into()],
        allow: None,
        deny: vec![],
        tools: Exposure::Listed,
        schemas: crate::config::Schemas::AsIs,
        images: crate::config::Images::Keep,
        structured_content: crate::config::StructuredContent::AsIs,
        links: crate::config::Links::Keep,
        instructions: crate::config::Instructions::Keep,
        max_result: None,
        approve: Approve::Risky,
        destructive: crate::config::Destructive::Ask,
        sampling: false,
        status: false,
        record: Detail::Shape,
        budget: None,
    }
}

fn tool(name: &str) -> Json {
    Json::of(&serde_json::json!({ "name": name, "inputSchema": { "type": "object" } }))
}

fn one(config: &SourceConfig, name: &str) -> Arc<Item> {
    items_of(ItemKind::Tool, config, &[tool(name)]).unwrap().items.remove(0)
}

#[test]
fn names_follow_the_configured_style() {
    let name = |naming, tool| {
        items_of(ItemKind::Tool, &source("gh", naming), &[self::tool(tool)]).unwrap().items[0].exposed.to_string()
    };
    assert_eq!(name(Naming::Source, "list.all/x"), "gh__list_all_x");
    assert_eq!(name(Naming::Mcp, "list"), "mcp__gh__list");
    assert_eq!(name(Naming::Plain, "list.all"), "list.all");
    assert_eq!(name(Naming::Prefix("a_".into()), "list"), "a_list");
}

#[test]
fn only_the_tool_whose_name_is_invisible_empty_or_too_long_is_left_out() {
    for bad in ["read\u{200b}file", "\u{1b}[31mread", "", &"x".repeat(129), "\u{202e}daer"] {
        let collected = items_of(ItemKind::Tool, &source("a", Naming::Plain), &[tool(bad), tool("good")]).unwrap();
        let names: Vec<_> = collected.items.iter().map(|item| &*item.name).collect();
        assert_eq!(names, ["good"], "{bad:?}");
        let [remark] = &*collected.remarks else { panic!("{bad:?}: {:?}", collected.remarks) };
        assert_eq!((remark.exposed.as_deref(), bad.starts_with(&remark.name)), (None, true), "{remark}");
    }
    let nameless = Json::parse(r#"{"title":"x"}"#).unwrap();
    let collected = items_of(ItemKind::Tool, &source("a", Naming::Plain), &[nameless, tool("good")]).unwrap();
    assert_eq!((collected.items.len(), collected.remarks.len()), (1, 1));
}

#[test]
fn a_name_with_unsafe_characters_is_exposed_in_an_escaped_form() {
    for naming in [Naming::Source, Naming::Mcp, Naming::Plain, Naming::Prefix("p_".into())] {
        for odd in ["read file", "ns:read", "\u{67e5}\u{8be2}", "r\u{435}ad", "caf\u{e9}", &"\u{67e5}".repeat(128)] {
            let collected = items_of(ItemKind::Tool, &source("a", naming.clone()), &[tool(odd), tool("read")]).unwrap();
            let item = &collected.items[0];
            assert_eq!((&*item.name, collected.items.len()), (odd, 2));
            let safe = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            assert!(item.exposed.len() <= MAX_EXPOSED_BYTES && item.exposed.chars().all(safe), "{}", item.exposed);
            assert_ne!(item.exposed, collected.items[1].exposed);
            assert_eq!(collected.remarks[0].exposed.as_deref(), Some(&*item.exposed));
            assert_eq!(collected.remarks.len(), 1);
        }
    }
    assert_eq!(&*one(&source("a", Naming::Source), "r\u{435}ad").exposed, "a__r_u435_ad");
}

#[test]
fn names_that_become_equal_are_exposed_under_distinct_names_in_any_order() {
    let exposed = |names: [&str; 3]| {
        let tools = names.map(tool);
        let items = items_of(ItemKind::Tool, &source("a", Naming::Source), &tools).unwrap().items;
        let mut exposed: Vec<_> = items.iter().map(|item| (item.name.to_string(), item.exposed.to_string())).collect();
        exposed.sort();
        exposed
    };
    let names = exposed(["x.y", "x_y", "x/y"]);
    assert_eq!(names, exposed(["x_y", "x/y", "x.y"]));
    assert_eq!(names[2], ("x_y".to_owned(), "a__x_y".to_owned()), "the tool that has exactly that name keeps it");
    assert!(names[..2].iter().all(|(_, exposed)| exposed.starts_with("a__x_y-")), "{names:?}");
}

#[test]
fn a_duplicate_name_counts_once_within_a_source_and_is_left_out_across_sources() {
    let other = Json::of(&serde_json::json!({ "name": "x", "inputSchema": {} }));
    let twice = items_of(ItemKind::Tool, &source("a", Naming::Source), &[tool("x"), other, tool("y")]).unwrap();
    assert_eq!(twice.items.iter().map(|item| &*item.name).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(twice.items[0].definition, tool("x"), "the first counts");
    assert_eq!(twice.remarks.len(), 1);
    let (a, b) = (source("a", Naming::Plain), source("b", Naming::Plain));
    let (merged, contested) = Catalog::merge([vec![one(&a, "x"), one(&a, "y")], vec![one(&b, "x"), one(&b, "z")]]);
    let names: Vec<_> = merged.items().iter().map(|item| &*item.exposed).collect();
    assert_eq!(names, ["y", "z"], "neither gets a name that both want");
    assert!(merged.get("x").is_none() && merged.get("z").is_some_and(|item| item.source.as_str() == "b"));
    let [only] = contested.as_slice() else { panic!("{contested:?}") };
    assert!(only.message.contains("`x` is offered by source `a` and by source `b`"), "{only:?}");
}

#[test]
fn only_the_ambiguous_or_huge_definition_is_left_out() {
    let twin = Json::parse(r#"{"name":"x","description":"a","description":"b"}"#).unwrap();
    let huge = Json::of(&serde_json::json!({ "name": "huge", "description": "x".repeat(MAX_DEFINITION_BYTES) }));
    let collected = items_of(ItemKind::Tool, &source("a", Naming::Source), &[twin, huge, tool("good")]).unwrap();
    assert_eq!((&*collected.items[0].name, collected.items.len()), ("good", 1));
    let why: Vec<_> = collected.remarks.iter().map(ToString::to_string).collect();
    assert!(why[0].contains("\"x\" is left out") && why[0].contains("ambiguous"), "{why:?}");
    assert!(why[1].contains("more than the limit"), "{why:?}");
}

#[test]
fn the_exposed_definition_changes_the_name_and_nothing_else() {
    let text = r#"{ "x-vendor": [1.0, 12345678901234567890],  "name" :"t", "inputSchema":{}}"#;
    let tools = items_of(ItemKind::Tool, &source("a", Naming::Source), &[Json::parse(text).unwrap()]).unwrap().items;
    assert_eq!(tools[0].exposed_definition().as_str(), text.replace("\"t\"", "\"a__t\""));
}

#[test]
fn trust_levels_and_allow_and_deny_lists_restrict_the_tools() {
    let mut config = source("a", Naming::Source);
    let tool = one(&config, "move_file");
    let admits =
        |profile: &ProfileConfig, config: &SourceConfig| ItemFilter::new(profile, config).unwrap().admits(&tool);

    assert!(!admits(&profile(TrustLevel::Sandbox), &config), "sandbox sees nothing");
    assert!(!admits(&profile(TrustLevel::Low), &config), "low needs an allow list");
    assert!(admits(&profile(TrustLevel::Medium), &config) && admits(&profile(TrustLevel::High), &config));

    let low = ProfileConfig { allow: Some(vec!["a__move_*".into()]), ..profile(TrustLevel::Low) };
    assert!(admits(&low, &config));
    let other = ProfileConfig { allow: Some(vec!["b__*".into()]), ..profile(TrustLevel::High) };
    assert!(!admits(&other, &config));
    let elsewhere = ProfileConfig { sources: vec!["b".into()], ..profile(TrustLevel::High) };
    assert!(!admits(&elsewhere, &config));

    config.allow = Some(vec!["*".into()]);
    config.deny = vec!["move_*".into()];
    assert!(!admits(&low, &config), "a deny wins, and matches the source's own name");
}

proptest! {
    #[test]
    fn exposed_names_are_safe_for_every_client_and_find_their_tool(
        names in proptest::collection::hash_set("[a-zA-Z0-9_./ :\u{e9}\u{435}\u{67e5}-]{1,128}", 1..20),
        style in 0..3,
    ) {
        let naming = [Naming::Source, Naming::Mcp, Naming::Prefix("p_".into())][style as usize].clone();
        let definitions: Vec<_> = names.iter().map(|name| tool(name)).collect();
        let tools = items_of(ItemKind::Tool, &source("src", naming), &definitions).unwrap().items;
        prop_assert_eq!(tools.len(), names.len(), "names that become the same are kept apart");
        let (catalog, _) = Catalog::merge([tools]);
        for tool in catalog.items() {
            prop_assert!(tool.exposed.len() <= MAX_EXPOSED_BYTES);
            prop_assert!(tool.exposed.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            prop_assert_eq!(&catalog.get(&tool.exposed).unwrap().name, &tool.name);
        }
    }
}

#[test]
fn exposed_prompts_and_uris_lead_back_to_their_source() {
    let config = source("my_docs", Naming::Source);
    let prompt = Json::parse(r#"{"name":"Résumé d'un texte","arguments":[ ]}"#).unwrap();
    let prompt = items_of(ItemKind::Prompt, &config, &[prompt]).unwrap().items.remove(0);
    assert_eq!(prompt.exposed_definition().as_str(), r#"{"name":"my_docs__Résumé d'un texte","arguments":[ ]}"#);
    for uri in ["file:///a/../b.txt", "test://x", "portcullis://other/test://x", "urn:isbn:1", "/", "é"] {
        let exposed = exposed_uri(&config.name, &config.names, uri);
        assert_eq!(resolve_uri(&exposed), ResolvedUri::Source("my_docs", uri));
        assert_eq!(exposed_uri(&config.name, &Naming::Plain, uri), uri);
    }
    assert_eq!(resolve_uri("file:///x"), ResolvedUri::Plain("file:///x"));
    let template = Json::parse(r#"{ "uriTemplate":"file:///{+path}", "name":"files" }"#).unwrap();
    let template = items_of(ItemKind::Template, &config, &[template]).unwrap().items.remove(0);
    let shown = r#"{ "uriTemplate":"portcullis://my_docs/file:///{+path}", "name":"files" }"#;
    assert_eq!(template.exposed_definition().as_str(), shown);
    for bad in ["", "a\u{202e}b", &"x".repeat(MAX_URI_BYTES + 1)] {
        let (uri, name) = (Json::of(&serde_json::json!({ "uri": bad })), Json::of(&serde_json::json!({ "name": bad })));
        for (kind, definition) in [(ItemKind::Resource, uri), (ItemKind::Prompt, name)] {
            let collected = items_of(kind, &config, &[definition]).unwrap();
            assert_eq!((collected.items.len(), collected.remarks.len()), (0, 1), "{bad:?}");
        }
    }
}
