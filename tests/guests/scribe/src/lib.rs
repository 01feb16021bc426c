//! A sink that writes each record as a line. A record that contains `split` is written with line feeds in it, and one
//! that contains `fail` ends the batch with an error.

wit_bindgen::generate!({ path: "../../../wit", world: "audit-plugin" });

use exports::portcullis::plugin::audit::Guest;
use portcullis::plugin::lines::append;

struct Scribe;

impl Guest for Scribe {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn deliver(records: Vec<String>) -> Result<(), String> {
        for record in records {
            if record.contains("fail") {
                return Err("told to".into());
            }
            append(&if record.contains("split") { record.replace(',', "\n") } else { record })?;
        }
        Ok(())
    }
}

export!(Scribe);
