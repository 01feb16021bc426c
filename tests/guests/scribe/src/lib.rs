//! A sink that writes each record as a line. A record that contains `"split"` is written with line feeds in it, and one
//! that contains `"fail"` ends the batch with an error. At one that contains the setting `trap` it traps.

use std::sync::OnceLock;

wit_bindgen::generate!({ path: "../../../wit", world: "audit-plugin" });

use exports::portcullis::plugin::audit::Guest;
use portcullis::plugin::lines::append;

struct Scribe;

/// The text that a record must not contain.
static TRAP: OnceLock<String> = OnceLock::new();

impl Guest for Scribe {
    fn configure(settings: String) -> Result<(), String> {
        if let Some((_, text)) = settings.split_once("\"trap\":\"") {
            TRAP.get_or_init(|| text.trim_end_matches("\"}").into());
        }
        Ok(())
    }

    fn deliver(records: Vec<String>) -> Result<(), String> {
        for record in records {
            if TRAP.get().is_some_and(|text| record.contains(text.as_str())) {
                panic!("told to");
            }
            if record.contains("\"fail\"") {
                return Err("told to".into());
            }
            append(&if record.contains("\"split\"") { record.replace(',', "\n") } else { record })?;
        }
        Ok(())
    }
}

export!(Scribe);
