//! Measures what `builtin:redact` costs for a result of 10 KiB: ordinary prose, JSON, a log and source code, in which
//! nothing is found, and JSON with an e-mail address in each record.
//!
//! `ready` is a caller who comes when the next instance is ready: what the guest costs, with the copying of the text
//! there. `fresh` is one who does not wait for it: with making the instance. A result of two bytes is the share that no
//! text costs.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis::call::{CallView, Phase};
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::plugin::{PluginHost, Vault};
use portcullis::protocol::Json;
use portcullis_core::testing;
use portcullis_test_support::ordinary_results;
use serde_json::json;

/// A vault that keeps nothing.
struct NoVault;

impl Vault for NoVault {
    fn protect(&self, kind: &str, _value: &str, _restore_to: Vec<String>) -> String {
        format!("[[{kind}:a0011223344556ff]]")
    }
}

fn redact(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let plugins = PluginHost::new(None).unwrap();
    let config = PluginConfig {
        plugin: PluginRef::Builtin("redact".to_owned()),
        settings: json!({}),
        on: vec![Phase::Result],
        shadow: false,
        grant: vec![],
        file: None,
    };
    let transform = runtime.block_on(plugins.transform(&config)).unwrap();
    let empty = ("empty", "{}".to_owned());
    for (name, outcome) in std::iter::once(empty).chain(ordinary_results(10 << 10)) {
        let view = result(&outcome);
        let rewrite = || runtime.block_on(transform.rewrite(&view, Arc::new(NoVault))).unwrap();
        let mut group = criterion.benchmark_group(format!("redact/{name}"));
        group.throughput(Throughput::Bytes(outcome.len() as u64));
        group.bench_function("ready", |bencher| {
            bencher.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    std::thread::sleep(Duration::from_micros(500));
                    let start = Instant::now();
                    black_box(rewrite());
                    spent += start.elapsed();
                }
                spent
            });
        });
        group.bench_function("fresh", |bencher| bencher.iter(rewrite));
        group.finish();
    }
}

/// Returns a call with this outcome.
fn result(outcome: &str) -> CallView {
    testing::view("{}").with_outcome(Json::parse(outcome.to_owned()).unwrap(), false)
}

criterion_group!(benches, redact);
criterion_main!(benches);
