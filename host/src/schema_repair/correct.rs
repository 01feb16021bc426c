//! The five corrections of types, for values that models send in the wrong type.

use super::types::{Types, is_plain_integer};
use crate::protocol::Json;

/// Returns a value in a type that the source takes, or `None` if it has one, or if its intended type is unknown:
///
/// 1. a text that is a number becomes the number,
/// 2. a text that is `true` or `false` becomes that,
/// 3. a text that is a list or an object in JSON becomes that,
/// 4. a number or a boolean becomes a text,
/// 5. one value becomes a list of it.
///
/// Numbers keep their spelling.
pub(super) fn corrected(value: &Json, types: Types) -> Option<Json> {
    let own = Types::of_text(value);
    if types.contains(own) || own == Types::NULL {
        return None;
    }
    let of_text = || value.read::<String>().ok().and_then(|text| meant_by_text(text.trim(), types));
    let as_text = || (Types::NUMBER | Types::BOOLEAN).contains(own).then(|| Json::of(&value.as_str()));
    let as_list = || Json::parse(format!("[{}]", value.as_str())).ok();
    of_text()
        .or_else(|| as_text().filter(|_| types.contains(Types::STRING)))
        .or_else(|| as_list().filter(|_| types.contains(Types::ARRAY)))
}

fn meant_by_text(text: &str, types: Types) -> Option<Json> {
    if types.contains(Types::BOOLEAN) {
        for truth in [true, false] {
            if text.eq_ignore_ascii_case(if truth { "true" } else { "false" }) {
                return Some(Json::of(&truth));
            }
        }
    }
    let wanted = match text.as_bytes().first()? {
        b'{' => types.contains(Types::OBJECT),
        b'[' => types.contains(Types::ARRAY),
        b'-' | b'0'..=b'9' => {
            types.contains(Types::FRACTION) || types.contains(Types::INTEGER) && is_plain_integer(text)
        }
        _ => false,
    };
    if wanted { Json::parse(text.to_owned()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn correct(value: &'static str, types: Types) -> String {
        let value = Json::parse(value).unwrap();
        corrected(&value, types).map_or_else(|| "as it is".to_owned(), |found| found.as_str().to_owned())
    }

    #[test]
    fn each_of_the_five_corrections_is_made_and_no_other() {
        for (value, types, expected) in [
            (r#""12345678901234567890""#, Types::INTEGER, "12345678901234567890"),
            (r#"" -5 ""#, Types::INTEGER, "-5"),
            (r#""1.50""#, Types::NUMBER, "1.50"),
            (r#""1e3""#, Types::NUMBER, "1e3"),
            (r#""1.5""#, Types::INTEGER, "as it is"),
            (r#""05""#, Types::INTEGER, "as it is"),
            (r#""0x5""#, Types::NUMBER, "as it is"),
            (r#""True""#, Types::BOOLEAN, "true"),
            (r#""yes""#, Types::BOOLEAN, "as it is"),
            (r#""[1,\"a\"]""#, Types::ARRAY, r#"[1,"a"]"#),
            (r#""{\"a\":1}""#, Types::OBJECT, r#"{"a":1}"#),
            (r#""{\"a\":""#, Types::OBJECT, "as it is"),
            ("1.0", Types::STRING, r#""1.0""#),
            ("true", Types::STRING, r#""true""#),
            ("7", Types::ARRAY, "[7]"),
            (r#""a""#, Types::ARRAY, r#"["a"]"#),
            (r#""5""#, Types::STRING | Types::INTEGER, "as it is"),
            ("null", Types::STRING, "as it is"),
            ("{}", Types::STRING, "as it is"),
            ("1", Types::BOOLEAN, "as it is"),
        ] {
            assert_eq!(correct(value, types), expected, "{value} as {:?}", types.names());
        }
    }
}
