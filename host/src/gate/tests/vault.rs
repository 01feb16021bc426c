use super::*;
use crate::call::CallProgress;

/// Returns the arguments as the source gets them. `[[p]]` stands for the placeholder of `value`.
fn sent(value: &str, from: &str, restore_to: &[&str], arguments: &str) -> String {
    let vault = Arc::new(SessionVault::default());
    let restore_to = restore_to.iter().map(|glob| (*glob).to_owned()).collect();
    let placeholder = vault.keeper(&from.parse().unwrap()).protect("p", value, restore_to);
    let call = Call::clone(&view(&arguments.replace("[[p]]", &placeholder)).call);
    let params = Json::of(&json!({ "name": "files__read", "arguments": call.arguments }));
    let params = Params::parse(&Method::ToolsCall, params);
    let call = Arc::new(Call { params, ..call });
    let restored = vault.restore(&call.arguments, &call);
    let permit = Permit::new(call, restored.as_ref(), false, CallProgress::new());
    permit.source_params().get("arguments").unwrap().as_str().replace(&placeholder, "[[p]]")
}

#[test]
fn a_value_is_put_back_where_it_came_from_and_nowhere_else() {
    assert_eq!(sent("a\"b", "files", &[], r#"{"to":"x [[p]]"}"#), r#"{"to":"x a\"b"}"#);
    assert_eq!(sent("v", "mail", &[], r#"{"to":"[[p]]"}"#), r#"{"to":"[[p]]"}"#);
    assert_eq!(sent("v", "mail", &["files__*"], r#"{"to":"[[p]]"}"#), r#"{"to":"v"}"#);
    assert_eq!(sent("v", "files", &["[bad"], r#"{"to":"[[p]]"}"#), r#"{"to":"[[p]]"}"#);
}

/// The panic, the overflow of the stack and the hours of compilation that a transform's globs could cause.
#[test]
fn globs_that_are_too_much_restore_nothing_and_break_nothing() {
    let nested = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
    let lists = [
        vec![nested(100)],
        vec![nested(300)],
        vec![nested(100_000)],
        vec!["a".repeat(1 << 20)],
        vec!["*".to_owned(); 300_000],
    ];
    for restore_to in lists {
        let vault = Arc::new(SessionVault::default());
        let keeper = vault.keeper(&"files".parse().unwrap());
        let placeholder = keeper.protect("p", "secret", restore_to);
        let call = view(&format!(r#"{{"to":"{placeholder}"}}"#)).call;
        assert!(vault.restore(&call.arguments, &call).is_none(), "{placeholder}");
        // The vault still keeps values of reasonable size.
        let placeholder = keeper.protect("p", "secret", vec!["files__*".to_owned()]);
        let call = view(&format!(r#"{{"to":"{placeholder}"}}"#)).call;
        assert_eq!(vault.restore(&call.arguments, &call).unwrap().as_str(), r#"{"to":"secret"}"#);
    }
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

/// A search for the end of each bracket through all of the text would take minutes.
#[test]
fn a_text_full_of_brackets_is_read_once() {
    let brackets = "[".repeat(2_000_000);
    for end in ["", "]]", "[[p]]"] {
        let restored = sent("v", "files", &[], &format!(r#"{{"a":"{brackets}{end}"}}"#));
        assert_eq!(restored, format!(r#"{{"a":"{brackets}{}"}}"#, end.replace("[[p]]", "v")));
    }
}

/// Returns what each of two sources gets of the same arguments. In them `[[files]]` and `[[mail]]` stand for the
/// placeholders of values of these sources, and are that in what is returned.
fn sent_to_both(arguments: &str) -> [String; 2] {
    let vault = Arc::new(SessionVault::default());
    let protect = |source: &str, value: &str| vault.keeper(&source.parse().unwrap()).protect("p", value, vec![]);
    let (files, mail) = (protect("files", "value-of-files"), protect("mail", "value-of-mail"));
    let filled = arguments.replace("[[files]]", &files).replace("[[mail]]", &mail);
    ["files", "mail"].map(|source| {
        let mut call = Call::clone(&view(&filled).call);
        call.item = Arc::new(Item { source: source.parse().unwrap(), ..Item::clone(&call.item) });
        let restored =
            vault.restore(&call.arguments, &call).map_or(filled.clone(), |restored| restored.as_str().to_owned());
        restored.replace(&files, "[[files]]").replace(&mail, "[[mail]]")
    })
}

#[test]
fn a_forged_or_nested_placeholder_brings_no_value_to_another_source() {
    for arguments in [
        r#"{"a":"[[files]]"}"#,
        r#"{"a":"[[mail]] [[files]]"}"#,
        // One within another, cut, doubled, with another kind, and in escapes that a reader of JSON resolves.
        r#"{"a":"[[p:[[files]]]]"}"#,
        r#"{"a":"[[[[files]]]]"}"#,
        r#"{"a":"[[p:[[mail]][[files]]]]"}"#,
        r#"{"a":"[[files]]]]","b":["[[[files]]"]}"#,
        r#"{"a":"\u005b[[files]]\u005d"}"#,
        r#"{"[[files]]":"[[mail]]"}"#,
        r#"{"a":"[[p:withheld]] [[files]]"}"#,
    ] {
        let [files, mail] = sent_to_both(arguments);
        assert!(!mail.contains("value-of-files"), "{arguments} became {mail}");
        assert!(!files.contains("value-of-mail"), "{arguments} became {files}");
    }
    assert_eq!(sent_to_both(r#"{"a":"[[mail]] [[files]]"}"#)[1], r#"{"a":"value-of-mail [[files]]"}"#);
    assert_eq!(
        sent_to_both(r#"{"a":"[[p:a0011223344556ff]] [[p:withheld]]"}"#)[0],
        r#"{"a":"[[p:a0011223344556ff]] [[p:withheld]]"}"#
    );
}

#[test]
fn a_placeholder_within_a_value_is_not_put_back_with_it() {
    let vault = Arc::new(SessionVault::default());
    let keeper = |source: &str| vault.keeper(&source.parse().unwrap());
    let inner = keeper("mail").protect("p", "value-of-mail", vec![]);
    // A source writes what looks like a value around the placeholder of another source, to get that value with its own.
    let outer = keeper("files").protect("p", &format!("x{inner}x"), vec![]);
    let call = Call::clone(&view(&format!("{{\"a\":\"{outer}\"}}")).call);
    assert_eq!(vault.restore(&call.arguments, &call).unwrap().as_str(), format!("{{\"a\":\"x{inner}x\"}}"));
}

#[test]
fn a_placeholder_does_not_look_like_a_number() {
    let vault = Arc::new(SessionVault::default());
    let keeper = vault.keeper(&"files".parse().unwrap());
    for n in 0..200 {
        let placeholder = keeper.protect("p", &n.to_string(), vec![]);
        let nonce = placeholder.strip_prefix("[[p:").and_then(|rest| rest.strip_suffix("]]")).unwrap();
        assert!(nonce.len() == 16 && nonce.starts_with(|c: char| ('a'..='f').contains(&c)), "{placeholder}");
    }
}

/// If two sources shared the placeholder of a value, one could send many guesses and see for which of them it is given the
/// value of the other.
#[test]
fn a_source_that_guesses_a_value_of_another_gets_nothing_for_the_placeholder_of_that() {
    let vault = Arc::new(SessionVault::default());
    for restore_to in [vec!["crm__*".to_owned()], vec![]] {
        let protect = |source: &str| vault.keeper(&source.parse().unwrap()).protect("p", "guessed", restore_to.clone());
        assert!(protect("files") != protect("mail") && protect("files") == protect("files"), "{restore_to:?}");
    }
    let files = vault.keeper(&"files".parse().unwrap()).protect("p", "guessed", vec![]);
    let mut call = Call::clone(&view(&format!(r#"{{"a":"{files}"}}"#)).call);
    call.item = Arc::new(Item { source: "mail".parse().unwrap(), ..Item::clone(&call.item) });
    assert!(vault.restore(&call.arguments, &call).is_none());
}

#[test]
fn a_source_that_floods_a_vault_takes_no_room_from_the_others() {
    let vault = Arc::new(SessionVault::default());
    let keeper = |source: &str| vault.keeper(&source.parse().unwrap());
    let restored = |placeholder: &str| {
        let call = view(&format!(r#"{{"a":"{placeholder}"}}"#)).call;
        vault.restore(&call.arguments, &call).is_some()
    };
    let (flood, files) = (keeper("flood"), keeper("files"));
    // Large values reach the limit in bytes, and small ones that in number.
    let large =
        (0..100).map(|n| flood.protect("p", &format!("{n:065000}"), vec![])).filter(|it| it.ends_with("withheld]]"));
    assert_eq!(large.count(), 36);
    let small = keeper("small");
    let few = (0..2_600).map(|n| small.protect("p", &n.to_string(), vec![])).filter(|it| it.ends_with("withheld]]"));
    assert_eq!(few.count(), 100);
    assert!(restored(&files.protect("p", "mine", vec![])));
}

#[test]
fn what_is_said_of_values_has_their_placeholders() {
    let vault = Arc::new(SessionVault::default());
    let keeper = vault.keeper(&"files".parse().unwrap());
    let [long, short] = ["sesame-street", "sesame"].map(|value| keeper.protect("p", value, Vec::new()));
    let said = vault.hide("no way to sesame-street, nor to sesame".to_owned());
    assert_eq!(said, format!("no way to {long}, nor to {short}"));

    // A value may be a part of a placeholder, and begin inside of another value.
    let kind = keeper.protect("street", "street", Vec::new());
    let word = keeper.protect("p", "p", Vec::new());
    let crossing = keeper.protect("p", "met-avenue", Vec::new());
    let said = vault.hide("street sesame-street: step, sesamet-avenue".to_owned());
    assert_eq!(said, format!("{kind} {long}: ste{word}, {short}{crossing}"));
}

#[tokio::test]
async fn a_person_is_told_that_the_source_gets_hidden_values() {
    let bench = Bench::new().await;
    let source = view("{}").call.source().clone();
    let placeholder = bench.vault.keeper(&source).protect("secret", "sesame", Vec::new());
    let waiting = bench.ask(&format!(r#"{{"name":"files__read","arguments":{{"to":"{placeholder}"}}}}"#)).await;
    let reasons = bench.inbox.list()[0].reasons.join("; ");
    assert!(reasons.contains("hidden from the agent"), "{reasons}");
    drop(waiting);
}
