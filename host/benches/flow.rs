//! Measures what information flow adds to a call: the decision of `builtin:flow`, keeping a result, and looking up
//! arguments in a session that has seen much.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use portcullis::call::{Call, CallView, Params, Phase};
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::flow::{CallFlow as _, Effect, Origin, PRIVATE, StatedFlow, UNTRUSTED};
use portcullis::internal::{SessionFlow, SourceFlow, TracedCall};
use portcullis::plugin::PluginHost;
use portcullis::protocol::{Json, Method};
use portcullis_core::testing;
use serde_json::{Value, json};

/// The fingerprints that the session has which arguments are looked up in: those of about 50 KiB of text.
const FINGERPRINTS: usize = 10_000;

/// About as many fingerprints as a KiB of the text of these benches has.
const PER_KIB: usize = 200;

/// The results of a size that one session keeps, before another begins.
const RESULTS: usize = 50;

const WORDS: [&str; 16] = [
    "invoice", "meeting", "the", "of", "customer", "and", "report", "a", "deadline", "please", "send", "on", "office",
    "with", "agenda", "to",
];

/// Returns prose of this size, with a number or an address here and there. Each `seed` gives another.
fn prose(seed: usize, size: usize) -> String {
    let mut text = String::with_capacity(size + 32);
    let mut state = u64::try_from(seed).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while text.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = usize::try_from(state >> 33).unwrap();
        match random % 16 {
            0 => text.push_str(&format!("no{random} ")),
            1 if random % 64 == 1 => text.push_str(&format!("a{random}@example.org\n")),
            _ => text.extend([WORDS[random / 16 % WORDS.len()], " "]),
        }
    }
    text.truncate(size);
    text
}

fn result(text: &str) -> Json {
    Json::of(&json!({ "content": [{ "type": "text", "text": text }] }))
}

/// Returns a call of the session with these arguments.
fn call(session: &Arc<SessionFlow>, arguments: &Value) -> Arc<TracedCall> {
    let example = testing::view("{}").call;
    let params = Json::of(&json!({ "name": "send", "arguments": arguments }));
    let params = Params::parse(&Method::ToolsCall, params);
    let call = Call::new(&Method::ToolsCall, params, &example.caller, Arc::clone(&example.item), example.risk);
    let labels = [UNTRUSTED, PRIVATE].map(str::to_owned).as_slice().into();
    TracedCall::new(session, SourceFlow { labels, effects: &Effect::ALL }, &call)
}

/// Returns a session that has seen so much.
fn session() -> Arc<SessionFlow> {
    let session = Arc::default();
    for seed in 0..FINGERPRINTS / PER_KIB {
        call(&session, &json!({})).keep_result(&result(&prose(seed, 1024)));
    }
    session
}

fn keep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flow/keep a result");
    for size in [1024, 10 * 1024] {
        let (mut current, mut seed) = (session(), FINGERPRINTS);
        group.throughput(Throughput::Bytes(u64::try_from(size).unwrap()));
        group.bench_function(format!("{size} B"), |bencher| {
            let fresh = || {
                seed += 1;
                if seed.is_multiple_of(RESULTS) {
                    current = session();
                }
                (call(&current, &json!({})), result(&prose(seed, size)))
            };
            bencher.iter_batched(fresh, |(call, result)| call.keep_result(&result), BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn look_up(criterion: &mut Criterion) {
    let session = session();
    let mut group = criterion.benchmark_group("flow/look up arguments");
    for size in [200, 2048] {
        let new = json!({ "to": "somebody@example.org", "body": prose(usize::MAX, size - 60) });
        let seen = json!({ "to": "somebody@example.org", "body": prose(7, size - 60) });
        for (name, arguments) in [("new", new), ("seen before", seen)] {
            group.bench_function(format!("{size} B, {name}"), |bencher| {
                let fresh = || call(&session, &arguments);
                bencher.iter_batched(fresh, |call| black_box(call.origins()), BatchSize::SmallInput);
            });
        }
    }
    group.finish();
}

/// Measures the policy alone: what has to be looked up for it is measured above.
fn decision(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let plugins = PluginHost::new(None).unwrap();
    let config = PluginConfig {
        plugin: PluginRef::Builtin("flow".to_owned()),
        settings: json!({}),
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    };
    let policy = runtime.block_on(plugins.policy(&config)).unwrap();
    let labels = || vec![PRIVATE.to_owned(), UNTRUSTED.to_owned()];
    let origin = Origin {
        source: "mail".into(),
        exposed: "mail__read".into(),
        call: "01".into(),
        calls_ago: 2,
        labels: labels().into(),
        pointer: "/to".to_owned(),
    };
    let asks = StatedFlow { origins: vec![origin], traced: true, ..StatedFlow::unknown() };
    let passes = StatedFlow { effects: Vec::new(), ..asks.clone() };
    for (name, flow) in [("passes", passes), ("asks", asks)] {
        let view: CallView = testing::view(&json!({ "to": "x" }).to_string()).with_flow(Some(Arc::new(flow)));
        let mut group = criterion.benchmark_group(format!("flow/decision, {name}"));
        group.bench_function("back-to-back", |bencher| {
            bencher.iter(|| runtime.block_on(policy.check(&view)).unwrap());
        });
        group.bench_function("alone", |bencher| {
            bencher.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    std::thread::sleep(Duration::from_micros(500));
                    let start = Instant::now();
                    black_box(runtime.block_on(policy.check(&view)).unwrap());
                    spent += start.elapsed();
                }
                spent
            });
        });
        group.finish();
    }
}

criterion_group!(benches, keep, look_up, decision);
criterion_main!(benches);
