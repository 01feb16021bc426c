//! The parser answers any input without a panic.

use proptest::prelude::*;

use super::{DOCUMENTED, parse};

/// Parses the text. It may be refused or accepted; the messages are built too, since they slice the text.
fn survives(text: &str) {
    if let Err(error) = parse(text) {
        assert!(!error.problems().is_empty() && !error.to_string().is_empty());
        for problem in error.problems() {
            let _ = format!("{:?}", miette::Report::new(problem.clone()));
        }
    }
}

/// Pieces that make random text similar to the grammar.
const PIECES: [&str; 24] = [
    "[sources.a]\n",
    "[[policies]]\n",
    "[broker]\n",
    "command",
    "url",
    "cell",
    "network",
    "env",
    " = ",
    "\"",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "\"npx\"",
    "\"builtin:x\"",
    "\"é:\u{202e}1\"",
    "1e999",
    "nan",
    "\\u0000",
    "'''",
    "'99999999999999999999GiB'",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn random_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES.as_slice()), 0..40)) {
        survives(&pieces.concat());
    }

    #[test]
    fn a_good_file_with_a_piece_replaced(at in 0..DOCUMENTED.len(), len in 0_usize..20, with in any::<String>()) {
        let mut text = DOCUMENTED.to_owned();
        let floor = |mut at: usize| { while !text.is_char_boundary(at) { at -= 1 } at };
        let range = floor(at)..floor((at + len).min(text.len()));
        text.replace_range(range, &with);
        survives(&text);
    }

    #[test]
    fn a_good_file_with_a_value_replaced(which in 0_usize..60, with in "\\PC{0,30}") {
        let strings: Vec<_> = DOCUMENTED.match_indices('"').map(|(at, _)| at).collect();
        let pair = strings.chunks_exact(2).nth(which % (strings.len() / 2)).unwrap();
        let quoted = toml::Value::String(with).to_string();
        survives(&[&DOCUMENTED[..pair[0]], &quoted, &DOCUMENTED[pair[1] + 1..]].concat());
    }
}
