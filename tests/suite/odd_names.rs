//! Tools whose names no client would accept, or whose names collide: the other tools are still served.

use serde_json::{Value, json};

use crate::agent::{Agent, ERAS, Era};
use crate::test_dir::TestDir;

const CONFIG: &str = r#"
[profiles.default]
approve = "never"
[sources.odd]
command = ["@source@", "odd-names"]
"#;

#[test]
fn a_tool_with_an_unsafe_name_does_not_affect_others_and_is_reported_once() {
    let long = format!("odd__{}", "e".repeat(65));
    for era in ERAS {
        let dir = TestDir::new(CONFIG);
        let mut agent = Agent::alone(&dir, era);
        let listed = agent.list();
        let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let expected = ["odd__echo", "odd___u435_cho", "odd__e_u20_cho", "odd__ns_u3a_echo", "odd___u67e5__u8be2_"];
        assert_eq!(names[..5], expected, "{listed}");
        assert!(names.len() == 6 && names[5].len() == 64 && names[5][..50] == long[..50], "{listed}");
        for (exposed, own) in
            [("odd__echo", "echo"), ("odd___u435_cho", "\u{435}cho"), ("odd___u67e5__u8be2_", "\u{67e5}\u{8be2}")]
        {
            assert_eq!(agent.call(exposed, &json!({}), None), json!({ "ok": own }));
        }
        agent.leave();

        let connected = &dir.records_of("mcp.connected")[0]["body"];
        let remarks = connected["remarks"].as_array().unwrap();
        let left_out: Vec<_> = remarks.iter().filter(|remark| remark["exposed"].is_null()).collect();
        assert_eq!(left_out.iter().map(|remark| &remark["name"]).collect::<Vec<_>>(), ["echo", "e\u{200b}cho", ""]);
        assert_eq!(remarks.len(), 7, "{connected}");
    }
}

#[test]
fn check_and_the_log_report_tools_that_are_renamed_or_left_out() {
    let dir = TestDir::new(CONFIG);
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for said in [
        r#""ns:echo" is offered as `odd__ns_u3a_echo`"#,
        r#""e\u{200b}cho" is left out: its name holds the invisible character U+200B"#,
        r#""echo" is left out: the source already offers another one with this name"#,
    ] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    let mut agent = Agent::alone(&dir, Era::Modern);
    agent.list();
    agent.list();
    let (code, log) = agent.running.end();
    assert_eq!((code, log.matches("is left out").count()), (Some(0), 3), "{log}");
}

#[test]
fn json_output_holds_no_invisible_or_control_characters() {
    let dir = TestDir::new(&CONFIG.replace("odd-names", "echo"));
    let hidden = "a\u{202e}b\u{200b}c\u{9b}d";
    let ran = dir.run(&["call", "odd__echo", &json!({ "text": hidden }).to_string(), "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.out.contains(['\u{202e}', '\u{200b}', '\u{9b}']) && ran.out.contains("\\u202e"), "{:?}", ran.out);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(result.to_string().contains(hidden), "it parses to the same text: {result}");
}
