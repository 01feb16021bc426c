//! Measures what a call of each kind of component costs: making an instance, and the call. The caller does not wait for
//! the next instance to be ready.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a bench")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::call::{Caller, SessionId, TrustLevel};
use portcullis::config::PluginRef;
use portcullis::plugin::{ComponentAccess, ComponentKind, PluginHost};
use portcullis::principal::Principal;
use portcullis::protocol::Json;
use portcullis_test_support::{guest, outside};
use serde_json::json;

fn component(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let plugins = PluginHost::new(Some(&cache.path().join("compiled"))).unwrap();
    let caller = Arc::new(Caller {
        principal: Principal::established("bench"),
        profile: "default".parse().unwrap(),
        trust: TrustLevel::Medium,
        session: SessionId::new(),
        client: "bench/1".into(),
    });
    let sum = Json::of(&json!({ "a": 20, "b": 22 }));
    let nothing = Json::empty_object();
    let text = Json::of(&json!({ "text": "one two three" }));
    let mut components = vec![
        ("calculator", PluginRef::Builtin("calculator".to_owned()), "add", &sum),
        ("filesystem", PluginRef::Builtin("filesystem".to_owned()), "list", &nothing),
        ("functions", PluginRef::Path(guest("shapes")), "nothing", &nothing),
        ("in Rust", PluginRef::Path(outside("tool-in-rust", "words")), "count", &text),
    ];
    // Present only if tests/interop/setup.sh has built them.
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/interop/examples");
    for (name, example) in [("in JavaScript", "tool-in-javascript"), ("in Python", "tool-in-python")] {
        let component = examples.join(example).join("words.wasm");
        components.extend(component.is_file().then_some((name, PluginRef::Path(component), "count", &text)));
    }
    for (name, plugin, tool, arguments) in components {
        let load = |plugins: &PluginHost| {
            let begin = Instant::now();
            let loaded = runtime.block_on(plugins.component(&plugin, &json!({}), &[], ComponentAccess::default()));
            (loaded.unwrap(), begin.elapsed())
        };
        let ((loaded, compiled), (_, again)) = (load(&plugins), load(&plugins));
        let next_start = load(&PluginHost::new(Some(&cache.path().join("compiled"))).unwrap()).1;
        println!("{name}: compiled in {compiled:?}; a second time {again:?}; at the next start {next_start:?}");
        criterion.bench_function(&format!("component/{name}"), |bencher| {
            bencher.iter(|| match &loaded.kind {
                ComponentKind::Tools(tools) => runtime.block_on(tools.call(&caller, tool, arguments)).unwrap(),
                ComponentKind::Functions(functions) => {
                    runtime.block_on(functions.call(&caller, tool, arguments)).unwrap()
                }
                ComponentKind::Command(_) => panic!("{name} is called"),
            });
        });
    }
}

criterion_group!(benches, component);
criterion_main!(benches);
