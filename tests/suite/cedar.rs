//! Policies in Cedar, checked against the tools that they are about.

use crate::test_dir::TestDir;

/// Returns a configuration with two sources and these policies, the last of which is in line 3.
fn configuration(last: &str) -> String {
    format!(
        "[sources.calc]\ncomponent = \"builtin:calculator\"\n[[policies]]\nplugin = \"builtin:cedar\"\n\
         [policies.settings]\npolicies = '''\npermit (principal, action in Action::\"call_tool\", resource);\n\n{last}\n'''\n"
    )
}

#[test]
fn check_refuses_a_policy_in_cedar_that_does_not_agree_with_the_tools() {
    let forbid = |when: &str| {
        configuration(&format!("forbid (principal, action == Action::\"calc__divide\", resource) when {{ {when} }};"))
    };
    let dir = TestDir::new(&forbid("context.input.b == 0"));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);

    for (when, cause) in [
        ("context.input.c == 0", "attribute `input.c` in context for Action::\"calc__divide\" not found"),
        ("context.input.b like \"0\"", "unexpected type: expected String but saw Long"),
    ] {
        dir.configure(&forbid(when));
        let ran = dir.run(&["check"]);
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, Some(1), "{said}");
        assert!(said.contains("settings.policies, line 3: ") && said.contains(cause), "{said}");
    }

    dir.configure(&configuration("forbid (principal, action == Action::\"calc__devide\", resource);"));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("unrecognized action `Action::\"calc__devide\"`"), "{}{}", ran.out, ran.err);
}

#[test]
fn the_schema_that_is_printed_can_be_configured() {
    let policy = "forbid (principal, action == Action::\"calc__divide\", resource) when { context.input.b == 0 };";
    let dir = TestDir::new(&configuration(policy));
    let ran = dir.run(&["policy", "schema"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("action \"calc__divide\" in [call_tool]"), "{}", ran.out);
    dir.configure(&format!("{}schema = '''\n{}'''\n", configuration(policy), ran.out));
    let ran = dir.run(&["call", "calc__divide", "{\"a\": 84, \"b\": 2}"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "42"), "{}", ran.err);
    let ran = dir.run(&["call", "calc__divide", "{\"a\": 84, \"b\": 0}"]);
    assert!(ran.err.contains("forbidden by the policy 2"), "{}{}", ran.out, ran.err);
}
