//! A policy that denies a call if the session has made two of the same item before, or if less than half of a limit of
//! the budget is left.

wit_bindgen::generate!({ path: "../../../wit", world: "session-policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Denial, Guest, Verdict};
use portcullis::plugin::session;

struct Quota;

impl Guest for Quota {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(_: Call) -> Result<Verdict, String> {
        if let Some(limit) = session::budget().iter().find(|limit| 2 * limit.left < limit.amount.cast_signed()) {
            let message = format!("{} of {} {} are left", limit.left, limit.amount, limit.name);
            return Ok(Verdict::Deny(Denial { code: "reserve".into(), message }));
        }
        let (of_item, of_session) = (session::calls_of_item(), session::calls());
        if of_item < 2 {
            return Ok(Verdict::Pass);
        }
        let message = format!("{of_item} of {of_session} calls were of this item");
        Ok(Verdict::Deny(Denial { code: "quota-used".into(), message }))
    }
}

export!(Quota);
