//! An MCP server that requires a login, and the authorization server that it trusts, at one loopback address. Both
//! behave correctly, unless a test answers in their place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::form_urlencoded;

use crate::config::{Config, Endpoint};
use crate::name::SourceName;
use crate::secret::SecretStore;
use crate::source::{Discovery, GivenValues, HttpSource, NoClient, Source as _, SourceError};

/// A request as a server received it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) bearer: Option<String>,
    pub(super) text: String,
}

impl Seen {
    /// Returns a parameter of the query or of the form.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let form = form_urlencoded::parse(self.text.as_bytes()).into_owned();
        self.query.iter().cloned().chain(form).find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// The state of the authorization server.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The number of tokens that were issued: only the last of `access-N` and `refresh-N` is valid.
    pub(super) given: usize,
    /// For how many seconds the next token is valid.
    pub(super) lasts: i64,
    pub(super) scope: String,
    /// The scope that the MCP server requires for listing tools.
    pub(super) wants: Option<&'static str>,
}

type Instead = dyn Fn(&Seen, &str) -> Option<Response> + Send + Sync;

pub(super) struct World {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) place: tempfile::TempDir,
    log: Arc<Mutex<Vec<Seen>>>,
}

impl World {
    /// Starts both servers. `instead` receives the request and the base URL of both, and may answer first.
    pub(super) async fn new(instead: impl Fn(&Seen, &str) -> Option<Response> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { lasts: 3600, ..State::default() }));
        let (log, instead): (Arc<Mutex<Vec<Seen>>>, Arc<Instead>) = (Arc::default(), Arc::new(instead));
        let (kept, shared) = (Arc::clone(&log), Arc::clone(&state));
        let app = Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let bearer = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
            let text = String::from_utf8(body.to_vec()).unwrap();
            let seen = Seen { path: uri.path().to_owned(), query, bearer, text };
            kept.lock().unwrap().push(seen.clone());
            let base = format!("http://{address}");
            let answer = instead(&seen, &base).unwrap_or_else(|| friendly(&seen, &base, &mut shared.lock().unwrap()));
            async move { answer }
        });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, state, place: tempfile::tempdir().unwrap(), log }
    }

    pub(super) async fn friendly() -> Self {
        Self::new(|_, _| None).await
    }

    /// Returns a configuration whose only source, `web`, is this server, with `more` lines of its own.
    pub(super) fn config(&self, more: &str) -> Config {
        let url = format!("http://{}/mcp", self.address);
        let text = format!("[sources.web]\nurl = \"{url}\"\ndangerous-allow-private = true\n{more}\n");
        Config::parse(&text, &self.place.path().join("portcullis.toml")).unwrap()
    }

    pub(super) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests for a path so far.
    pub(super) fn asked(&self, path: &str) -> Vec<Seen> {
        self.log.lock().unwrap().iter().filter(|seen| seen.path == path).cloned().collect()
    }

    /// Logs in with a browser that follows every redirect.
    pub(super) async fn login(&self, more: &str) -> Result<crate::login::LoginOutcome, super::OAuthError> {
        crate::login::login(&self.config(more), &web(), None, |address| drop(tokio::spawn(browse(address.to_owned()))))
            .await
    }

    /// Discovers the source as a newly started broker would.
    pub(super) async fn discover(&self) -> Result<Discovery, SourceError> {
        let source = self.source();
        let found = source.discover(&(Arc::new(NoClient) as _)).await;
        source.close().await;
        found
    }

    pub(super) fn source(&self) -> HttpSource {
        let config = self.config("");
        let source = &config.sources[&web()];
        let Endpoint::Url { .. } = &source.endpoint else { panic!("it has a `url`") };
        let given = GivenValues::new(&BTreeMap::new(), &SecretStore::open(&config.data_dir).unwrap());
        HttpSource::new(source, given, &config.data_dir, Arc::new(|_| {})).unwrap()
    }
}

pub(super) fn web() -> SourceName {
    "web".parse().unwrap()
}

/// Follows redirects like a browser whose user agrees to everything; returns the status of the last page.
pub(super) async fn browse(address: String) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(address).send().await.unwrap().status().as_u16()
}

pub(super) fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

pub(super) fn redirect(to: &str) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, to.to_owned())]).into_response()
}

/// Returns protected resource metadata with changes.
pub(super) fn resource(base: &str, changes: &Value) -> Response {
    let mut document = json!({ "resource": format!("{base}/mcp"), "authorization_servers": [base] });
    change(&mut document, changes);
    answer(&document)
}

/// Returns authorization server metadata with changes.
pub(super) fn server(base: &str, changes: &Value) -> Response {
    let mut document = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        "authorization_response_iss_parameter_supported": true,
    });
    change(&mut document, changes);
    answer(&document)
}

fn change(document: &mut Value, changes: &Value) {
    for (key, value) in changes.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
}

/// Redirects the browser back, with changes to the parameters that it brings.
pub(super) fn back(seen: &Seen, base: &str, changes: &[(&str, Option<&str>)]) -> Response {
    let state = seen.get("state").unwrap();
    let mut brings = vec![("code", "c0de-of-the-login"), ("state", &state), ("iss", base)];
    for (key, value) in changes {
        brings.retain(|(name, _)| name != key);
        brings.extend(value.map(|value| (*key, value)));
    }
    let mut to = url::Url::parse(&seen.get("redirect_uri").unwrap()).unwrap();
    to.query_pairs_mut().extend_pairs(brings);
    redirect(to.as_str())
}

fn friendly(seen: &Seen, base: &str, state: &mut State) -> Response {
    match seen.path.as_str() {
        "/mcp" => mcp(seen, base, state),
        "/.well-known/oauth-protected-resource/mcp" => resource(base, &json!({})),
        "/.well-known/oauth-authorization-server" => server(base, &json!({})),
        "/register" => (StatusCode::CREATED, answer(&json!({ "client_id": "registered" }))).into_response(),
        "/authorize" => {
            state.scope = seen.get("scope").unwrap_or_default();
            back(seen, base, &[])
        }
        "/token" => {
            let renewed = seen.get("grant_type").as_deref() == Some("refresh_token");
            if renewed && seen.get("refresh_token") != Some(format!("refresh-{}-s3cret", state.given)) {
                return (StatusCode::BAD_REQUEST, answer(&json!({ "error": "invalid_grant" }))).into_response();
            }
            state.given += 1;
            answer(&json!({
                "access_token": format!("access-{}-s3cret", state.given),
                "refresh_token": format!("refresh-{}-s3cret", state.given),
                "token_type": "bearer",
                "expires_in": state.lasts,
                "scope": state.scope,
            }))
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Answers as an MCP server of 2025-11-25 with one tool.
fn mcp(seen: &Seen, base: &str, state: &State) -> Response {
    let refuse = |status, more: String| {
        let metadata = format!("{base}/.well-known/oauth-protected-resource/mcp");
        (status, [(header::WWW_AUTHENTICATE, format!("Bearer resource_metadata=\"{metadata}\"{more}"))]).into_response()
    };
    if state.given == 0 || seen.bearer.as_deref() != Some(&format!("Bearer access-{}-s3cret", state.given)) {
        return refuse(StatusCode::UNAUTHORIZED, String::new());
    }
    let message: Value = serde_json::from_str(&seen.text).unwrap_or_default();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "w", "version": "1" },
        }),
        "tools/list" => match state.wants {
            Some(scope) if !state.scope.split(' ').any(|given| given == scope) => {
                let more = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
                return refuse(StatusCode::FORBIDDEN, more);
            }
            _ => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        },
        _ if message["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return answer(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
        }
    };
    answer(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}
