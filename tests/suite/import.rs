//! `import` takes over the servers of other clients: with cells, without secrets in the file, and losing nothing
//! silently.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use portcullis::config::{Config, Endpoint};
use portcullis::secret::SecretStore;
use secrecy::ExposeSecret as _;

use crate::test_dir::{Ran, TestDir, finish, tests_folder};

impl TestDir {
    /// Makes a folder without a configuration.
    fn bare() -> Self {
        let dir = Self::new("");
        fs::remove_file(dir.path("portcullis.toml")).unwrap();
        fs::remove_dir_all(dir.path(".portcullis")).unwrap();
        assert_eq!(dir.run(&["trust", "--revoke"]).code, Some(0));
        dir
    }

    /// Writes a client's file as it stands in the cases.
    fn clients(&self, name: &str, path: &str) -> PathBuf {
        let text = fs::read_to_string(tests_folder().join("cases/clients").join(name)).unwrap();
        let file = self.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text.replace("@dir@", self.path("").to_str().unwrap().trim_end_matches('/'))).unwrap();
        file
    }

    fn imported(&self) -> (String, Config) {
        let file = self.path("portcullis.toml");
        let text = fs::read_to_string(&file).unwrap();
        let config = Config::parse(&text, &file).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(!text.contains("live-"), "a secret stands in the file:\n{text}");
        (text, config)
    }

    fn secret(&self, name: &str) -> String {
        SecretStore::open(&self.data("")).unwrap().get(name).unwrap().expose_secret().to_owned()
    }
}

fn works(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(!ran.err.contains("live-") && !ran.out.contains("live-"), "a secret is shown: {}{}", ran.out, ran.err);
}

fn says(ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.err.contains(part), "{part} in: {}", ran.err);
    }
}

fn refuses(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    says(ran, parts);
}

fn names(config: &Config) -> Vec<&str> {
    config.sources.keys().chain(config.disabled.keys()).map(|name| name.as_str()).collect()
}

#[test]
fn the_five_servers_of_a_cursor_file_become_sources_with_cells_and_their_secrets_are_stored() {
    let dir = TestDir::bare();
    dir.clients("cursor.json", "home/.cursor/mcp.json");
    let ran = dir.run(&["import", "cursor"]);
    works(&ran);
    let (text, config) = dir.imported();
    assert_eq!(names(&config), ["filesystem", "git", "memory", "search", "tickets"]);
    assert!(text.contains("# Proposed: npm:@modelcontextprotocol/server-filesystem (measured with"), "{text}");
    let open = dir.path("open").canonicalize().unwrap();
    for (name, source) in &config.sources {
        let cell = &source.cell;
        let opened = cell.read.contains(&open) || cell.write.contains(&open);
        assert_eq!(opened, matches!(name.as_str(), "filesystem" | "git"), "{name}: {cell:?}");
    }
    assert_eq!(dir.secret("tickets-authorization"), "Bearer live-tickets");
    assert_eq!(dir.secret("search-tavily-api-key"), "live-tavily");
    says(&ran, &["secrets are stored", "nothing of it is trusted yet: `portcullis trust "]);
    let file = dir.path("home/.cursor/mcp.json").display().to_string();
    let left =
        format!("left to do:\n  portcullis check\n  portcullis connect cursor\n  remove these servers from {file} ");
    says(&ran, &[&left, "without a cell"]);

    assert!(!ran.err.contains("portcullis learn"), "each of them is known: {}", ran.err);

    // The cells count once somebody has seen them, and then the configuration is good. Until then nothing is a change.
    refuses(&dir.run(&["--json", "tools"]), &["is not trusted yet, so it is not used", "portcullis trust"]);
    let diagnosis = dir.run(&["doctor"]);
    assert!(diagnosis.out.contains("is not trusted yet, so it is not used"), "{}", diagnosis.out);
    let listed = dir.run(&["trust", "--list"]);
    assert!(listed.out.contains("not trusted yet"), "{}", listed.out);
    let shown = dir.run(&["trust", "--yes"]);
    works(&shown);
    says(&shown, &["is not trusted yet. It would do this", open.to_str().unwrap(), "source search: "]);
    assert!(!shown.err.contains("you trusted"), "{}", shown.err);
    let config = fs::read_to_string(dir.path("portcullis.toml")).unwrap();
    fs::write(dir.path("portcullis.toml"), format!("{config}\n# Changed.\n")).unwrap();
    refuses(&dir.run(&["--json", "tools"]), &["is not what you trusted, so it is not used"]);
    fs::write(dir.path("portcullis.toml"), config).unwrap();
    // The packages are on no registry here, so `check` reports their sources as missing, and nothing else.
    let checked = dir.run(&["--json", "check"]);
    let report: serde_json::Value = serde_json::from_str(&checked.out).unwrap_or_else(|_| panic!("{}", checked.err));
    assert_eq!(report["sources"].as_array().map(Vec::len), Some(5), "{report}");
    for unwanted in ["is not set", "secret set"] {
        assert!(!checked.out.contains(unwanted), "{}", checked.out);
    }

    // A second time adds nothing.
    let again = dir.run(&["import", "cursor"]);
    works(&again);
    says(&again, &["has all of these servers", "filesystem: left out, since the source `filesystem` is the same"]);
    assert_eq!(dir.imported().0, text);
}

#[test]
fn for_each_server_that_is_not_known_the_command_that_learns_its_needs_is_named() {
    let dir = TestDir::bare();
    let servers = serde_json::json!({ "mcpServers": {
        "strange": { "command": "strange-server" },
        "guessed": { "command": "other-server", "args": [dir.path("open")] },
        "search": { "command": "npx", "args": ["-y", "tavily-mcp"] },
        "remote": { "url": "https://mcp.example.com/mcp" },
    } });
    fs::write(dir.path("mcp.json"), servers.to_string()).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    says(
        &ran,
        &[
            "  portcullis learn strange    # finds out what strange needs: it is not known, so it sees no file and no host\n",
            "  portcullis learn guessed    # finds out what guessed needs: its cell is only a guess from its arguments\n",
        ],
    );
    assert_eq!(ran.err.matches("portcullis learn").count(), 2, "{}", ran.err);
    let listed = ran.err.split("left to do:").nth(1).unwrap();
    let (trust, learn) = (listed.find("portcullis trust"), listed.find("portcullis learn"));
    assert!(trust < learn, "a configuration that is not trusted starts nothing: {listed}");
}

#[test]
fn the_files_of_every_client_are_recognised_by_their_content() {
    for (name, sources, said) in [
        ("claude-code.json", &["notes", "old", "sentry"][..], &["secret set old-x-api-key", "TEAM"][..]),
        ("claude-desktop.json", &["github", "sqlite"], &["github: `docker run` does not work in a cell"]),
        (
            "vscode.json",
            &["perplexity", "playwright"],
            &["playwright: `dev` is not taken over", "input:perplexity-key"],
        ),
        ("vscode-settings.json", &["time"], &[]),
        (
            "codex.toml",
            &["context7", "figma", "files"],
            &[
                "`startup_timeout_sec` is not taken over",
                "figma: is switched off",
                "FIGMA_TOKEN",
                "context7: the variable \"LOG_LEVEL\" is left out",
            ],
        ),
        ("gemini.json", &["python", "remote"], &["python: `trust` is not taken over", "MY_API_TOKEN"]),
        ("zed.json", &["local", "older", "remote"], &["mcp-server-postgres: left out"]),
        ("windsurf.json", &["off", "remote"], &["off: is switched off", "WINDSURF_TOKEN"]),
        ("goose.yaml", &["remote", "search"], &["developer: left out, since it is a part of the client"]),
    ] {
        let dir = TestDir::bare();
        dir.clients(name, "servers");
        let ran = dir.run(&["import", "servers"]);
        works(&ran);
        says(&ran, said);
        let mut found = names(&dir.imported().1).into_iter().map(str::to_owned).collect::<Vec<_>>();
        found.sort();
        assert_eq!(found, sources, "{name}: {}", ran.err);
    }
}

#[test]
fn details_of_the_clients_are_taken_over() {
    let dir = TestDir::bare();
    fs::write(dir.path("open/server.js"), "").unwrap();
    dir.clients("codex.toml", "home/.codex/config.toml");
    dir.clients("gemini.json", "home/.gemini/settings.json");
    works(&dir.run(&["import", "codex"]));
    works(&dir.run(&["trust", "--yes"]));
    works(&dir.run(&["import", "gemini"]));
    let (text, config) = dir.imported();
    for line in [
        "deny = [\"files__move_file\"]",
        "timeout = \"45s\"",
        "allow = [\"python__safe_tool\", \"python__other_tool\"]",
        "deny = [\"python__unsafe_tool\"]",
        "CONTEXT7_API_KEY = { secret = \"context7-context7-api-key\" }",
        "x-region = \"eu\"",
        "# Guessed: read ",
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
    assert_eq!(config.disabled.len(), 1);
    let python = config.sources.values().find(|source| source.name.as_str() == "python").unwrap();
    assert!(matches!(&python.endpoint, Endpoint::Command { cwd: Some(cwd), .. } if *cwd == dir.path("open")));
    assert_eq!(dir.secret("remote-authorization"), "Bearer live-gemini");

    let dir = TestDir::bare();
    fs::write(dir.path(".env"), "FROM_FILE=plain\nFILE_TOKEN=live-file\n").unwrap();
    dir.clients("vscode.json", ".vscode/mcp.json");
    let ran = dir.run(&["import", ".vscode/mcp.json"]);
    works(&ran);
    says(&ran, &["2 variables are taken from `envFile`"]);
    let (text, _) = dir.imported();
    assert!(text.contains("FROM_FILE = \"plain\"") && text.contains(dir.path("open").to_str().unwrap()), "{text}");
    assert_eq!(dir.secret("perplexity-file-token"), "live-file");
}

#[test]
fn a_server_of_a_projects_file_gets_no_secret_that_is_stored_or_used_already() {
    let dir =
        TestDir::new("[sources.github]\ncommand = [\"x\"]\nenv = { B_TOKEN = { secret = \"github-b-token\" } }\n");
    let store = SecretStore::open(&dir.data("")).unwrap();
    store.set("github-a-token", &"live-a".to_owned().into()).unwrap();
    let env = serde_json::json!({ "TOKEN": "${NONE}" });
    let servers = serde_json::json!({ "mcpServers": {
        "github-a": { "command": "a", "env": env }, "github-b": { "command": "b", "env": env },
    } });
    fs::write(dir.path("open/.mcp.json"), servers.to_string()).unwrap();
    works(&dir.run(&["import", dir.path("open/.mcp.json").to_str().unwrap()]));
    let (text, _) = dir.imported();
    for (secret, times) in
        [("github-a-token", 0), ("github-b-token", 1), ("github-a-token-2", 1), ("github-b-token-2", 1)]
    {
        assert_eq!(text.matches(&format!("secret = \"{secret}\"")).count(), times, "{secret}: {text}");
    }
}

#[test]
fn a_projects_file_gets_nothing_of_the_environment_and_is_not_trusted() {
    let dir = TestDir::bare();
    let project = dir.path("open");
    let servers = serde_json::json!({ "mcpServers": {
        "x": {
            "type": "http", "url": "https://example.com/mcp",
            "headers": { "X": "${env:GITHUB_TOKEN}", "Y": "${AWS_PROFILE}", "Z": "${AWS_PROFILE:-eu}" },
        },
        "y": { "command": "server", "args": ["${AWS_PROFILE}"], "envFile": "~/.env" },
    } });
    fs::write(project.join(".mcp.json"), servers.to_string()).unwrap();
    fs::write(dir.path("home/.env"), "SETTING=live-setting\nA_TOKEN=live-home\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = dir.command(arguments);
        command.current_dir(&project).env("GITHUB_TOKEN", "live-token").env("AWS_PROFILE", "live-profile");
        finish(command)
    };
    let ran = run(&["import", "claude-code"]);
    works(&ran);
    says(
        &ran,
        &[
            ".mcp.json asks for AWS_PROFILE, GITHUB_TOKEN of your environment and gets nothing of it",
            "outside of the project",
            "nothing of it is trusted yet",
            "left to do:\n  portcullis trust '",
            "portcullis secret set x-x    # header X of x, where env:GITHUB_TOKEN is not known",
        ],
    );
    let text = fs::read_to_string(project.join("portcullis.toml")).unwrap();
    assert!(text.contains("[sources.x]") && text.contains("[sources.y]") && !text.contains("live-"), "{text}");
    let secrets = SecretStore::open(&project.join(".portcullis")).unwrap();
    assert_eq!(secrets.list().unwrap(), Vec::<String>::new());
    refuses(&run(&["tools"]), &["so it is not used"]);

    // A configuration that was trusted is trusted no longer.
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    fs::write(dir.path(".mcp.json"), servers.to_string()).unwrap();
    works(&dir.run(&["import", "claude-code"]));
    refuses(&dir.run(&["tools"]), &["you trusted, so it is not used"]);
}

#[test]
fn what_a_file_names_is_shown_without_characters_that_act_on_the_terminal() {
    let dir = TestDir::bare();
    let odd = dir.path("open/a\u{1b}]0;title\u{7}\nthe servers are harmless");
    fs::create_dir(&odd).unwrap();
    let keys = odd.join(".env");
    fs::write(&keys, "").unwrap();
    let servers = serde_json::json!({ "mcpServers": { "a": { "command": "server", "args": [odd, keys] } } });
    fs::write(dir.path("mcp.json"), servers.to_string()).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    says(&ran, &["\\u{1b}]0;title", "harmless/.env is not proposed"]);
    assert!(!ran.err.contains('\u{1b}') && !ran.err.lines().any(|line| line.starts_with("the servers are harmless")));
}

#[test]
fn a_dry_run_writes_nothing_and_prints_what_would_be_written() {
    let dir = TestDir::bare();
    dir.clients("cursor.json", "mcp.json");
    let ran = dir.run(&["import", "mcp.json", "--dry-run"]);
    works(&ran);
    assert!(!dir.path("portcullis.toml").exists() && !dir.path(".portcullis").exists());
    works(&dir.run(&["import", "mcp.json"]));
    assert_eq!(ran.out, dir.imported().0);
}

#[test]
fn sources_are_added_to_a_configuration_and_what_stands_in_it_stays() {
    let before = "# Mine\n[sources.search] # first\ncomponent = \"builtin:calculator\"\n";
    let dir = TestDir::new(before);
    dir.clients("goose.yaml", "home/.config/goose/config.yaml");
    works(&dir.run(&["import", "goose"]));
    let (text, config) = dir.imported();
    assert!(text.starts_with(before), "{text}");
    assert_eq!(names(&config), ["search", "search-2", "remote"]);
    assert_eq!(dir.secret("search-2-tavily-api-key"), "live-goose");
}

#[test]
fn no_home_and_no_credentials_are_guessed() {
    let dir = TestDir::bare();
    let home = dir.path("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::create_dir_all(home.join("docs")).unwrap();
    let args = ["", "/.ssh", "/docs"].map(|below| format!("{}{below}", home.display()));
    let client =
        serde_json::json!({ "mcpServers": { "a": { "command": "server", "args": [args[0], args[1], args[2], "/"] } } });
    fs::write(dir.path("mcp.json"), client.to_string()).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    says(&ran, &["holds much more than a server works on", "holds credentials"]);
    let (_, config) = dir.imported();
    let cell = &config.sources.values().next().unwrap().cell;
    assert_eq!((cell.read.clone(), cell.write.len()), (vec![home.join("docs").canonicalize().unwrap()], 0));
}

#[test]
fn a_file_that_cannot_be_imported_is_refused_with_the_reason() {
    let dir = TestDir::bare();
    let refused = |bytes: &[u8], parts: &[&str]| {
        fs::write(dir.path("mcp.json"), bytes).unwrap();
        refuses(&dir.run(&["import", "mcp.json"]), parts);
        assert!(!dir.path("portcullis.toml").exists());
    };
    refused(b"{ \"mcpServers\": ", &["mcp.json cannot be imported", "not JSON"]);
    refused(b"{\"a\": \"\xff\"}", &["not UTF-8 at byte 7"]);
    refused("[".repeat(100_000).as_bytes(), &["not JSON"]);
    refused(b"{\"mcpServers\": {\"a\": {}}}", &["none of the servers can be taken over", "a: left out"]);
    refused(b"theme = \"dark\"\n", &["the file has no servers: looked for `mcpServers`"]);
    fs::File::create(dir.path("mcp.json")).unwrap().set_len(40 << 20).unwrap();
    refuses(&dir.run(&["import", "mcp.json"]), &["41943040 bytes", "is it the right file?"]);
    fs::remove_file(dir.path("mcp.json")).unwrap();
    symlink("/dev/zero", dir.path("mcp.json")).unwrap();
    refuses(&dir.run(&["import", "mcp.json"]), &["not a regular file"]);
    refuses(&dir.run(&["import", "cursor"]), &["looked for", ".cursor/mcp.json", "name another file"]);
    refuses(&dir.run(&["import", "curser"]), &["neither a file here nor", "did you mean `cursor`?", "claude-desktop"]);
    refuses(&dir.run(&["import"]), &["name a file"]);
    dir.clients("cursor.json", "home/.cursor/mcp.json");
    refuses(&dir.run(&["import"]), &["`portcullis import cursor`"]);

    // Text that an agent's client may have written into its file cannot control the terminal.
    let marked = "\u{feff}{\r\n\"mcpServers\": {\r\n\"a\u{1b}[2Jb\": { \"command\": \"x\" } }\r\n}\r\n";
    fs::remove_file(dir.path("mcp.json")).unwrap();
    fs::write(dir.path("mcp.json"), marked.replace('\u{1b}', "\\u001b")).unwrap();
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
    assert_eq!(names(&dir.imported().1), ["a-2Jb"]);
}

#[test]
fn what_connect_wrote_is_no_server_to_import() {
    let dir = TestDir::new("[sources.calc]\ncomponent = \"builtin:calculator\"\n");
    dir.clients("cursor.json", "home/.cursor/mcp.json");
    assert_eq!(dir.run(&["connect", "cursor", "--yes"]).code, Some(0));
    let ran = dir.run(&["import", "cursor"]);
    works(&ran);
    says(&ran, &["portcullis: left out, since it starts this broker"]);
    assert_eq!(names(&dir.imported().1).len(), 6);
}

#[test]
fn no_secret_is_put_into_a_data_folder_that_was_not_trusted() {
    let dir = TestDir::bare();
    fs::create_dir(dir.path(".portcullis")).unwrap();
    fs::set_permissions(dir.path(".portcullis"), Permissions::from_mode(0o700)).unwrap();
    dir.clients("cursor.json", "mcp.json");
    let ran = dir.run(&["import", "mcp.json"]);
    works(&ran);
    says(&ran, &["is not trusted yet", "is there already", "portcullis secret set search-tavily-api-key"]);
    assert_eq!(fs::read_dir(dir.path(".portcullis")).unwrap().count(), 0);
}
