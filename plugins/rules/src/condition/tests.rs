#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use portcullis_plugin::json::Json;

use super::*;

/// A call with these arguments; its other facts are fixed.
pub(super) struct Known<'a> {
    pub(super) arguments: Json<'a>,
    tags: Vec<String>,
}

impl<'a> Known<'a> {
    pub(super) fn new(arguments: &'a str) -> Self {
        let tags = vec!["prod".to_owned(), "eu".to_owned()];
        Self { arguments: Json::parse(arguments).unwrap(), tags }
    }
}

impl Facts for Known<'_> {
    fn text(&self, fact: Fact) -> &str {
        match fact {
            Fact::Source => "files",
            Fact::Tool => "files__write",
            Fact::Name => "write",
            Fact::Method => "tools/call",
            Fact::Principal => "alice",
            Fact::Profile => "default",
            Fact::Trust => "medium",
            Fact::Risk => "risky",
            Fact::Arguments | Fact::Tags => "",
        }
    }

    fn tags(&self) -> &[String] {
        &self.tags
    }

    fn arguments(&self) -> Option<&Json<'_>> {
        Some(&self.arguments)
    }
}

pub(super) fn condition(text: &str) -> Condition {
    Condition::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn holds(text: &str, arguments: &str) -> Result<bool, Failure> {
    condition(text).holds(&Known::new(arguments))
}

fn refused(text: &str) -> String {
    Condition::parse(text).err().unwrap_or_else(|| panic!("`{text}` is accepted"))
}

#[test]
fn a_condition_reads_every_fact_of_a_call() {
    let text = "source == 'files' && tool == 'files__write' && name == 'write' && method == 'tools/call' \
                && principal == 'alice' && profile == 'default' && trust == 'medium' && risk == 'risky' \
                && tags == ['prod', 'eu'] && arguments.a == 1";
    assert_eq!(holds(text, r#"{"a":1}"#), Ok(true));
}

#[test]
fn operators_macros_and_functions_mean_what_they_mean_in_cel() {
    let arguments = r#"{"n":7,"s":"/etc/Passwd","l":[1,2,3],"m":{"a b":null,"k":"v"},"f":2.5,"empty":[]}"#;
    for text in [
        "arguments.n == 7 && arguments.n != 8 && arguments.n < 8 && arguments.n <= 7 && arguments.n > 6 && arguments.n >= 7",
        "arguments.n + 1 == 8 && arguments.n - 8 == -1 && arguments.n * 2 == 14 && arguments.n * 2 / 7 == 2 && arguments.f / 2 == 1.25 && arguments.n % 4 == 3",
        "2 + 3 * 4 == 14 && (2 + 3) * 4 == 20 && 10 - 2 - 3 == 5 && -2 - -3 == 1 && !!true",
        "arguments.f * 2 == 5 && arguments.f > 2 && arguments.f < 3 && 1.0 == 1 && 0x10 == 16u && .5 < 1",
        "arguments.s.startsWith('/etc/') && arguments.s.endsWith(\"wd\") && arguments.s.contains('Pass')",
        "arguments.s.lowerAscii() == '/etc/passwd' && size(arguments.s) == 11 && arguments.s.size() == 11",
        "'a' + 'b' == 'ab' && 'a' < 'b' && r'\\d' == '\\\\d' && '\\u00e9\\x41\\101' == 'éAA'",
        "size(arguments.l) == 3 && arguments.l[0] == 1 && 2 in arguments.l && !(9 in arguments.l) && arguments.l == [1, 2, 3]",
        "arguments.l.all(x, x > 0) && arguments.l.exists(x, x == 3) && arguments.l.exists_one(x, x > 2)",
        "arguments.l.filter(x, x > 1).map(x, x * 2) == [4, 6] && arguments.empty.all(x, false) && !arguments.empty.exists(x, true)",
        "arguments.m['k'] == 'v' && 'm' in arguments && has(arguments.m.k) && !has(arguments.m.z) && size(arguments) == 6",
        "arguments.exists(key, key == 'empty') && arguments.m['a b'] == null && arguments.n != null",
        "arguments.n > 5 ? arguments.f == 2.5 : false",
        "'prod' in tags && !('us' in tags) // a comment\n && trust in ['medium', 'high']",
        "arguments.l.all(x, arguments.l.exists(y, x == y))",
    ] {
        assert_eq!(holds(text, arguments), Ok(true), "{text}");
    }
}

#[test]
fn an_operand_that_cannot_be_evaluated_matters_only_if_the_other_one_does_not_decide() {
    let missing = Err(Failure::Missing("x".to_owned()));
    for (text, expected) in [
        ("arguments.x == 1 || true", Ok(true)),
        ("true || arguments.x == 1", Ok(true)),
        ("arguments.x == 1 && false", Ok(false)),
        ("arguments.x == 1 || false", missing.clone()),
        ("arguments.x == 1 && true", missing.clone()),
        ("!(arguments.x == 1)", missing.clone()),
        ("[1, 2].all(i, i == 1 && arguments.x == 1)", Ok(false)),
        ("[1, 2].exists(i, i == 2 || arguments.x == 1)", Ok(true)),
        ("[1, 2].exists(i, i == 3 || arguments.x == 1)", missing),
        ("has(arguments.x) && arguments.x == 1", Ok(false)),
    ] {
        assert_eq!(holds(text, "{}"), expected, "{text}");
    }
}

#[test]
fn a_map_in_the_place_of_a_list_does_not_choose_what_holds() {
    for (text, arguments) in [
        ("arguments.p.exists(p, p.startsWith('/etc/'))", r#"{"p":{"0":"/etc/passwd"}}"#),
        ("arguments.p.all(p, p.startsWith('/srv/'))", r#"{"p":{"/srv/":"/etc/passwd"}}"#),
        ("'/etc/passwd' in arguments.p", r#"{"p":{"0":"/etc/passwd"}}"#),
        ("size(arguments.p) > 10", r#"{"p":{"0":"/etc/passwd"}}"#),
        ("arguments.p == arguments.q", r#"{"p":{},"q":{}}"#),
    ] {
        assert!(holds(text, arguments).is_err(), "{text}");
    }
}

#[test]
fn a_whole_number_is_not_cut_off_where_a_fraction_would_be_divided() {
    assert!(holds("arguments.a / 100.0 > 10.0", r#"{"a":1099}"#).is_err());
    assert_eq!(holds("arguments.a / 100.0 > 10.0", r#"{"a":1099.5}"#), Ok(true));
    assert_eq!(holds("arguments.a / 100.0 > 10.0", r#"{"a":1100}"#), Ok(true));
}

#[test]
fn words_that_have_an_order_of_their_own_are_not_ordered_by_their_letters() {
    let refused = Condition::parse("trust < 'medium'").err().unwrap();
    assert!(refused.contains("'sandbox', 'low', 'medium', 'high'"), "{refused}");
}

#[test]
fn a_condition_with_many_lists_is_checked_in_one_pass() {
    let lists = " in [true, true, true, true]".repeat(100);
    assert!(Condition::parse(&format!("true{lists}")).is_err_and(|refused| refused.contains("nested")));
    assert!(Condition::parse(&format!("true{}", " in [true, true, true, true]".repeat(20))).is_ok());
}

#[test]
fn values_of_different_types_cannot_be_compared() {
    for arguments in [r#"{"p":["/etc"]}"#, r#"{"p":{"value":"/etc"}}"#, r#"{"p":5}"#, r#"{"p":true}"#] {
        for text in [
            "arguments.p == '/etc'",
            "arguments.p != '/etc'",
            "arguments.p in ['/etc', '/root']",
            "arguments.p.startsWith('/etc')",
            "arguments.p < '/f'",
        ] {
            assert_eq!(holds(text, arguments).ok(), None, "{text} with {arguments}");
        }
    }
    assert_eq!(holds("arguments.p == ['a', 'b']", r#"{"p":["a",1]}"#).ok(), None);
    assert_eq!(holds("arguments.p == null || arguments.p == 1", r#"{"p":null}"#), Ok(true));
    assert_eq!(holds("arguments.p == '/etc'", r#"{"p":null}"#), Ok(false));
    assert_eq!(holds("arguments.p", r#"{"p":"true"}"#).ok(), None);
}

#[test]
fn a_key_in_another_case_cannot_be_passed_over() {
    let ambiguous = Err(Failure::Ambiguous("path".to_owned()));
    for arguments in [r#"{"Path":"/etc"}"#, r#"{"path":"/srv","PATH":"/etc"}"#, r#"{"PATH":"/etc","path":"/srv"}"#] {
        for text in
            ["arguments.path == '/etc'", "has(arguments.path)", "arguments['path'] == '/etc'", "'path' in arguments"]
        {
            assert_eq!(holds(text, arguments), ambiguous, "{text} with {arguments}");
        }
    }
    assert_eq!(holds("has(arguments.tasks)", r#"{"taſKs":1}"#), Err(Failure::Ambiguous("tasks".to_owned())));
    assert_eq!(holds("has(arguments.path)", r#"{"paths":1}"#), Ok(false));
}

#[test]
fn numbers_keep_their_values() {
    let equal = |left: &str, right: &str| holds(&format!("arguments.n == {right}"), &format!("{{\"n\":{left}}}"));
    for (spelling, literal) in [
        ("5.0", "5"),
        ("50e-1", "5"),
        ("-0", "0"),
        ("9007199254740993", "9007199254740993"),
        ("9223372036854775808", "9223372036854775808"),
        ("18446744073709551615", "18446744073709551615u"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0.1", "0.1"),
        ("1e300", "1e300"),
    ] {
        assert_eq!(equal(spelling, literal), Ok(true), "{spelling}");
    }
    assert_eq!(equal("9007199254740993", "9007199254740992"), Ok(false));
    assert_eq!(equal("9007199254740993", "9007199254740992.0"), Ok(false));
    let rounded = Condition::parse("arguments.n > 9007199254740992.5").err().unwrap();
    assert!(rounded.contains("too large or too exact"), "{rounded}");
    assert_eq!(holds("arguments.n < -1.5 && arguments.n > -2.5", r#"{"n":-2}"#), Ok(true));
    for unusable in [
        "5.0000000000000000001",
        "9000.0000000000004",
        "123456789012345678901234567890",
        "1e400",
        "1e-400",
        "1e99999999999999999999",
    ] {
        let arguments = format!("{{\"n\":{unusable}}}");
        assert_eq!(holds("arguments.n > 0", &arguments).ok(), None, "{unusable}");
        assert_eq!(holds("has(arguments.n)", &arguments), Ok(true), "{unusable}");
    }
    for text in [
        "arguments.n + 1 > 0",
        "arguments.n * 2 > 0",
        "-arguments.n < 0",
        "arguments.n * 1.5 > 0",
        "1 / 0 == 1",
        "1 % 0 == 1",
        "1.0 / 0.0 > 1",
    ] {
        assert_eq!(holds(text, r#"{"n":18446744073709551615}"#).ok(), None, "{text}");
    }
}

#[test]
fn what_cannot_hold_is_refused_with_the_place() {
    for (text, expected) in [
        ("argumnets.a == 1", "column 1: there is no `argumnets`; a condition can use arguments, method"),
        ("true && argument", "column 9: there is no `argument`"),
        ("arguments.a.match('x')", "column 13: there is no function `match`"),
        ("arguments.a.matches('x')", "column 13: `matches` is left out"),
        ("upper(tool) == 'X'", "column 1: there is no function `upper`"),
        ("tool ==", "column 8: a value must stand here, not the end"),
        ("tool == 'a' tool", "column 13: an operator or the end must stand here, not `tool`"),
        ("tool = 'a'", "column 6: '=' means nothing here"),
        ("tool == 'a", "column 9: the string does not end in its line"),
        ("tool == '\\q'", "column 10: this escape means nothing"),
        ("(true", "column 6: `)` must stand here, not the end"),
        ("true &&\n  tol == 'a'", "line 2, column 3: there is no `tol`"),
        ("tool", "column 1: true or false must stand here, not a string"),
        ("1", "column 1: true or false must stand here, not a number"),
        ("tool == 1", "column 6: a string is never equal to a number"),
        ("tool && true", "column 1: true or false must stand here, not a string"),
        ("trust == 'hihg'", "column 10: `hihg` is none of the words sandbox, low, medium, high"),
        ("risk in ['risky', 'none']", "column 19: `none` is none of the words harmless, risky"),
        ("trust < 1", "column 7: a string does not go with a number"),
        ("tool.path == 'a'", "column 1: a map must stand here, not a string"),
        ("tags.all(t, t == 1)", "column 15: a string is never equal to a number"),
        ("tags.all(tool, true)", "column 10: `tool` is already a name"),
        ("tags.all(t, tags.all(t, true))", "column 22: `t` is already a name"),
        ("'a' in tool", "column 8: `in` looks into lists and maps; a string has `contains`"),
        ("has(arguments['a'])", "column 1: `has` tests for a key"),
        ("{'a': 1} == arguments", "column 1: maps cannot be written"),
        ("b'x' == tool", "column 1: bytes"),
        ("arguments.a == 123456789012345678901", "column 16: the number is too large"),
        ("arguments.a == 1x", "column 17: 'x' is not part of a number"),
        ("é", "column 1: 'é' means nothing here"),
        ("", "column 1: a value must stand here, not the end"),
    ] {
        let error = refused(text);
        assert!(
            error.starts_with(expected) && error.contains(&format!("in `{text}`")),
            "{text}\n  gave {error}\n  not  {expected}"
        );
    }
}

#[test]
fn what_is_nested_too_deep_or_too_long_is_refused() {
    for (open, close) in [
        ("(", ")"),
        ("!(", ")"),
        ("!", ""),
        ("-", ""),
        ("[", "]"),
        ("size(", ")"),
        ("true ? true : ", ""),
        ("arguments[", "]"),
    ] {
        let text = format!("{}1{}", open.repeat(200), close.repeat(200));
        assert!(refused(&text).contains("nested"), "{open}");
    }
    for text in [
        format!("arguments{} == 1", ".a".repeat(200)),
        format!("1{} == 1", "+1".repeat(200)),
        format!("true{}", "==true".repeat(200)),
    ] {
        assert!(refused(&text).contains("nested"), "{text}");
    }
    assert!(refused(&format!("tool == '{}'", "x".repeat(5000))).contains("at most 4096 bytes"));
    // A chain is one level, however long.
    assert_eq!(holds(&format!("tool == 'files__write'{}", " && name != 'a'".repeat(200)), "{}"), Ok(true));
}

#[test]
fn a_condition_that_takes_too_long_is_not_evaluated_to_its_end() {
    let list = format!("{{\"a\":[{}0],\"s\":\"{}\"}}", "0,".repeat(9_999), "x".repeat(1 << 20));
    for text in [
        "arguments.a.all(x, arguments.a.all(y, x == y))",
        "arguments.a.exists(x, arguments.a.exists(y, x != y))",
        "arguments.a.all(x, arguments.s.contains('y') || true)",
        "size(arguments.a.map(x, arguments.s + arguments.s)) == 3",
        "arguments.a.all(x, !(1 in arguments.a))",
    ] {
        assert_eq!(holds(text, &list), Err(Failure::Fixed("it takes too many steps")), "{text}");
    }
    assert_eq!(holds("arguments.a.all(x, x == 0) && size(arguments.s) > 9", &list), Ok(true));
}

/// Before, a comparison was charged only for the items of the outer lists, and a macro for nothing that it copied.
#[test]
fn a_comparison_takes_steps_for_everything_within_and_so_does_a_copy() {
    let nested = format!("[{}[0]]", "[0],".repeat(999));
    let arguments = format!(
        "{{\"a\":[{}0],\"x\":[[{nested}]],\"y\":[[{nested}]],\"t\":[[\"{text}\"]],\"s\":\"{text}\"}}",
        "0,".repeat(499),
        text = "t".repeat(1 << 16),
    );
    for text in [
        "arguments.a.all(i, arguments.x == arguments.y)",
        "arguments.a.all(i, arguments.x in [arguments.y])",
        "arguments.a.all(i, arguments.t == [[arguments.s]])",
        "[[arguments.s + '']].all(l, arguments.a.all(i, l.all(t, true)))",
        "[[arguments.s + '']].all(l, arguments.a.all(i, l[0] != ''))",
    ] {
        assert_eq!(holds(text, &arguments), Err(Failure::Fixed("it takes too many steps")), "{text}");
    }
    for text in ["arguments.x == arguments.y", "arguments.t == [[arguments.s]]", "[arguments.s + ''] == [arguments.s]"]
    {
        assert_eq!(holds(text, &arguments), Ok(true), "{text}");
    }
}

#[test]
fn a_message_holds_nothing_that_the_caller_chose() {
    let arguments = r#"{"secret":"hunter2","l":["hunter2"],"k":"hunter2"}"#;
    for text in [
        "arguments.secret > 1",
        "arguments.l[3] == 1",
        "arguments[arguments.k] == 1",
        "arguments.secret",
        "arguments.l == 1",
    ] {
        let error = holds(text, arguments).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
