//! Tests of the description that a plugin may carry of itself.

use std::sync::Arc;

use portcullis_core::flow::{CallFlow, Effect, StatedFlow};
use portcullis_core::testing::view;
use portcullis_test_support::guest;
use serde_json::json;

use super::super::testing::plugins;
use super::super::{Verdict, with_description};
use super::{PluginConfig, PluginRef, entry};

const DESCRIPTION: &str = r#"{ "name": "plain", "version": "1.2.0", "phases": ["call"], "editor": "ignored", "settings": {
    "type": "object", "additionalProperties": false,
    "properties": { "refuse": { "type": "string" }, "ask": { "type": "array", "items": { "type": "string" } } } } }"#;

fn plain() -> Vec<u8> {
    std::fs::read(guest("plain")).unwrap()
}

#[tokio::test]
async fn a_description_is_shown_and_settings_that_do_not_fit_it_are_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let described = with_description("plain", plain(), DESCRIPTION).unwrap();
    // A second one takes the place of the first.
    assert_eq!(with_description("plain", described.clone(), DESCRIPTION).unwrap(), described);
    std::fs::write(file.path(), described).unwrap();
    let plugin = PluginRef::Path(file.path().to_owned());
    let inspected = plugins().inspect(&plugin).await.unwrap();
    let description = inspected.description.unwrap();
    assert_eq!((description.name.as_deref(), description.version.as_deref()), (Some("plain"), Some("1.2.0")));
    assert_eq!(description.phases, ["call"]);

    let load =
        async |settings| plugins().policy(&PluginConfig { plugin: plugin.clone(), ..entry("plain", settings) }).await;
    load(json!({ "refuse": "evil" })).await.unwrap();
    for (settings, place, reason) in [
        (json!({ "ask": ["a", 3] }), "`settings.ask.1`", "3 is not of type"),
        (json!({ "deep": true }), "`settings`", "'deep' was unexpected"),
    ] {
        let error = load(settings).await.unwrap_err().to_string();
        let parts = [place, reason, &file.path().display().to_string(), "portcullis plugin inspect"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // The plugin's own message is more helpful.
    let error = load(json!({ "wrong": true })).await.unwrap_err().to_string();
    assert!(error.contains("refuses its settings: unknown field `wrong`"), "{error}");
}

#[tokio::test]
async fn a_policy_is_not_asked_about_the_calls_that_it_says_it_passes() {
    let unseen = StatedFlow { effects: Effect::ALL.into(), labels: Vec::new(), ..StatedFlow::unknown() };
    let flows = [
        ("no effect", Some(StatedFlow { effects: Vec::new(), ..StatedFlow::unknown() })),
        ("nothing seen", Some(unseen)),
        ("both", Some(StatedFlow::unknown())),
        ("unknown", None),
    ];
    for (passes, passed) in [
        (json!([]), &[][..]),
        (json!(["without-effect"]), &["no effect"]),
        (json!(["nothing-seen"]), &["nothing seen"]),
        (json!(["without-effect", "nothing-seen", "of another version"]), &["no effect", "nothing seen"]),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let description = json!({ "passes": passes }).to_string();
        std::fs::write(file.path(), with_description("plain", plain(), &description).unwrap()).unwrap();
        let plugin = PluginRef::Path(file.path().to_owned());
        let config = PluginConfig { plugin, ..entry("plain", json!({ "refuse": "evil" })) };
        let policy = plugins().policy(&config).await.unwrap();
        for (name, flow) in &flows {
            let flow = flow.clone().map(|flow| Arc::new(flow) as Arc<dyn CallFlow>);
            let view = view(r#"{"a":"evil"}"#).with_flow(flow);
            let verdict = policy.check(&view).await.unwrap();
            assert_eq!(verdict == Verdict::Pass, passed.contains(name), "{passes}, {name}: {verdict:?}");
        }
    }
}

#[test]
fn a_description_that_cannot_be_used_is_refused_with_the_reason() {
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(64 << 10));
    for (json, reason) in [
        ("{", "EOF"),
        (r#"{"name":3}"#, "expected a string"),
        (r##"{"settings":{"$ref":"#"}}"##, "`$ref`"),
        (r#"{"settings":{"properties":{"a":{"items":{"pattern":"(a{1000}){1000}"}}}}}"#, "`pattern`"),
        (r#"{"settings":{"patternProperties":{"\\p{L}{100}N":{}}}}"#, "`patternProperties`"),
        (r#"{"settings":{"allOf":[{"if":{"unevaluatedProperties":false}}]}}"#, "`unevaluatedProperties`"),
        (r#"{"settings":{"type":"text"}}"#, "no JSON Schema"),
        (long.as_str(), "at most 65536 are read"),
    ] {
        let error = with_description("p.wasm", plain(), json).unwrap_err().to_string();
        assert!(error.contains("p.wasm") && error.contains(reason), "{error}");
    }
    assert!(with_description("p.wasm", b"text".to_vec(), "{}").is_err());
}

#[tokio::test]
async fn a_plugin_in_rust_is_described_by_the_macro_of_the_sdk() {
    let inspected = plugins().inspect(&PluginRef::Builtin("saboteur".into())).await.unwrap();
    let description = inspected.description.unwrap();
    assert_eq!(description.name.as_deref(), Some("saboteur"));
    assert_eq!(description.settings.unwrap()["properties"]["trap"]["type"], "array");
    assert_eq!(plugins().inspect(&PluginRef::Path(guest("plain"))).await.unwrap().description, None);
}
