//! Real servers in their cells: fetched by `npx` and `uvx` from the registries, and confined to their grants.

use std::path::Path;

use serde_json::{Value, json};

use crate::broker::{TestDir, output};
use crate::installed;

/// Sources by name, the package that each installs, and the number of its tools. The versions are fixed, because these
/// tests are about cells and not about packages that are published later.
const NPM: [(&str, &str, usize); 4] = [
    ("everything", "@modelcontextprotocol/server-everything@2026.8.31", 13),
    ("files", "@modelcontextprotocol/server-filesystem@2026.8.31", 14),
    ("memory", "@modelcontextprotocol/server-memory@2026.8.31", 9),
    ("thinking", "@modelcontextprotocol/server-sequential-thinking@2026.8.31", 1),
];
const PYPI: [(&str, &str, usize); 4] = [
    ("fetch", "mcp-server-fetch==2026.10.24", 1),
    ("git", "mcp-server-git==2026.10.19", 12),
    ("sqlite", "mcp-server-sqlite==2025.4.25", 6),
    ("time", "mcp-server-time==2026.10.19", 2),
];

/// Returns the configuration of all of them. The file server itself is told to allow `/`, so that only its cell
/// decides.
fn configuration(dir: &Path) -> String {
    let mut toml = String::new();
    let mut source = |name: &str, command: Vec<String>, more: &str| {
        let command = serde_json::to_string(&command).unwrap();
        toml += &format!("[sources.{name}]\ncommand = {command}\nrequired = true\ntimeout = \"120s\"\n{more}\n");
    };
    let at = |name: &str| dir.join(name).display().to_string();
    for (name, package, _) in NPM {
        let mut command = vec!["npx".to_owned(), "-y".to_owned(), package.to_owned()];
        command.extend((name == "files").then(|| "/".to_owned()));
        let more = if name == "files" { format!("cell.write = [{:?}]", at("docs")) } else { String::new() };
        source(name, command, &more);
    }
    for (name, package, _) in PYPI {
        let uvx = installed::python("uvx").display().to_string();
        // The only one of these servers that is not kept up to date.
        let old = if name == "sqlite" { vec!["--with", "mcp<2"] } else { Vec::new() };
        let program = package.split_once("==").unwrap().0.to_owned();
        let mut command = vec![uvx, "--from".to_owned(), package.to_owned()];
        command.extend(old.into_iter().map(str::to_owned));
        command.push(program);
        let (arguments, more) = match name {
            "git" => (vec!["--repository".to_owned(), at("repo")], format!("cell.read = [{:?}]", at("repo"))),
            "sqlite" => (vec!["--db-path".to_owned(), at("memory/db")], format!("cell.write = [{:?}]", at("memory"))),
            "time" => (vec!["--local-timezone=UTC".to_owned()], String::new()),
            _ => (Vec::new(), String::new()),
        };
        command.extend(arguments);
        source(name, command, &more);
    }
    toml + "[profiles.default]\napprove = \"never\"\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_npx_and_uvx_are_installed_in_one_cell_and_run_in_another() {
    let dir = TestDir::new("").await;
    std::fs::write(dir.at("portcullis.toml"), configuration(dir.path())).unwrap();
    keep_a_key(&dir);

    let report = dir.json(&["check"]).await;
    for (name, package, tools) in NPM.into_iter().chain(PYPI) {
        let source = source(&report, name);
        assert_eq!(source["tools"], tools, "{source}");
        let cell = &source["cell"];
        assert_eq!(cell["isolation"]["tier"], "full", "{cell}");
        let version = package.rsplit(['@', '=']).next().unwrap();
        assert_eq!(cell["package"]["version"], version);
        assert!(cell["package"]["integrity"].as_str().unwrap().starts_with("sha"), "{cell}");
        let harmless = !matches!(name, "files" | "sqlite");
        assert_eq!(cell["harmless"], harmless, "{name}");
    }
    let locked = dir.json(&["lock", "show"]).await;
    assert_eq!(locked["packages"].as_array().unwrap().len(), NPM.len() + PYPI.len());

    keeps_to_what_is_granted(&dir).await;
    dir.verify(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_started_directly_are_confined_to_their_grants() {
    let dir = TestDir::new("[profiles.default]\napprove = \"never\"\n").await;
    // As in the other configuration, the file server itself allows everything.
    let toml = std::fs::read_to_string(dir.at("portcullis.toml")).unwrap();
    let docs = format!(",{:?}]", dir.at("docs"));
    assert!(toml.contains(&docs), "{toml}");
    std::fs::write(dir.at("portcullis.toml"), toml.replace(&docs, ",\"/\"]")).unwrap();
    keep_a_key(&dir);

    let report = dir.json(&["check"]).await;
    for (name, tools) in installed::TOOLS {
        let source = source(&report, name);
        assert_eq!(source["tools"], tools, "{source}");
        assert_eq!(source["cell"]["isolation"]["tier"], "full", "{source}");
        assert!(source["cell"]["package"].is_null(), "{source}");
    }
    keeps_to_what_is_granted(&dir).await;
    dir.verify(None).await;
}

fn keep_a_key(dir: &TestDir) {
    std::fs::create_dir(dir.at("home/.ssh")).unwrap();
    std::fs::write(dir.at("home/.ssh/id_rsa"), "the key").unwrap();
}

/// Checks that the servers can use `docs`, `repo` and `memory`, and nothing else.
async fn keeps_to_what_is_granted(dir: &TestDir) {
    let call =
        async |tool: &str, arguments: Value| output(dir.portcullis(&["call", tool, &arguments.to_string()])).await;
    let said = |output: &std::process::Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let written = call("files__write_file", json!({ "path": dir.at("docs/new.txt"), "content": "new" })).await;
    assert!(written.status.success(), "{}", said(&written));
    assert_eq!(std::fs::read_to_string(dir.at("docs/new.txt")).unwrap(), "new");
    // Apart from the granted folders there are only empty folders of the cell: files written there appear nowhere else.
    for elsewhere in ["elsewhere.txt", "repo/file", "home/.ssh/authorized_keys", ".portcullis/token"] {
        let before = std::fs::read(dir.at(elsewhere)).ok();
        let tried = call("files__write_file", json!({ "path": dir.at(elsewhere), "content": "new" })).await;
        assert_eq!(std::fs::read(dir.at(elsewhere)).ok(), before, "{elsewhere}: {}", said(&tried));
    }
    let refused = call("files__write_file", json!({ "path": "/usr/evil", "content": "new" })).await;
    assert!(said(&refused).contains("EROFS"), "{}", said(&refused));
    let key = call("files__read_text_file", json!({ "path": dir.at("home/.ssh/id_rsa") })).await;
    assert!(said(&key).contains("ENOENT: no such file or directory"), "{}", said(&key));
    let log = call("git__git_log", json!({ "repo_path": dir.at("repo") })).await;
    assert!(said(&log).contains("the first"), "{}", said(&log));
    let table = call("sqlite__create_table", json!({ "query": "CREATE TABLE t (n INTEGER)" })).await;
    assert!(table.status.success() && Path::new(&dir.at("memory/db")).exists(), "{}", said(&table));
    let page = call("fetch__fetch", json!({ "url": "https://example.com/" })).await;
    assert!(!said(&page).contains("Example Domain"), "{}", said(&page));
}

/// Starts a registry that requires credentials. Returns its port, and a channel with every request that it receives.
fn locked_registry() -> (u16, std::sync::mpsc::Receiver<String>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let size = stream.read(&mut request).unwrap_or_default();
            let _ = sender.send(String::from_utf8_lossy(&request[..size]).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_requires_credentials_gets_none_and_the_error_says_so() {
    let (port, heard) = locked_registry();
    let uvx = installed::python("uvx").display().to_string();
    for (command, variable) in [
        (json!(["npx", "-y", "some-server"]), None),
        (json!([uvx, "some-server"]), Some(("UV_INDEX_URL", format!("http://me:hunter2@127.0.0.1:{port}/simple")))),
    ] {
        let dir = TestDir::bare(&format!("[sources.locked]\ncommand = {command}\n"));
        let npmrc = format!("registry=http://127.0.0.1:{port}/\n//127.0.0.1:{port}/:_authToken=hunter2\n");
        std::fs::write(dir.at("home/.npmrc"), npmrc).unwrap();
        let mut check = dir.portcullis(&["check"]);
        check.envs(variable);
        let ran = output(check).await;
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(!ran.status.success());
        assert!(said.contains("credentials for this registry are kept out of the cell"), "{said}");
        assert!(said.contains("install it yourself and name its program"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let heard = heard.try_iter().collect::<String>();
        assert!(heard.contains("some-server"), "{heard}");
        assert!(!heard.to_ascii_lowercase().contains("authorization"), "{heard}");
        dir.verify(None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_differs_from_its_pin_does_not_start() {
    let dir = TestDir::new("").await;
    let config = "[sources.time]\ncommand = [@, \"--from\", \"mcp-server-time==2026.10.19\", \"mcp-server-time\"]\n";
    let uvx = format!("{:?}", installed::python("uvx"));
    std::fs::write(dir.at("portcullis.toml"), config.replace('@', &uvx)).unwrap();
    let first = dir.json(&["check"]).await;
    assert_eq!(source(&first, "time")["tools"], 2);

    // The installed files are removed, and the lock expects other bytes of one dependency.
    std::fs::remove_dir_all(dir.at(".portcullis/sources/time/packages")).unwrap();
    let again = dir.json(&["check"]).await;
    assert_eq!(source(&again, "time")["tools"], 2, "the same bytes are installed again");
    std::fs::remove_dir_all(dir.at(".portcullis/sources/time/packages")).unwrap();
    other_bytes(&dir);
    let refused = output(dir.portcullis(&["check", "--json"])).await;
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let error = source(&refused, "time")["error"].as_str().unwrap_or_default();
    assert!(error.contains("is not what was pinned") && error.contains("lock accept --packages"), "{refused}");

    let renewed = dir.json(&["lock", "accept", "--packages"]).await;
    assert_eq!(renewed[0]["now"]["version"], "2026.10.19", "{renewed}");
    let store = std::fs::read_dir(dir.at(".portcullis/sources/time/packages")).unwrap().flatten();
    let trees = store.filter(|entry| entry.file_type().unwrap().is_dir()).count();
    assert_eq!(trees, 1, "what is pinned, and nothing older");
    let accepted = dir.json(&["check"]).await;
    assert_eq!(source(&accepted, "time")["tools"], 2);
    dir.verify(None).await;
}

/// Rewrites the lock file as if one dependency, and the tree that it is part of, had been pinned with other bytes.
fn other_bytes(dir: &TestDir) {
    use portcullis::lockfile::Lockfile;
    use portcullis::lockfile::{PackageVersion, ResolvedPackage};
    let data_dir = Path::new(&dir.at(".portcullis")).to_owned();
    Lockfile::change(&data_dir, |lock| {
        let pin = lock.packages()[0].clone();
        let other = |unit: &PackageVersion| PackageVersion {
            integrity: if unit.name == pin.name { unit.integrity.clone() } else { "sha256:other".to_owned() },
            ..unit.clone()
        };
        let resolved = ResolvedPackage::new(&pin.name, pin.units.iter().map(other).collect(), String::new()).unwrap();
        lock.pin(&pin.source, &pin.requested, &resolved, &pin.registry);
    })
    .unwrap();
}

fn source<'a>(report: &'a Value, name: &str) -> &'a Value {
    let sources = report["sources"].as_array().unwrap();
    sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("no source {name}: {report}"))
}
