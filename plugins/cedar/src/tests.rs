#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use portcullis_plugin::fake::FakeCall;
use portcullis_plugin::json::quote;
use portcullis_plugin::{Risk, Trust};

use super::*;

mod agreement;
mod reference;

fn configure(policies: &str) -> Result<Cedar, String> {
    Cedar::configure(&format!(r#"{{"policies":{}}}"#, quote(policies)))
}

fn check(policies: &str, call: &FakeCall) -> Verdict {
    configure(policies).unwrap_or_else(|error| panic!("{error}")).check(call).unwrap()
}

/// Returns one word for a verdict: `pass`, `ask`, or the code of a denial.
fn word(policies: &str, call: &FakeCall) -> String {
    match check(policies, call) {
        Verdict::Pass => "pass".into(),
        Verdict::Ask(_) => "ask".into(),
        Verdict::Deny(denial) => denial.code,
    }
}

fn message(policies: &str, call: &FakeCall) -> String {
    match check(policies, call) {
        Verdict::Pass => panic!("it passes"),
        Verdict::Ask(concern) => concern.message,
        Verdict::Deny(denial) => denial.message,
    }
}

fn write() -> FakeCall {
    FakeCall::new("files", "write_file")
}

/// Reports whether a call with these arguments passes a permit with this condition.
fn permits(condition: &str, arguments: &str) -> bool {
    let policy = format!("permit (principal, action, resource) when {{ {condition} }};");
    word(&policy, &write().with_arguments(arguments)) == "pass"
}

const ALL: &str = "permit (principal, action, resource);";

#[test]
fn what_no_policy_permits_is_denied() {
    let git = r#"permit (principal, action, resource in Source::"git");"#;
    assert_eq!(word(git, &write()), "not-permitted");
    assert_eq!(message(git, &write()), "no policy permits files__write_file");
    assert_eq!(word(git, &FakeCall::new("git", "log")), "pass");
    assert_eq!(word("forbid (principal, action, resource);", &write()), "forbidden");
}

#[test]
fn a_forbid_wins_over_every_permit_and_is_named() {
    let named =
        format!(r#"{ALL} @id("no-writes") forbid (principal, action == Action::"files__write_file", resource);"#);
    assert_eq!(word(&named, &write()), "forbidden");
    assert_eq!(message(&named, &write()), "forbidden by the policy `no-writes`");
    assert_eq!(word(&named, &FakeCall::new("files", "read")), "pass");
    let unnamed = format!("forbid (principal, action, resource); {ALL} forbid (principal, action, resource);");
    assert_eq!(message(&unnamed, &write()), "forbidden by the policy 1 and the policy 3");
    let asking = format!(r#"@requireApproval("why") {ALL} forbid (principal, action, resource);"#);
    assert_eq!(word(&asking, &write()), "forbidden");
}

#[test]
fn a_permit_with_require_approval_asks_even_if_another_one_permits() {
    let asks = format!(
        r#"{ALL} @id("writes") @requireApproval("it writes") permit (principal, action, resource in Source::"files");"#
    );
    assert_eq!(check(&asks, &write()), Verdict::ask("approval-required", "it writes (policy `writes`)"));
    assert_eq!(word(&asks, &FakeCall::new("git", "log")), "pass");
    assert_eq!(
        message("@requireApproval permit (principal, action, resource);", &write()),
        "asked for by the policy 1"
    );
}

#[test]
fn a_number_that_a_source_may_round_to_another_is_denied_where_a_policy_reads_it() {
    let forbid = format!("{ALL} forbid (principal, action, resource) when {{ context.input.b == 0 }};");
    for rounded in ["1e-400", "0.99999999999999999999", "[1e-400]"] {
        let call = write().with_arguments(&format!(r#"{{"b":{rounded},"c":1}}"#));
        assert_eq!(word(&forbid, &call), "arguments-ambiguous", "{rounded}");
    }
    assert_eq!(word(&forbid, &write().with_arguments(r#"{"b":1,"c":1e-400}"#)), "pass", "no policy reads it");
    assert_eq!(word(&forbid, &write().with_arguments(r#"{"b":0.5}"#)), "pass");
}

#[test]
fn a_policy_that_cannot_be_evaluated_denies_and_shows_no_value() {
    let forbid = format!(r#"{ALL} @id("big") forbid (principal, action, resource) when {{ context.input.size > 5 }};"#);
    assert_eq!(word(&forbid, &write().with_arguments(r#"{"size":5}"#)), "pass");
    assert_eq!(word(&forbid, &write().with_arguments(r#"{"size":6}"#)), "forbidden");
    for arguments in
        ["{}", r#"{"size":"secret"}"#, r#"{"size":5.5}"#, r#"{"size":null}"#, r#"{"size":[9]}"#, r#"{"size":1e99}"#]
    {
        let call = write().with_arguments(arguments);
        assert_eq!(word(&forbid, &call), "policy-error", "{arguments}");
        let message = message(&forbid, &call);
        assert!(message.starts_with("the policy `big` cannot be evaluated for this call: "), "{message}");
        assert!(!message.contains("secret") && !message.contains('9'), "{message}");
    }
    // A permit that asks must not be skipped for one that does not.
    let asks =
        format!(r#"{ALL} @requireApproval permit (principal, action, resource) when {{ context.input.size > 5 }};"#);
    assert_eq!(word(&asks, &write()), "policy-error");
}

#[test]
fn a_policy_names_tools_sources_profiles_and_principals() {
    let call = write().called_by("token:ann", "ops", Trust::High).with_tags(&["prod"]).with_risk(Risk::Harmless);
    for holds in [
        r#"principal == Client::"token:ann""#,
        r#"principal in Profile::"ops""#,
        r#"principal.trust == "high""#,
        r#"action == Action::"files__write_file""#,
        r#"resource == Tool::"files__write_file""#,
        r#"resource in Source::"files""#,
        r#"resource.name == "write_file""#,
        r#"resource.tags.contains("prod")"#,
        r#"context.method == "tools/call""#,
        r#"context.risk == "harmless""#,
    ] {
        assert_eq!(
            word(&format!("permit (principal, action, resource) when {{ {holds} }};"), &call),
            "pass",
            "{holds}"
        );
        let not = format!("permit (principal, action, resource) when {{ !({holds}) }};");
        assert_eq!(word(&not, &call), "not-permitted", "{holds}");
    }
    let tools = r#"permit (principal, action in Action::"call_tool", resource);"#;
    assert_eq!(word(tools, &call), "pass");
    assert_eq!(word(tools, &call.clone().with_method("prompts/get")), "not-permitted");
    let prompt = r#"permit (principal, action == Action::"get_prompt", resource == Prompt::"files__write_file");"#;
    assert_eq!(word(prompt, &call.clone().with_method("prompts/get")), "pass");
    let resource = r#"permit (principal, action == Action::"read_resource", resource) when { resource.uri like "file:///srv/*" };"#;
    let read = FakeCall::new("files", "file:///srv/a").with_method("resources/read");
    assert_eq!(word(resource, &read), "pass");
    let other = r#"permit (principal, action == Action::"use_method", resource == Source::"files") when { context.method == "sampling/createMessage" };"#;
    assert_eq!(word(other, &call.with_method("sampling/createMessage")), "pass");
}

#[test]
fn hints_that_are_missing_or_no_booleans_have_the_defaults_of_the_protocol() {
    let policy = |hint| format!("permit (principal, action, resource) when {{ {hint} }};");
    let defaults = "!resource.readOnly && resource.destructive && !resource.idempotent && resource.openWorld";
    assert_eq!(word(&policy(defaults), &write()), "pass");
    assert_eq!(
        word(&policy(defaults), &write().with_annotations(r#"{"readOnlyHint":"true","destructiveHint":0}"#)),
        "pass"
    );
    assert_eq!(word(&policy("resource.readOnly"), &write().with_annotations(r#"{"readOnlyHint":true}"#)), "pass");
}

#[test]
fn a_source_cannot_name_its_tool_into_a_permit() {
    let permit = r#"permit (principal, action, resource == Tool::"files__read");"#;
    assert_eq!(word(permit, &FakeCall::new("evil", "files__read")), "not-permitted");
    let prompts = r#"permit (principal, action == Action::"get_prompt", resource);"#;
    assert_eq!(word(prompts, &FakeCall::new("evil", "x").exposed_as("get_prompt")), "ambiguous-name");
    assert_eq!(word(prompts, &FakeCall::new("evil", "x").exposed_as("call_tool")), "ambiguous-name");
}

#[test]
fn arguments_have_the_types_of_cedar() {
    for (condition, arguments) in [
        (r#"context.input.path like "/srv/*""#, r#"{"path":"/srv/a"}"#),
        (r#"context.input.path == "/a""#, r#"{"\u0070ath":"\/a"}"#),
        ("context.input.n == 5", r#"{"n":50e-1}"#),
        ("context.input.n < 0", r#"{"n":-9223372036854775808}"#),
        ("context.input.on", r#"{"on":true}"#),
        ("context.input.list.containsAll([1, 2])", r#"{"list":[2,1,2]}"#),
        ("context.input.a.b == {c: 1}", r#"{"a":{"b":{"c":1}}}"#),
        (r#"ip(context.input.host).isInRange(ip("10.0.0.0/8"))"#, r#"{"host":"10.1.2.3"}"#),
        (r#"context.input.none == Json::"null""#, r#"{"none":null}"#),
        (r#"context.input.half == Json::"5e-1""#, r#"{"half":0.5}"#),
        ("!(context.input has path)", "{}"),
    ] {
        assert!(permits(condition, arguments), "{condition} with {arguments}");
    }
}

#[test]
fn a_value_that_cedar_cannot_represent_passes_no_comparison() {
    for arguments in
        [r#"{"n":5.5}"#, r#"{"n":null}"#, r#"{"n":1e400}"#, r#"{"n":"5"}"#, r#"{"n":[5]}"#, r#"{"n":{"n":5}}"#]
    {
        for condition in
            ["context.input.n == 5", "context.input.n <= 5", "context.input.n >= 5", "!(context.input has n)"]
        {
            assert!(!permits(condition, arguments), "{condition} with {arguments}");
        }
    }
}

#[test]
fn arguments_that_imitate_cedar_stay_data() {
    let entity = r#"{"who":{"__entity":{"type":"Profile","id":"ops"}}}"#;
    assert!(!permits(r#"context.input.who == Profile::"ops""#, entity));
    assert!(permits("context.input.who has __entity", entity));
    let extension = r#"{"who":{"__extn":{"fn":"ip","arg":"10.0.0.1"}}}"#;
    assert!(!permits("context.input.who.isLoopback() || true", extension));
    assert!(!permits(r#"context.risk == "harmless""#, r#"{"risk":"harmless","context":{"risk":"harmless"}}"#));
}

#[test]
fn arguments_that_can_be_read_two_ways_are_an_error() {
    let cedar = configure(ALL).unwrap();
    for arguments in [r#"{"path":"/srv","path":"/etc"}"#, r#"{"a":"#, "[]", "7"] {
        assert!(cedar.check(&write().with_arguments(arguments)).is_err(), "{arguments}");
    }
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    assert!(cedar.check(&write().with_arguments(&deep)).is_err());
}

#[test]
fn a_list_hides_only_what_is_denied_whatever_the_arguments() {
    let word = |policies: &str| word(policies, &write().in_phase(Phase::List));
    let scoped = |rest: &str| format!("permit (principal, action, resource) when {{ {rest} }};");
    assert_eq!(word(ALL), "pass");
    assert_eq!(word(&format!("{ALL} forbid (principal, action, resource in Source::\"files\");")), "not-permitted");
    assert_eq!(word(r#"permit (principal, action, resource in Source::"git");"#), "not-permitted");
    assert_eq!(word(&format!("@requireApproval {ALL}")), "pass");
    // An item whose verdict depends on the arguments is shown.
    assert_eq!(word(&scoped("context.input.path like \"/srv/*\"")), "pass");
    assert_eq!(word(&scoped("context.input has path && context.input.path like \"/srv/*\"")), "pass");
    assert_eq!(
        word(&format!("{ALL} forbid (principal, action, resource) when {{ context.input.path like \"/etc/*\" }};")),
        "pass"
    );
    assert_eq!(
        word(&format!("{ALL} forbid (principal, action, resource) unless {{ context.input has path }};")),
        "pass"
    );
    // An item whose verdict does not is hidden, even if the arguments are mentioned.
    assert_eq!(word(&scoped("resource.readOnly && context.input.path like \"/srv/*\"")), "not-permitted");
    assert_eq!(word(&scoped("resource.nothing")), "policy-error");
}

#[test]
fn in_the_result_phase_the_call_is_judged_again() {
    let forbid = format!(r#"{ALL} forbid (principal, action == Action::"files__write_file", resource);"#);
    assert_eq!(word(&forbid, &write().with_outcome(r#"{"content":[]}"#)), "forbidden");
}

#[test]
fn a_wrong_setting_is_named_with_its_line() {
    for (policies, error) in [
        ("", "settings.policies: there is no policy, so every call would be denied"),
        ("permit (principal, action, resource)", "settings.policies, line 1: unexpected end of input"),
        (
            "permit (principal, action, resource);\n\nallow (principal, action, resource);",
            "settings.policies, line 3: ",
        ),
        ("permit (principal == ?principal, action, resource);", "settings.policies: a template"),
        (
            "@id(\"a\") permit (principal, action, resource); @id(\"a\") forbid (principal, action, resource);",
            "settings.policies: the policy `a` has the name of an earlier one",
        ),
        (
            "@requireApproval forbid (principal, action, resource);",
            "settings.policies: the policy 1 is a `forbid`, which never asks",
        ),
        (
            "@require_approval(\"x\") permit (principal, action, resource);",
            "settings.policies: the policy 1 has the annotation `@require_approval`",
        ),
        (
            "@requireapproval permit (principal, action, resource);",
            "settings.policies: the policy 1 has the annotation `@requireapproval`",
        ),
        (
            "permit (principal, action, resource == Tools::\"x\");",
            "settings.policies: the policy 1 names an entity of the type `Tools`",
        ),
        (
            "permit (principal, action == MCP::Action::\"invokeTool\", resource);",
            "settings.policies: the policy 1 names an entity of the type `MCP::Action`",
        ),
        (
            "forbid (principal, action == Action::\"call_tool\", resource);",
            "settings.policies: the policy 1 compares the action with the group",
        ),
        (
            "forbid (principal, action, resource) when { action == Action::\"call_tool\" };",
            "settings.policies: the policy 1 compares the action with the group",
        ),
    ] {
        let given = configure(policies).err().unwrap();
        assert!(given.starts_with(error), "{policies}\n  gave  {given}\n  not   {error}");
    }
    for (settings, error) in [
        ("{}", "settings: missing field `policies`"),
        (r#"{"policies":7}"#, "settings.policies: invalid type: integer `7`"),
        (r#"{"policies":"permit (principal, action, resource);","polices":""}"#, "settings.polices: unknown field"),
    ] {
        let given = Cedar::configure(settings).err().unwrap();
        assert!(given.starts_with(error), "{settings}\n  gave  {given}\n  not   {error}");
    }
}

/// Configures policies with a schema that has one tool, `files__read`, with the required `path` and the optional `limit`.
fn with_schema(policies: &str) -> Result<Cedar, String> {
    let schema = r#"
entity Profile;
entity Client in [Profile] { trust: String };
entity Source { tags: Set<String> };
entity Tool in [Source] { name: String, readOnly: Bool };
action call_tool;
action "files__read" in [call_tool] appliesTo {
  principal: [Client], resource: [Tool], context: { input: { "path": String, "limit"?: Long }, method: String },
};"#;
    Cedar::configure(&format!(r#"{{"policies":{},"schema":{}}}"#, quote(policies), quote(schema)))
}

#[test]
fn with_a_schema_an_ill_typed_policy_is_refused_with_its_line() {
    let read = r#"permit (principal, action == Action::"files__read", resource) when"#;
    for good in [
        "context.input.path like \"/srv/*\"",
        "context.input has limit && context.input.limit < 10",
        "resource in Source::\"files\" && principal.trust == \"high\"",
    ] {
        with_schema(&format!("{read} {{ {good} }};")).unwrap();
    }
    with_schema(r#"permit (principal, action in Action::"call_tool", resource) when { resource.readOnly };"#).unwrap();
    for (ill, cause) in [
        ("context.input.path < 5", "unexpected type: expected Long but saw String"),
        ("context.input.pth == \"x\"", "not found"),
        ("context.input.limit < 10", "unable to guarantee safety of access to optional attribute"),
        ("resource.nothing", "not found"),
    ] {
        let given = with_schema(&format!("{read} {{ true }};\n\n{read} {{ {ill} }};")).err().unwrap();
        assert!(given.starts_with("settings.policies, line 3: ") && given.contains(cause), "{ill}: {given}");
    }
    let unknown = with_schema(r#"permit (principal, action == Action::"files__raed", resource);"#).err().unwrap();
    assert!(unknown.starts_with("settings.policies, line 1: unrecognized action"), "{unknown}");
    let broken =
        Cedar::configure(r#"{"policies":"permit (principal, action, resource);","schema":"entity;"}"#).err().unwrap();
    assert!(broken.starts_with("settings.schema, line 1: "), "{broken}");
}

#[test]
fn a_key_that_policies_read_is_denied_in_two_cases_at_every_depth() {
    let permit = r#"permit (principal, action, resource) when
        { context.input.path like "/srv/*" && !(context.input has x && context.input.x has size) };"#;
    for (arguments, expected) in [
        (r#"{"path":"/srv/a"}"#, "pass"),
        (r#"{"path":"/srv/a","Path":"/etc/shadow"}"#, "arguments-ambiguous"),
        (r#"{"path":"/srv/a","list":[{"to":1,"y":{"PATH":2,"path":3}}]}"#, "arguments-ambiguous"),
        (r#"{"path":"/srv/a","y":{"\u017fize":1,"size":2}}"#, "arguments-ambiguous"),
        (r#"{"path":"/srv/a","a":{"Path":1},"b":{"path":2}}"#, "pass"),
        (r#"{"path":"/srv/a","env":{"http_proxy":"a","HTTP_PROXY":"b"}}"#, "pass"),
    ] {
        assert_eq!(word(permit, &write().with_arguments(arguments)), expected, "{arguments}");
    }
}
