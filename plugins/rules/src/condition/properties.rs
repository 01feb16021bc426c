//! Properties of conditions, and a comparison with another implementation of CEL.
#![allow(clippy::unwrap_used, reason = "tests")]

use cel::Value as Reference;
use portcullis_plugin::json::{Json, Value as JsonValue};
use proptest::prelude::*;

use super::Condition;
use super::tests::{Known, condition, holds};

/// Converts to a value of the reference implementation, whole numbers to its `int`.
fn reference(json: &Json<'_>) -> Reference {
    match &json.value {
        JsonValue::Null => Reference::Null,
        JsonValue::Bool(value) => Reference::Bool(*value),
        JsonValue::Number(spelling) => {
            spelling.parse().map_or_else(|_| Reference::Float(spelling.parse().unwrap()), Reference::Int)
        }
        JsonValue::String(text) => Reference::String(std::sync::Arc::new(text.to_string())),
        JsonValue::Array(items) => Reference::List(std::sync::Arc::new(items.iter().map(reference).collect())),
        JsonValue::Object(members) => {
            let members: std::collections::HashMap<String, Reference> =
                members.iter().map(|(key, value)| (key.to_string(), reference(value))).collect();
            members.into()
        }
    }
}

/// Returns conditions of all forms, most of which can be evaluated.
fn conditions() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        Just("arguments.n".to_owned()),
        Just("arguments.o.n".to_owned()),
        Just("size(arguments.l)".to_owned()),
        (-3_i32..4).prop_map(|n| if n < 0 { format!("({n})") } else { n.to_string() }),
        Just("2.5".to_owned()),
    ];
    let number = number.prop_recursive(2, 6, 2, |inner| {
        let operator = prop_oneof![Just("+"), Just("-"), Just("*"), Just("/"), Just("%")];
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.clone().prop_map(|a| format!("-{a}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("(arguments.b ? {a} : {b})")),
        ]
    });
    let string = prop_oneof![
        Just("arguments.s".to_owned()),
        Just("source".to_owned()),
        "[a-c]{0,2}".prop_map(|s| format!("'{s}'"))
    ];
    let order = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let test = prop_oneof![Just("contains"), Just("startsWith"), Just("endsWith")];
    let leaf = prop_oneof![
        Just("arguments.b".to_owned()),
        Just("has(arguments.z)".to_owned()),
        Just("arguments.z == 1".to_owned()),
        (number.clone(), order.clone(), number.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (string.clone(), order, string.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        (string.clone(), test, string.clone()).prop_map(|(a, test, b)| format!("{a}.{test}({b})")),
        number.clone().prop_map(|n| format!("{n} in arguments.l")),
        number.clone().prop_map(|n| format!("arguments.l.all(x, x < {n})")),
        number.clone().prop_map(|n| format!("arguments.l.exists(x, x == {n})")),
        number.prop_map(|n| format!("arguments.l.filter(x, x > {n}).map(x, x + 1) == [2, 3]")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_both_evaluate_means_the_same_in_another_implementation_of_cel(
        text in conditions(), n in -3_i64..4, s in "[a-c]{0,3}", b: bool, list in prop::collection::vec(-2_i64..3, 0..4),
    ) {
        let arguments = format!("{{\"n\":{n},\"s\":\"{s}\",\"b\":{b},\"l\":{list:?},\"o\":{{\"n\":2}}}}");
        let known = Known::new(&arguments);
        let ours = condition(&text).holds(&known);
        let mut context = cel::Context::default();
        context.add_variable_from_value("arguments", reference(&known.arguments));
        context.add_variable_from_value("source", "files");
        let theirs = cel::Program::compile(&text).unwrap().execute(&context);
        match (&ours, &theirs) {
            (Ok(ours), Ok(Reference::Bool(theirs))) => prop_assert_eq!(ours, theirs, "{}", text),
            // Only a mixture of whole numbers and doubles may succeed here and fail there.
            (Ok(_), Err(error)) => prop_assert!(text.contains("2.5") , "{}: {}", text, error),
            (Err(_), _) => {}
            (Ok(_), Ok(other)) => prop_assert!(false, "{}: {:?}", text, other),
        }
    }

    #[test]
    fn a_condition_that_needs_no_strictness_is_evaluated_wherever_the_other_implementation_does(
        n in -3_i64..4, m in -3_i64..4, k in 1_i64..4,
    ) {
        let arguments = format!("{{\"n\":{n},\"m\":{m}}}");
        let known = Known::new(&arguments);
        let text = format!("arguments.n * arguments.m + {k} > arguments.n * {k} / {k} && (arguments.m % {k} == 0 || arguments.n <= {k})");
        let mut context = cel::Context::default();
        context.add_variable_from_value("arguments", reference(&known.arguments));
        let theirs = cel::Program::compile(&text).unwrap().execute(&context).unwrap();
        prop_assert_eq!(Reference::Bool(condition(&text).holds(&known).unwrap()), theirs);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[ -~\n]{0,60}") {
        let _ = Condition::parse(&text);
    }

    #[test]
    fn no_sequence_of_tokens_makes_the_parser_or_the_evaluation_panic(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "arguments", ".", "a", "[", "]", "(", ")", "0", "1.5", "'a'", "+", "-", "*", "/", "%", "==", "in", "&&", "||", "?",
            ":", "!", "has", "size", "all", "x", ",", "tags", "null", "true", "18446744073709551615",
        ]), 0..20),
    ) {
        let text = tokens.join(" ");
        if let Ok(condition) = Condition::parse(&text) {
            let _ = condition.holds(&Known::new(r#"{"a":[1,{"a":null}]}"#));
        }
    }

    #[test]
    fn a_number_is_equal_to_itself_however_it_is_spelled(whole: i64, zeros in 0_usize..3) {
        let arguments = format!("{{\"a\":{whole},\"b\":{whole}.{}}}", "0".repeat(zeros + 1));
        prop_assert_eq!(holds("arguments.a == arguments.b && arguments.a <= arguments.b", &arguments), Ok(true));
    }

    #[test]
    fn whole_numbers_and_doubles_are_ordered_as_their_values(whole: i64, double in -1e19_f64..1e19) {
        let arguments = format!("{{\"w\":{whole},\"d\":{double:?}}}");
        // A double is a fraction with a power of two below it, which 128 bits hold here.
        let expected = if double.fract() == 0.0 { i128::from(whole) < double as i128 } else { whole as f64 <= double };
        prop_assert_eq!(holds("arguments.w < arguments.d", &arguments), Ok(expected));
    }
}
