//! A remote source that requires a login, from the first refusal to a call with a token; and what such a source never
//! gets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::Running;
use crate::test_dir::TestDir;
use crate::web::Server;

const OPEN: &str = "[profiles.default]\napprove = \"never\"\n";

/// A web server that keeps the requests it gets. A function returns each answer: the status line with headers, and the
/// body.
struct Remote {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Remote {
    fn start(answer: impl Fn(&str, u16) -> (String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let (head, body) = answer(&request, port);
                    kept.lock().unwrap().push(request);
                    let length = body.len();
                    // The client may have gone.
                    let _ = write!(
                        &stream,
                        "HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
                         Connection: close\r\n\r\n{body}"
                    );
                });
            }
        });
        Self { port, seen }
    }

    fn source(&self, more: &str) -> String {
        let port = self.port;
        format!("{OPEN}[sources.web]\nurl = \"http://127.0.0.1:{port}/mcp\"\ndangerous-allow-private = true\n{more}\n")
    }

    fn seen(&self) -> String {
        self.seen.lock().unwrap().join("\n----\n")
    }
}

/// Returns the head and body of a request, or `None` if the peer closed the connection.
fn read(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        reader.read_line(&mut text).ok().filter(|read| *read > 0)?;
    }
    let length = text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(text + &String::from_utf8(body).unwrap())
}

/// Answers as an MCP server of 2025-11-25 with the tool `t`.
fn mcp(request: &str) -> (String, String) {
    let message: Value = serde_json::from_str(request.rsplit("\r\n\r\n").next().unwrap()).unwrap_or_default();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "w", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "done" }] }),
        _ if message["id"].is_null() => return ("202 Accepted".to_owned(), String::new()),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return ok(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
        }
    };
    ok(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn ok(body: &Value) -> (String, String) {
    ("200 OK".to_owned(), body.to_string())
}

/// Answers as an MCP server that requires a login, and as the authorization server that it trusts.
fn wants_login(request: &str, port: u16) -> (String, String) {
    let base = format!("http://127.0.0.1:{port}");
    let path = request.split(' ').nth(1).unwrap();
    match path.split('?').next().unwrap() {
        "/.well-known/oauth-protected-resource" => {
            ok(&json!({ "resource": format!("{base}/mcp"), "authorization_servers": [base] }))
        }
        "/.well-known/oauth-authorization-server" => ok(&json!({
            "issuer": base,
            "authorization_endpoint": format!("{base}/authorize"),
            "token_endpoint": format!("{base}/token"),
            "registration_endpoint": format!("{base}/register"),
            "revocation_endpoint": format!("{base}/revoke"),
            "code_challenge_methods_supported": ["S256"],
        })),
        "/revoke" => ok(&json!({})),
        "/register" => ok(&json!({ "client_id": "registered" })),
        "/authorize" => {
            let given = |name: &str| path.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)).unwrap();
            let back = given("redirect_uri=").replace("%3A", ":").replace("%2F", "/");
            (format!("302 Found\r\nLocation: {back}?code=the-c0de&state={}", given("state=")), String::new())
        }
        "/token" => ok(&json!({ "access_token": "issued-s3cret", "token_type": "Bearer", "expires_in": 3600 })),
        "/mcp" if request.to_ascii_lowercase().contains("authorization: bearer issued-s3cret\r\n") => mcp(request),
        "/mcp" => {
            let metadata = format!("{base}/.well-known/oauth-protected-resource");
            (format!("401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"{metadata}\""), String::new())
        }
        _ => ("404 Not Found".to_owned(), String::new()),
    }
}

/// Fetches a page of this machine and returns the location that it redirects to.
fn browse(address: &str) -> Option<String> {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page.lines().find_map(|line| line.strip_prefix("Location: ")).map(str::to_owned)
}

#[test]
fn a_login_makes_calls_possible_and_a_logout_revokes_its_tokens() {
    let remote = Remote::start(wants_login);
    let dir = TestDir::new(&remote.source(""));
    let checked = dir.run(&["check"]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("needs login: run `portcullis login web`"), "{}", checked.out);
    let refused = dir.run(&["call", "web__t"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("needs login: run `portcullis login web`"), "{}", refused.err);

    // The broker runs during the login and needs no restart.
    let mut server = Server::start(&dir);
    let mut login = Running::start(dir.command(&["login", "web"]));
    let address = login.says("http://127.0.0.1");
    let back = browse(address.trim()).unwrap();
    assert_eq!(browse(&back), None);
    let (code, said) = login.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("logged in to web"), "{said}");
    assert_eq!(server.endpoint.session(&json!({})).call("web__t", &json!({})).unwrap()["ok"], "done");
    assert_eq!(dir.run(&["call", "web__t"]).code, Some(0));

    let out = dir.run(&["logout", "web"]);
    assert_eq!(out.code, Some(0));
    assert!(out.err.contains("is forgotten, and its server has revoked the tokens"), "{}", out.err);
    assert!(remote.seen().contains("POST /revoke"));
    let refused = dir.run(&["call", "web__t"]);
    assert!(refused.err.contains("needs login"), "{}", refused.err);
    assert_eq!(dir.run(&["logout", "web"]).code, Some(1));
    server.running.signal(Signal::TERM);
    let (_, said) = server.running.ended();
    let told = [checked.out, refused.err, said, format!("{:?}", dir.records())].concat();
    assert!(!told.contains("issued-s3cret") && !told.contains("the-c0de"), "{told}");
}

#[test]
fn a_token_for_the_broker_reaches_no_source() {
    let remote = Remote::start(|request, _| mcp(request));
    let dir = TestDir::new(&format!(
        "{}[serve.callers.ci]\ntoken = \"the-token-of-ci\"\nprofile = \"default\"\n",
        remote.source("headers = { X-Mine = \"listed\" }")
    ));
    let mut server = Server::start(&dir);
    let endpoint = server.endpoint.clone();
    assert_eq!(endpoint.session(&json!({})).call("web__t", &json!({})).unwrap()["ok"], "done");
    let ci = endpoint.with_token("the-token-of-ci");
    assert_eq!(ci.session(&json!({})).call("web__t", &json!({})).unwrap()["ok"], "done");
    assert!(ci.modern("tools/list", json!({})).is_some());
    let seen = remote.seen().to_ascii_lowercase();
    assert!(seen.contains("x-mine: listed"), "{seen}");
    let own = std::fs::read_to_string(dir.data("token")).unwrap().trim().to_ascii_lowercase();
    assert!(!seen.contains("authorization") && !seen.contains("the-token-of-ci") && !seen.contains(&own), "{seen}");
    assert!(dir.records_of("run.started").iter().any(|record| record.to_string().contains("token:ci")));
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.ended().0, Some(0));
}
