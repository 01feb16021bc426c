//! Registries on loopback that behave correctly, unless a test answers in their place.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use portcullis_core::digest::Digest;
use portcullis_core::limits;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{ComponentReference, ComponentStore, MAX_MANIFEST_BYTES, fetch, resolve};

mod push;

const COMPONENT: &[u8] = b"\0asm, as far as a registry knows";

type Instead = dyn Fn(&str, Option<&str>) -> Option<Response> + Send + Sync;

struct FakeRegistry {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
    folder: tempfile::TempDir,
}

fn manifest() -> Value {
    let layer = json!({ "mediaType": "application/wasm", "digest": Digest::of(COMPONENT), "size": COMPONENT.len() });
    json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [layer] })
}

/// Returns the manifest with one member of its layer changed.
fn with_layer(key: &str, value: Value) -> Value {
    let mut manifest = manifest();
    manifest["layers"][0][key] = value;
    manifest
}

impl FakeRegistry {
    /// Starts a registry. `instead` receives the path and the token, and may answer first. Otherwise the registry
    /// returns the manifest, by tag or by digest, and the component.
    async fn new(
        manifest: Value,
        instead: impl Fn(&str, Option<&str>) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, instead): (Arc<Mutex<Vec<String>>>, Arc<Instead>) = (Arc::default(), Arc::new(instead));
        let (log, manifest) = (Arc::clone(&asked), manifest.to_string());
        let app = Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
            let token = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            log.lock().unwrap().push(uri.to_string());
            let friendly = || match uri.path().strip_prefix("/v2/team/calc/") {
                Some(rest) if rest.starts_with("manifests/") => manifest.clone().into_response(),
                Some(rest) if rest == format!("blobs/{}", Digest::of(COMPONENT)) => COMPONENT.into_response(),
                _ => StatusCode::NOT_FOUND.into_response(),
            };
            let answer = instead(uri.path(), token.as_deref()).unwrap_or_else(friendly);
            async move { answer }
        });
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, asked, server, folder: tempfile::tempdir().unwrap() }
    }

    fn reference(&self, version: &str) -> ComponentReference {
        format!("oci://{}/team/calc{version}", self.address).parse().unwrap()
    }

    fn store(&self) -> ComponentStore {
        ComponentStore::new(self.folder.path())
    }

    async fn fetch(&self, digest: Digest) -> Result<Vec<u8>, String> {
        let reference = self.reference(&format!("@{digest}"));
        fetch(&self.store(), &reference, digest).await.map_err(|error| error.to_string())
    }

    /// Returns the files in the store.
    fn kept(&self) -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(self.folder.path().join("components")).into_iter().flatten();
        files.map(|file| file.unwrap().path()).collect()
    }
}

fn digest_of(manifest: &Value) -> Digest {
    Digest::of(manifest.to_string().as_bytes())
}

fn nothing_else(_: &str, _: Option<&str>) -> Option<Response> {
    None
}

#[tokio::test]
async fn a_component_is_fetched_once_and_needs_no_registry_afterwards() {
    let registry = FakeRegistry::new(manifest(), nothing_else).await;
    let digest = digest_of(&manifest());
    assert_eq!(registry.fetch(digest).await.unwrap(), COMPONENT);
    assert_eq!(registry.asked.lock().unwrap().len(), 2);
    assert_eq!(registry.kept().len(), 2);

    // Files that were altered on disk do not have the digest that is asked for, and are downloaded again.
    for file in registry.kept() {
        std::fs::write(file, b"altered").unwrap();
    }
    assert_eq!(registry.fetch(digest).await.unwrap(), COMPONENT);
    assert_eq!(registry.asked.lock().unwrap().len(), 4);

    registry.server.abort();
    assert!(registry.server.await.unwrap_err().is_cancelled());
    let reference = format!("oci://{}/team/calc@{digest}", registry.address).parse().unwrap();
    assert_eq!(fetch(&ComponentStore::new(registry.folder.path()), &reference, digest).await.unwrap(), COMPONENT);
}

#[tokio::test]
async fn a_tag_is_resolved_when_somebody_asks_for_that_and_moves_nothing_by_itself() {
    let moved = with_layer("annotations", json!({ "new": "yes" }));
    let latest = Arc::new(Mutex::new(manifest()));
    let served = Arc::clone(&latest);
    let registry = FakeRegistry::new(Value::Null, move |path, _| {
        path.contains("/manifests/").then(|| served.lock().unwrap().to_string().into_response())
    })
    .await;
    let tagged = registry.reference(":1");
    let first = resolve(&registry.store(), &tagged).await.unwrap();
    assert_eq!(first, digest_of(&manifest()));
    *latest.lock().unwrap() = moved.clone();
    assert_eq!(fetch(&registry.store(), &tagged, first).await.unwrap(), COMPONENT);
    assert_eq!(resolve(&registry.store(), &tagged).await.unwrap(), digest_of(&moved));
}

#[tokio::test]
async fn what_is_not_what_was_asked_for_is_refused_and_not_kept() {
    let blob = |answer: fn() -> Response| move |path: &str, _: Option<&str>| path.contains("/blobs/").then(answer);
    let cut_off = || {
        let chunks = [Ok(&COMPONENT[..8]), Err(io::Error::other("cut off"))];
        Body::from_stream(stream::iter(chunks)).into_response()
    };
    for (name, registry, reason) in [
        (
            "other bytes",
            FakeRegistry::new(manifest(), blob(|| COMPONENT.to_ascii_uppercase().into_response())).await,
            "instead of sha256:",
        ),
        (
            "fewer bytes",
            FakeRegistry::new(manifest(), blob(|| COMPONENT[1..].into_response())).await,
            "instead of sha256:",
        ),
        (
            "more bytes",
            FakeRegistry::new(manifest(), blob(|| vec![0; 1 << 20].into_response())).await,
            "more than 32 bytes",
        ),
        ("cut off", FakeRegistry::new(manifest(), blob(cut_off)).await, "broke"),
        ("gone", FakeRegistry::new(manifest(), blob(|| StatusCode::NOT_FOUND.into_response())).await, "does not exist"),
        ("fails", FakeRegistry::new(manifest(), blob(|| StatusCode::BAD_GATEWAY.into_response())).await, "status 502"),
    ] {
        let error = registry.fetch(digest_of(&manifest())).await.unwrap_err();
        assert!(error.contains(reason), "{name}: {error}");
        assert_eq!(registry.kept().len(), 1, "{name}: the manifest is good, and nothing else");
    }
}

#[tokio::test]
async fn a_manifest_that_leads_to_no_component_is_refused() {
    let layer = manifest()["layers"][0].clone();
    for (manifest, reason) in [
        (json!({ "schemaVersion": 2, "manifests": [] }), "an index of several artifacts"),
        (json!({ "schemaVersion": 2, "layers": [] }), "has 0 layers"),
        (json!({ "schemaVersion": 2, "layers": [layer, layer] }), "has 2 layers"),
        (with_layer("mediaType", json!("application/vnd.oci.image.layer.v1.tar+gzip")), "has 0 layers"),
        (
            with_layer("digest", json!(format!("sha512:{}", "0".repeat(128)))),
            "the digest of its layer is not supported",
        ),
        (with_layer("size", json!(limits::COMPONENT_BYTES + 1)), "the limit is"),
        (json!([]), "its manifest cannot be parsed"),
    ] {
        let registry = FakeRegistry::new(manifest.clone(), nothing_else).await;
        let error = registry.fetch(digest_of(&manifest)).await.unwrap_err();
        assert!(error.contains(reason), "{manifest}: {error}");
    }
    let registry = FakeRegistry::new(manifest(), nothing_else).await;
    let error = registry.fetch(Digest::of(b"another")).await.unwrap_err();
    assert!(error.contains(&digest_of(&manifest()).to_string()) && error.contains("instead of"), "{error}");
    assert_eq!(registry.kept().len(), 0);
}

#[tokio::test]
async fn a_manifest_without_end_is_given_up() {
    let endless = |path: &str, _: Option<&str>| {
        let chunks = stream::repeat_with(|| Ok::<_, io::Error>(vec![b' '; 64 << 10]));
        path.contains("/manifests/").then(|| Body::from_stream(chunks).into_response())
    };
    let registry = FakeRegistry::new(manifest(), endless).await;
    let error = registry.fetch(digest_of(&manifest())).await.unwrap_err();
    assert!(error.contains(&format!("more than {MAX_MANIFEST_BYTES} bytes")), "{error}");
}

#[tokio::test]
async fn a_registry_on_a_private_address_leads_to_no_other_private_address() {
    let other = FakeRegistry::new(manifest(), nothing_else).await;
    let elsewhere = format!("http://{}/v2/team/calc/blobs/{}", other.address, Digest::of(COMPONENT));
    let redirect = |to: String| {
        move |path: &str, _: Option<&str>| {
            let answer = || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to.clone())]).into_response();
            path.contains("/blobs/").then(answer)
        }
    };
    let realm = format!("Bearer realm=\"http://{}/token\"", other.address);
    let challenge = move |_: &str, _: Option<&str>| {
        Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, realm.clone())]).into_response())
    };
    let metadata = "http://169.254.169.254/latest".to_owned();
    for registry in [
        FakeRegistry::new(manifest(), redirect(elsewhere)).await,
        FakeRegistry::new(manifest(), redirect(metadata)).await,
        FakeRegistry::new(manifest(), challenge).await,
    ] {
        let error = registry.fetch(digest_of(&manifest())).await.unwrap_err();
        assert!(error.contains("may have such an address"), "{error}");
    }
    assert!(other.asked.lock().unwrap().is_empty());
    let within = |path: &str, _: Option<&str>| {
        let answer = || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/storage")]).into_response();
        (path == "/storage").then(|| COMPONENT.into_response()).or_else(|| path.contains("/blobs/").then(answer))
    };
    let registry = FakeRegistry::new(manifest(), within).await;
    assert_eq!(registry.fetch(digest_of(&manifest())).await.unwrap(), COMPONENT);
}

#[tokio::test]
async fn an_anonymous_token_is_requested_and_no_login_is_attempted() {
    let base = Arc::new(Mutex::new(String::new()));
    let realm = Arc::clone(&base);
    let registry = FakeRegistry::new(manifest(), move |path, token| {
        let challenge = format!(
            "Bearer realm=\"{}/token\",service=\"here\",scope=\"repository:team/calc:pull\"",
            realm.lock().unwrap()
        );
        match (path, token) {
            ("/token", _) => Some(json!({ "token": "s3same" }).to_string().into_response()),
            (_, Some("Bearer s3same")) => None,
            _ => Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()),
        }
    })
    .await;
    *base.lock().unwrap() = format!("http://{}", registry.address);
    assert_eq!(registry.fetch(digest_of(&manifest())).await.unwrap(), COMPONENT);
    let asked = registry.asked.lock().unwrap().clone();
    assert_eq!(asked[1], "/token?service=here&scope=repository%3Ateam%2Fcalc%3Apull");
    assert_eq!(asked.len(), 4, "one token for manifest and component: {asked:?}");

    for challenge in ["Basic realm=\"registry\"", "Bearer scope=\"x\""] {
        let refuse = move |_: &str, _: Option<&str>| {
            Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
        };
        let error = FakeRegistry::new(manifest(), refuse).await.fetch(digest_of(&manifest())).await.unwrap_err();
        assert!(error.contains("wants a login"), "{error}");
    }
}
