//! Measures what one decision costs: a fresh instance of a small policy, of one with rules, and of one with 50 policies
//! in Cedar, compared with a native check.
//!
//! `alone` is a caller who comes when the next instance is ready; `back-to-back` is one who does not wait for it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::call::{CallView, Phase};
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::plugin::{PluginHost, Verdict};
use portcullis_core::testing;
use portcullis_test_support::{cedar_policies, guest};
use serde_json::json;

fn decision(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let plugins = PluginHost::new(None).unwrap();
    let view = view();
    let plain = config(PluginRef::Path(guest("plain")), json!({ "refuse": "evil" }));
    let rules = config(
        PluginRef::Builtin("rules".to_owned()),
        json!({
            "allow": ["files__*", "git__*"],
            "ask": ["*__write_*", { "tool": "*__move", "arguments": { "to": { "not": "/srv/*" } } }],
            "deny": ["*__delete_*", { "tool": "files__read", "arguments": { "path": "/etc/*" } }],
        }),
    );
    let cedar = config(PluginRef::Builtin("cedar".to_owned()), json!({ "policies": cedar_policies() }));
    for (name, config) in [("plain", plain), ("rules", rules), ("cedar", cedar)] {
        let policy = runtime.block_on(plugins.policy(&config)).unwrap();
        let mut group = criterion.benchmark_group(format!("decision/{name}"));
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
    criterion.bench_function("decision/native", |bencher| {
        bencher.iter(|| {
            let arguments = black_box(&view).call.arguments.as_str().to_owned();
            if arguments.contains(black_box("evil")) { Verdict::ask("evil", arguments) } else { Verdict::Pass }
        });
    });
}

fn config(plugin: PluginRef, settings: serde_json::Value) -> PluginConfig {
    PluginConfig { plugin, settings, on: vec![Phase::Call], shadow: false, grant: vec![], file: None }
}

/// Returns a call with a kilobyte of arguments.
fn view() -> CallView {
    testing::view(&json!({ "text": "x".repeat(1000) }).to_string())
}

criterion_group!(benches, decision);
criterion_main!(benches);
