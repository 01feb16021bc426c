use super::*;

#[test]
fn a_wrong_setting_is_named_with_its_value_and_the_way_out() {
    for (settings, error) in [
        (
            r#"{"detect":["email","stripe-token"]}"#,
            "settings.detect[1]: \"stripe-token\" is not a kind that is known: do you mean `stripe-key`?",
        ),
        (
            r#"{"detect":["shoe-size"]}"#,
            "settings.detect[0]: \"shoe-size\" is not a kind that is known: use `default`, or kinds from",
        ),
        (r#"{"patterns":[{"kind":"x","regex":"(a"}]}"#, "settings.patterns[0].regex: `(a` is not a regex: "),
        (r#"{"patterns":[{"kind":"x","regex":"(?=a)b"}]}"#, "settings.patterns[0].regex: `(?=a)b` is not a regex: "),
        (
            r#"{"patterns":[{"kind":"x","regex":"a*"}]}"#,
            "settings.patterns[0].regex: `a*` matches the empty text, so it cannot identify a value; use `+`",
        ),
        (
            r#"{"patterns":[{"kind":"My Kind","regex":"a"}]}"#,
            "settings.patterns[0].kind: \"My Kind\" is not a kind; use up to 32",
        ),
        (r#"{"patterns":[{"kind":"x"}]}"#, "settings.patterns[0]: missing field `regex`"),
        (
            r#"{"restore":"everywhere"}"#,
            "settings.restore: \"everywhere\" is not \"same-source\"; globs over exposed names are given as a list",
        ),
        (r#"{"restore":[]}"#, "settings.restore: an empty list; leave it out, or name globs"),
        (r#"{"restore":7}"#, "settings.restore: expected \"same-source\" or a list of globs"),
        (r#"{"one-way":true}"#, "settings.one-way: expected \"all\" or a list of kinds"),
        (r#"{"one-way":"none"}"#, "settings.one-way: \"none\" is not \"all\"; kinds are given as a list"),
        (
            r#"{"one-way":["jwt","phone"]}"#,
            "settings.one-way[1]: \"phone\" is not searched for; add it to `detect` or to `patterns`",
        ),
        (
            r#"{"one-way":"all","restore":["mail__*"]}"#,
            "settings.restore: nothing is put back if one-way is \"all\"; leave one",
        ),
        (r#"{"redact":1}"#, "settings.redact: unknown field"),
    ] {
        let given = Redact::configure(settings).err().unwrap();
        assert!(given.starts_with(error), "{settings}\n  gave  {given}\n  not   {error}");
    }
}

#[test]
fn the_default_is_every_kind_but_those_that_need_a_word() {
    let finds = |settings: &str, given: &str| text(settings, given) != given;
    for opt_in in ["+49 30 901820", "192.0.2.7", "2001:db8::7"] {
        assert!(!finds("{}", opt_in), "{opt_in}");
        assert!(finds(r#"{"detect":["default","phone","ipv4","ipv6"]}"#, opt_in), "{opt_in}");
    }
    assert!(finds(r#"{"detect":["default"]}"#, "a@b.org") && finds("{}", "a@b.org"));
    assert!(!finds(r#"{"detect":["iban"]}"#, "a@b.org"));
    assert!(!finds(r#"{"detect":[]}"#, "a@b.org"), "only the patterns");
}
