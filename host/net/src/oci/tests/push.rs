//! A registry on loopback that accepts pushes, and requires an account for them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use portcullis_core::digest::Digest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::{
    ComponentNames, ComponentReference, ComponentStore, OciError, RegistryLogin, is_signed, pull, push, sign,
};
use crate::signature::tests::key_pair;
use crate::signature::{SigningKey, TrustedKey};

const COMPONENT: &[u8] = b"\0asm, as far as a registry knows";

/// The way in which the registry requires people to log in.
#[derive(Clone, Copy, PartialEq)]
enum Wants {
    Nothing,
    Basic,
    Token,
    /// A token that is good for two requests and then counts as expired.
    ShortToken,
}

#[derive(Clone, Default)]
struct Content {
    /// The blobs by digest, and the manifests by tag and by digest.
    parts: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// The number of tokens that were issued, and of requests with the newest one.
    tokens: Arc<Mutex<(u32, u32)>>,
}

/// `ada:secret`
const BASIC: &str = "Basic YWRhOnNlY3JldA==";

impl Content {
    fn answer(
        &self,
        wants: Wants,
        address: SocketAddr,
        (method, uri, headers): (Method, Uri, HeaderMap),
        body: &Bytes,
    ) -> Response {
        self.asked.lock().unwrap().push(format!("{method} {uri}"));
        let sent = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
        let query = uri.query().unwrap_or_default();
        if uri.path() == "/token" {
            let token = match (sent == Some(BASIC), query.contains("pull%2Cpush")) {
                (true, true) => "may-push",
                (true, false) => "may-pull",
                (false, _) => "nothing",
            };
            let mut tokens = self.tokens.lock().unwrap();
            *tokens = (tokens.0 + 1, 0);
            return json!({ "token": format!("{token}-{}", tokens.0) }).to_string().into_response();
        }
        let reads = method == Method::GET || method == Method::HEAD;
        // A registry names what the refused request needs, and not what the client will do next.
        let actions = if reads { "pull" } else { "pull,push" };
        let scope = format!("repository:team/calc:{actions}");
        let (enough, challenge) = match wants {
            Wants::Nothing => (true, String::new()),
            Wants::Basic => (sent == Some(BASIC), "Basic realm=\"here\"".to_owned()),
            Wants::Token | Wants::ShortToken => {
                let mut tokens = self.tokens.lock().unwrap();
                let (allows, number) = sent.and_then(|sent| sent.rsplit_once('-')).unwrap_or_default();
                let enough = allows == "Bearer may-push" || (reads && allows == "Bearer may-pull");
                tokens.1 += u32::from(enough && number == tokens.0.to_string());
                (
                    enough && (wants == Wants::Token || (1..=2).contains(&tokens.1)),
                    format!("Bearer realm=\"http://{address}/token\",service=\"here\",scope=\"{scope}\""),
                )
            }
        };
        if !enough {
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
        }
        let path = uri.path().strip_prefix("/v2/team/calc/").unwrap();
        let (kind, name) = path.split_once('/').unwrap();
        let mut parts = self.parts.lock().unwrap();
        match (method, kind, name) {
            (Method::POST, "blobs", "uploads/") => {
                (StatusCode::ACCEPTED, [(header::LOCATION, "/v2/team/calc/upload/1?state=x")]).into_response()
            }
            (Method::PUT, "upload", "1") => {
                let digest = Digest::of(body).to_string();
                assert_eq!(query, format!("state=x&digest={}", digest.replace(':', "%3A")));
                parts.insert(digest, body.to_vec());
                StatusCode::CREATED.into_response()
            }
            (Method::PUT, "manifests", tag) => {
                assert_eq!(headers[header::CONTENT_TYPE], "application/vnd.oci.image.manifest.v1+json");
                parts.insert(Digest::of(body).to_string(), body.to_vec());
                parts.insert(tag.to_owned(), body.to_vec());
                StatusCode::CREATED.into_response()
            }
            (Method::GET | Method::HEAD, _, name) => match parts.get(name) {
                Some(part) => part.clone().into_response(),
                None => StatusCode::NOT_FOUND.into_response(),
            },
            other => panic!("{other:?}"),
        }
    }
}

async fn registry(wants: Wants) -> (ComponentReference, Content) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, content) = (listener.local_addr().unwrap(), Content::default());
    let served = content.clone();
    let app = Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
        let answer = served.answer(wants, address, (method, uri, headers), &body);
        async move { answer }
    });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (format!("oci://{address}/team/calc:1").parse().unwrap(), content)
}

fn ada() -> Option<RegistryLogin> {
    Some(RegistryLogin { username: "ada".to_owned(), password: "secret".to_owned() })
}

async fn pushed(reference: &ComponentReference, login: Option<RegistryLogin>) -> Result<Digest, OciError> {
    let names = ComponentNames { imports: &["a:b/c@1.0.0".to_owned()], exports: &[] };
    push(reference, login, COMPONENT, names).await
}

#[tokio::test]
async fn what_is_pushed_is_an_artifact_that_pull_reads() {
    for (wants, login) in [(Wants::Nothing, None), (Wants::Basic, ada()), (Wants::Token, ada())] {
        let (reference, content) = registry(wants).await;
        let digest = pushed(&reference, login.clone()).await.unwrap();
        let parts = content.parts.lock().unwrap().clone();
        let manifest: Value = serde_json::from_slice(&parts["1"]).unwrap();
        assert_eq!(Digest::of(&parts["1"]), digest);
        assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
        let config: Value = serde_json::from_slice(&parts[manifest["config"]["digest"].as_str().unwrap()]).unwrap();
        assert_eq!(
            (&config["architecture"], &config["component"]["imports"]),
            (&json!("wasm"), &json!(["a:b/c@1.0.0"]))
        );
        assert_eq!(config["layerDigests"], json!([Digest::of(COMPONENT)]));

        let (component, found) = pull(&reference, login.clone()).await.unwrap();
        assert_eq!((component.as_slice(), found), (COMPONENT, digest));
        // The same component has the same digest, and is not uploaded again.
        content.asked.lock().unwrap().clear();
        assert_eq!(pushed(&reference, login).await.unwrap(), digest);
        assert!(!content.asked.lock().unwrap().iter().any(|asked| asked.starts_with("POST")));
    }
}

#[tokio::test]
async fn a_token_that_expires_during_a_push_is_renewed() {
    let (reference, content) = registry(Wants::ShortToken).await;
    let digest = pushed(&reference, ada()).await.unwrap();
    let asked = content.asked.lock().unwrap().clone();
    let tokens = asked.iter().filter(|asked| asked.contains("/token?")).count();
    assert!(tokens > 1, "no token is good for a whole push: {asked:?}");
    assert!(asked.iter().all(|asked| !asked.contains("/token?") || asked.contains("calc%3Apull%2Cpush")), "{asked:?}");
    assert_eq!(pull(&reference, ada()).await.unwrap(), (COMPONENT.to_vec(), digest));
}

#[tokio::test]
async fn who_may_not_push_is_told_to_log_in() {
    let stranger = || Some(RegistryLogin { username: "eve".to_owned(), password: "guess".to_owned() });
    for (wants, login) in
        [(Wants::Basic, None), (Wants::Token, None), (Wants::Basic, stranger()), (Wants::Token, stranger())]
    {
        let (reference, content) = registry(wants).await;
        let error = pushed(&reference, login).await.unwrap_err().to_string();
        assert!(error.contains(&format!("docker login {}", reference.registry())), "{error}");
        assert!(!error.contains("guess") && content.parts.lock().unwrap().is_empty(), "{error}");
    }
}

#[tokio::test]
async fn a_signature_counts_for_one_digest_and_one_key_and_then_needs_no_registry() {
    let (reference, content) = registry(Wants::Nothing).await;
    let digest = pushed(&reference, None).await.unwrap();
    let key_pairs = || {
        std::iter::repeat_with(|| {
            let (private, public) = key_pair();
            (SigningKey::from_pem(&private).unwrap(), TrustedKey::from_pem(&public).unwrap())
        })
    };
    let [(ours, trusted), (theirs, strange)] = [key_pairs().next().unwrap(), key_pairs().next().unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let store = ComponentStore::new(folder.path());
    let signed =
        async |key: &TrustedKey, digest| is_signed(&store, &reference, digest, std::slice::from_ref(key)).await;
    assert!(!signed(&trusted, digest).await.unwrap(), "there is no signature yet");
    assert_eq!(sign(&reference, None, &theirs).await.unwrap(), digest);
    assert!(!signed(&trusted, digest).await.unwrap(), "another key");
    assert_eq!(sign(&reference, None, &ours).await.unwrap(), digest);
    assert!(signed(&trusted, digest).await.unwrap());
    assert!(signed(&strange, digest).await.unwrap(), "the earlier signature stays");
    let (last, newest) = key_pairs().next().unwrap();
    for (key, _) in key_pairs().take(20) {
        sign(&reference, None, &key).await.unwrap();
    }
    sign(&reference, None, &last).await.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let elsewhere = ComponentStore::new(empty.path());
    let found = is_signed(&elsewhere, &reference, digest, std::slice::from_ref(&newest)).await.unwrap();
    assert!(found, "however many others signed before");

    // The payload is signed for one digest: under the tag of another it does not count.
    let other = Digest::of(b"another manifest");
    let tag = |digest: Digest| format!("{}.sig", digest.to_string().replace(':', "-"));
    let copied = content.parts.lock().unwrap()[&tag(digest)].clone();
    content.parts.lock().unwrap().insert(tag(other), copied);
    assert!(!signed(&trusted, other).await.unwrap());

    content.parts.lock().unwrap().clear();
    assert!(signed(&strange, digest).await.unwrap(), "it is in the store");
}
