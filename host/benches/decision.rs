//! What one decision costs: a fresh instance of a policy against the same test in this process.
//!
//! `alone` has a caller who comes when the next instance is ready; `back-to-back` one who does not wait for it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::call::{Call, CallId, Caller, Phase, Risk, SessionId, Trust, View};
use portcullis::catalog::Tool;
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::digest::Digest;
use portcullis::message::Json;
use portcullis::plugin::{Plugins, Verdict};
use portcullis_test_support::guest;

fn decision(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let plugins = Plugins::new(None).unwrap();
    let config = PluginConfig {
        plugin: PluginRef::Path(guest("plain")),
        settings: serde_json::json!({ "refuse": "evil" }),
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    };
    let policy = runtime.block_on(plugins.policy(&config)).unwrap();
    let view = view();

    let mut group = criterion.benchmark_group("decision");
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
    group.bench_function("native", |bencher| {
        bencher.iter(|| {
            let arguments = black_box(&view).call.arguments.as_str().to_owned();
            if arguments.contains(black_box("evil")) { Verdict::Ask(arguments) } else { Verdict::Pass }
        });
    });
    group.finish();
}

/// A call with a kilobyte of arguments.
fn view() -> View {
    let definition = Json::parse(r#"{"name":"read","inputSchema":{"type":"object"}}"#).unwrap();
    let tool = Tool {
        source: "files".parse().unwrap(),
        name: "read".into(),
        exposed: "files__read".into(),
        digest: Digest::of_json(&definition).unwrap(),
        definition,
        hints: Default::default(),
        tags: Arc::from([]),
    };
    let caller = Caller {
        principal: "local".into(),
        profile: "default".parse().unwrap(),
        trust: Trust::Medium,
        session: SessionId::new(),
        client: "bench/1".into(),
    };
    let call = Call {
        id: CallId::new(),
        received_at: 1,
        method: "tools/call".into(),
        caller: Arc::new(caller),
        tool: Arc::new(tool),
        risk: Risk::Risky,
        arguments: Json::of(&serde_json::json!({ "text": "x".repeat(1000) })),
        params: Json::empty_object(),
    };
    View::before(&Arc::new(call), Phase::Call)
}

criterion_group!(benches, decision);
criterion_main!(benches);
