#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use portcullis_plugin::fake::{FakeCall, FakeVault};

use super::*;

mod hostile;
mod labelled;
mod modes;
mod settings;
mod values;

const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----";
const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";

/// The settings that search for everything.
const EVERYTHING: &str = r#"{"detect":["default","phone","ipv4","ipv6"]}"#;

fn redact(settings: &str) -> Redact {
    Redact::configure(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a string from the arguments as the transform leaves it.
fn text(settings: &str, text: &str) -> String {
    let call = FakeCall::new("mail", "send").with_arguments(&format!("{{\"x\":{}}}", quote(text)));
    match redact(settings).rewrite(&call, &FakeVault::default()).unwrap() {
        Change::Keep => text.into(),
        Change::Replace(json) => Json::parse(&json).unwrap().get("x").unwrap().as_str().unwrap().into(),
        Change::Refuse(denial) => panic!("{denial:?}"),
    }
}

#[test]
fn each_detector_finds_its_own_and_hides_exactly_that() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let pat = format!("github_pat_{}", "a1B2_".repeat(12));
    for (given, hidden) in [
        ("to ann.b+c@mail.example.org.", "to [email:1]."),
        ("<a@b.co>,<c@d.io>", "<[email:1]>,<[email:2]>"),
        ("pay 4111 1111 1111 1111 12/29", "pay [credit-card:1] 12/29"),
        ("378282246310005,5555-5555-5555-4444", "[credit-card:1],[credit-card:2]"),
        ("DE89 3704 0044 0532 0130 00 THE END", "[iban:1] THE END"),
        ("to GB82WEST12345698765432.", "to [iban:1]."),
        ("id=AKIAIOSFODNN7EXAMPLE!", "id=[aws-key:1]!"),
        (&format!("t={token};"), "t=[github-token:1];"),
        (&pat, "[github-token:1]"),
        (&format!("here:\n{KEY}\nthere"), "here:\n[private-key:1]\nthere"),
        (&KEY.replace('\n', "\\n"), "[private-key:1]"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[private-key:1]"),
        (&format!("Bearer {JWT}."), "Bearer [jwt:1]."),
    ] {
        assert_eq!(text("{}", given), hidden, "{given}");
    }
    let ip = r#"{"detect":["ipv4"]}"#;
    assert_eq!(text(ip, "from 10.0.0.1:80, 192.168.255.254."), "from [ipv4:1]:80, [ipv4:2].");
}

#[test]
fn text_that_only_resembles_a_secret_stays() {
    for same in [
        "a@b",
        "@example.org",
        "a@b.c",
        "a@-.",
        "4111 1111 1111 1112",
        "1763600000000",
        "x4111111111111111",
        "41111111111111111111",
        "4111  1111 1111 1111",
        "DE88 3704 0044 0532 0130 00",
        "AKIASHORT",
        "XAKIAIOSFODNN7EXAMPLE",
        "AKIAIOSFODNN7EXAMPLES",
        "ghp_short",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "password: changeMe2031!x1",
        "api_key=<put4the8key9here7aB3>",
        "secret: ${{ secrets.K3y9_2f7a1b8c }}",
        "token=${GITHUB_TOKEN_2}",
        "postgres://app:${PASSWORD}@db.example.org/app",
        "git@github.com:owner/repo.git",
        "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----",
        "eyJhbGciOi",
        "eyJhbGciOiJIUzI1NiJ9.abc.def",
        "10.0.0.1",
    ] {
        assert_eq!(text("{}", same), same);
    }
    for same in ["1.2.3", "1.2.3.4.5", "256.1.1.1", "v1.2.3.4", "1.2.3.400", "1..2.3.4"] {
        assert_eq!(text(r#"{"detect":["ipv4"]}"#, same), same);
    }
}

/// Each was missed before.
#[test]
fn a_value_behind_a_name_is_found_however_it_is_joined_to_it() {
    let token = "k3J9x0Q2mZ7wL5vT8bN1";
    for (given, hidden) in [
        (format!("Authorization: Bearer  {token}"), "Authorization: Bearer  [secret:1]"),
        (format!("authorization:basic\t  {token}"), "authorization:basic\t  [secret:1]"),
        (format!("\"Authorization\": \"Bearer  {token}\""), "\"Authorization\": \"Bearer  [secret:1]\""),
        ("pass: Sommer2031!x".into(), "pass: [secret:1]"),
        ("user=bob pass=Sommer2031!x".into(), "user=bob pass=[secret:1]"),
        ("PASS=Sommer2031!x".into(), "PASS=[secret:1]"),
        ("{\"dbPass\": \"Sommer2031!x\"}".into(), "{\"dbPass\": \"[secret:1]\"}"),
        ("mail.pass: 'Sommer2031!x'".into(), "mail.pass: '[secret:1]'"),
        ("login --pass Sommer2031!x".into(), "login --pass [secret:1]"),
        ("password=[[email:a0011223344556ff]]Sommer2031!x".into(), "password=[[email:a0011223344556ff]][secret:1]"),
        ("pwd: \"[[iban:withheld]]Sommer2031!x\"".into(), "pwd: \"[[iban:withheld]][secret:1]\""),
        ("password: [[Sommer2031!x".into(), "password: [[Sommer2031!x"),
        ("password: \"[[Sommer2031!x\"".into(), "password: \"[secret:1]\""),
        ("postgres://app:Sommer/2031@db.example.org/x".into(), "postgres://app:[url-password:1]@db.example.org/x"),
        ("redis://:a/b/c?d#e@cache:6379/0".into(), "redis://:[url-password:1]@cache:6379/0"),
    ] {
        assert_eq!(text("{}", &given), hidden, "{given}");
    }
    for same in [
        "compass: Sommer2031!x",
        "bypass=Sommer2031!x",
        "PASS: utf8to16.x2y3",
        "the second pass is O2n3log4",
        "pass: [[secret:b0011223344556ff]]",
        "password: [[your2own3password4]]",
        "http://host:8080/a@b",
        "http://host:/a@b",
        "http://host:$PORT/a@b",
        "http://[::1]:80/x@y",
        "file://C:/Users/me@x",
        "https://medium.com/@ann/post",
        "see http://a:b/c and write to me @home",
    ] {
        assert_eq!(text("{}", same), same);
    }
    let call = FakeCall::new("web", "get")
        .with_arguments(&format!("{{\"Authorization\":\"Bearer  {token}\",\"pass\":\"Sommer2031!x\"}}"));
    let change = redact("{}").rewrite(&call, &FakeVault::default()).unwrap();
    assert_eq!(change, Change::Replace(r#"{"Authorization":"Bearer  [secret:1]","pass":"[secret:2]"}"#.into()));
}

#[test]
fn calm_text_before_and_behind_a_value_does_not_hide_it() {
    for value in
        ["AKIAABCDEFGHIJKLMNOP", "a@b.org", "4111 1111 1111 1111", "AB 12 34 56 C", "password is Sommer2031!x", KEY]
    {
        for length in 0..70 {
            let words =
                &"the quick brown fox jumps over a lazy dog and then it sleeps, until noon, ".repeat(2)[..length];
            let given = format!("{words} {value} {words}");
            assert!(text("{}", &given).contains(":1]"), "{given}");
        }
    }
}

#[test]
fn every_byte_that_is_no_secret_stays() {
    let outcome = r#"{ "content" : [ {"type":"text", "text":"\u0061 caf\u00e9" }, {"text":"hi a@b.org\n\"\ud83d\ude00\""} ],
        "a@b.org": 1.50, "big": 9007199254740993, "isError" :false }"#;
    let vault = FakeVault::default();
    let change = redact("{}").rewrite(&FakeCall::new("mail", "read").with_outcome(outcome), &vault).unwrap();
    let expected = outcome
        .replace(r#""hi a@b.org\n\"\ud83d\ude00\"""#, r#""hi [email:1]\n\"😀\"""#)
        .replace(r#""a@b.org": 1.50"#, r#""[email:1]": 1.50"#);
    assert_ne!(expected, outcome);
    assert_eq!(change, Change::Replace(expected));
    assert_eq!(vault.kept()[0], ("email".into(), "a@b.org".into(), vec![]));
}

#[test]
fn nothing_found_keeps_the_value() {
    let keep = |call: &FakeCall| redact("{}").rewrite(call, &FakeVault::default()).unwrap() == Change::Keep;
    let call = FakeCall::new("mail", "send").with_arguments(r#"{"path":"/srv","n":4111111111111111}"#);
    assert!(keep(&call));
    assert!(keep(&call.with_arguments(r#"{"to":"a@b.org"}"#).in_phase(Phase::List)));
}

#[test]
fn the_same_value_has_one_placeholder_and_an_escaped_one_is_found() {
    let arguments = r#"{"a":"a@b.org","b":["a\u0040b.org"]}"#;
    let call = FakeCall::new("mail", "send").with_arguments(arguments);
    let change = redact("{}").rewrite(&call, &FakeVault::default()).unwrap();
    assert_eq!(change, Change::Replace(r#"{"a":"[email:1]","b":["[email:1]"]}"#.into()));
}

#[test]
fn an_escape_before_a_value_is_no_part_of_it() {
    let key = ["AKIA", "Z3MZ5QWERTY7UIOP"].concat();
    for before in [
        "\u{1b}[31m",
        "\u{1b}[0;1;32m",
        "\\n",
        "\\b",
        "\\f",
        "\\u0022",
        "\\x1b[0m",
        "%22",
        "key%3D",
        "\u{1b}[m",
        "\u{1b}[31;",
    ] {
        let given = format!("{before}{key}");
        let hidden = text("{}", &given);
        assert!(!hidden.contains(&key), "{given:?} {hidden:?}");
    }
}

#[test]
fn own_patterns_are_found_and_overlapping_values_become_one_placeholder() {
    let settings =
        r#"{"detect":["email"],"patterns":[{"kind":"ticket","regex":"TCK-[0-9]+"},{"kind":"word","regex":"org\\w*"}]}"#;
    assert_eq!(text(settings, "é TCK-12 TCK-x"), "é [ticket:1] TCK-x");
    // `org_secret` begins inside the address: no part of either may remain.
    let vault = FakeVault::default();
    let call = FakeCall::new("mail", "send").with_arguments(r#"{"x":"a@b.org_secret!"}"#);
    assert_eq!(redact(settings).rewrite(&call, &vault).unwrap(), Change::Replace(r#"{"x":"[email:1]!"}"#.into()));
    assert_eq!(vault.kept()[0].1, "a@b.org_secret");
}

#[test]
fn restore_goes_to_the_vault() {
    let call = FakeCall::new("mail", "read").with_outcome(r#"{"content":["a@b.org"]}"#);
    for (settings, globs) in
        [("{}", vec![]), (r#"{"restore":"same-source"}"#, vec![]), (r#"{"restore":["mail__*"]}"#, vec!["mail__*"])]
    {
        let vault = FakeVault::default();
        redact(settings).rewrite(&call, &vault).unwrap();
        assert_eq!(vault.kept()[0].2, globs, "{settings}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let rewrite = |call: FakeCall| redact("{}").rewrite(&call, &FakeVault::default());
    assert!(rewrite(FakeCall::new("m", "t").with_arguments(r#"{"a":"x","a":"a@b.org"}"#)).is_err());
    assert!(rewrite(FakeCall::new("m", "t").in_phase(Phase::Result)).is_err());
    assert!(rewrite(FakeCall::new("m", "t").in_phase(Phase::Other)).is_err());
}
