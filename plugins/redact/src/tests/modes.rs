use super::*;

#[test]
fn the_vault_learns_nothing_of_a_value_that_goes_one_way() {
    let vault = FakeVault::default();
    let call =
        FakeCall::new("mail", "read").with_outcome(r#"{"content":["a@b.org c@d.org DE89 3704 0044 0532 0130 00"]}"#);
    let change = redact(r#"{"one-way":["email"]}"#).rewrite(&call, &vault).unwrap();
    let expected = r#"{"content":["[[email:withheld]] [[email:withheld]] [iban:1]"]}"#;
    assert_eq!(change, Change::Replace(expected.into()));
    assert_eq!(vault.kept().len(), 1, "only the account number is kept");

    let vault = FakeVault::default();
    let change = redact(r#"{"one-way":"all","patterns":[{"kind":"org","regex":"ACME-[0-9]+"}]}"#);
    let call = FakeCall::new("mail", "read").with_outcome(r#"{"content":["a@b.org ACME-7"]}"#);
    let expected = r#"{"content":["[[email:withheld]] [[org:withheld]]"]}"#;
    assert_eq!(change.rewrite(&call, &vault).unwrap(), Change::Replace(expected.into()));
    assert_eq!(vault.kept(), []);
}

#[test]
fn a_value_of_which_a_part_goes_one_way_goes_one_way() {
    let settings = r#"{"detect":["email"],"patterns":[{"kind":"host","regex":"b[.]org"}],"one-way":["host"]}"#;
    let vault = FakeVault::default();
    let call = FakeCall::new("mail", "send").with_arguments(r#"{"x":"a@b.org"}"#);
    let change = redact(settings).rewrite(&call, &vault).unwrap();
    assert_eq!(change, Change::Replace(r#"{"x":"[[email:withheld]]"}"#.into()));
    assert_eq!(vault.kept(), []);
}

#[test]
fn a_placeholder_is_no_value_and_what_imitates_one_hides_nothing() {
    let settings = r#"{"patterns":[{"kind":"hex","regex":"[0-9a-f]{8,}"}]}"#;
    for same in [
        "[[hex:a0011223344556ff]]",
        "token: [[secret:b0011223344556ff]]",
        "[[hex:withheld]] [[iban:withheld]]",
        "[[[hex:a0011223344556ff]]]",
        "[[[[[hex:a0011223344556ff]] [[[hex:b0011223344556ff]]",
    ] {
        assert_eq!(text(settings, same), same);
    }
    for (given, hidden) in [
        // No placeholder of the vault begins with a digit: this is a card number.
        ("[[email:4111111111111111]]", "[[email:[credit-card:1]]]"),
        ("[[email:a@b.org]]", "[[email:[email:1]]]"),
        ("[[a@b.org:withheld]]", "[[[email:1]:withheld]]"),
        // The text before the colon is a value, not a kind.
        ("[[4111-1111-1111-1111:withheld]]", "[[[credit-card:1]:withheld]]"),
        ("[[4111111111111111:a0011223344556ff]]", "[[[credit-card:1]:a0011223344556ff]]"),
        ("[[[hex:a0011223344556ff]] a@b.org]]", "[[[hex:a0011223344556ff]] [email:1]]]"),
    ] {
        assert_eq!(text("{}", given), hidden, "{given}");
    }
}

#[test]
fn keys_are_hidden_in_results_and_stay_different() {
    let rewrite = |call: FakeCall, settings: &str| redact(settings).rewrite(&call, &FakeVault::default()).unwrap();
    let map = r#"{"a@b.org" : {"x\"a@c.org":1}, "a@d.org":2}"#;
    let new = r#"{"[email:1]" : {"x\"[email:2]":1}, "[email:3]":2}"#;
    assert_eq!(rewrite(FakeCall::new("mail", "read").with_outcome(map), "{}"), Change::Replace(new.into()));
    // The vault puts back values and not keys, so a source would get the placeholder.
    assert_eq!(rewrite(FakeCall::new("mail", "read").with_arguments(map), "{}"), Change::Keep);
    let new = r#"{"[[email:withheld]]" : {"x\"[[email:withheld]]":1}, "[[email:withheld]] 2":2}"#;
    let one_way = r#"{"one-way":"all"}"#;
    assert_eq!(rewrite(FakeCall::new("mail", "read").with_outcome(map), one_way), Change::Replace(new.into()));
    // The source has written such keys itself.
    let map = r#"{"a@b.org":1,"c@d.org":2,"[[email:withheld]] 2":3,"[[email:withheld]]":4}"#;
    let new = r#"{"[[email:withheld]] 3":1,"[[email:withheld]] 4":2,"[[email:withheld]] 2":3,"[[email:withheld]]":4}"#;
    assert_eq!(rewrite(FakeCall::new("mail", "read").with_outcome(map), one_way), Change::Replace(new.into()));
}
