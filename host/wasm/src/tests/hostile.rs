//! Guests that misbehave while they run: the failure has the right code, and no other plugin is disturbed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use portcullis_test_support::guest;
use serde_json::json;

use super::super::testing::{plugins, tools};
use super::super::*;
use super::{entry, unhurried};
use portcullis_core::testing::{caller, view};

/// Takes decisions alongside a hostile guest of this host until that has ended, and returns how many there were.
async fn undisturbed<T>(host: &PluginHost, hostile: impl Future<Output = T>) -> (T, usize) {
    let plain = host.policy(&entry("plain", json!({ "refuse": "evil" }))).await.unwrap();
    // Its first instance is made before the hostile guest runs.
    assert_eq!(plain.check(&view(r#"{"path":"good"}"#)).await, Ok(Verdict::Pass));
    let decided = AtomicUsize::new(0);
    let beside = async {
        loop {
            assert_eq!(plain.check(&view(r#"{"path":"good"}"#)).await, Ok(Verdict::Pass));
            assert!(matches!(plain.check(&view(r#"{"path":"evil"}"#)).await, Ok(Verdict::Deny(_))));
            decided.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = hostile => (done, decided.load(Ordering::Relaxed)),
        () = beside => unreachable!(),
    }
}

/// Returns how a hostile policy of this host fails. It runs twice: the second time shows that the first left nothing
/// behind.
async fn fails(host: &PluginHost, name: &str, arguments: &str) -> FailureCode {
    let policy = host.policy(&entry(name, json!({}))).await.unwrap();
    let view = view(arguments);
    let (both, decided) = undisturbed(host, async { (policy.check(&view).await, policy.check(&view).await) }).await;
    let (first, second) = (both.0.unwrap_err(), both.1.unwrap_err());
    assert_eq!(first, second);
    assert!(name != "loop" || decided > 0, "nothing was decided beside {name}");
    first.code
}

#[tokio::test]
async fn a_loop_meets_its_deadline() {
    assert_eq!(fails(plugins(), "loop", "{}").await, FailureCode::Deadline);
}

#[tokio::test]
async fn growth_meets_the_memory_limit() {
    assert_eq!(fails(unhurried(), "grow", "{}").await, FailureCode::Memory);
}

#[tokio::test]
async fn a_panic_is_a_trap() {
    assert_eq!(fails(plugins(), "trap", r#"{"do":"panic"}"#).await, FailureCode::Trap);
}

#[tokio::test]
async fn endless_recursion_is_a_trap() {
    assert_eq!(fails(plugins(), "trap", r#"{"do":"recurse"}"#).await, FailureCode::Trap);
}

#[tokio::test]
async fn too_many_calls_to_the_host_are_a_failure() {
    assert_eq!(fails(unhurried(), "trap", r#"{"do":"chatter"}"#).await, FailureCode::HostCalls);
}

#[tokio::test]
async fn an_error_of_the_plugin_is_a_failure_in_its_words() {
    let policy = plugins().policy(&entry("plain", json!({}))).await.unwrap();
    let failure = policy.check(&view(r#"{"a":"please fail"}"#)).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::Error);
    assert_eq!(failure.detail, "cannot read the arguments");
}

#[tokio::test]
async fn a_loop_in_configure_stops_the_start() {
    let (result, _) = undisturbed(plugins(), plugins().policy(&entry("loop", json!({ "in": "configure" })))).await;
    match result {
        Err(PluginError::Start { code, .. }) => assert_eq!(code, FailureCode::Deadline.as_str()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_that_breaks_the_contract_is_a_failure() {
    struct NoVault;
    impl Vault for NoVault {
        fn protect(&self, _: &str, _: &str, _: Vec<String>) -> String {
            unreachable!()
        }
    }
    let transform = plugins().transform(&entry("lie", json!({}))).await.unwrap();
    for (lie, named) in [
        ("no json", "its JSON"),
        ("no object", "not an object"),
        ("huge", "more than 8192 KiB"),
        ("bad code", "Not A Code"),
    ] {
        let view = view(&json!({ "do": lie }).to_string());
        let (result, _) = undisturbed(plugins(), transform.rewrite(&view, Arc::new(NoVault))).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.code, FailureCode::Output, "{lie}: {failure}");
        assert!(failure.detail.contains(named), "{lie}: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_looping_plugin_makes_no_other_plugin_fail_under_load() {
    let plain = plugins().policy(&entry("plain", json!({ "refuse": "evil" }))).await.unwrap();
    let hostile = plugins().policy(&entry("loop", json!({}))).await.unwrap();
    let noise = tokio::spawn(async move {
        loop {
            assert_eq!(hostile.check(&view("{}")).await.unwrap_err().code, FailureCode::Deadline);
        }
    });
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let plain = plain.clone();
            tokio::spawn(async move {
                for _ in 0..250 {
                    assert_eq!(plain.check(&view(r#"{"path":"good"}"#)).await, Ok(Verdict::Pass));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    noise.abort();
    assert!(noise.await.unwrap_err().is_cancelled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_decisions_of_a_plugin_take_turns_and_no_more_memory() {
    let host = PluginHost::new(None).unwrap();
    let policy = host.policy(&entry("loop", json!({}))).await.unwrap();
    let decided: Vec<_> = (0..16)
        .map(|_| {
            let policy = policy.clone();
            tokio::spawn(async move { policy.check(&view("{}")).await })
        })
        .collect();
    let mut most = 0;
    while !decided.iter().all(tokio::task::JoinHandle::is_finished) {
        let free = host.host().unwrap().decisions.free.available_permits();
        most = most.max(limits::DECISION_SLOTS as usize - free);
        tokio::task::yield_now().await;
    }
    for decision in decided {
        assert_eq!(decision.await.unwrap().unwrap_err().code, FailureCode::Deadline);
    }
    let processors = std::thread::available_parallelism().unwrap().get().max(2);
    // In addition to the running ones there is the stock, and one that is being made for it.
    assert!(most <= processors + limits::READY_INSTANCES + 1, "{most} instances at once");
}

#[tokio::test]
async fn dropping_a_call_frees_its_slot() {
    let host = PluginHost::new(None).unwrap();
    let tools = tools(&host, &portcullis_config::PluginRef::Path(guest("counter")), &json!({})).await.unwrap();
    let (caller, arguments) = (caller(&portcullis_core::call::SessionId::new()), Json::empty_object());
    let mut call = Box::pin(tools.call(&caller, "spin", &arguments));
    for _ in 0..3 {
        // Each poll runs the guest until it sees a tick.
        let running = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
        assert!(running);
    }
    drop(call);
    let only_the_stock_is_held = async {
        while host.host().unwrap().tools.free.available_permits()
            != limits::TOOL_SLOTS as usize - limits::READY_INSTANCES
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), only_the_stock_is_held).await.unwrap();
    assert!(tools.call(&caller, "count", &arguments).await.is_ok());
}
