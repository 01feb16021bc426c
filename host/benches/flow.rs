//! Measures what information flow adds to a call: the decision of `builtin:flow`, keeping a result, and looking up
//! arguments in a session that has seen much. With `AGENTDOJO_CALLS`, it also measures all of that together for the
//! calls in a file that `tests/interop/agentdojo/calls.py` has written.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a bench")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use portcullis::call::{Call, CallView, Params, Phase};
use portcullis::config::{PluginConfig, PluginRef};
use portcullis::flow::{CallFlow as _, Effect, Origin, PRIVATE, StatedFlow, UNTRUSTED};
use portcullis::internal::{SessionFlow, SourceFlow, TracedCall};
use portcullis::plugin::{PluginHost, Policy};
use portcullis::protocol::{Json, Method};
use portcullis_core::testing;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

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

/// Returns a runtime whose one thread does all the work, so that time is processor time: an instance that is made for a
/// later decision counts as well, and no thread is woken.
fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn flow_policy(runtime: &Runtime, settings: Value) -> Policy {
    let plugins = PluginHost::new(None).unwrap();
    let config = PluginConfig {
        plugin: PluginRef::Builtin("flow".to_owned()),
        settings,
        on: vec![Phase::Call],
        shadow: false,
        grant: vec![],
        file: None,
    };
    runtime.block_on(plugins.policy(&config)).unwrap()
}

/// Measures only the policy: the lookups for it are measured above.
fn decision(criterion: &mut Criterion) {
    let runtime = one_thread();
    let policy = flow_policy(&runtime, json!({}));
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
        for (pause, name) in [(None, "back-to-back"), (Some(Duration::from_micros(500)), "alone")] {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|times| runtime.block_on(decisions(&policy, &view, pause, times)));
            });
        }
        group.finish();
    }
}

/// Returns the time of this many decisions, with a pause before each.
async fn decisions(policy: &Policy, view: &CallView, pause: Option<Duration>, times: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..times {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        let start = Instant::now();
        black_box(policy.check(view).await.unwrap());
        tokio::task::yield_now().await;
        spent += start.elapsed();
    }
    spent
}

/// A call of a user's task in AgentDojo's suites.
#[derive(Deserialize)]
struct RecordedCall {
    task: String,
    effects: Vec<String>,
    labels: Vec<String>,
    arguments: Value,
    result: Value,
}

impl RecordedCall {
    fn traced(&self, session: &Arc<SessionFlow>) -> (Arc<TracedCall>, Call) {
        let example = testing::view("{}").call;
        let params = Json::of(&json!({ "name": "tool", "arguments": self.arguments }));
        let params = Params::parse(&Method::ToolsCall, params);
        let call = Call::new(&Method::ToolsCall, params, &example.caller, Arc::clone(&example.item), example.risk);
        let effects: &[Effect] = match self.effects.len() {
            0 => &[],
            1 => &[Effect::Network],
            _ => &Effect::ALL,
        };
        (TracedCall::new(session, SourceFlow { labels: self.labels.as_slice().into(), effects }, &call), call)
    }
}

/// Measures what information flow adds to a call of AgentDojo's user tasks, on average: looking up its arguments, the
/// decision, what the ledger keeps of it, and keeping its result. Each task has a session of its own.
fn of_agentdojo(criterion: &mut Criterion) {
    let Some(file) = std::env::var_os("AGENTDOJO_CALLS") else { return };
    let lines = std::fs::read_to_string(file).unwrap();
    let calls: Vec<RecordedCall> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results: Vec<_> = calls.iter().map(|call| Json::of(&call.result)).collect();
    let runtime = one_thread();
    // Whatever may be a reason to ask, and nothing but text that reads like an instruction.
    for (setting, settings) in
        [("defaults", json!({})), ("instructions", json!({ "untrusted": "off", "private": "off" }))]
    {
        let policy = flow_policy(&runtime, settings);
        let mut group = criterion.benchmark_group(format!("flow/a call of AgentDojo, {setting}"));
        for (name, parts) in [("all", 0..3), ("looking up", 0..1), ("deciding", 1..2), ("keeping", 2..3)] {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|times| {
                    let replayed = || runtime.block_on(replayed(&policy, &calls, &results));
                    let spent =
                        (0..times).map(|_| replayed()[parts.clone()].iter().sum::<Duration>()).sum::<Duration>();
                    spent / u32::try_from(calls.len()).unwrap()
                });
            });
        }
        group.finish();
    }
}

/// Returns the times that information flow takes for calls with these results: for looking up their arguments, for the
/// decisions, and for what is kept in the ledger and in the session.
async fn replayed(policy: &Policy, calls: &[RecordedCall], results: &[Json]) -> [Duration; 3] {
    let (mut task, mut session, mut spent) = ("", Arc::default(), [Duration::ZERO; 3]);
    for (recorded, result) in calls.iter().zip(results) {
        if task != recorded.task {
            (task, session) = (&recorded.task, Arc::default());
        }
        let (traced, call) = recorded.traced(&session);
        let mut view = testing::view("{}").with_flow(Some(Arc::clone(&traced) as _));
        view.call = Arc::new(call);
        let start = Instant::now();
        black_box(traced.origins());
        let looked_up = Instant::now();
        black_box(policy.check(&view).await.unwrap());
        tokio::task::yield_now().await;
        let decided = Instant::now();
        black_box(traced.describe());
        traced.keep_result(result);
        spent[0] += looked_up - start;
        spent[1] += decided - looked_up;
        spent[2] += decided.elapsed();
    }
    spent
}

criterion_group!(benches, keep, look_up, decision, of_agentdojo);
criterion_main!(benches);
