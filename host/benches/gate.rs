//! Measures what a whole call costs inside the broker, from session to a component source and back: without plugins,
//! under rules, and under rules with a transform and a sink. Intents are durable, so a single caller waits for the
//! disk; 16 callers share the wait.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a bench")]

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use portcullis::agent::NoAgent;
use portcullis::broker::Broker;
use portcullis::config::Config;
use portcullis::protocol::{Answer, Json};
use portcullis_jail::Launcher;

const SOURCE: &str = r#"
[profiles.default]
approve = "never"
[sources.calc]
component = "builtin:calculator"
"#;

const RULES: &str = r#"
[[policies]]
plugin = "builtin:rules"
settings.allow = ["calc__*"]
settings.deny = [{ tool = "calc__subtract", arguments = { b = 1000 } }]
"#;

const REDACT_AND_JSONL: &str = r#"
[[transforms]]
plugin = "builtin:redact"
[[sinks]]
plugin = "builtin:jsonl"
"#;

/// Calls in flight, as many as a busy team has.
const CALLERS: u64 = 16;

fn gate(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = [
        ("no plugin", SOURCE.to_owned()),
        ("rules", format!("{SOURCE}{RULES}")),
        ("rules+redact+jsonl", format!("{SOURCE}{RULES}{REDACT_AND_JSONL}")),
    ];
    for (name, config) in rows {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::parse(&config, &dir.path().join("portcullis.toml")).unwrap();
        let broker = runtime.block_on(Broker::build(config, Launcher::SelfExec)).unwrap();
        let profile = "default".parse().unwrap();
        let session = runtime.block_on(broker.open_session(&profile, &"bench".parse().unwrap(), "bench/1")).unwrap();
        let call = || {
            let session = session.clone();
            async move {
                let params = Json::parse(r#"{"name":"calc__add","arguments":{"a":20,"b":22}}"#).unwrap();
                match session.request("tools/call", params, Arc::new(NoAgent)).await {
                    Answer::Result(result) => result,
                    Answer::Error(error) => panic!("the call was not let through: {}", error.as_str()),
                }
            }
        };
        let mut group = criterion.benchmark_group(format!("gate/{name}"));
        group.throughput(Throughput::Elements(1));
        group.bench_function("alone", |bencher| bencher.iter(|| runtime.block_on(call())));
        group.throughput(Throughput::Elements(CALLERS));
        group.bench_function("16 callers", |bencher| {
            bencher.iter(|| {
                let calls: Vec<_> = (0..CALLERS).map(|_| runtime.spawn(call())).collect();
                runtime.block_on(join_all(calls)).into_iter().for_each(|result| drop(result.unwrap()));
            });
        });
        group.finish();
        runtime.block_on(broker.shutdown());
    }
}

criterion_group!(benches, gate);
criterion_main!(benches);
