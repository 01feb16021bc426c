//! A policy that writes to the operator's log, which needs a grant.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Guest, Verdict};
use portcullis::plugin::log::{Level, write};

struct NeedsLog;

impl Guest for NeedsLog {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(call: Call) -> Result<Verdict, String> {
        write(Level::Warn, &format!("saw {}\n\u{1b}[31mforged", call.id()));
        write(Level::Info, &"é".repeat(4 << 10));
        Ok(Verdict::Pass)
    }
}

export!(NeedsLog);
