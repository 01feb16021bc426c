//! A component in a registry, named by `oci://`. The registry is Debian's docker-registry.

use std::path::Path;
use std::process::Stdio;

use portcullis::digest::Digest;
use portcullis_test_support::guest;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::broker::{DEADLINE, TestDir, output};
use crate::installed;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[tokio::test(flavor = "multi_thread")]
async fn a_component_of_a_registry_is_pinned_and_called_and_then_needs_no_registry() {
    let Some(program) = installed::registry() else {
        eprintln!(
            "SKIPPED, AND NOTHING IS TESTED: there is no docker-registry, and tests/interop/setup.sh found none to unpack"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut registry, address) = start(&program, folder.path()).await;
    let first = push(&address, &std::fs::read(guest("shapes")).unwrap()).await;
    let dir = TestDir::bare(&format!("[sources.tagged]\ncomponent = \"oci://{address}/team/shapes:1\"\n"));

    let refused = output(dir.portcullis(&["tools"])).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("portcullis lock accept --components"), "{refused:?}");
    let accepted = dir.json(&["lock", "accept", "--components"]).await;
    assert_eq!((&accepted[0]["before"], &accepted[0]["now"]), (&Value::Null, &json!(first)));
    greets(&dir).await;

    // The tag moves, and the accepted component stays in use.
    let second = push(&address, &std::fs::read(guest("counter")).unwrap()).await;
    greets(&dir).await;
    registry.kill().await.unwrap();
    greets(&dir).await;
    let pinned = format!("[sources.tagged]\ncomponent = \"oci://{address}/team/shapes@{first}\"\n");
    std::fs::write(dir.path().join("portcullis.toml"), &pinned).unwrap();
    greets(&dir).await;

    // A component that was never fetched needs the registry.
    std::fs::write(dir.path().join("portcullis.toml"), pinned.replace(&first.to_string(), &second.to_string()))
        .unwrap();
    let refused = output(dir.portcullis(&["tools"])).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be fetched"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_pushed_signed_and_pulled_by_the_command_line() {
    let Some(program) = installed::registry() else {
        eprintln!("SKIPPED, AND NOTHING IS TESTED: there is no docker-registry");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_registry, address) = start(&program, folder.path()).await;
    let pair = rcgen::KeyPair::generate().unwrap();
    let dir = TestDir::bare("");
    std::fs::write(dir.path().join("team.pem"), pair.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("team.pub"), pair.public_key_pem()).unwrap();
    let tagged = format!("oci://{address}/team/shapes:1");
    let pushed = dir.run(&["plugin", "push", &guest("shapes").display().to_string(), &tagged]).await;
    let pinned = pushed.trim();
    let file = dir.at("pulled.wasm");
    dir.run(&["plugin", "pull", pinned, &file]).await;
    assert_eq!(dir.json(&["plugin", "inspect", &file]).await["world"], "functions");

    let config = format!("[broker]\nplugin-keys = [\"team.pub\"]\n[sources.tagged]\ncomponent = {pinned:?}\n");
    std::fs::write(dir.path().join("portcullis.toml"), config).unwrap();
    let refused = output(dir.portcullis(&["tools"])).await;
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("is not signed by a key of `plugin-keys`"),
        "{refused:?}"
    );
    let signed = dir.run(&["plugin", "sign", &tagged, "--key", &dir.at("team.pem")]).await;
    assert_eq!(signed.trim(), pinned);
    greets(&dir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_with_plugins_is_pushed_as_a_wit_package() {
    let Some(program) = installed::registry() else {
        eprintln!("SKIPPED, AND NOTHING IS TESTED: there is no docker-registry");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_registry, address) = start(&program, folder.path()).await;
    let dir = TestDir::bare("");
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../wit");
    let pushed = dir.run(&["plugin", "push", wit, &format!("oci://{address}/portcullis/plugin:0.1.0")]).await;
    let file = dir.at("plugin.wasm");
    dir.run(&["plugin", "pull", pushed.trim(), &file]).await;
    let decoded = wit_component::decode(&std::fs::read(file).unwrap()).unwrap();
    let package = &decoded.resolve().packages[decoded.package()];
    assert_eq!(package.name.to_string(), "portcullis:plugin@0.1.0");
    assert!(["policy-plugin", "tools-plugin"].iter().all(|world| package.worlds.contains_key(*world)), "{package:?}");
}

async fn greets(dir: &TestDir) {
    let said = dir.run(&["call", "tagged__greet", r#"{"name":"you"}"#]).await;
    assert!(said.contains("hello you"), "{said}");
}

/// Starts the registry and returns its address.
async fn start(program: &Path, folder: &Path) -> (Child, String) {
    let storage = json!({ "filesystem": { "rootdirectory": folder.join("storage") } });
    // JSON is valid YAML.
    let config = json!({ "version": 0.1, "storage": storage, "http": { "addr": "127.0.0.1:0" } });
    std::fs::write(folder.join("config.yml"), config.to_string()).unwrap();
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.join("config.yml")).env_clear().env("OTEL_TRACES_EXPORTER", "none");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut registry = command.spawn().unwrap();
    let mut lines = BufReader::new(registry.stderr.take().unwrap()).lines();
    let listening = async {
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, rest)) = line.split_once("listening on ") {
                return rest.split(['"', ' ', ',']).next().unwrap().to_owned();
            }
            said += &line;
        }
        panic!("the registry did not start: {said}");
    };
    let address = timeout(DEADLINE, listening).await.unwrap();
    tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
    (registry, address)
}

/// Pushes a component with the tag `1`, as registry tools do, and returns the digest of its manifest.
async fn push(address: &str, component: &[u8]) -> Digest {
    let base = format!("http://{address}/v2/team/shapes");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut described = Vec::new();
    for (kind, bytes) in [("application/vnd.wasm.config.v0+json", &b"{}"[..]), ("application/wasm", component)] {
        let digest = Digest::of(bytes);
        let begun = client.post(format!("{base}/blobs/uploads/")).send().await.unwrap();
        // The location already has a query.
        let to = format!("{}&digest={digest}", begun.headers()[LOCATION].to_str().unwrap());
        let put = client.put(to).body(bytes.to_vec());
        assert_eq!(put.send().await.unwrap().status(), 201);
        described.push(json!({ "mediaType": kind, "digest": digest, "size": bytes.len() }));
    }
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": [described[1]],
    });
    let manifest = manifest.to_string();
    let put = client.put(format!("{base}/manifests/1")).header(CONTENT_TYPE, MANIFEST).body(manifest.clone());
    assert_eq!(put.send().await.unwrap().status(), 201);
    Digest::of(manifest.as_bytes())
}
