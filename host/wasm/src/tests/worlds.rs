//! Each world, with a well-behaved guest.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use portcullis_core::call::{Caller, Phase, SessionId};
use portcullis_test_support::guest;
use serde_json::json;

use super::super::testing::{plugins, tools};
use super::super::*;
use super::entry;
use portcullis_core::testing::{caller, view};

#[tokio::test]
async fn a_policy_sees_the_call_and_its_verdict_arrives() {
    let config = entry("plain", json!({ "refuse": "evil", "ask": "odd" }));
    let policy = plugins().policy(&config).await.unwrap();
    assert_eq!(policy.check(&view(r#"{"a":"fine"}"#)).await, Ok(Verdict::Pass));
    assert_eq!(policy.check(&view(r#"{"a":"odd"}"#)).await, Ok(Verdict::ask("odd", "read of files holds \"odd\"")));
    let message = "files__read holds \"evil\" in phase call".to_owned();
    let denial = Denial { code: "plain-refused".into(), message };
    assert_eq!(policy.check(&view(r#"{"a":"evil"}"#)).await, Ok(Verdict::Deny(denial)));
    assert!(policy.on(Phase::Call) && !policy.on(Phase::Result) && !policy.shadow());
}

#[tokio::test]
async fn the_identity_names_file_bytes_and_settings() {
    let load = async |settings| plugins().policy(&entry("plain", settings)).await.unwrap().identity().clone();
    let one = load(json!({ "ask": "a" })).await;
    assert_eq!(one.name, guest("plain").display().to_string());
    assert_eq!(one.digest, Digest::of(&std::fs::read(guest("plain")).unwrap()));
    assert_eq!(one, load(json!({ "ask": "a" })).await);
    assert_ne!(one.settings, load(json!({ "ask": "b" })).await.settings);
}

struct Kept(Mutex<Vec<(String, String, Vec<String>)>>);

impl Vault for Kept {
    fn protect(&self, kind: &str, value: &str, restore_to: Vec<String>) -> String {
        self.0.lock().unwrap().push((kind.into(), value.into(), restore_to));
        "{{placeholder}}".into()
    }
}

#[tokio::test]
async fn a_transform_rewrites_and_its_secrets_reach_the_vault() {
    let transform = plugins().transform(&entry("lie", json!({}))).await.unwrap();
    let vault = Arc::new(Kept(Mutex::default()));
    assert_eq!(transform.rewrite(&view(r#"{"a":1}"#), vault.clone()).await, Ok(TransformDecision::Keep));
    let changed = transform.rewrite(&view(r#"{"a":"a secret"}"#), vault.clone()).await;
    assert_eq!(changed, Ok(TransformDecision::Replace(Json::parse(r#"{"a":"a {{placeholder}}"}"#).unwrap())));
    let kept = vault.0.lock().unwrap().clone();
    assert_eq!(kept, [("word".to_owned(), "secret".to_owned(), vec!["files__*".to_owned()])]);
}

#[tokio::test]
async fn an_approval_plugin_settles() {
    let approval = plugins().approval(&entry("settle", json!({}))).await.unwrap();
    let concern = |code: &str, message: &str| Concern { code: code.into(), message: message.into() };
    let reasons = vec![concern("first", "one"), concern("second", "two")];
    let facts = |grants, grave| AskFacts { reasons: reasons.clone(), grants, grave };
    let offer = Offer { scopes: vec![AnswerScope::Once, AnswerScope::Session], valid_for: 900, uses: 3 };
    let harmless = approval.settle(&view("{}"), facts(vec![], false)).await;
    assert_eq!(harmless, Ok(Settlement::Question(offer)));
    let grant = |age| GrantFacts { id: "g1".into(), scope: AnswerScope::Session, age };
    let young = approval.settle(&view("{}"), facts(vec![grant(5)], true)).await;
    assert_eq!(young, Ok(Settlement::Remembered("g1".into())));
    let grave = approval.settle(&view(r#"{"a":"rm"}"#), facts(vec![grant(60)], true)).await;
    assert_eq!(
        grave,
        Ok(Settlement::Refuse(Denial { code: "grave".into(), message: "first: one; second: two".into() }))
    );
}

#[tokio::test]
async fn a_sink_appends_whole_batches_to_a_private_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let sink = plugins().sink(&entry("scribe", json!({})), &file).await.unwrap();
    let batch = |records: &[&str]| records.iter().map(|&record| record.to_owned()).collect::<Vec<_>>();
    sink.deliver(batch(&[r#"{"n":1}"#, r#"{"n":2}"#])).await.unwrap();
    for bad in [r#"{"split":1,"a":2}"#, r#"{"fail":1}"#] {
        let failure = sink.deliver(batch(&[r#"{"n":3}"#, bad])).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::Error);
    }
    sink.deliver(batch(&[r#"{"n":3}"#])).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// As a tree, the body takes more than a plugin's memory.
#[cfg(feature = "compiler")]
#[tokio::test]
async fn a_record_of_any_content_does_not_keep_jsonl_from_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let config =
        PluginConfig { plugin: PluginRef::Builtin("jsonl".into()), ..entry("scribe", json!({ "kinds": ["call.*"] })) };
    let sink = plugins().sink(&config, &file).await.unwrap();
    let body = format!("[{}0]", "[0],".repeat(250_000));
    let next = r#"{"kind":"call.intent","seq":2}"#;
    let large = format!(r#"{{"body":{body},"kind":"tool.completed","seq":1}}"#);
    sink.deliver(vec![large, next.into()]).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{next}\n"));
}

/// The feed gives such a plugin a substitute for the record; a receiver that is down gets it again for ever.
#[tokio::test]
async fn only_what_a_plugin_does_in_its_sandbox_is_a_failure_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let sink = plugins().sink(&entry("scribe", json!({ "trap": "odd" })), &folder.path().join("a")).await.unwrap();
    for (record, code, expected) in [("odd", FailureCode::Trap, true), (r#"{"fail":1}"#, FailureCode::Error, false)] {
        let failure = sink.deliver(vec![record.into()]).await.unwrap_err();
        assert_eq!((failure.code, sink.fails_by_itself(&failure)), (code, expected), "{failure}");
    }
}

#[tokio::test]
async fn a_sink_whose_file_cannot_be_opened_is_refused() {
    // A folder that cannot be created, because there is a file in its place.
    let in_the_way = tempfile::NamedTempFile::new().unwrap();
    let file = in_the_way.path().join("audit.jsonl");
    let error = plugins().sink(&entry("scribe", json!({})), &file).await.unwrap_err();
    assert!(error.to_string().contains(&format!("cannot write to {}", file.display())), "{error}");
}

#[tokio::test]
async fn a_sink_follows_no_link_to_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("real")).unwrap();
    std::fs::write(at("real/victim"), "").unwrap();
    std::os::unix::fs::symlink("real", at("linked")).unwrap();
    std::os::unix::fs::symlink("real/victim", at("audit.jsonl")).unwrap();
    for (file, hint) in [
        (at("audit.jsonl"), "name the file itself".to_owned()),
        (at("linked/new.jsonl"), format!("write {}", at("real/new.jsonl").display())),
    ] {
        let error = plugins().sink(&entry("scribe", json!({})), &file).await.map(drop).unwrap_err().to_string();
        assert!(error.contains(&hint), "{error}");
    }
    assert!(!at("real/new.jsonl").exists());
}

async fn counter(state: bool) -> ToolsComponent {
    let settings = json!({ "state": state });
    tools(plugins(), &PluginRef::Path(guest("counter")), &settings).await.unwrap()
}

async fn count(tools: &ToolsComponent, session: &SessionId) -> String {
    let result = tools.call(&caller(session), "count", &Json::empty_object()).await.unwrap();
    result.read::<serde_json::Value>().unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_state_every_call_is_the_first() {
    let tools = counter(false).await;
    assert!(!tools.keeps_state());
    assert_eq!(tools.definitions().await.unwrap().len(), 5);
    let session = SessionId::new();
    assert_eq!((count(&tools, &session).await, count(&tools, &session).await), ("1".into(), "1".into()));
}

#[tokio::test]
async fn with_state_each_session_has_its_own_and_a_trap_ends_only_that_one() {
    let tools = counter(true).await;
    assert!(tools.keeps_state());
    let (one, two) = (SessionId::new(), SessionId::new());
    assert_eq!((count(&tools, &one).await, count(&tools, &one).await), ("1".into(), "2".into()));
    assert_eq!(count(&tools, &two).await, "1");
    let failure = tools.call(&caller(&one), "panic", &Json::empty_object()).await.unwrap_err();
    assert!(matches!(&failure, ToolFailure::Component(failure) if failure.code == FailureCode::Trap), "{failure:?}");
    assert_eq!((count(&tools, &one).await, count(&tools, &two).await), ("1".into(), "2".into()));
    tools.end_session(&two);
    assert_eq!(count(&tools, &two).await, "1");
}

#[tokio::test]
async fn calls_of_one_session_come_one_after_the_other() {
    let tools = counter(true).await;
    let session = SessionId::new();
    let calls = (0..20).map(|_| count(&tools, &session));
    let mut counts: Vec<u32> =
        futures_util::future::join_all(calls).await.iter().map(|text| text.parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn beyond_the_limit_the_least_recently_used_session_ends() {
    // A separate host, because sessions of other sources count.
    let host = PluginHost::new(None).unwrap();
    let (plugin, settings) = (PluginRef::Path(guest("counter")), json!({ "state": true }));
    let access = ComponentAccess { instances: limits::SOURCE_INSTANCES_MOST, ..ComponentAccess::default() };
    let granted = host.component(&plugin, &settings, &[], access).await.unwrap();
    let ComponentKind::Tools(granted) = granted.kind else { panic!() };
    let counter = tools(&host, &plugin, &settings).await.unwrap();
    // However many sessions a source may keep, the slots of others stay free.
    for (tools, most) in [(counter, limits::SOURCE_INSTANCES), (granted, limits::TOOL_SLOTS / 2)] {
        let sessions: Vec<_> = (0..most).map(|_| SessionId::new()).collect();
        for session in &sessions {
            assert_eq!(count(&tools, session).await, "1");
        }
        assert_eq!(count(&tools, &sessions[0]).await, "2");
        assert_eq!(count(&tools, &SessionId::new()).await, "1");
        assert_eq!(count(&tools, &sessions[0]).await, "3");
        assert_eq!(count(&tools, &sessions[1]).await, "1");
    }
}

#[tokio::test]
async fn sources_that_keep_many_sessions_leave_slots_for_the_calls_of_others() {
    let host = PluginHost::new(None).unwrap();
    let (plugin, settings) = (PluginRef::Path(guest("counter")), json!({ "state": true }));
    let mut sources = Vec::new();
    for _ in 0..3 {
        sources.push(tools(&host, &plugin, &settings).await.unwrap());
    }
    let sessions: Vec<_> = (0..limits::SOURCE_INSTANCES).map(|_| SessionId::new()).collect();
    for session in &sessions {
        for source in &sources {
            assert_eq!(count(source, session).await, "1");
        }
    }
    let other = tools(&host, &plugin, &json!({})).await.unwrap();
    assert_eq!(count(&other, &sessions[0]).await, "1");
    for source in &sources {
        assert_eq!(count(source, sessions.last().unwrap()).await, "2");
        assert_eq!(count(source, &sessions[0]).await, "1");
    }
}

#[tokio::test]
async fn tools_that_cannot_be_listed_are_a_failure_in_the_components_own_words() {
    let tools = tools(plugins(), &PluginRef::Path(guest("counter")), &json!({ "down": true })).await.unwrap();
    let failure = tools.definitions().await.unwrap_err();
    assert_eq!(failure, PluginFailure::new(FailureCode::Error, "the exchange is closed"));
}

async fn granted(name: &str, grant: &[&str], access: ComponentAccess) -> Result<ToolsComponent, PluginError> {
    let grant: Vec<_> = grant.iter().map(|&word| word.to_owned()).collect();
    match plugins().component(&PluginRef::Path(guest(name)), &json!({}), &grant, access).await?.kind {
        ComponentKind::Tools(tools) => Ok(tools),
        other => panic!("{other:?}"),
    }
}

/// Returns the JSON that a tool answered as text.
fn told(answer: Result<Json, ToolFailure>) -> serde_json::Value {
    let answer: serde_json::Value = answer.unwrap().read().unwrap();
    serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_fails_its_call_and_the_next_call_opens_it() {
    for state in [false, true] {
        let settings = json!({ "state": state, "down": true });
        let tools = tools(plugins(), &PluginRef::Path(guest("counter")), &settings).await.unwrap();
        let answer = tools.call(&caller(&SessionId::new()), "count", &Json::empty_object()).await;
        let why = "the session could not be opened: the exchange is closed";
        assert_eq!(answer, Err(ToolFailure::Failed(why.into())), "{state}");
    }
    let folder = tempfile::tempdir().unwrap();
    let needed = folder.path().join("needed");
    let mut access =
        ComponentAccess { env: vec![("NEEDS".into(), needed.display().to_string())], ..ComponentAccess::default() };
    access.grant.read.push(folder.path().to_owned());
    let tools = granted("explorer", &[], access).await.unwrap();
    let caller = caller(&SessionId::new());
    let look = async || tools.call(&caller, "look", &Json::empty_object()).await;
    for _ in 0..2 {
        let answer = look().await;
        assert!(matches!(&answer, Err(ToolFailure::Failed(why)) if why.contains("needed: ")), "{answer:?}");
    }
    std::fs::write(&needed, "").unwrap();
    for calls in 1..=2 {
        assert_eq!(told(look().await)["calls"], calls);
    }
}

#[tokio::test]
async fn who_calls_is_refused_without_a_grant_and_the_error_names_the_line_to_add() {
    let refused = granted("thief", &[], ComponentAccess::default()).await.unwrap_err().to_string();
    let line = "portcullis:plugin/caller@0.1.0, which it is not granted: add `grant = [\"caller\"]` to its table";
    assert!(refused.contains(line), "{refused}");
}

#[tokio::test]
async fn a_granted_component_learns_who_calls_while_a_call_runs_and_at_no_other_time() {
    let access = ComponentAccess { env: vec![("PATIENT".into(), String::new())], ..ComponentAccess::default() };
    let tools = granted("thief", &["caller"], access).await.unwrap();
    assert!(tools.keeps_state());
    let nobody = "the caller is known only while a call is running";
    let definitions = tools.definitions().await.unwrap();
    let met = definitions.iter().find(|tool| tool.get_str("name").as_deref() == Some("meet")).unwrap();
    assert_eq!(met.get_str("description").unwrap(), format!("Meets {nobody}."));

    let session = SessionId::new();
    for (principal, profile) in [("user:ada", "work"), ("user:bob", "home")] {
        let one = Caller {
            principal: principal.parse().unwrap(),
            profile: profile.parse().unwrap(),
            ..Caller::clone(&caller(&session))
        };
        let answer = told(tools.call(&Arc::new(one), "meet", &Json::empty_object()).await);
        assert_eq!((&answer["configured"], &answer["opened"]), (&json!(nobody), &json!("user:ada")));
        let learnt = (&answer["principal"], &answer["profile"], &answer["session"]);
        assert_eq!(learnt, (&json!(principal), &json!(profile), &json!(session.as_str())));
    }
}
