//! A transform that returns invalid answers; the arguments say of which kind.

wit_bindgen::generate!({ path: "../../../wit", world: "transform-plugin" });

use exports::portcullis::plugin::transform::{Call, Change, Denial, Guest};
use portcullis::plugin::vault;

struct Lie;

impl Guest for Lie {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn rewrite(call: Call) -> Result<Change, String> {
        let arguments = call.arguments();
        let says = |word: &str| arguments.contains(word);
        if says("no json") {
            return Ok(Change::Replace("{\"a\":".into()));
        }
        if says("no object") {
            return Ok(Change::Replace("[1]".into()));
        }
        if says("huge") {
            // In one allocation that is filled at once, so that it exceeds the limit on the size of an answer, and neither
            // that on memory nor the deadline.
            let mut text = Vec::with_capacity((9 << 20) + 16);
            text.extend_from_slice(b"{\"a\":\"");
            text.resize(9 << 20, b'x');
            text.extend_from_slice(b"\"}");
            return String::from_utf8(text).map(Change::Replace).map_err(|error| error.to_string());
        }
        if says("bad code") {
            return Ok(Change::Refuse(Denial { code: "Not A Code\n".into(), message: "no".into() }));
        }
        if says("secret") {
            let shown = vault::protect("word", "secret", &["files__*".to_owned()]);
            return Ok(Change::Replace(arguments.replace("secret", &shown)));
        }
        Ok(Change::Keep)
    }
}

export!(Lie);
