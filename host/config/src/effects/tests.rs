#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use super::*;

#[test]
fn what_a_configuration_starts_reaches_reads_and_writes_is_listed_without_values() {
    let text = r#"
[broker]
data-dir = "/home/a/secret place"
[ledger]
retention = "1y"
witnesses = ["kept", "https://witness.example.com/in", "git:a b.git", "syslog+unix:/dev/log"]
[sources.files]
command = ["npx", "-y", "a server", "./docs"]
env = { KEY = { secret = "files-key" }, LEVEL = "hunter2" }
cell = { read = ["/srv/in"], write = ["docs"], network = ["api.example.com:443"] }
[sources.far]
url = "https://mcp.example.com/mcp"
headers = { Authorization = { secret = "far" } }
[sources.logged]
url = "https://api.example.com/mcp"
oauth = { issuer = "https://login.example.com", client-id = "us", client-secret = { secret = "prod" } }
[sources.calc]
component = "./calc.wasm"
[[sinks]]
plugin = "builtin:jsonl"
file = "out.jsonl"
[[sinks]]
syslog = "syslog+tls://logs.example.com"
[[sinks]]
otlp = "http://127.0.0.1:4318"
headers = { key = { secret = "otlp" } }
[profiles.default]
approve = "never"
"#;
    let config = Config::parse(text, Path::new("/p/portcullis.toml")).unwrap();
    let told = config.effects();
    for line in [
        "broker: keeps ledger, secrets and what was accepted in '/home/a/secret place'",
        "broker: removes records of the ledger that are older than 365 days",
        "broker: writes checkpoints of the ledger to /p/kept",
        "broker: sends checkpoints of the ledger to https://witness.example.com/in",
        "broker: commits checkpoints of the ledger in '/p/a b.git'",
        "broker: sends checkpoints of the ledger to syslog+unix:/dev/log",
        "broker: sends the records of the ledger to syslog+tls://logs.example.com:6514",
        "broker: sends the ends of calls to http://127.0.0.1:4318/",
        "broker: sends that collector the header key, your secret otlp",
        "broker: runs the sink plugin builtin:jsonl, sandboxed",
        "broker: writes the records of builtin:jsonl to /p/out.jsonl",
        "profile default: never asks before a risky call",
        "serve: listens on 127.0.0.1:8765 for agents with its token, unless over stdio",
        "source files: starts npx -y 'a server' ./docs",
        "source files: is given the variable KEY, your secret files-key",
        "source files: is given the variable LEVEL",
        "source files: reads /srv/in",
        "source files: reads and writes /p/docs",
        "source files: reaches api.example.com:443",
        "source far: reaches https://mcp.example.com/mcp",
        "source far: is sent the header authorization, your secret far",
        "source logged: lets you log in at https://login.example.com",
        "source logged: gives its login server the secret of the client us, your secret prod",
        "source calc: runs the component /p/calc.wasm, sandboxed",
    ] {
        assert!(told.iter().any(|told| told == line), "{line}\nis not in\n{}", told.join("\n"));
    }
    assert!(!told.concat().contains("hunter2"), "values may be secrets");
}

#[test]
fn what_a_configuration_weakens_is_listed() {
    let text = r#"
[broker]
plugin-keys = ["team.pub"]
[serve]
metrics-token = "TOKEN-0"
[serve.callers.ci]
token = "TOKEN-1"
profile = "default"
[serve.people.alice]
token = "TOKEN-2"
[sources.calc]
component = "./calc.wasm"
settings = { digits = 3 }
scan = "off"
labels = []
[sources.far]
url = "https://mcp.example.com/mcp"
scan = "warn"
context = ["com.example/user"]
[[policies]]
plugin = "builtin:rules"
mode = "shadow"
on = ["result"]
"#;
    let told = Config::parse(text, Path::new("/p/portcullis.toml")).unwrap().effects();
    for line in [
        "broker: loads plugins that the key in /p/team.pub has signed, and no unsigned ones",
        "serve: shows metrics for a token that stands in the file",
        "serve: lets ci call under the profile default, with a token that stands in the file",
        "serve: lets alice answer questions over HTTP, with a token that stands in the file",
        "source calc: is given the settings {\"digits\":3}",
        "source calc: is shown as it is: the broker scans nothing that it says of its tools",
        "source calc: has its results labelled as nothing, whatever its cell allows",
        "source far: is shown whatever the scan of its tools finds",
        "source far: is sent com.example/user of what the agent says beside a call",
        "broker: only records what the policy plugin builtin:rules decides",
        "broker: asks the policy plugin builtin:rules on result, and not before a call",
    ] {
        assert!(told.iter().any(|told| told == line), "{line}\nis not in\n{}", told.join("\n"));
    }
    assert!(!told.concat().contains("TOKEN-"), "tokens are secrets");
}

#[test]
fn what_weakens_comes_last_and_what_opens_something_directly_before_it() {
    let text = r#"
[sources.a]
command = ["server"]
env = { KEY = { secret = "a-key" } }
scan = "off"
cell = { write = ["docs"], network = ["api.example.com:443"] }
dangerous-allow-private = true
[sources.z]
component = "./calc.wasm"
[profiles.default]
approve = "never"
"#;
    let told = Config::parse(text, Path::new("/p/portcullis.toml")).unwrap().effects();
    let place = |line: &str| told.iter().position(|told| told == line).unwrap_or_else(|| panic!("{line}: {told:?}"));
    let [ordinary, opening, weakening] = [
        &["source a: starts server", "source z: runs the component /p/calc.wasm, sandboxed"][..],
        &[
            "source a: is given the variable KEY, your secret a-key",
            "source a: reads and writes /p/docs",
            "source a: reaches api.example.com:443",
        ],
        &[
            "profile default: never asks before a risky call",
            "source a: may reach private addresses",
            "source a: is shown as it is: the broker scans nothing that it says of its tools",
        ],
    ]
    .map(|lines| lines.iter().map(|line| place(line)).collect::<Vec<_>>());
    assert!(ordinary.iter().max() < opening.iter().min() && opening.iter().max() < weakening.iter().min(), "{told:?}");
    assert_eq!(weakening.iter().max(), Some(&(told.len() - 1)));
}
