//! Tests of the refusals at load and their messages, and of the faults that the cache of compiled code withstands.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use portcullis_test_support::guest;
use serde_json::json;

use super::super::testing::{plugins, tools};
use super::super::*;
use super::entry;
use portcullis_core::testing::view;

async fn refusal(config: &PluginConfig) -> String {
    plugins().policy(config).await.unwrap_err().to_string()
}

fn file(bytes: &[u8]) -> (tempfile::NamedTempFile, PluginConfig) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let config = PluginConfig { plugin: PluginRef::Path(file.path().to_owned()), ..entry("plain", json!({})) };
    (file, config)
}

#[tokio::test]
async fn what_is_no_component_is_refused() {
    for (bytes, reason) in [
        (b"(component)".as_slice(), "does not begin as WebAssembly"),
        (b"\0asm\x01\0\0\0", "wit-bindgen"),
        (b"\0asm\x0d\0\x01\0\xff", "WebAssembly component:"),
    ] {
        let (_file, config) = file(bytes);
        let text = refusal(&config).await;
        assert!(text.contains("is not a WebAssembly component") && text.contains(reason), "{text}");
    }
}

#[tokio::test]
async fn a_missing_file_and_a_missing_builtin_are_named() {
    let mut config = entry("plain", json!({}));
    config.plugin = PluginRef::Path("/nowhere/policy.wasm".into());
    assert!(refusal(&config).await.starts_with("/nowhere/policy.wasm cannot be read"));
    config.plugin = PluginRef::Builtin("rulez".into());
    assert!(refusal(&config).await.contains("`builtin:rulez`"));
}

#[tokio::test]
async fn what_is_not_what_it_was_pinned_to_is_refused_with_both_digests_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::copy(guest("plain"), &path).unwrap();
    let plain = Digest::of(&fs::read(&path).unwrap());
    let configured = |plugin| PluginConfig { plugin, ..entry("plain", json!({})) };
    let pinned = configured(PluginRef::Pinned(path.clone(), plain));
    let mut lock = portcullis_core::lockfile::Lockfile::default();
    lock.pin_component(&path.display().to_string(), plain);
    let locked = PluginHost::with_reader(None, PluginReader::new(folder.path(), None, &lock)).unwrap();
    let by_path = configured(PluginRef::Path(path.clone()));
    plugins().policy(&pinned).await.unwrap();
    locked.policy(&by_path).await.unwrap();

    // Loaded without a pin first, so that its compiled code exists and only the pin can refuse it.
    fs::copy(guest("loop"), &path).unwrap();
    plugins().policy(&by_path).await.unwrap();
    let now = Digest::of(&fs::read(&path).unwrap());
    for (refused, hint) in [
        (plugins().policy(&pinned).await, "write what it is now"),
        (locked.policy(&by_path).await, "`portcullis lock accept --components`"),
    ] {
        let text = refused.unwrap_err().to_string();
        for part in [&path.display().to_string(), &plain.to_string(), &now.to_string(), hint] {
            assert!(text.contains(part), "{text}: {part}");
        }
    }
}

#[tokio::test]
async fn a_pin_within_the_folder_of_the_configuration_holds_wherever_that_folder_is() {
    let (folder, moved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (before, after) = (folder.path().join("policy.wasm"), moved.path().join("policy.wasm"));
    let plain = Digest::of(&fs::read(guest("plain")).unwrap());
    let mut lock = portcullis_core::lockfile::Lockfile::default();
    lock.pin_component(&PluginRef::Path(before).locked_name(Some(folder.path())), plain);
    let reader = PluginReader::new(moved.path(), Some(moved.path()), &lock);
    let locked = PluginHost::with_reader(None, reader).unwrap();
    let configured = PluginConfig { plugin: PluginRef::Path(after.clone()), ..entry("plain", json!({})) };
    fs::copy(guest("plain"), &after).unwrap();
    locked.policy(&configured).await.unwrap();
    fs::copy(guest("loop"), &after).unwrap();
    let refused = locked.policy(&configured).await.unwrap_err().to_string();
    assert!(refused.contains("`portcullis lock accept --components`"), "{refused}");
}

/// A source that runs is not kept after a reload that configures other keys, so that its signature is checked again.
#[tokio::test]
async fn the_digest_of_a_plugins_content_changes_with_the_keys_that_must_have_signed_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::copy(guest("plain"), &path).unwrap();
    let plugin = PluginRef::Path(path);
    let keys = [
        "LilRozz6BkNaI9gPT5v3YPIFl7kG\nd0DPmldKpdDNsOjViSpAyiEUdYTWb24SoU9hRYgCpTYfjFsOyXCMc3qHdA==",
        "Ro8NtHkoP+JhujWXE2jso1zOfG6r\nytPksSe/4ipqPHJHyX23Ka7e1kZM3XhJlpHRyyHdIgucav7elcuMrI53Zg==",
    ];
    let file = folder.path().join("team.pub");
    let mut digests = vec![PluginReader::default().content(&plugin).await];
    for key in keys {
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE{key}\n-----END PUBLIC KEY-----\n"
        );
        fs::write(&file, pem).unwrap();
        digests.push(PluginReader::default().trusting(std::slice::from_ref(&file)).unwrap().content(&plugin).await);
    }
    assert!(digests.iter().all(Option::is_some), "{digests:?}");
    digests.sort_by_key(|digest| digest.as_ref().map(ToString::to_string));
    digests.dedup();
    assert_eq!(digests.len(), 3, "{digests:?}");
}

#[tokio::test]
async fn the_wrong_world_is_refused() {
    let text = refusal(&entry("counter", json!({}))).await;
    assert!(text.contains("no policy plugin") && text.contains("portcullis:plugin/tools@0.1.0"), "{text}");
}

#[tokio::test]
async fn another_track_is_refused() {
    let text = refusal(&entry("old-abi", json!({}))).await;
    assert!(text.contains("built for portcullis:plugin@0.0.9; this host serves 0.1"), "{text}");
}

#[tokio::test]
async fn an_import_without_a_grant_is_refused_by_name() {
    let text = refusal(&entry("wasi-env", json!({}))).await;
    assert!(text.contains("wasi:cli/environment@0.2") && text.contains("no grant exists"), "{text}");
    let memory = tools(plugins(), &PluginRef::Builtin("memory".into()), &json!({})).await;
    let text = memory.unwrap_err().to_string();
    assert!(text.contains("portcullis:plugin/key-value@0.1.0") && text.contains(r#"grant = ["key-value"]"#), "{text}");
}

#[test]
fn what_only_a_source_can_be_granted_is_not_offered_to_a_policy() {
    for interface in ["caller", "key-value"] {
        let import = format!("portcullis:plugin/{interface}@0.1.0");
        assert_eq!(load::remedy(&import, true), format!("add `grant = [\"{interface}\"]` to its table"));
        assert_eq!(load::remedy(&import, false), "it belongs to another kind of plugin");
    }
}

#[tokio::test]
async fn the_log_needs_no_grant_and_an_unknown_grant_is_refused() {
    let mut config = entry("logger", json!({}));
    let policy = plugins().policy(&config).await.unwrap();
    assert_eq!(policy.check(&view("{}")).await, Ok(Verdict::Pass));
    for word in ["network", "log", "key-value"] {
        config.grant = vec![word.into()];
        let text = refusal(&config).await;
        assert!(text.contains(&format!("`{word}` in the grants")) && text.contains("`log` needs no grant"), "{text}");
    }
}

#[tokio::test]
async fn refused_settings_name_the_plugin_and_the_field() {
    let text = refusal(&entry("plain", json!({ "wrong": true }))).await;
    assert!(text.contains("guest_plain.wasm refuses its settings: unknown field `wrong`"), "{text}");
}

#[tokio::test]
async fn a_plugin_is_configured_once_for_all_or_else_in_each_instance() {
    let linked = async |settings: serde_json::Value| {
        let host = Arc::clone(plugins().host().unwrap());
        let wasm = plugins().reader.read(&PluginRef::Path(guest("plain"))).await.unwrap();
        let prepare =
            move || load::prepare::<v0_1::PolicyWorld>(&host, &wasm, &AllowedImports::default(), settings.to_string());
        blocking(prepare).await.unwrap()
    };
    // Its memory has no space left for what reading it takes.
    let hoard = json!({ "refuse": "evil", "hoard": "all" });
    assert_eq!(linked(hoard.clone()).await.settings, Some(hoard.to_string()));
    for settings in [json!({ "refuse": "evil" }), json!({ "refuse": "odd" }), json!({ "hoard": "most" })] {
        assert_eq!(linked(settings).await.settings, None);
    }
    for (settings, word) in
        [(json!({ "refuse": "evil" }), "evil"), (json!({ "refuse": "odd" }), "odd"), (hoard, "evil")]
    {
        let policy = plugins().policy(&entry("plain", settings)).await.unwrap();
        for _ in 0..3 {
            let denied = policy.check(&view(&json!({ "path": word }).to_string())).await;
            assert!(matches!(denied, Ok(Verdict::Deny(_))), "{denied:?}");
            assert_eq!(policy.check(&view(r#"{"path":"good"}"#)).await, Ok(Verdict::Pass));
        }
    }
}

#[tokio::test]
async fn inspection_shows_what_a_plugin_wants() {
    let inspect = async |name| plugins().inspect(&PluginRef::Path(guest(name))).await.unwrap();
    let log = inspect("logger").await;
    assert_eq!(log.world, "policy");
    assert_eq!(log.size as u64, fs::metadata(guest("logger")).unwrap().len());
    let import = log.imports.iter().find(|import| import.name.contains("/log@")).unwrap();
    assert_eq!((import.grant, &import.refused), (None, &None));
    let wasi = inspect("wasi-env").await;
    let import = wasi.imports.iter().find(|import| import.name.starts_with("wasi:cli/environment")).unwrap();
    assert!(import.grant.is_none() && import.refused.is_some());
    assert_eq!(inspect("old-abi").await.world, "policy");
    assert_eq!(inspect("counter").await.world, "tools");
    assert_eq!(inspect("shapes").await.world, "functions");
    let server = inspect("server").await;
    assert!(server.world == "command" && server.imports.iter().all(|import| import.refused.is_none()), "{server:?}");
    let dialer = inspect("dialer").await;
    assert!(dialer.imports.iter().any(|import| import.name.starts_with("wasi:sockets/")));
    assert!(dialer.imports.iter().all(|import| import.refused.is_none()), "a source may import a network: {dialer:?}");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect()
}

/// Returns the entries that a plugin with settings has made: the reader of the settings, then the configured plugin.
fn oldest_first<const N: usize>(folder: &Path) -> [PathBuf; N] {
    let mut all = entries(folder);
    all.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    all.try_into().unwrap()
}

#[tokio::test]
async fn other_settings_compile_a_plugin_once_and_not_twice() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("compiled");
    let load = async |settings| {
        PluginHost::new(Some(&folder)).unwrap().policy(&entry("plain", settings)).await.unwrap();
    };
    load(json!({ "first": 1 })).await;
    let [reads_settings, configured] = oldest_first(&folder);
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = [&reads_settings, &configured].map(|path| inode(path));
    load(json!({ "second": 2 })).await;
    assert_eq!([&reads_settings, &configured].map(|path| inode(path)), before, "an entry was written again");
    assert_eq!(entries(&folder).len(), 3);
}

#[tokio::test]
async fn compiled_code_is_private_and_an_altered_entry_is_made_again() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("compiled");
    let load = async || PluginHost::new(Some(&folder)).unwrap().policy(&entry("plain", json!({}))).await.unwrap();
    load().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("key"))), (0o700, 0o600));
    let [_, path] = oldest_first(&folder);
    let good = fs::read(&path).unwrap();

    // An unaltered entry is loaded, not compiled: the file stays the same.
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    load().await;
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);

    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        assert_eq!(load().await.check(&view("{}")).await, Ok(Verdict::Pass));
        assert_ne!(fs::read(&path).unwrap(), bad, "the altered entry was kept");
    }
    fs::write(&path, b"short").unwrap();
    load().await;
    assert!(fs::read(&path).unwrap().len() > 1000);
}

#[tokio::test]
async fn equal_plugins_share_their_compiled_code() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("compiled");
    let host = PluginHost::new(Some(&folder)).unwrap();
    let policy = async |settings| drop(host.policy(&entry("plain", settings)).await.unwrap());
    policy(json!({})).await;
    let [_, configured] = oldest_first(&folder);
    fs::remove_file(&configured).unwrap();
    policy(json!({})).await;
    assert_eq!(entries(&folder).len(), 1, "it was loaded or compiled again");
    policy(json!({ "other": 1 })).await;
    assert_eq!(entries(&folder).len(), 2, "settings are part of what is loaded");
}

#[tokio::test]
async fn an_entry_under_another_name_is_not_loaded() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("compiled");
    let host = PluginHost::new(Some(&folder)).unwrap();
    host.policy(&entry("plain", json!({}))).await.unwrap();
    host.policy(&entry("loop", json!({}))).await.unwrap();
    let [_, plain, _, endless] = oldest_first(&folder);
    fs::copy(&plain, &endless).unwrap();
    let policy = host.policy(&entry("loop", json!({}))).await.unwrap();
    assert_eq!(policy.check(&view("{}")).await.unwrap_err().code, FailureCode::Deadline);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("compiled");
    let open = || PluginHost::new(Some(&folder)).map(drop);
    open().unwrap();
    fs::set_permissions(folder.join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    fs::set_permissions(folder.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("chmod 700"), "{error}");
}

#[tokio::test]
async fn the_built_in_plugins_fit_their_worlds_and_need_no_grant() {
    for (name, world) in [
        ("rules", "policy"),
        ("cedar", "policy"),
        ("approval-memory", "approval"),
        ("redact", "transform"),
        ("jsonl", "audit"),
        ("calculator", "tools"),
    ] {
        let found = plugins().inspect(&PluginRef::Builtin(name.into())).await.unwrap();
        assert_eq!(found.world, world, "{name}");
        let wants = found.imports.iter().find(|import| import.grant.is_some() || import.refused.is_some());
        assert_eq!(wants, None, "{name}");
    }
    let calculator = PluginRef::Builtin("calculator".into());
    let tools = tools(plugins(), &calculator, &json!({})).await.unwrap();
    assert!(!tools.definitions().await.unwrap().is_empty());
}

#[tokio::test]
async fn more_sources_than_there_are_slots_start_and_answer() {
    let folder = tempfile::tempdir().unwrap();
    let host = PluginHost::new(Some(&folder.path().join("compiled"))).unwrap();
    let calculator = PluginRef::Builtin("calculator".into());
    let mut sources = Vec::new();
    for _ in 0..limits::TOOL_SLOTS + 16 {
        sources.push(tools(&host, &calculator, &json!({})).await.unwrap());
    }
    for source in &sources {
        assert_eq!(source.definitions().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn the_engine_starts_with_the_first_plugin() {
    let host = PluginHost::new(None).unwrap();
    assert!(host.shared.started.get().is_none());
    host.policy(&entry("plain", json!({}))).await.unwrap();
    assert!(host.clone().shared.started.get().is_some(), "a clone shares it");
}
