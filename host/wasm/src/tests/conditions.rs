//! Conditions of `builtin:rules` in its sandbox: their cost in WebAssembly instructions, and hostile ones.

use portcullis_core::call::Phase;
use portcullis_core::testing::view;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wasmtime::component::Component;
use wasmtime::{Config, Engine};

use super::super::clock::EpochClock;
use super::super::guest::{GuestState, ReadyInstance};
use super::super::load::{AllowedImports, PluginBytes, link};
use super::super::testing::plugins;
use super::super::v0_1::{GuestFacts, PolicyWorld, World};
use super::super::{Denial, Policy, Verdict, builtin};
use super::{PluginConfig, PluginRef, SLOW_TICK, unhurried};

/// The instructions of a decision by rules without a condition, with a kilobyte of arguments: the measured number at
/// the time of writing, plus 5 %.
const WITHOUT_CONDITION: u64 = 33_300;

/// The instructions that one more rule, with a condition on two arguments, may add to that.
const CONDITION: u64 = 7_300;

/// The instructions that a decision may take whose condition uses up its steps, with a megabyte of arguments: the
/// measured maximum at the time of writing, plus 5 %.
const WITHIN_STEPS: u64 = 185_000_000;

async fn rules(settings: Value) -> Policy {
    let plugin = PluginRef::Builtin("rules".to_owned());
    let config = PluginConfig { plugin, settings, on: vec![Phase::Call], shadow: false, grant: vec![], file: None };
    unhurried().policy(&config).await.unwrap()
}

/// Returns the verdict of one decision, and its instructions.
async fn instructions(settings: &Value, arguments: &str) -> (Verdict, u64) {
    let engine = Engine::new(Config::new().epoch_interruption(true).consume_fuel(true)).unwrap();
    let bytes = PluginBytes::new("builtin:rules".into(), builtin::find("rules").unwrap().to_vec());
    let component = Component::from_binary(&engine, builtin::find("rules").unwrap()).unwrap();
    let linked = link::<PolicyWorld>(&engine, &bytes, &component, &AllowedImports::default(), None).unwrap();
    let clock = EpochClock::start(&engine, SLOW_TICK).unwrap();
    let facts = GuestFacts { view: Some(view(arguments)), ..GuestFacts::default() };
    let mut store = GuestState::store(&engine, &clock, facts);
    store.set_fuel(u64::MAX).unwrap();
    store.set_epoch_deadline(1_000_000);
    let (world, _) = PolicyWorld::instantiate(&linked.pre, &mut store).await.unwrap();
    world.configure(&mut store, &settings.to_string()).await.unwrap().unwrap();
    let slot = std::sync::Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
    let mut live = ReadyInstance::new(world, store, slot);
    let before = live.store.get_fuel().unwrap();
    let verdict = live.check().await.unwrap();
    (verdict, before - live.store.get_fuel().unwrap())
}

#[tokio::test]
async fn a_condition_costs_what_it_may_and_rules_without_one_pay_nothing() {
    let arguments = json!({ "path": "/srv/a", "size": 7, "text": "x".repeat(1000) }).to_string();
    let plain = json!({
        "allow": ["files__*", "git__*"],
        "ask": ["*__write_*", { "tool": "*__move", "arguments": { "to": { "not": "/srv/*" } } }],
        "deny": ["*__delete_*", { "tool": "files__read", "arguments": { "path": "/etc/*" } }],
    });
    let mut with_condition = plain.clone();
    let condition = "!arguments.path.startsWith('/srv/') || arguments.size > 100";
    with_condition["deny"].as_array_mut().unwrap().push(json!({ "tool": "files__read", "when": condition }));
    let (passed, plain) = instructions(&plain, &arguments).await;
    assert_eq!(passed, Verdict::Pass);
    let (passed, condition) = instructions(&with_condition, &arguments).await;
    assert_eq!(passed, Verdict::Pass);
    eprintln!("without a condition {plain} instructions, with one {condition}");
    assert!(plain <= WITHOUT_CONDITION, "without a condition: {plain} instructions, of {WITHOUT_CONDITION}");
    let added = condition.saturating_sub(plain);
    assert!(added <= CONDITION, "a condition adds {added} instructions, of {CONDITION}");
}

/// Returns the code with which a deny rule with this condition denies.
async fn code(condition: &str, arguments: &str) -> String {
    let policy = rules(json!({ "deny": [{ "tool": "files__*", "when": condition }] })).await;
    match policy.check(&view(arguments)).await {
        Ok(Verdict::Deny(Denial { code, .. })) => code,
        other => panic!("{condition}: {other:?}"),
    }
}

#[tokio::test]
async fn a_condition_over_large_lists_denies_within_its_steps() {
    let list = json!({ "a": vec![0; 10_000], "s": "x".repeat(1 << 20) }).to_string();
    for condition in [
        "!arguments.a.all(x, arguments.a.all(y, arguments.a.all(z, x == y && y == z)))",
        "arguments.a.all(x, !arguments.s.contains('y'))",
        "size(arguments.a.map(x, arguments.s + arguments.s)) == 1",
    ] {
        let settings = json!({ "deny": [{ "tool": "files__*", "when": condition }] });
        let (verdict, instructions) = instructions(&settings, &list).await;
        assert!(matches!(&verdict, Verdict::Deny(Denial { code, .. }) if code == "condition-error"), "{verdict:?}");
        eprintln!("{condition}: {instructions} instructions");
        assert!(instructions <= WITHIN_STEPS, "{condition}: {instructions} instructions, of {WITHIN_STEPS}");
    }
}

#[tokio::test]
async fn what_is_nested_as_deep_as_it_may_be_fits_on_the_stack() {
    for (open, close, levels) in [("(", ")", 23), ("!(", ")", 10), ("!", "", 22), ("true?true:", "", 22)] {
        let condition = format!("{}true{}", open.repeat(levels), close.repeat(levels));
        assert_eq!(code(&condition, "{}").await, "rule", "{condition}");
    }
    let macros: String = (0..11).map(|n| format!("arguments.a.all(x{n}, ")).collect();
    assert_eq!(code(&format!("{macros}true{}", ")".repeat(11)), r#"{"a":[1]}"#).await, "rule");
    // Arguments may be nested as deep as JSON may be here, and are compared to their end.
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    let arguments = format!("{{\"a\":{deep},\"b\":{deep}}}");
    assert_eq!(code("arguments.a == arguments.b", &arguments).await, "rule");
}

#[tokio::test]
async fn what_is_nested_deeper_is_refused_and_ends_no_instance() {
    let config = |condition: String| PluginConfig {
        plugin: PluginRef::Builtin("rules".to_owned()),
        settings: json!({ "deny": [{ "when": condition }] }),
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    };
    for (open, close) in [("(", ")"), ("!", ""), ("true ? true : ", ""), ("[", "]"), ("arguments[", "]")] {
        let condition = format!("{}true{}", open.repeat(200), close.repeat(200));
        let error = plugins().policy(&config(condition)).await.err().unwrap().to_string();
        assert!(error.contains("nested here"), "{error}");
    }
}
