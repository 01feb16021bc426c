//! What an agent can make the broker do and keep with the arguments of one call.

use super::*;

#[test]
fn a_long_name_is_not_copied_for_each_value_under_it() {
    // A copy for each would take 25 GB.
    let mut values = vec![json!(1); 50_000];
    values.push(json!(KEY));
    let found = origins(&session(), json!({ ("k".repeat(500_000)): values }));
    assert_eq!(found, [("files__read".to_owned(), format!("/{}…", "k".repeat(255)))]);
}

#[test]
fn a_long_place_is_cut_between_two_letters_and_says_so() {
    let place = |arguments: Value| origins(&session(), arguments).remove(0).1;
    for (name, shown) in [
        ("k".repeat(255), "k".repeat(255)),
        ("k".repeat(256), "k".repeat(255) + "…"),
        ("é".repeat(128), "é".repeat(127) + "…"),
        ("~".repeat(128), "~0".repeat(127) + "…"),
        ("/".repeat(128), "~1".repeat(127) + "…"),
    ] {
        assert_eq!(place(json!({ (name): KEY })), format!("/{shown}"));
    }
    let long = "k".repeat(255);
    assert_eq!(place(json!({ (long.clone()): [{ "to": KEY }] })), format!("/{long}…"));
    assert_eq!(place(json!({ (long.clone()): [1], "a": [0, KEY] })), "/a/1", "what stands beside it is not cut");
    assert_eq!(place(json!({ "a": json!({ "inner": [KEY] }).to_string() })), "/a", "the place of the text");
}
