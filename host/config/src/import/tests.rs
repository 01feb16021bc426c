#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{Config, Endpoint, HttpTransportKind};

fn imported(text: &str) -> (Imported, Config) {
    let imported = import(text).unwrap();
    let config = Config::parse(&imported.toml, std::path::Path::new("/srv/portcullis.toml"));
    let config = config.unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
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
    assert!(!imported.toml.contains("live") && !imported.notes.concat().contains("live"), "{imported:?}");
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
        "remote: `oauth` is not taken over: log in by `portcullis login remote`",
        "`--api-key=…`",
        "off: left out",
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
    assert!(imported.toml.contains("env = { SETTING = { secret = \"a-setting\" } }"), "{}", imported.toml);
    assert_eq!(imported.secrets[0].origin, "env SETTING of a, which was ${input:key}");
    assert!(imported.notes.iter().any(|note| note.contains("${workspaceFolder}")));
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
        _ => panic!("{}", old.toml),
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
    assert_eq!(import("{}"), Err(ImportError::NoServers));
    assert_eq!(import(r#"{"mcpServers": {}}"#), Err(ImportError::NoServers));
    assert!(matches!(import("{ nonsense"), Err(ImportError::Json(_))));
    assert!(
        matches!(import(r#"{"mcpServers": {"a": {}, "b": 1}}"#), Err(ImportError::NothingLeft(notes)) if notes.len() == 2)
    );
    assert_eq!(import(&" ".repeat(MAX_FILE_BYTES + 1)), Err(ImportError::TooLong));
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
                    // A folder where no file is beside the configuration.
                    let parsed = Config::parse(&imported.toml, std::path::Path::new("/nothing/is/here/portcullis.toml"));
                    assert!(parsed.is_ok(), "{}\n{}", parsed.unwrap_err(), imported.toml);
                }
                Err(error) => assert!(matches!(error, ImportError::NothingLeft(_)), "{error}"),
            }
        }
    }
}
