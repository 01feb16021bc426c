use super::*;

/// Returns the arguments as the source gets them. `[[p]]` stands for the placeholder of `value`.
fn sent(value: &str, from: &str, restore_to: &[&str], arguments: &str) -> String {
    let vault = Arc::new(SessionVault::default());
    let restore_to = restore_to.iter().map(|glob| (*glob).to_owned()).collect();
    let placeholder = vault.keeper(&from.parse().unwrap(), false).protect("p", value, restore_to);
    let call = Call::clone(&view(&arguments.replace("[[p]]", &placeholder)).call);
    let params = Json::of(&json!({ "name": "files__read", "arguments": call.arguments }));
    let params = Params::parse(&Method::ToolsCall, params);
    let permit = Permit::new(Arc::new(Call { params, ..call }), &vault, false);
    permit.source_params().get("arguments").unwrap().as_str().replace(&placeholder, "[[p]]")
}

#[test]
fn a_value_is_put_back_where_it_came_from_and_nowhere_else() {
    assert_eq!(sent("a\"b", "files", &[], r#"{"to":"x [[p]]"}"#), r#"{"to":"x a\"b"}"#);
    assert_eq!(sent("v", "mail", &[], r#"{"to":"[[p]]"}"#), r#"{"to":"[[p]]"}"#);
    assert_eq!(sent("v", "mail", &["files__*"], r#"{"to":"[[p]]"}"#), r#"{"to":"v"}"#);
    assert_eq!(sent("v", "files", &["[bad"], r#"{"to":"[[p]]"}"#), r#"{"to":"[[p]]"}"#);
}

#[test]
fn only_whole_placeholders_in_values_are_put_back() {
    assert_eq!(sent("v", "files", &[], r#"{"[[p]]":1,"a":{"[[p]]" : "[[p]]"}}"#), r#"{"[[p]]":1,"a":{"[[p]]" : "v"}}"#);
    assert_eq!(sent("v", "files", &[], r#"{"a":[["[[p]]"]],"b":"[[[p]]]"}"#), r#"{"a":[["v"]],"b":"[v]"}"#);
    assert_eq!(
        sent("v", "files", &[], r#"{"a":"\"[[p]]\\","b":"[[email:00]]"}"#),
        r#"{"a":"\"v\\","b":"[[email:00]]"}"#
    );
}

#[test]
fn small_arguments_cannot_be_made_to_burst() {
    let value = "x".repeat(64 * 1024);
    let arguments = format!(r#"{{"a":"{}"}}"#, "[[p]]".repeat(2_000));
    assert_eq!(sent(&value, "files", &[], &arguments), arguments);
}
