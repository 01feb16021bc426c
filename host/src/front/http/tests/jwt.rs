//! Tests of an issuer's tokens, and of forged ones.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::FutureExt as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};

use super::*;
use crate::config::JwtConfig;
use crate::front::http::jwt::TokenDenial;

/// A private key that was made for these tests.
const PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgS/uCJRtIuu1D8qCarJbopr9zbMJb8KBUeTRgd7ww4zmhRANCAAQTdtLP7Z/fZ8usH/fJjz+EAfBUVR+oPSg3zW3yMrotBkUpmqJ6adS2pzxnoG2WvLWcZ+cXt2tn5kW5ivzcsY+T";
const X: &str = "E3bSz-2f32fLrB_3yY8_hAHwVFUfqD0oN81t8jK6LQY";
const Y: &str = "RSmaonpp1LanPGegbZa8tZxn5xe3a2fmRbmK_Nyxj5M";

const ISSUER: &str = "https://login.example";
const RESOURCE: &str = "https://broker.example/mcp";

/// An issuer: the keys that it publishes, and how often they were requested.
struct Issuer {
    address: SocketAddr,
    keys: Arc<Mutex<Value>>,
    asked: Arc<AtomicUsize>,
    /// True if requests get no answer.
    silent: Arc<AtomicBool>,
}

fn public(kid: &str) -> Value {
    json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": X, "y": Y, "use": "sig", "alg": "ES256" })
}

impl Issuer {
    async fn new() -> Self {
        let shared = json!({ "kty": "oct", "kid": "shared", "k": URL_SAFE_NO_PAD.encode("s3cret") });
        let unknown = json!({ "kty": "new", "kid": "unknown" });
        let keys = Arc::new(Mutex::new(json!({ "keys": [unknown, shared, public("one")] })));
        let asked = Arc::new(AtomicUsize::new(0));
        let silent = Arc::new(AtomicBool::new(false));
        let (published, counted, quiet) = (Arc::clone(&keys), Arc::clone(&asked), Arc::clone(&silent));
        let app = Router::new().route(
            "/keys",
            get(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                let (text, quiet) = (published.lock().unwrap().to_string(), quiet.load(Ordering::Relaxed));
                async move { if quiet { std::future::pending().await } else { text } }
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, keys, asked, silent }
    }

    fn config(&self) -> JwtConfig {
        JwtConfig {
            issuer: ISSUER.to_owned(),
            resource: RESOURCE.parse().unwrap(),
            audience: RESOURCE.to_owned(),
            keys: format!("http://{}/keys", self.address).parse().unwrap(),
            principal: "sub".to_owned(),
            profiles: None,
            dangerous_allow_private: true,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn header(kid: &str) -> Header {
    Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::ES256) }
}

/// Returns valid claims with changes; null removes one.
fn claims(changes: &Value) -> Value {
    let now = get_current_timestamp();
    let mut claims = json!({ "iss": ISSUER, "aud": RESOURCE, "sub": "anna", "exp": now + 600, "nbf": now - 1 });
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn signed(header: &Header, changes: &Value) -> String {
    encode(header, &claims(changes), &EncodingKey::from_ec_der(&STANDARD.decode(PRIVATE).unwrap())).unwrap()
}

fn good(changes: &Value) -> String {
    signed(&header("one"), changes)
}

#[tokio::test]
async fn only_a_valid_token_of_the_issuer_for_this_server_is_accepted() {
    let issuer = Issuer::new().await;
    let verifier = JwtVerifier::new(&issuer.config()).unwrap();
    let verify = async |token: &str| verifier.verify(token.as_bytes(), &profile()).await;
    let admitted = verify(&good(&json!({}))).await.unwrap();
    assert_eq!((&*admitted.principal, admitted.profile), ("jwt:anna", profile()));
    assert!(verify(&good(&json!({ "aud": ["https://other.example", RESOURCE] }))).await.is_ok());
    let access_token = Header { typ: Some("at+JWT".to_owned()), ..header("one") };
    assert!(verify(&signed(&access_token, &json!({}))).await.is_ok());

    let now = get_current_timestamp();
    for (changes, expected) in [
        (json!({ "exp": now - 60 }), "it has expired"),
        (json!({ "exp": null }), "lacks one of"),
        (json!({ "nbf": now + 600 }), "not valid yet"),
        (json!({ "iss": "https://evil.example" }), "another issuer"),
        (json!({ "iss": format!("{ISSUER}/") }), "another issuer"),
        (json!({ "iss": [ISSUER] }), "another issuer"),
        (json!({ "iss": null }), "lacks one of"),
        (json!({ "aud": "https://other.example" }), "another audience"),
        (json!({ "aud": null }), "lacks one of"),
        (json!({ "sub": null }), "name its holder"),
        (json!({ "sub": "" }), "name its holder"),
        (json!({ "sub": "an\u{202e}na" }), "name its holder"),
        (json!({ "sub": "a".repeat(257) }), "name its holder"),
        (json!({ "cnf": { "jkt": "x" } }), "bound to a key"),
    ] {
        let Err(TokenDenial::Invalid(why)) = verify(&good(&changes)).await else { panic!("{changes}") };
        assert!(why.contains(expected), "{changes}: {why}");
    }
}

#[tokio::test]
async fn a_claim_that_is_there_twice_voids_a_token() {
    let issuer = Issuer::new().await;
    let verifier = JwtVerifier::new(&issuer.config()).unwrap();
    let head = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header("one")).unwrap());
    let claims = claims(&json!({ "act": { "sub": "program" } })).to_string();
    let verify = async |claims: &str| {
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let key = EncodingKey::from_ec_der(&STANDARD.decode(PRIVATE).unwrap());
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::ES256).unwrap();
        verifier.verify(format!("{signed}.{signature}").as_bytes(), &profile()).await
    };
    assert!(verify(&claims).await.is_ok());
    for (claim, twice) in [
        (r#""sub":"anna""#, r#""sub":"root","sub":"anna""#),
        (r#""sub":"anna""#, r#""sub":"anna","\u0073ub":"root""#),
        (r#""iss":"#, r#""iss":"https://evil.example","iss":"#),
        (r#""sub":"program""#, r#""sub":"program","sub":"other""#),
    ] {
        assert!(claims.contains(claim), "{claims}");
        let Err(TokenDenial::Invalid(why)) = verify(&claims.replacen(claim, twice, 1)).await else { panic!("{twice}") };
        assert!(why.contains("twice"), "{twice}: {why}");
    }
}

#[tokio::test]
async fn a_token_does_not_choose_how_it_is_checked() {
    let issuer = Issuer::new().await;
    let verifier = JwtVerifier::new(&issuer.config()).unwrap();
    let denied = async |token: String| match verifier.verify(token.as_bytes(), &profile()).await {
        Err(TokenDenial::Invalid(why)) => why,
        other => panic!("{token}: {other:?}"),
    };
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for alg in ["none", "None", ""] {
        let head = part(&json!({ "alg": alg, "kid": "one" }));
        assert_eq!(
            denied(format!("{head}.{}.", part(&claims(&json!({}))))).await,
            "it is not a JWT with a known algorithm"
        );
    }
    // Signed with the public key as a shared secret, or with a shared key that the issuer should not have published.
    let public_key = format!("{X}{Y}");
    for (kid, secret) in [("one", public_key.as_str()), ("one", X), ("shared", "s3cret")] {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) };
        let token = encode(&header, &claims(&json!({})), &EncodingKey::from_secret(secret.as_bytes())).unwrap();
        assert_eq!(denied(token).await, "its algorithm is not an asymmetric one");
    }
    let body = good(&json!({}));
    let (rest, signature) = body.rsplit_once('.').unwrap();
    let forged = URL_SAFE_NO_PAD.encode([7; 64]);
    assert_eq!(denied(format!("{rest}.{forged}")).await, "its signature is not valid");
    let (head, _) = rest.split_once('.').unwrap();
    let swapped = format!("{head}.{}.{signature}", part(&claims(&json!({ "sub": "root" }))));
    assert_eq!(denied(swapped).await, "its signature is not valid");
    for (header, expected) in [
        (Header { typ: Some("secevent+jwt".to_owned()), ..header("one") }, "another kind of token"),
        (Header { crit: Some(vec!["b64".to_owned()]), ..header("one") }, "`crit`"),
        (Header { kid: None, ..header("one") }, ""),
    ] {
        let token = signed(&header, &json!({}));
        if header.kid.is_none() {
            // There is a single usable key, so a token need not name it.
            assert!(verifier.verify(token.as_bytes(), &profile()).await.is_ok());
        } else {
            let why = denied(token).await;
            assert!(why.contains(expected), "{why}");
        }
    }
    for nonsense in ["", ".", "..", "a.b.c", &"x".repeat(10_000)] {
        denied(nonsense.to_owned()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_change_are_found_and_unknown_ones_cost_the_issuer_nothing() {
    let issuer = Issuer::new().await;
    let verifier = JwtVerifier::new(&issuer.config()).unwrap();
    let verify = async |kid: &str| verifier.verify(signed(&header(kid), &json!({})).as_bytes(), &profile()).await;
    verify("one").await.unwrap();
    for n in 0..50 {
        assert!(matches!(verify(&format!("guess-{n}")).await, Err(TokenDenial::Invalid(_))));
    }
    assert_eq!(issuer.asked(), 1);

    *issuer.keys.lock().unwrap() = json!({ "keys": [public("two")] });
    tokio::time::advance(Duration::from_secs(16)).await;
    verify("two").await.unwrap();
    assert!(verify("one").await.is_err(), "it was withdrawn");
    assert_eq!(issuer.asked(), 2);

    // While the issuer publishes nothing usable, its last keys count, but not for ever.
    *issuer.keys.lock().unwrap() = json!("down");
    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    verify("two").await.unwrap();
    tokio::time::advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(verify("two").await, Err(TokenDenial::NoKeys));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_does_not_answer_delays_one_caller_and_no_other() {
    let issuer = Issuer::new().await;
    let verifier = JwtVerifier::new(&issuer.config()).unwrap();
    let verify = async |kid: &str| verifier.verify(signed(&header(kid), &json!({})).as_bytes(), &profile()).await;
    verify("one").await.unwrap();
    issuer.silent.store(true, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(6 * 60)).await;

    let mut waiting = Vec::from_iter((0..5).map(|_| Box::pin(verify("one"))));
    // The first requests the keys, and the others find it at that.
    assert!(waiting[0].as_mut().now_or_never().is_none());
    for other in &mut waiting[1..] {
        assert!(other.as_mut().now_or_never().expect("it waits").is_ok());
    }
    assert!(waiting.swap_remove(0).await.is_ok());
    for n in 0..5 {
        assert!(matches!(verify(&format!("guess-{n}")).await, Err(TokenDenial::Invalid(_))));
    }
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test]
async fn claims_lead_to_one_profile_or_to_none() {
    let issuer = Issuer::new().await;
    let name = |text: &str| text.parse::<ProfileName>().unwrap();
    let profiles = BTreeMap::from([("staff".to_owned(), name("high")), ("guests".to_owned(), name("low"))]);
    let config = JwtConfig { profiles: Some(("groups".to_owned(), profiles)), ..issuer.config() };
    let verifier = JwtVerifier::new(&config).unwrap();
    for (groups, expected) in [
        (json!(["x", "staff"]), Ok(name("high"))),
        (json!("guests x"), Ok(name("low"))),
        (json!(["staff", "guests"]), Err(TokenDenial::NoProfile)),
        (json!([]), Err(TokenDenial::NoProfile)),
        (json!({ "staff": true }), Err(TokenDenial::NoProfile)),
        (Value::Null, Err(TokenDenial::NoProfile)),
    ] {
        let found = verifier.verify(good(&json!({ "groups": groups })).as_bytes(), &profile()).await;
        assert_eq!(found.map(|admitted| admitted.profile), expected, "{groups}");
    }
}

#[tokio::test]
async fn whoever_has_no_token_is_told_where_to_get_one() {
    let issuer = Issuer::new().await;
    let server = Server::serving(ServeConfig { jwt: Some(issuer.config()), ..config("127.0.0.1:0") }).await;
    let ping = || call(1, "ping", json!({}));
    let place = "resource_metadata=\"https://broker.example/.well-known/oauth-protected-resource/mcp\"";
    let nobody = server.client.post(server.url()).body(ping()).send().await.unwrap();
    let expired =
        server.client.post(server.url()).bearer_auth(good(&json!({ "exp": 1 }))).body(ping()).send().await.unwrap();
    for (refused, challenge) in
        [(nobody, format!("Bearer {place}")), (expired, format!("Bearer error=\"invalid_token\", {place}"))]
    {
        assert_eq!(refused.status(), 401);
        assert_eq!(refused.headers()["www-authenticate"], challenge);
    }
    assert_eq!(*server.fake.rejected.lock().unwrap(), ["token", "token"]);
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let said = server.client.get(format!("http://{}{path}", server.address)).send().await.unwrap();
        let said: Value = serde_json::from_str(&said.text().await.unwrap()).unwrap();
        assert_eq!((&said["resource"], &said["authorization_servers"]), (&json!(RESOURCE), &json!([ISSUER])));
    }
    let strange = format!("http://{}/.well-known/oauth-protected-resource/other", server.address);
    assert_eq!(server.client.get(strange).send().await.unwrap().status(), 404);

    // A session belongs to one caller. The issuer's tokens and the broker's own work side by side.
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t" } });
    let opened = server.post(call(0, "initialize", params.clone())).send().await.unwrap();
    assert_eq!(opened.status(), 200);
    server.events.expect("open default token t").await;
    let session = opened.headers()["mcp-session-id"].clone();
    let stolen = server.post(ping()).bearer_auth(good(&json!({}))).header("mcp-session-id", &session);
    assert_eq!(stolen.send().await.unwrap().status(), 401, "two tokens are none");
    let mine = server.client.post(server.url()).bearer_auth(good(&json!({})));
    let mine = mine.header("accept", "application/json, text/event-stream").header("content-type", "application/json");
    let stolen = mine.try_clone().unwrap().header("mcp-session-id", &session).body(ping()).send().await.unwrap();
    assert_eq!(stolen.status(), 404);
    assert_eq!(mine.body(call(0, "initialize", params)).send().await.unwrap().status(), 200);
    server.events.expect("open default jwt:anna t").await;
}

#[tokio::test]
async fn keys_at_a_private_address_are_not_asked_for_unless_that_is_meant() {
    let issuer = Issuer::new().await;
    let jwt = JwtConfig { dangerous_allow_private: false, ..issuer.config() };
    let serve = ServeConfig { jwt: Some(jwt), ..config("127.0.0.1:0") };
    let tokens = || Ok(CurrentTokens::fixed(AccessTokens::one(TOKEN.into())));
    let settings = FrontSettings::new(&serve, profile(), tokens, MAX_BODY);
    let error = settings.err().unwrap().to_string();
    assert!(error.contains("`keys` under [serve.jwt]") && error.contains("loopback"), "{error}");
}
