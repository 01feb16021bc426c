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
            // In one allocation, so that it exceeds the limit on the size of an answer and not the limit on memory.
            let mut text = String::with_capacity((9 << 20) + 16);
            text.push_str("{\"a\":\"");
            text.extend(std::iter::repeat_n('x', 9 << 20));
            text.push_str("\"}");
            return Ok(Change::Replace(text));
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
