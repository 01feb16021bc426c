//! A tool source. With `{"state": true}` each session counts its own calls; without it, every call is the first. With
//! `{"down": true}` it neither lists its tools nor opens a session.

use std::cell::Cell;

wit_bindgen::generate!({ path: "../../../wit", world: "tools-plugin" });

use exports::portcullis::plugin::tools::{self, Failure, Guest, GuestSession};

thread_local! {
    static STATE: Cell<bool> = const { Cell::new(false) };
    static DOWN: Cell<bool> = const { Cell::new(false) };
}

struct Counter;

impl Guest for Counter {
    type Session = Session;

    fn configure(settings: String) -> Result<(), String> {
        STATE.set(settings.contains("\"state\":true"));
        DOWN.set(settings.contains("\"down\":true"));
        Ok(())
    }

    fn definitions() -> Result<String, String> {
        if DOWN.get() {
            return Err("the exchange is closed".into());
        }
        let tools = ["count", "spin", "panic", "lie", "fail"]
            .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
        Ok(format!("[{}]", tools.join(",")))
    }

    fn keeps_state() -> bool {
        STATE.get()
    }
}

struct Session {
    calls: Cell<u32>,
}

impl GuestSession for Session {
    fn open() -> Result<tools::Session, String> {
        if DOWN.get() {
            return Err("the exchange is closed".into());
        }
        Ok(tools::Session::new(Self { calls: Cell::new(0) }))
    }

    fn call(&self, tool: String, arguments: String) -> Result<String, Failure> {
        self.calls.set(self.calls.get() + 1);
        match tool.as_str() {
            "count" if arguments == "{}" => {
                Ok(format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, self.calls.get()))
            }
            "count" => Err(Failure::InvalidArguments("count takes no arguments".into())),
            "spin" => loop {
                std::hint::black_box(&self.calls);
            },
            "panic" => panic!("told to"),
            "lie" => Ok("no json".into()),
            "fail" => Err(Failure::Failed("told to".into())),
            _ => Err(Failure::UnknownTool),
        }
    }
}

export!(Counter);
