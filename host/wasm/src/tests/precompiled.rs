//! Components that were compiled elsewhere: loaded by their digest, they behave as the originals;
//! otherwise they are refused.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_test_support::guest;
use serde_json::json;

use super::super::testing::plugins;
use super::super::*;
use super::entry;
use portcullis_core::testing::view;

/// Compiles a guest into a file; returns the path, and the pinned reference as the configuration writes it.
async fn compiled(name: &str, folder: &Path, target: Option<&str>) -> (PathBuf, PluginRef) {
    let made = plugins().precompile(&PluginRef::Path(guest(name)), target).await.unwrap();
    let path = folder.join(name).with_extension("cwasm");
    fs::write(&path, &made).unwrap();
    (path.clone(), PluginRef::Pinned(path, Digest::of(&made)))
}

async fn definitions(plugin: &PluginRef) -> (Digest, Vec<Json>) {
    let component = plugins().component(plugin, &json!({}), &[], ComponentAccess::default()).await.unwrap();
    let definitions = match &component.kind {
        ComponentKind::Functions(functions) => functions.definitions(),
        ComponentKind::Tools(tools) => tools.definitions().await.unwrap(),
        ComponentKind::Command(_) => Vec::new(),
    };
    (component.kind.identity().digest, definitions)
}

#[tokio::test]
async fn a_component_compiled_elsewhere_behaves_as_the_original() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["counter", "shapes", "server"] {
        let (_, plugin) = compiled(name, folder.path(), None).await;
        assert_eq!(definitions(&plugin).await, definitions(&PluginRef::Path(guest(name))).await, "{name}");
    }
    let (_, plugin) = compiled("plain", folder.path(), None).await;
    let policy =
        plugins().policy(&PluginConfig { plugin, ..entry("plain", json!({ "refuse": "evil" })) }).await.unwrap();
    assert!(matches!(policy.check(&view(r#"{"path":"evil"}"#)).await, Ok(Verdict::Deny(_))));
    assert_eq!(policy.check(&view(r#"{"path":"good"}"#)).await, Ok(Verdict::Pass));
}

#[tokio::test]
async fn compiled_code_is_loaded_by_its_digest_alone() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = async |plugin: &PluginRef| {
        plugins().component(plugin, &json!({}), &[], ComponentAccess::default()).await.unwrap_err().to_string()
    };
    let (path, pinned) = compiled("counter", folder.path(), None).await;
    let text = refusal(&PluginRef::Path(path.clone())).await;
    assert!(text.contains("runs unchecked") && text.contains("cwasm@sha256:"), "{text}");

    let good = fs::read(&path).unwrap();
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let text = refusal(&pinned).await;
        assert!(text.contains("has changed") && text.contains(&Digest::of(&bad).to_string()), "{text}");
    }

    let foreign = folder.path().join("foreign.cwasm");
    fs::copy(guest("counter"), &foreign).unwrap();
    let digest = Digest::of(&fs::read(&foreign).unwrap());
    let text = refusal(&PluginRef::Pinned(foreign, digest)).await;
    assert!(text.contains("it is not what `portcullis plugin compile` makes"), "{text}");

    // Code for an interpreter does not load in this engine.
    let (_, portable) = compiled("counter", folder.path(), Some("pulley64")).await;
    let text = refusal(&portable).await;
    assert!(text.contains("was not compiled for this program"), "{text}");
    // Code for other processors is made here, and does not load here.
    for target in ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"] {
        let (path, code) = compiled("counter", folder.path(), Some(target)).await;
        assert!(fs::metadata(path).unwrap().len() > 10_000, "{target}");
        if !target.starts_with(std::env::consts::ARCH) {
            let text = refusal(&code).await;
            assert!(text.contains("was not compiled for this program"), "{target}: {text}");
        }
    }
    let unknown = plugins().precompile(&PluginRef::Path(guest("counter")), Some("abacus")).await.unwrap_err();
    assert!(unknown.to_string().contains("abacus"), "{unknown}");
}
