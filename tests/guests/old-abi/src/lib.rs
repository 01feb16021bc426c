//! A policy built against a contract that the broker no longer serves.

wit_bindgen::generate!({ path: "wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::Guest;

struct OldAbi;

impl Guest for OldAbi {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(_: String) -> Result<bool, String> {
        Ok(true)
    }
}

export!(OldAbi);
