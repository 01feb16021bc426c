//! A tool source on the standard library, built for wasm32-wasip2: it looks around, and breaks its limits when asked
//! to. With a variable `NEEDS` it keeps state, and opens a session only if there is a file of that name.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

wit_bindgen::generate!({ path: "../../../wit", world: "tools-plugin" });

use exports::portcullis::plugin::tools::{self, Failure, Guest, GuestSession};
use serde_json::{Value, json};

const TOOLS: [&str; 10] = ["look", "read", "write", "change", "sleep", "spin", "grow", "recurse", "flood", "hoard"];

struct Explorer;

impl Guest for Explorer {
    type Session = Session;

    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn definitions() -> Result<String, String> {
        if std::env::var_os("SLOW").is_some() {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        Ok(json!(TOOLS.map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }))).to_string())
    }

    fn keeps_state() -> bool {
        std::env::var_os("NEEDS").is_some()
    }
}

#[derive(Default)]
struct Session {
    calls: Cell<u32>,
}

impl GuestSession for Session {
    fn open() -> Result<tools::Session, String> {
        if let Ok(file) = std::env::var("NEEDS") {
            std::fs::metadata(&file).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(tools::Session::new(Self::default()))
    }

    fn call(&self, tool: String, arguments: String) -> Result<String, Failure> {
        self.calls.set(self.calls.get() + 1);
        let arguments: Value = serde_json::from_str(&arguments).unwrap_or_default();
        let text = |key: &str| arguments[key].as_str().unwrap_or_default();
        let said = |error: std::io::Error| Failure::Failed(error.to_string());
        let answer = match tool.as_str() {
            "look" => json!({
                "calls": self.calls.get(),
                "arguments": std::env::args().collect::<Vec<_>>(),
                "environment": std::env::vars().collect::<std::collections::BTreeMap<_, _>>(),
                "time": std::time::SystemTime::UNIX_EPOCH.elapsed().map(|time| time.as_secs()).unwrap_or_default(),
            })
            .to_string(),
            "read" => std::fs::read_to_string(text("path")).map_err(said)?,
            "write" => std::fs::write(text("path"), text("text")).map(|()| "written".to_owned()).map_err(said)?,
            "change" => {
                // More often than a component may hold handles.
                let changed = (0..300).map(|_| change(text("how"), text("path"), text("to"))).last();
                changed.unwrap_or(Ok(())).map(|()| "changed".to_owned()).map_err(said)?
            }
            "sleep" => {
                std::thread::sleep(std::time::Duration::from_secs(3600));
                String::new()
            }
            "spin" => loop {
                std::hint::black_box(());
            },
            "grow" => {
                let mut hoard = Vec::new();
                loop {
                    hoard.push(vec![1_u8; 1 << 20]);
                }
            }
            "recurse" => recurse(arguments.to_string().len()).to_string(),
            "hoard" => {
                let mut held = Vec::new();
                loop {
                    held.push(std::fs::File::open(std::env::var("HOARD").unwrap_or_default()).map_err(said)?);
                }
            }
            "flood" => "x".repeat(16 << 20),
            _ => return Err(Failure::UnknownTool),
        };
        Ok(json!({ "content": [{ "type": "text", "text": answer }] }).to_string())
    }
}

/// Changes a path in one of the ways that the interface has.
fn change(how: &str, path: &str, to: &str) -> std::io::Result<()> {
    match how {
        "folder" => std::fs::create_dir(path),
        "remove" => std::fs::remove_file(path),
        "remove-folder" => std::fs::remove_dir(path),
        "rename" => std::fs::rename(path, to),
        "link" => std::fs::hard_link(path, to),
        _ => {
            let [path, to] = [path, to].map(std::ffi::CString::new);
            let (path, to) = (path?, to?);
            // SAFETY: both strings end with a zero byte and outlive the call.
            let done = unsafe {
                match how {
                    "symlink" => symlink(path.as_ptr(), to.as_ptr()),
                    _ => utimensat(AT_FDCWD, path.as_ptr(), std::ptr::null(), 0),
                }
            };
            if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        }
    }
}

/// The folder from which `utimensat` follows a path that does not begin in a folder of the caller's.
const AT_FDCWD: c_int = -2;

// The standard library has no stable functions for these.
unsafe extern "C" {
    fn symlink(target: *const c_char, link: *const c_char) -> c_int;
    fn utimensat(folder: c_int, path: *const c_char, times: *const c_void, flags: c_int) -> c_int;
}

fn recurse(depth: usize) -> usize {
    let room = std::hint::black_box([depth; 64]);
    if depth == usize::MAX { 0 } else { recurse(std::hint::black_box(depth + 1)) + room[depth % 64] }
}

export!(Explorer);
