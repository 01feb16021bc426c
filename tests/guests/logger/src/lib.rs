//! A policy that writes to the operator's log.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Guest, Verdict};
use portcullis::plugin::log::{Level, write};

struct Logger;

impl Guest for Logger {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(call: Call) -> Result<Verdict, String> {
        write(Level::Warn, &format!("saw {}\n\u{1b}[31mforged", call.id()));
        write(Level::Info, &"é".repeat(4 << 10));
        Ok(Verdict::Pass)
    }
}

export!(Logger);
