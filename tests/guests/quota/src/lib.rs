//! A policy that denies a call if the session has made two of the same item before.

wit_bindgen::generate!({ path: "../../../wit", world: "session-policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Denial, Guest, Verdict};
use portcullis::plugin::session;

struct Quota;

impl Guest for Quota {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(_: Call) -> Result<Verdict, String> {
        let (of_item, of_session) = (session::calls_of_item(), session::calls());
        if of_item < 2 {
            return Ok(Verdict::Pass);
        }
        let message = format!("{of_item} of {of_session} calls were of this item");
        Ok(Verdict::Deny(Denial { code: "quota-used".into(), message }))
    }
}

export!(Quota);
