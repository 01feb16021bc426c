#![allow(clippy::unwrap_used, reason = "tests")]

use portcullis_net::egress::Destination;

use super::*;

fn argv(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn every_known_server_is_whole() {
    let file: File = toml::from_str(include_str!("../known.toml")).unwrap();
    assert_eq!(file.server, KnownServer::all());
    assert!(file.server.len() >= 40, "{}", file.server.len());
    let names: Vec<_> = file.server.iter().map(|known| &known.package).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    for known in &file.server {
        let (launcher, name) = match known.package.split_once(':').unwrap() {
            ("npm", name) => ("npx -y", name),
            (_, name) => ("uvx", name),
        };
        let started = KnownServer::started_by(&argv(&format!("{launcher} {name}@{}", known.version)));
        assert_eq!(started, Some(known), "its own command must find it");
        assert!(known.network.iter().all(|host| host.parse::<Destination>().is_ok()), "{known:?}");
        assert_eq!(known.measured.len(), "2026-11-22".len());
    }
}

#[test]
fn a_server_is_known_by_its_package_whatever_its_version() {
    for command in ["npx -y tavily-mcp@latest", "/usr/bin/npx tavily-mcp", "npx -p tavily-mcp tavily"] {
        assert_eq!(KnownServer::started_by(&argv(command)).unwrap().package, "npm:tavily-mcp", "{command}");
    }
    for command in ["uvx mcp_server_git", "uvx --from mcp-server-git==2026.10.19 mcp-server-git"] {
        assert_eq!(KnownServer::started_by(&argv(command)).unwrap().package, "pypi:mcp-server-git", "{command}");
    }
    for command in ["node tavily-mcp", "npx -y tavily-mcp-evil", "npx"] {
        assert_eq!(KnownServer::started_by(&argv(command)), None, "{command}");
    }
}

#[test]
fn paths_of_the_command_are_proposed_but_no_home_and_no_credentials() {
    let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let home = home.path().canonicalize().unwrap();
    for folder in ["docs", ".ssh"] {
        std::fs::create_dir(home.join(folder)).unwrap();
    }
    let command = argv("npx -y @modelcontextprotocol/server-filesystem docs/../docs .ssh . /absent/folder");
    let known = KnownServer::started_by(&command).unwrap();
    let lines = known.lines(&command, &BTreeMap::new(), Some(&home), Some(&home));
    let found: Vec<_> = lines.iter().map(|line| (line.key, line.value.clone())).collect();
    assert_eq!(found, [(CellKey::Write, home.join("docs").display().to_string())]);
    // A file that does not exist yet is replaced by its folder.
    let memory = KnownServer::started_by(&argv("npx @modelcontextprotocol/server-memory")).unwrap();
    let variables = BTreeMap::from([("MEMORY_FILE_PATH".to_owned(), home.join("docs/new.json").display().to_string())]);
    let lines = memory.lines(&argv("npx @modelcontextprotocol/server-memory"), &variables, None, Some(&home));
    assert_eq!(lines.first().unwrap().value, home.join("docs").display().to_string());
    assert!(lines.first().unwrap().evidence.first().unwrap().contains("2026-11-22"));
}
