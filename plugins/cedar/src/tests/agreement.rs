//! The plugin decides as Cedar does, on calls and policies that are put together at random.

use std::collections::BTreeSet;
use std::str::FromStr;

use cedar_policy::PolicySet;
use portcullis_plugin::fake::FakeCall;
use portcullis_plugin::{Call, Phase, Risk, Trust, Verdict};

use super::{configure, reference};
use crate::Policy;

const PRINCIPALS: [&str; 9] = [
    "principal",
    "principal",
    "principal",
    r#"principal == Client::"ann""#,
    r#"principal in Profile::"ops""#,
    r#"principal == Profile::"ops""#,
    r#"principal in Client::"ann""#,
    r#"principal is Client in Profile::"dev""#,
    "principal is Profile",
];

const ACTIONS: [&str; 9] = [
    "action",
    "action",
    "action",
    r#"action == Action::"files__read""#,
    r#"action in Action::"call_tool""#,
    r#"action in [Action::"git__log", Action::"files__read"]"#,
    r#"action in [Action::"call_tool", Action::"read_resource"]"#,
    r#"action == Action::"get_prompt""#,
    r#"action in Action::"use_method""#,
];

const RESOURCES: [&str; 11] = [
    "resource",
    "resource",
    "resource",
    r#"resource == Tool::"files__read""#,
    r#"resource in Tool::"files__read""#,
    r#"resource in Source::"files""#,
    r#"resource == Source::"files""#,
    r#"resource is Tool in Source::"git""#,
    "resource is Prompt",
    r#"resource is Resource in Resource::"git__log""#,
    "resource is Source",
];

const CONDITIONS: [&str; 39] = [
    r#"!(context.input.path like "*/a") || context.input.n > 5"#,
    r#"context.input has path && !(context.input.path like "a text * for it *g") && principal.trust like "*i*""#,
    r#"(context.input has n || context.input) && !context.risk"#,
    "true",
    "context.input has path",
    r#"context.input has path && context.input.path like "/srv/*""#,
    r#"context.input.path like "*id_rsa*""#,
    r#"context.input has path && context.input.path == "/srv/a""#,
    "context.input.n > 5",
    "context.input has n && context.input.n + 9223372036854775807 > 0",
    "context.input has n && context.input.n == context.input.m",
    "context.input has m && context.input.m",
    "context.input has n && context.input.n != 0",
    r#"context.input.list.contains("a")"#,
    r#"context.input has list && context.input.list.containsAny(["b", 3])"#,
    r#"context.input has list && context.input.list == [3, "a"]"#,
    "context.input has o.p && context.input.o.p == {c: 1}",
    "context.input has o && context.input.o.p.c < 5",
    r#"context.input has none && context.input.none == Json::"null""#,
    r#"context.input has half && context.input.half == Json::"5e-1""#,
    "context.input == {}",
    r#"context.input has host && ip(context.input.host).isInRange(ip("10.0.0.0/8"))"#,
    r#"context.input has price && decimal(context.input.price).lessThan(decimal("1.5"))"#,
    r#"context.input has __entity && context.input.__entity == {"type": "Profile", id: "ops"}"#,
    r#"resource in Source::"files" && resource.readOnly"#,
    "resource has readOnly && resource.destructive",
    "resource has openWorld && resource.openWorld && !resource.idempotent",
    r#"resource.tags.contains("prod")"#,
    r#"resource has name && resource.name == "read""#,
    r#"resource has uri && resource.uri like "file:*""#,
    "resource.nothing",
    r#"Source::"files".tags.contains("prod")"#,
    r#"principal.trust == "high""#,
    r#"principal in [Profile::"dev", Client::"ann"]"#,
    r#"action == Action::"git__log""#,
    r#"context.method == "tools/call" || context.input.n > 5"#,
    r#"context.risk == "harmless" && context.input has path"#,
    "context.method",
    r#"unknown("x")"#,
];

const ARGUMENTS: [&str; 10] = [
    "{}",
    r#"{"path":"/srv/a"}"#,
    r#"{"path":"/home/ann/.ssh/id_rsa","n":5}"#,
    r#"{"n":7,"m":7.0,"list":["a",3,"a"]}"#,
    r#"{"n":-1,"m":true,"list":[["a"],{"b":null}],"path":5}"#,
    r#"{"o":{"p":{"c":1}},"none":null,"half":0.50,"host":"10.1.2.3","price":"1.25"}"#,
    r#"{"o":{"p":5},"none":0,"half":5,"host":"here","price":"1"}"#,
    r#"{"o":5,"n":1e400,"m":1e400,"list":[]}"#,
    r#"{"__entity":{"type":"Profile","id":"ops"},"n":"7","path":"a text that is longer than a short one, for it is long"}"#,
    r#"{"__extn":{"fn":"ip","arg":"10.0.0.1"},"list":["b"],"price":"0.5"}"#,
];

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        *of.get(self.below(of.len())).unwrap()
    }

    fn policy(&mut self, number: usize) -> String {
        let effect = match self.below(6) {
            0 | 1 => "forbid",
            2 => r#"@requireApproval("it asks") permit"#,
            _ => "permit",
        };
        let head = [self.one(&PRINCIPALS), self.one(&ACTIONS), self.one(&RESOURCES)].join(", ");
        let mut policy = format!(r#"@id("p{number}") {effect} ({head})"#);
        for _ in 0..self.below(3) {
            policy += &format!(" {} {{ {} }}", self.one(&["when", "when", "unless"]), self.one(&CONDITIONS));
        }
        policy + ";\n"
    }

    fn call(&mut self) -> FakeCall {
        let call = FakeCall::new(self.one(&["files", "git"]), self.one(&["read", "log"]))
            .with_method(self.one(&[
                "tools/call",
                "tools/call",
                "prompts/get",
                "resources/read",
                "sampling/createMessage",
            ]))
            .called_by(
                self.one(&["ann", "bob", "ops"]),
                self.one(&["ops", "dev", "ann"]),
                self.one(&[Trust::Sandbox, Trust::Low, Trust::Medium, Trust::High]),
            )
            .with_risk(self.one(&[Risk::Harmless, Risk::Risky]))
            .with_tags(self.one(&[&[], &["prod"], &["prod", "dev", "prod"]]))
            .with_annotations(self.one(&[
                "{}",
                r#"{"readOnlyHint":true,"openWorldHint":false}"#,
                r#"{"idempotentHint":1}"#,
            ]));
        match self.below(3) {
            0 => call.in_phase(Phase::List),
            _ => call.with_arguments(self.one(&ARGUMENTS)),
        }
    }
}

#[test]
fn the_plugin_decides_as_cedar_does() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut seen = BTreeSet::new();
    for _ in 0..250 {
        let policies: String = (0..1 + dice.below(12)).map(|number| dice.policy(number)).collect();
        let (plugin, set) = (configure(&policies).unwrap(), PolicySet::from_str(&policies).unwrap());
        for _ in 0..20 {
            let call = dice.call();
            let (given, expected) = (plugin.check(&call).unwrap(), reference::verdict(&set, &call));
            assert_eq!(given, expected, "{policies}{call:?}");
            seen.insert((call.phase() == Phase::List, code(expected)));
        }
    }
    let in_list = [(true, "not-permitted"), (true, "pass"), (true, "policy-error")];
    let in_call = ["approval-required", "forbidden", "not-permitted", "pass", "policy-error"].map(|code| (false, code));
    let all = in_call.into_iter().chain(in_list).map(|(list, code)| (list, code.to_owned()));
    assert_eq!(seen, all.collect());
}

fn code(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "pass".into(),
        Verdict::Ask(concern) => concern.code,
        Verdict::Deny(denial) => denial.code,
    }
}
