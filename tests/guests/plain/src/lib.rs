//! A well-behaved policy that does what its settings say. `{"refuse": TEXT}` denies calls whose arguments contain the
//! text, `{"ask": TEXT}` asks about them, `{"wrong": true}` is refused by `configure`, `{"hoard": "all"}` takes all the
//! memory that is allowed, and `{"hoard": "most"}` leaves some.

use std::arch::wasm32::{memory_grow, memory_size};
use std::cell::RefCell;

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Concern, Denial, Guest, Verdict};

thread_local!(static SETTINGS: RefCell<String> = const { RefCell::new(String::new()) });

/// The broker's limit of 16 MiB, in pages of 64 KiB.
const PAGES: usize = 256;

struct Plain;

impl Guest for Plain {
    fn configure(settings: String) -> Result<(), String> {
        if settings.contains("\"wrong\"") {
            return Err("unknown field `wrong`, expected `refuse` or `ask`".into());
        }
        let hoard = match value(&settings, "hoard") {
            Some("all") => PAGES,
            Some(_) => PAGES - 8,
            None => 0,
        };
        while memory_size(0) < hoard {
            memory_grow(0, 1);
        }
        SETTINGS.set(settings);
        Ok(())
    }

    fn check(call: Call) -> Result<Verdict, String> {
        let arguments = call.arguments();
        SETTINGS.with_borrow(|settings| {
            if let Some(text) = value(settings, "refuse").filter(|text| arguments.contains(text)) {
                let message = format!("{} holds {text:?} in phase {}", call.exposed_name(), call.phase());
                return Ok(Verdict::Deny(Denial { code: "plain-refused".into(), message }));
            }
            if let Some(text) = value(settings, "ask").filter(|text| arguments.contains(text)) {
                let message = format!("{} of {} holds {text:?}", call.tool(), call.source());
                return Ok(Verdict::Ask(Concern { code: "odd".into(), message }));
            }
            if arguments.contains("please fail") {
                return Err("cannot read the arguments".into());
            }
            Ok(Verdict::Pass)
        })
    }
}

/// Returns the text of a member without a JSON parser: the settings of these tests hold no escapes.
fn value<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    let after = settings.split_once(&format!("\"{key}\":\""))?.1;
    after.split_once('"').map(|(text, _)| text)
}

export!(Plain);
