//! The cost of `builtin:redact`, counted in WebAssembly instructions: they repeat where times do not.

use std::sync::Arc;

use portcullis_core::protocol::Json;
use portcullis_core::testing;
use portcullis_test_support::ordinary_results;
use serde_json::json;
use tokio::sync::Semaphore;
use wasmtime::component::Component;
use wasmtime::{Config, Engine};

use super::super::clock::EpochClock;
use super::super::guest::{GuestState, ReadyInstance};
use super::super::load::{AllowedImports, PluginBytes, link};
use super::super::v0_1::{GuestFacts, TransformWorld, World};
use super::super::{TransformDecision, Vault, builtin};
use super::SLOW_TICK;

/// The instructions that a result of 10 KiB may take, by its kind: the measured number at the time of writing, plus 5
/// %. Twelve of them take a nanosecond in native code. `host/benches/redact.rs` measures the time.
const BUDGETS: [(&str, u64); 5] =
    [("prose", 685_000), ("json", 1_390_000), ("log", 1_393_000), ("code", 1_110_000), ("addresses", 1_785_000)];

/// A byte of hostile text may take this many. Text that is read again from each place takes four times as many, and
/// more as the text gets longer.
const HOSTILE: u64 = 4_000;

/// The bytes of hostile text.
const HOSTILE_BYTES: usize = 64 << 10;

struct NoVault;

impl Vault for NoVault {
    fn protect(&self, kind: &str, _: &str, _: Vec<String>) -> String {
        format!("[[{kind}:a0011223344556ff]]")
    }
}

/// The plugin in an engine that counts instructions.
struct Counted {
    engine: Engine,
    clock: Arc<EpochClock>,
    pre: <TransformWorld as World>::Prepared,
    settings: String,
}

impl Counted {
    fn new(settings: &str) -> Self {
        let mut config = Config::new();
        let engine = Engine::new(config.epoch_interruption(true).consume_fuel(true)).unwrap();
        let bytes = PluginBytes::new("builtin:redact".into(), builtin::find("redact").unwrap().to_vec());
        let component = Component::from_binary(&engine, builtin::find("redact").unwrap()).unwrap();
        let linked = link::<TransformWorld>(&engine, &bytes, &component, &AllowedImports::default(), None).unwrap();
        let clock = EpochClock::start(&engine, SLOW_TICK).unwrap();
        Self { engine, clock, pre: linked.pre, settings: settings.to_owned() }
    }

    /// Returns what the plugin makes of an outcome, and the instructions that this takes.
    async fn rewrite(&self, outcome: &str) -> (TransformDecision, u64) {
        let view = testing::view("{}").with_outcome(Json::parse(outcome.to_owned()).unwrap(), false);
        let facts = GuestFacts { view: Some(view), vault: Some(Arc::new(NoVault)), ..GuestFacts::default() };
        let mut store = GuestState::store(&self.engine, &self.clock, facts);
        store.set_fuel(u64::MAX).unwrap();
        store.set_epoch_deadline(1_000_000);
        let (world, _) = TransformWorld::instantiate(&self.pre, &mut store).await.unwrap();
        world.configure(&mut store, &self.settings).await.unwrap().unwrap();
        let slot = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let mut live = ReadyInstance::new(world, store, slot);
        let before = live.store.get_fuel().unwrap();
        let decision = live.rewrite().await.unwrap();
        (decision, before - live.store.get_fuel().unwrap())
    }
}

#[tokio::test]
async fn redact_searches_a_result_of_10_kib_within_its_budget_of_instructions() {
    let plugin = Counted::new("{}");
    let (mut seen, mut exceeded) = (String::new(), false);
    for ((name, outcome), (of, budget)) in ordinary_results(10 << 10).into_iter().zip(BUDGETS) {
        assert_eq!(name, of);
        let (decision, instructions) = plugin.rewrite(&outcome).await;
        assert_eq!(decision != TransformDecision::Keep, name == "addresses", "{name}: {decision:?}");
        exceeded |= instructions > budget;
        seen += &format!("{name}: {instructions} instructions for {} bytes, of {budget}\n", outcome.len());
    }
    assert!(!exceeded, "find the cause, or raise the budget and say why:\n{seen}");
}

#[tokio::test]
async fn redact_reads_no_part_of_a_hostile_text_again_and_again() {
    let plugin = Counted::new(r#"{"detect":["default","phone","ipv4","ipv6"]}"#);
    let mut slow = String::new();
    let units = [
        "@",
        "a@",
        "@a.",
        "a.",
        ".@",
        "1",
        "1 ",
        "1-",
        "1.",
        "+1 ",
        "(1",
        "4111 ",
        "4111111111111112 ",
        "123-45-",
        "DE89 ",
        "DE89",
        "eyJ",
        "eyJ.",
        "eyJ-",
        "eyJaaaaaaaaaaaa.",
        "eyJaaaaaaaaaaaa.eyJ-",
        "-----BEGIN ",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN PRIVATE KEY-----",
        "PuTTY-User-Key-File-",
        "PuTTY",
        "AKIA",
        "xAKIA",
        "ghp_",
        "ghp_ ",
        "sk-ant-",
        "sk-",
        "xoxb-",
        "SG.",
        "hooks.slack.com/services/",
        "pat-na1-",
        "password=",
        "password:",
        "password ",
        "--password ",
        "password is ",
        "_token ",
        "a://",
        "a://b:c",
        "://@",
        "a:b@",
        ":",
        "::",
        "1::",
        "=",
        "[[",
        "[[a:",
        "[[a:withheld]]",
        "]]",
        "：",
        "é",
        "密码",
        "0000000Q~",
        "SSN 123456789 ",
        "NHS 1234567890 ",
        "Steuer 12345678901 ",
        "555-0100 ",
        "\"token\":\"",
        "\\",
        "\\\"",
        "\\u001b[",
        "\u{1b}[1;",
        "\u{1b}[1",
        "%2",
        "%41",
        "sl.",
    ];
    // With this end, no key that begins with `ABSK` fits.
    for (unit, end) in units.map(|unit| (unit, "")).into_iter().chain([("ABSK+", "_")]) {
        // A value at the beginning, as placeholders are only looked for if there is one.
        let text = format!("a@b.org {}{end}", unit.repeat(HOSTILE_BYTES / unit.len()));
        let (_, instructions) = plugin.rewrite(&json!({ "x": text }).to_string()).await;
        let each = instructions / HOSTILE_BYTES as u64;
        if each > HOSTILE {
            slow += &format!("{unit:?} repeated, with {end:?} at the end: {each} instructions for a byte\n");
        }
    }
    assert!(slow.is_empty(), "{slow}");
}
