//! `connect` writes the broker's entry into the files of clients, and nothing else.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use serde_json::Value;

use crate::test_dir::{Ran, TestDir, broker, finish, tests_folder};

const CALC: &str = "[sources.calc]\ncomponent = \"builtin:calculator\"\n";

/// Each client with its file below the home folder, a file as it writes it, and the keys that lead to the entry.
const CLIENTS: [(&str, &str, &str, &str); 8] = [
    ("claude-code", ".claude.json", "claude-code.json", "/mcpServers/portcullis"),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", "claude-desktop.json", "/mcpServers/portcullis"),
    ("cursor", ".cursor/mcp.json", "cursor.json", "/mcpServers/portcullis"),
    ("vscode", ".config/Code/User/mcp.json", "vscode.json", "/servers/portcullis"),
    ("codex", ".codex/config.toml", "codex.toml", "/mcp_servers/portcullis"),
    ("gemini", ".gemini/settings.json", "gemini.json", "/mcpServers/portcullis"),
    ("zed", ".config/zed/settings.json", "zed.json", "/context_servers/portcullis"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", "windsurf.json", "/mcpServers/portcullis"),
];

/// Returns a file as a client writes it.
fn fixture(name: &str) -> String {
    fs::read_to_string(tests_folder().join("cases/clients").join(name)).unwrap()
}

impl TestDir {
    /// Writes a client's file below the home folder.
    fn client_file(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path("home").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }
}

fn works(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

fn refuses(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "{part} in: {}", ran.err);
    }
}

/// Reads the text of a client's file, whatever its language.
fn parsed(client: &str, text: &str) -> Value {
    match client {
        "codex" => serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap(),
        _ => CstRootNode::parse(text, &ParseOptions::default()).unwrap().to_serde_value().unwrap(),
    }
}

#[test]
fn an_entry_is_added_to_each_clients_file_and_taken_out_again_to_the_byte() {
    let dir = TestDir::new(CALC);
    for (client, path, name, pointer) in CLIENTS {
        let before = fixture(name);
        let file = dir.client_file(path, &before);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let ran = dir.run(&["connect", client, "--yes"]);
        works(&ran);
        let after = fs::read_to_string(&file).unwrap();
        let entry = parsed(client, &after).pointer(pointer).unwrap().clone();
        assert_eq!(entry["command"], broker().to_str().unwrap(), "{client}");
        let config = dir.path("portcullis.toml");
        let args: Vec<_> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        assert_eq!(args, ["--config", config.to_str().unwrap(), "serve", "--stdio"], "{client}");
        // Every line is still there, in its place, apart from a comma that the entry before ours may need.
        let mut rest = after.lines();
        for line in before.lines() {
            let same = |other: &str| other == line || other == format!("{line},");
            assert!(rest.any(same), "{client}: {line} in:\n{after}");
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{client}");
        let shown = ran.err.lines().filter(|line| line.starts_with("  +")).count();
        assert!(shown >= 3 && ran.err.contains("before-portcullis"), "{client}: {}", ran.err);

        // A second time changes nothing.
        works(&dir.run(&["connect", client, "--yes"]));
        assert_eq!(fs::read_to_string(&file).unwrap(), after, "{client}");

        works(&dir.run(&["connect", client, "--undo", "--yes"]));
        assert_eq!(fs::read_to_string(&file).unwrap(), before, "{client}");
        let beside: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert!(!beside.iter().any(|it| format!("{it:?}").contains("before-portcullis")), "{client}: {beside:?}");
        works(&dir.run(&["connect", client, "--undo", "--yes"]));
        assert_eq!(fs::read_to_string(&file).unwrap(), before, "{client}");
    }
}

#[test]
fn undo_takes_out_only_the_entry_if_the_client_has_changed_its_file_meanwhile() {
    let dir = TestDir::new(CALC);
    for (client, path, name, pointer) in CLIENTS {
        let before = fixture(name);
        let file = dir.client_file(path, &before);
        works(&dir.run(&["connect", client, "--yes"]));
        let marker = if client == "codex" { "\n[later]\nmarker = true\n" } else { "\n// later\n" };
        fs::write(&file, fs::read_to_string(&file).unwrap() + marker).unwrap();
        works(&dir.run(&["connect", client, "--undo", "--yes"]));
        let after = fs::read_to_string(&file).unwrap();
        assert!(after.contains(marker.trim()), "{client}: {after}");
        let mut expected = parsed(client, &(before + marker));
        assert_eq!(parsed(client, &after), expected, "{client}: {after}");
        assert!(expected.pointer_mut(pointer).is_none());
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_that_is_missing_is_made_for_the_user_alone_and_removed_again() {
    let dir = TestDir::new(CALC);
    for (client, path, _, pointer) in CLIENTS {
        let file = dir.path("home").join(path);
        works(&dir.run(&["connect", client, "--yes"]));
        let text = fs::read_to_string(&file).unwrap();
        assert!(parsed(client, &text).pointer(pointer).is_some() && text.ends_with('\n'), "{client}: {text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{client}");
        works(&dir.run(&["connect", client, "--undo", "--yes"]));
        assert!(!file.exists(), "{client}");
    }
}

#[test]
fn nothing_is_written_without_a_yes() {
    let dir = TestDir::new(CALC);
    let before = fixture("cursor.json");
    let file = dir.client_file(".cursor/mcp.json", &before);
    let ran = dir.run(&["connect", "cursor"]);
    refuses(&ran, &["nobody can be asked", "--yes", "\"portcullis\": {"]);
    // Nothing else of the file is shown, such as the keys of other servers.
    assert!(!ran.err.contains("live-"), "{}", ran.err);
    let printed = dir.run(&["connect", "cursor", "--print"]);
    works(&printed);
    assert_eq!(parsed("cursor", &printed.out)["mcpServers"].as_object().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    works(&dir.run(&["connect", "cursor", "--yes"]));
    let connected = fs::read_to_string(&file).unwrap();
    refuses(&dir.run(&["connect", "cursor", "--undo"]), &["nobody can be asked", "--yes"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), connected);
}

#[test]
fn nothing_of_another_entry_is_shown_even_if_the_file_is_one_line() {
    let dir = TestDir::new(CALC);
    let other = r#""tickets": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer live-tickets"}}"#;
    let search = r#""search": {"command": "npx", "env": {"KEY": "live-search"}}"#;
    let toml = "mcp_servers = { tickets = { url = \"https://example.com/mcp\", bearer = \"live-tickets\" } }";
    for (client, path, _, pointer) in CLIENTS {
        let key = pointer.split('/').nth(1).unwrap();
        let files = match client {
            "codex" => vec![toml.to_owned()],
            _ => vec![
                format!("{{\"{key}\":{{{other},{search}}}}}"),
                format!("{{\"{key}\": {{ {other}, {search} // live-comment\n}} }}"),
            ],
        };
        for before in files {
            let file = dir.client_file(path, &before);
            let ran = dir.run(&["connect", client, "--yes"]);
            works(&ran);
            let connected = fs::read_to_string(&file).unwrap();
            // An entry of an older place is replaced, and the one entry is taken out of a file that has changed.
            fs::write(&file, connected.replace("\"serve\"", "\"serve\", \"--no-watch\"") + "\n").unwrap();
            let again = dir.run(&["connect", client, "--yes"]);
            works(&again);
            let undone = dir.run(&["connect", client, "--undo", "--yes"]);
            works(&undone);
            for (ran, sign, part) in
                [(&ran, "+", "\"serve\""), (&again, "-", "--no-watch"), (&undone, "-", "\"serve\"")]
            {
                let shows = |line: &str| line.starts_with(&format!("  {sign}")) && line.contains(part);
                assert!(ran.err.lines().any(shows), "{client}: {before}: {}", ran.err);
                assert!(!ran.err.contains("live-") && !ran.err.contains("tickets"), "{client}: {before}: {}", ran.err);
            }
            assert_eq!(parsed(client, &fs::read_to_string(&file).unwrap()), parsed(client, &before), "{client}");
            fs::remove_file(&file).unwrap();
            let _ = fs::remove_file(dir.path("home").join(format!("{path}.before-portcullis")));
        }
    }
    // An error says where it is, and does not quote the line.
    dir.client_file(".codex/config.toml", "a = 1\nkey = \"live-codex\" x\n");
    let ran = dir.run(&["connect", "codex", "--yes"]);
    refuses(&ran, &["it is not TOML", "line 2"]);
    assert!(!ran.err.contains("live-"), "{}", ran.err);
}

#[test]
fn a_clients_file_is_where_the_environment_says() {
    for (client, variable, path) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("goose", "GOOSE_PATH_ROOT", "config/config.yaml"),
        ("vscode", "VSCODE_PORTABLE", "user-data/User/mcp.json"),
        ("vscode", "VSCODE_APPDATA", "Code/User/mcp.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
        ("claude-desktop", "XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
        ("zed", "XDG_CONFIG_HOME", "zed/settings.json"),
        ("goose", "XDG_CONFIG_HOME", "goose/config.yaml"),
    ] {
        let dir = TestDir::new(CALC);
        let run = |arguments: &[&str], folder: &str| {
            let mut command = dir.command(arguments);
            command.env(variable, folder);
            finish(command)
        };
        let moved = dir.path("moved");
        let (folder, file) = (moved.to_str().unwrap(), moved.join(path));
        if client == "goose" {
            refuses(&run(&["connect", client, "--yes"], folder), &["is YAML", file.to_str().unwrap()]);
        } else {
            works(&run(&["connect", client, "--yes"], folder));
            assert!(fs::read_to_string(&file).unwrap().contains("serve"), "{variable}");
            works(&run(&["connect", client, "--undo", "--yes"], folder));
            assert!(!file.exists(), "{variable}");
        }
        // `import` reads what is there, and nothing in the usual place.
        let fixture_name =
            if client == "goose" { "goose.yaml" } else { CLIENTS.iter().find(|row| row.0 == client).unwrap().2 };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, fixture(fixture_name)).unwrap();
        let imported = run(&["import", client, "--dry-run"], folder);
        assert!(imported.out.contains("[sources."), "{variable}: {}{}", imported.out, imported.err);
        let elsewhere = dir.run(&["import", client, "--dry-run"]);
        assert!(!elsewhere.out.contains("[sources."), "{variable}: {}", elsewhere.out);
        if variable != "XDG_CONFIG_HOME" {
            refuses(&run(&["connect", client, "--yes"], "moved"), &[variable, "not an absolute path"]);
        }
        let home: Vec<_> = fs::read_dir(dir.path("home")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(home.iter().all(|name| name == ".local"), "{variable}: {home:?}");
    }
}

#[test]
fn a_configuration_that_is_not_trusted_reaches_no_client() {
    let dir = TestDir::new(CALC);
    dir.write_configuration(&format!("{CALC}# changed\n"));
    refuses(&dir.run(&["connect", "cursor", "--yes"]), &["portcullis trust"]);
    assert!(!dir.path("home/.cursor").exists());
}

#[test]
fn a_broker_that_listens_is_reached_with_its_token_and_the_token_is_not_shown() {
    let dir = TestDir::new(&format!("[serve]\nlisten = \"127.0.0.1:9321\"\n{CALC}"));
    for (client, path, _, pointer) in CLIENTS {
        let ran = dir.run(&["connect", client, "--yes"]);
        works(&ran);
        let text = fs::read_to_string(dir.path("home").join(path)).unwrap();
        let entry = parsed(client, &text).pointer(pointer).unwrap().clone();
        if client == "claude-desktop" {
            assert!(entry["command"].is_string(), "it reads no addresses: {entry}");
            continue;
        }
        let token = fs::read_to_string(dir.data("token")).unwrap();
        let (address, headers) = match client {
            "gemini" => ("httpUrl", "headers"),
            "windsurf" => ("serverUrl", "headers"),
            "codex" => ("url", "http_headers"),
            _ => ("url", "headers"),
        };
        assert_eq!(entry[address], "http://127.0.0.1:9321/mcp", "{client}");
        assert_eq!(entry[headers]["Authorization"], format!("Bearer {}", token.trim()), "{client}");
        assert!(ran.err.contains("Bearer …") && !ran.err.contains(token.trim()), "{client}: {}", ran.err);
        assert!(ran.err.contains("no broker runs there yet: `portcullis serve` starts it"), "{client}: {}", ran.err);
        let undone = dir.run(&["connect", client, "--undo", "--yes"]);
        works(&undone);
        assert!(!undone.err.contains(token.trim()), "{client}: {}", undone.err);
    }
    // A file that others could read holds no token that they can read.
    let file = dir.client_file(".cursor/mcp.json", "{}");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let ran = dir.run(&["connect", "cursor", "--yes"]);
    works(&ran);
    assert!(ran.err.contains("can be read by you alone now, since it holds the token"), "{}", ran.err);
    for file in [file.clone(), file.with_file_name("mcp.json.before-portcullis")] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    works(&dir.run(&["connect", "cursor", "--undo", "--yes"]));
    // A file that a project shares holds no token.
    works(&dir.run(&["connect", "cursor", "--project", "--yes"]));
    let shared = fs::read_to_string(dir.path(".cursor/mcp.json")).unwrap();
    assert!(parsed("cursor", &shared).pointer("/mcpServers/portcullis/command").is_some(), "{shared}");
    let by_client = dir.run(&["connect", "cursor", "--stdio", "--yes"]);
    works(&by_client);
    assert!(!by_client.err.contains("no broker"), "{}", by_client.err);
    let own = fs::read_to_string(dir.path("home/.cursor/mcp.json")).unwrap();
    assert!(!own.contains("Bearer"), "{own}");
}

#[test]
fn a_file_that_cannot_be_understood_or_is_somebody_elses_is_left_as_it_is() {
    let dir = TestDir::new(CALC);
    let entry = |inner: &str| format!("{{\"mcpServers\": {{{inner}}}}}");
    let deep = "[".repeat(100_000);
    for (text, part) in [
        (b"{ \"mcpServers\": {".to_vec(), "it is not JSON"),
        (b"{ 'mcpServers': {} }".to_vec(), "it is not JSON"),
        (b"[]".to_vec(), "its top level is not an object"),
        (b"{\"mcpServers\": []}".to_vec(), "its `mcpServers` is not an object"),
        (b"{\"mcpServers\": {}, \"mcpServers\": {}}".to_vec(), "`mcpServers` twice"),
        (b"{\"a\": \"\xff\"}".to_vec(), "not UTF-8 at byte 7"),
        (deep.into_bytes(), "it is not JSON"),
        (entry("\"portcullis\": {}, \"portcullis\": {}").into_bytes(), "`portcullis` twice"),
        (entry("\"portcullis\": {\"command\": \"other\", \"args\": [\"serve\"]}").into_bytes(), "--name"),
        (entry("\"portcullis\": {\"command\": [\"portcullis\", \"serve\"]}").into_bytes(), "--name"),
        (entry("\"portcullis\": {\"url\": \"https://example.com/mcp\"}").into_bytes(), "--name"),
    ] {
        let file = dir.client_file(".cursor/mcp.json", &text);
        refuses(&dir.run(&["connect", "cursor", "--yes"]), &["is left as it is", part, ".cursor/mcp.json"]);
        assert_eq!(fs::read(&file).unwrap(), text);
        if part == "--name" {
            refuses(&dir.run(&["connect", "cursor", "--undo", "--yes"]), &["did not write"]);
            works(&dir.run(&["connect", "cursor", "--name", "gate", "--yes"]));
            works(&dir.run(&["connect", "cursor", "--name", "gate", "--undo", "--yes"]));
        }
        assert_eq!(fs::read(&file).unwrap(), text);
    }
    let file = dir.client_file(".codex/config.toml", "a = [");
    refuses(&dir.run(&["connect", "codex", "--yes"]), &["it is not TOML", ".codex/config.toml"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "a = [");
    let file = dir.client_file(".gemini/settings.json", "");
    fs::File::options().write(true).open(&file).unwrap().set_len(40 << 20).unwrap();
    refuses(&dir.run(&["connect", "gemini", "--yes"]), &["41943040 bytes", "is it the right file?"]);
    refuses(&dir.run(&["connect", "goose", "--yes"]), &["is YAML", "--print", "goose/config.yaml"]);
    let goose = dir.run(&["connect", "goose", "--print"]);
    works(&goose);
    assert!(goose.out.starts_with("extensions:\n  portcullis:\n    name: \"portcullis\"\n"), "{}", goose.out);
    assert_eq!(dir.run(&["connect", "cursor", "--name", "a\u{1b}b"]).code, Some(2));
}

#[test]
fn byte_order_marks_and_line_ends_stay_and_a_link_stays_one() {
    let dir = TestDir::new(CALC);
    let text = "\u{feff}{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": { \"command\": \"x\" } // here\r\n\t}\r\n}\r\n";
    let file = dir.client_file(".cursor/mcp.json", "");
    let real = dir.client_file("dotfiles/cursor.json", text);
    fs::remove_file(&file).unwrap();
    symlink(&real, &file).unwrap();
    let ran = dir.run(&["connect", "cursor", "--yes"]);
    works(&ran);
    assert!(ran.err.contains("(a link to "), "{}", ran.err);
    let after = fs::read_to_string(&real).unwrap();
    assert!(after.starts_with(
        "\u{feff}{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": { \"command\": \"x\" }, // here\r\n\t\t\"portcullis\""
    ));
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
    assert!(file.is_symlink());
    works(&dir.run(&["connect", "cursor", "--undo", "--yes"]));
    assert_eq!(fs::read_to_string(&real).unwrap(), text);

    // A project's file may have come with the project.
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), text).unwrap();
    fs::create_dir(dir.path(".cursor")).unwrap();
    symlink(outside.path(), dir.path(".cursor/mcp.json")).unwrap();
    refuses(&dir.run(&["connect", "cursor", "--project", "--yes"]), &["leads out of the project"]);
    assert_eq!(fs::read_to_string(outside.path()).unwrap(), text);

    // So may its folder, and there need be no file in it yet.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::remove_dir_all(dir.path(".cursor")).unwrap();
    symlink(elsewhere.path(), dir.path(".cursor")).unwrap();
    refuses(&dir.run(&["connect", "cursor", "--project", "--yes"]), &["leads out of the project"]);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_change_of_a_toml_file_with_the_line_endings_of_windows_shows_and_changes_nothing_else() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    let before = "# mine\r\n[mcp_servers.other]\r\nenv = { KEY = \"live-key\" }\r\n";
    let file = dir.client_file(".codex/config.toml", before);
    let ran = dir.run(&["connect", "codex", "--yes"]);
    works(&ran);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(before) && text.contains("[mcp_servers.portcullis]\r\n"), "{text:?}");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
    let undone = dir.run(&["connect", "codex", "--undo", "--yes"]);
    works(&undone);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    for ran in [ran, undone] {
        assert!(!ran.err.contains("live-key") && !ran.out.contains("live-key"), "{}{}", ran.out, ran.err);
    }
}
