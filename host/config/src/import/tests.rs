#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{Config, Endpoint, HttpTransportKind};

const FILE: &str = "/srv/portcullis.toml";

/// Surroundings in which only `SET` is set.
fn around() -> ExpansionContext<'static> {
    ExpansionContext {
        workspace: None,
        home: None,
        variable: &|name| (name == "SET").then(|| "live-set".to_owned()),
        may_read: &|_| true,
        is_taken: &|_| false,
    }
}

fn import(text: &str) -> Result<ImportResult, ImportError> {
    super::import(text, &around(), Path::new(FILE), None)
}

fn imported(text: &str) -> (ImportResult, Config) {
    let imported = import(text).unwrap();
    let config = Config::parse(&imported.sources, Path::new(FILE));
    let config = config.unwrap_or_else(|error| panic!("{error}\n{}", imported.sources));
    (imported, config)
}

const CLAUDE: &str = r#"{
  "mcpServers": {
    "filesystem": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/a \"b\"\\c"] },
    "my github__server": {
      "command": "/opt/bin/github", "args": ["--api-key=abc123"],
      "env": { "GITHUB_TOKEN": "ghp_live", "LOG": "x", "PATH": "/bin", "NODE_OPTIONS": "--x", "N": 3 },
      "alwaysAllow": ["search"]
    },
    "remote": { "type": "http", "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer live", "X-Team": "a" }, "oauth": { "clientId": "c" } },
    "off": { "command": "x", "disabled": true },
    "old": { "type": "sse", "url": "https://mcp.example.com/sse" }
  }
}"#;

#[test]
fn the_result_parses_and_holds_no_secret() {
    let (imported, config) = imported(CLAUDE);
    let names: Vec<&str> = config.sources.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["filesystem", "my-github_server", "old", "remote"]);
    assert!(!imported.sources.contains("live") && !imported.notes.concat().contains("live"), "{imported:?}");
    let secrets: Vec<&str> = imported.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!(secrets, ["my-github_server-github-token", "remote-authorization"]);
    let argv = config.sources.values().find_map(|source| match &source.endpoint {
        Endpoint::Command { argv, .. } if source.name.as_str() == "filesystem" => Some(argv.clone()),
        _ => None,
    });
    assert_eq!(argv.unwrap().last().unwrap(), "/a \"b\"\\c");
}

#[test]
fn an_import_notes_what_it_changes_or_leaves_out() {
    let notes = imported(CLAUDE).0.notes.join("\n");
    for said in [
        "is called `my-github_server`",
        "\"PATH\"",
        "\"NODE_OPTIONS\"",
        "`alwaysAllow`",
        "remote: `oauth` is not taken over: a client that was registered by hand",
        "`--api-key=…`",
        "off: is switched off",
    ] {
        assert!(notes.contains(said), "{said} in:\n{notes}");
    }
    assert!(!notes.contains("abc123"), "{notes}");
}

#[test]
fn vs_code_writes_comments_inputs_and_variables() {
    let (imported, config) = imported(
        r#"{
          // my servers
          "inputs": [{ "id": "key", "type": "promptString", "password": true }],
          "servers": {
            "a": { "type": "stdio", "command": "uvx", "args": ["x", "${workspaceFolder}"], /* that one */ "env": { "SETTING": "${input:key}", }, },
          },
        }"#,
    );
    assert!(imported.sources.contains("env = { SETTING = { secret = \"a-setting\" } }"), "{}", imported.sources);
    assert_eq!(imported.secrets[0].origin, "env SETTING of a, where input:key is not known");
    assert!(imported.notes.iter().any(|note| note.contains("\"workspaceFolder\"")));
    assert_eq!(config.sources.len(), 1);
    let settings = r#"{ "mcp": { "servers": { "b": { "command": "node", "args": ["s.js"] } } } }"#;
    assert_eq!(super::tests::imported(settings).1.sources.len(), 1);
}

#[test]
fn an_old_transport_and_a_relative_path_are_taken_over() {
    let (old, config) = imported(CLAUDE);
    let sse = |name: &str| match &config.sources.values().find(|source| source.name.as_str() == name).unwrap().endpoint
    {
        Endpoint::Url { transport_kind, .. } => *transport_kind == HttpTransportKind::Sse,
        _ => panic!("{}", old.sources),
    };
    assert!(sse("old") && !sse("remote"));
    let (here, config) = imported(r#"{"mcpServers": {"a": {"command": "node", "args": ["server.js", "."]}}}"#);
    let Endpoint::Command { cwd, .. } = &config.sources.values().next().unwrap().endpoint else { panic!() };
    assert_eq!(cwd.as_deref(), Some(std::path::Path::new("/srv")));
    assert!(here.notes.concat().contains("beside the new file"), "{:?}", here.notes);
}

#[test]
fn names_that_would_be_the_same_are_told_apart() {
    let (_, config) = imported(
        r#"{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}, "A.B": {"command": "z"}, "": {"command": "w"}}}"#,
    );
    let names: Vec<&str> = config.sources.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["A-B-3", "a-b", "a-b-2", "source"]);
}

#[test]
fn what_cannot_be_imported_gets_one_clear_error() {
    assert_eq!(import("{}").unwrap_err(), ImportError::NoServers);
    assert_eq!(import(r#"{"mcpServers": {}}"#).unwrap_err(), ImportError::NoServers);
    assert!(matches!(import("{ nonsense").unwrap_err(), ImportError::Json(_)));
    assert!(matches!(import(&"[".repeat(100_000)).unwrap_err(), ImportError::Json(_)));
    assert!(matches!(import("just words").unwrap_err(), ImportError::Unreadable { .. }));
    let none = import(r#"{"mcpServers": {"a": {}, "b": 1}}"#).unwrap();
    assert!(none.sources.is_empty() && none.notes.len() == 2, "{none:?}");
    assert_eq!(import(&" ".repeat(MAX_FILE_BYTES + 1)).unwrap_err(), ImportError::TooLong);
}

#[test]
fn more_servers_than_a_configuration_may_have_are_refused_before_anything_is_made_of_them() {
    let file = |count: usize| {
        let servers: Vec<String> = (0..count).map(|number| format!(r#""s{number}": {{"command": "x"}}"#)).collect();
        format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(","))
    };
    let refused = import(&file(50_000)).unwrap_err();
    assert_eq!(refused, ImportError::TooMany(50_000));
    assert!(refused.to_string().contains("has 50000 servers, and a configuration has at most 1024"), "{refused}");
    assert_eq!(import(&file(MAX_SOURCES + 1)).unwrap_err(), ImportError::TooMany(MAX_SOURCES + 1));
}

#[test]
fn a_server_that_cannot_be_taken_over_leaves_the_others_alone() {
    let (imported, config) = imported(
        r#"{"mcpServers": {
            "good": {"command": "x"}, "none": {}, "odd": {"command": ["npx", "-y", "listed"]}, "bad": {"command": 1},
            "url": {"url": "http://me:pw@host/"}, "esc\u001b[2J": {"command": "y"}, "us": {"command": "/bin/portcullis", "args": ["serve"]},
            "good": {"command": "z"}
        }}"#,
    );
    let names: Vec<&str> = config.sources.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["esc-2J", "good", "odd"]);
    let notes = imported.notes.join("\n");
    for said in ["\"good\" is defined twice", "none: left out", "bad: left out", "url: left out", "us: left out"] {
        assert!(notes.contains(said), "{said} in:\n{notes}");
    }
    assert!(!notes.contains('\u{1b}') && !notes.contains("pw"), "{notes}");
    let Endpoint::Command { argv, .. } = &config.sources.values().last().unwrap().endpoint else { panic!() };
    assert_eq!(argv, &["npx", "-y", "listed"]);
}

#[test]
fn what_is_there_already_is_not_added_again() {
    let (first, config) = imported(CLAUDE);
    let again = super::import(CLAUDE, &around(), Path::new(FILE), Some(&config)).unwrap();
    assert_eq!((again.sources.as_str(), again.present), ("", 5), "{first:?}");
    assert!(again.secrets.is_empty());
    let other = r#"{"mcpServers": {"filesystem": {"command": "other"}}}"#;
    let other = super::import(other, &around(), Path::new(FILE), Some(&config)).unwrap();
    assert!(other.sources.contains("[sources.filesystem-2]"), "{}", other.sources);
}

#[test]
fn values_that_are_secrets_come_apart_from_the_file_wherever_they_stand() {
    let (imported, _) = imported(
        r#"{"mcpServers": {
            "a": {"command": "x", "env": {"A_TOKEN": "live-1", "B_KEY": "$SET", "C": "${SET}", "D_KEY": "${input:d}"}},
            "b": {"url": "https://example.com/mcp?api_key=live-2", "headers": {"Authorization": "Bearer ${env:SET}", "X-Team": "t"}}
        }}"#,
    );
    let values: Vec<String> = imported
        .secrets
        .iter()
        .map(|secret| {
            let value = secret.value.as_ref().map(|value| secrecy::ExposeSecret::expose_secret(value).to_owned());
            format!("{}={}", secret.name, value.unwrap_or_default())
        })
        .collect();
    let expected =
        ["a-a-token=live-1", "a-b-key=live-set", "a-c=live-set", "a-d-key=", "b-authorization=Bearer live-set"];
    assert_eq!(values, expected);
    assert!(!imported.sources.contains("live-1") && !imported.sources.contains("live-set"), "{}", imported.sources);
    assert!(imported.notes.iter().any(|note| note.contains("`api_key`") && !note.contains("live-2")), "{imported:?}");
    assert!(!format!("{imported:?}").contains("live-1"), "{imported:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_server_gives_a_configuration_that_parses(
        name in ".{0,40}", command in "\\PC{0,12}|[ -~]{1,12}|.{1,8}", args in proptest::collection::vec(".{0,12}", 0..3),
        key in "[A-Z_]{1,8}|.{0,8}", value in ".{0,20}", cwd in ".{0,10}", url in "https?://[a-z.]{1,10}/.{0,5}",
    ) {
        let entry = |server: serde_json::Value| serde_json::json!({ "mcpServers": { name.clone(): server } }).to_string();
        let process = entry(serde_json::json!({ "command": command, "args": args, "env": { key.clone(): value.clone() }, "cwd": cwd }));
        let remote = entry(serde_json::json!({ "url": url, "headers": { key: value } }));
        for text in [process, remote] {
            match import(&text) {
                Ok(imported) => {
                    let parsed = Config::parse(&imported.sources, Path::new(FILE));
                    assert!(parsed.is_ok(), "{}\n{}", parsed.unwrap_err(), imported.sources);
                    // A source is left out only for a reason that the importer knows.
                    let unknown = imported.notes.iter().find(|note| note.contains("would not be valid"));
                    assert_eq!(unknown, None, "{text}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_private_address_that_the_client_uses_is_meant() {
    let (imported, _) = imported(
        r#"{ "mcpServers": { "near": { "url": "http://127.0.0.1:8080/mcp" }, "far": { "url": "https://example.com/mcp" } } }"#,
    );
    assert_eq!(imported.sources.matches("dangerous-allow-private = true").count(), 1, "{}", imported.sources);
    assert!(imported.sources.contains("127.0.0.1:8080/mcp\"\ndangerous-allow-private"), "{}", imported.sources);
}

#[test]
fn no_server_gets_a_secret_that_exists() {
    let text =
        r#"{ "mcpServers": { "github-github": { "command": "x", "env": { "TOKEN": "${NONE}", "KEY": "live-a" } } } }"#;
    let is_taken = |name: &str| ["github-github-token", "github-github-token-2", "github-github-key"].contains(&name);
    let imported = super::import(text, &ExpansionContext { is_taken: &is_taken, ..around() }, Path::new(FILE), None);
    let names: Vec<_> = imported.unwrap().secrets.into_iter().map(|secret| secret.name).collect();
    assert_eq!(names, ["github-github-token-3", "github-github-key-2"]);
}

#[test]
fn no_value_of_the_environment_reaches_the_file_wherever_its_variable_stands() {
    let text = r#"{"mcpServers": {
        "tickets": {
            "command": "npx", "args": ["-y", "mcp-remote", "https://tickets.example.com/mcp", "--header", "Authorization: Bearer ${TOKEN}"]
        },
        "words": {"command": "server", "args": ["--key=${env:TOKEN}", "$TOKEN", "${TOKEN:-else}", "${HOME}/docs"], "env": {"PLAIN": "x-${TOKEN}"}},
        "far": {"url": "https://example.com/${TOKEN}/mcp?k=${TOKEN}", "headers": {"X-Team": "${TOKEN}"}},
        "codex": {"command": "server", "env_vars": ["TOKEN"]}
    }}"#;
    let around = ExpansionContext {
        variable: &|name| (name == "TOKEN").then(|| "s3cr3t-value".to_owned()),
        home: Some(Path::new("/home/me")),
        ..around()
    };
    let imported = super::import(text, &around, Path::new(FILE), None).unwrap();
    let told = format!("{}{:?}{:?}", imported.sources, imported.notes, imported.to_do);
    assert!(!told.contains("s3cr3t-value"), "{told}");
    for part in [
        "\"Authorization: Bearer ${TOKEN}\"",
        "env = { TOKEN = { secret = \"tickets-token\" } }",
        "\"--key=${TOKEN}\", \"${TOKEN}\", \"${TOKEN}\", \"/home/me/docs\"",
        "PLAIN = { secret = \"words-plain\" }, TOKEN = { secret = \"words-token\" }",
        "https://example.com/${TOKEN}/mcp?k=${TOKEN}",
        "x-team = { secret = \"far-x-team\" }",
        "env = { TOKEN = { secret = \"codex-token\" } }",
    ] {
        assert!(imported.sources.contains(part), "{part} is not in\n{}", imported.sources);
    }
    let notes = imported.notes.join("\n");
    for source in ["tickets", "words"] {
        assert!(notes.contains(&format!("{source}: `${{TOKEN}}` in its command stays as it is")), "{notes}");
    }
    assert!(notes.contains("far: `${TOKEN}` in its `url` stays as it is") && !notes.contains("looks like"), "{notes}");
    let to_do = imported.to_do.join("\n");
    assert!(to_do.contains("look whether words itself") && !to_do.contains("whether tickets"), "{to_do}");
    assert!(to_do.contains("write the value of `${TOKEN}` into the `url` of far"), "{to_do}");
}
