//! A source that needs files and a host, and that tries to read what it does not need.

use std::io::BufRead as _;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::exit;

use serde_json::{Value, json};

use crate::send;

/// Serves until its input ends. It does not start without the file `settings`. `read_note` and `write_note` use a path,
/// `save_note` writes another file and renames it to a path, `lookup` resolves a host, `dial` connects to a port of
/// another, `socket` makes a socket that every cell denies, and `peek` reads a key from the home next to the settings.
pub(crate) fn run(settings: &str) -> ! {
    if let Err(error) = std::fs::read_to_string(settings) {
        eprintln!("NEEDY_SETTINGS: cannot read {settings}: {error}");
        exit(1);
    }
    let key = Path::new(settings).ancestors().nth(2).unwrap_or(Path::new("/")).join("home/.ssh/id_rsa");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = message.get("id") else { continue };
        let params = message.get("params").cloned().unwrap_or_default();
        let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "needy", "version": "1" },
            }),
            "tools/list" => json!({ "tools": tools() }),
            "tools/call" => call(&params, &key),
            _ => {
                send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } }));
                continue;
            }
        };
        send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
    exit(0)
}

fn tools() -> Value {
    let with = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required });
    let text = json!({ "type": "string" });
    json!([
        { "name": "read_note", "inputSchema": with(json!({ "path": text }), json!(["path"])) },
        { "name": "write_note", "inputSchema": with(json!({ "path": text, "text": text }), json!(["path", "text"])) },
        { "name": "save_note", "inputSchema": with(json!({ "path": text, "text": text }), json!(["path", "text"])) },
        { "name": "lookup", "inputSchema": with(json!({}), json!([])) },
        { "name": "dial", "inputSchema": with(json!({}), json!([])) },
        { "name": "peek", "inputSchema": with(json!({}), json!([])) },
        { "name": "socket", "inputSchema": with(json!({}), json!([])) },
    ])
}

fn call(params: &Value, key: &Path) -> Value {
    let argument =
        |name: &str| params.pointer(&format!("/arguments/{name}")).and_then(Value::as_str).unwrap_or_default();
    // As programs say it.
    fn named<T>(path: &Path, done: std::io::Result<T>) -> std::io::Result<T> {
        done.map_err(|error| std::io::Error::new(error.kind(), format!("{error}: '{}'", path.display())))
    }
    let path = Path::new(argument("path"));
    let done = match params.get("name").and_then(Value::as_str).unwrap_or_default() {
        "read_note" => named(path, std::fs::read_to_string(path)),
        "write_note" => named(path, std::fs::write(path, argument("text")).map(|()| "written".to_owned())),
        "save_note" => {
            let new = path.with_extension("tmp");
            let made = named(&new, std::fs::write(&new, argument("text")));
            made.and_then(|()| named(path, std::fs::rename(&new, path))).map(|()| "saved".to_owned())
        }
        "lookup" => "api.example.test:443".to_socket_addrs().map(|found| format!("{found:?}")),
        "dial" => TcpStream::connect("db.example.test:4711").map(|_| "connected".to_owned()),
        "socket" => UnixDatagram::unbound().map(|_| "made".to_owned()),
        _ => named(key, std::fs::read_to_string(key)),
    };
    let (text, failed) = match done {
        Ok(text) => (text, false),
        Err(error) => (error.to_string(), true),
    };
    json!({ "content": [{ "type": "text", "text": text }], "isError": failed })
}
