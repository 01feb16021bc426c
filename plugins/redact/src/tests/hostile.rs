use super::*;

#[test]
fn many_values_and_placeholders_take_no_more_than_their_number() {
    let long = "a@b.org [[email:a0011223344556ff]] [[ ".repeat(20_000);
    assert_eq!(redact("{}").0.find(&long, None).len(), 20_000);
    let keys: Vec<_> = (0..20_000).map(|n| format!("\"a{n}@b.org\":1")).collect();
    let call = FakeCall::new("mail", "read").with_outcome(&format!("{{{}}}", keys.join(",")));
    let Change::Replace(new) = redact(r#"{"one-way":"all"}"#).rewrite(&call, &FakeVault::default()).unwrap() else {
        panic!("nothing is found")
    };
    assert!(new.contains(r#""[[email:withheld]] 20000":1"#) && Json::parse(&new).is_ok());
}

#[test]
fn a_value_is_found_however_json_writes_it() {
    for outcome in [
        r#"{"x":"a\u0040b.org"}"#,
        r#"{"x":"\u0061\u0040\u0062\u002eorg"}"#,
        r#"{"x":"DE89\u00203704\u00200044 0532 0130 00"}"#,
        r#"{"x":{"y":[[{"z":"a@b.org"}]]}}"#,
        r#"{"\u0061@b.org":1}"#,
        r#"{"p\u0061ssword":"Sommer2031!x"}"#,
        r#"{"x":"line\\na@b.org"}"#,
        r#"{"x":"line\\nDE89 3704 0044 0532 0130 00"}"#,
        r#"{"x":"{\"password\":\"Sommer2031!x\"}"}"#,
        r#"{"x":"{\\\"password\\\": \\\"Sommer2031!x\\\"}"}"#,
        r#"{"passwords":["Sommer2031!x"]}"#,
    ] {
        let call = FakeCall::new("mail", "read").with_outcome(outcome);
        let Change::Replace(new) = redact("{}").rewrite(&call, &FakeVault::default()).unwrap() else {
            panic!("nothing is found in {outcome}")
        };
        assert!(!new.contains("b.org") && !new.contains("2031") && !new.contains("0532"), "{new}");
        Json::parse(&new).unwrap();
    }
}

#[test]
fn a_key_within_what_is_no_key_because_of_its_end_is_found() {
    let (aws, github) = ("AKIAIOSFODNN7EXAMPLE", format!("ghp_{}", "a1B2".repeat(9)));
    let given = format!("{}/{aws}/{}{github}", "ABSK+".repeat(30), "ABSK+".repeat(30));
    let hidden = text("{}", &given);
    assert_eq!(hidden, given.replace(aws, "[aws-key:1]").replace(&github, "[github-token:2]"));
}

#[test]
fn json_as_deep_as_the_broker_takes_it_is_searched() {
    let deep = format!("{{\"x\":{}\"a@b.org\"{}}}", "[".repeat(126), "]".repeat(126));
    let call = FakeCall::new("mail", "read").with_outcome(&deep);
    let change = redact("{}").rewrite(&call, &FakeVault::default()).unwrap();
    assert_eq!(change, Change::Replace(deep.replace("a@b.org", "[email:1]")));
}

#[test]
fn any_text_is_searched_without_a_panic_and_every_range_is_a_slice_of_it() {
    let pieces = [
        "é",
        "密码：",
        "password=",
        "\\",
        "\"",
        "'",
        "@",
        "a.b",
        ".org",
        "://",
        ":",
        "eyJ",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "+49 30 ",
        "4111 1111 1111 1111",
        "DE89",
        "[[",
        "]]",
        "ghp_",
        "a1B2c3D4e5F6g7H8",
        "😀",
        "\u{0}",
        "\n",
        "Q~",
        ".atlasv1.",
        "PuTTY-User-Key-File-",
        "=",
        "&",
    ];
    let mut random = values::Random::new(7);
    for _ in 0..20_000 {
        let text: String = (0..random.below(12)).map(|_| pieces[random.below(pieces.len())]).collect();
        let mut end = 0;
        for found in redact(EVERYTHING).0.find(&text, Some("token")) {
            assert!(found.range.start >= end && text.get(found.range.clone()).is_some(), "{text:?} {found:?}");
            end = found.range.end;
        }
    }
}
