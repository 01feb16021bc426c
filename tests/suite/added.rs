//! `add` with a package, a server.json, or a bundle: the text it writes, its questions and its refusals.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use portcullis_test_support::source_program;
use serde_json::{Value, json};

use crate::test_dir::TestDir;

fn text(dir: &TestDir) -> String {
    fs::read_to_string(dir.path("portcullis.toml")).unwrap()
}

/// Adds a source and returns what is said. The addition must succeed.
fn added(dir: &TestDir, arguments: &[&str]) -> String {
    let ran = dir.run(&[&["add"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
    ran.err
}

/// Asserts that an addition is refused with these words, and leaves nothing.
fn refused(dir: &TestDir, arguments: &[&str], words: &str) {
    // The lock by which changes of the file come one at a time stays.
    let files = || crate::test_dir::files(&dir.path("")).into_iter().filter(|file| !file.ends_with("edits.lock"));
    let before: Vec<_> = files().collect();
    let ran = dir.run(&[&["add"], arguments].concat());
    assert!(ran.code == Some(1) && ran.err.contains(words), "{arguments:?}: {:?} {}", ran.code, ran.err);
    assert_eq!(files().collect::<Vec<_>>(), before);
}

#[test]
fn a_package_is_added_by_its_name() {
    let dir = TestDir::new("");
    added(&dir, &["a", "npm:@scope/server@1.2.3", "--", "./docs", "--flag"]);
    added(&dir, &["b", "pypi:mcp-server-git"]);
    added(&dir, &["c", "@scope/server"]);
    for line in [
        "[sources.a]\ncommand = [\"npx\", \"-y\", \"@scope/server@1.2.3\", \"./docs\", \"--flag\"]\n",
        "[sources.b]\ncommand = [\"uvx\", \"mcp-server-git\"]\n",
        "[sources.c]\ncommand = [\"npx\", \"-y\", \"@scope/server\"]\n",
    ] {
        assert!(text(&dir).contains(line), "{line}{}", text(&dir));
    }
    // A word that the user grants is a path, and means the folder in which it is written.
    added(&dir, &["e", "--read", "open", "npm:server", "--", "open"]);
    assert!(text(&dir).contains("\"server\", \"open\"]\ncwd = \".\"\n"), "{}", text(&dir));
    refused(&dir, &["d", "npm:--call=evil"], "not the name of a package");
    refused(&dir, &["d", "https://example.com/mcp", "--", "word"], "takes no arguments");
    refused(&dir, &["d", "server"], "`npm:…`");
}

#[test]
fn a_command_without_the_dashes_before_it_is_answered_with_the_line_to_type() {
    let dir = TestDir::new("");
    for (arguments, line) in [
        (&["git", "uvx", "mcp-server-git"][..], "portcullis add git -- uvx mcp-server-git"),
        (
            &["mem", "--read", "./my docs", "npx", "-y", "@scope/server", "--port", "1"],
            "portcullis add mem --read './my docs' -- npx -y @scope/server --port 1",
        ),
        (&["b", "--env", "KEY=v4lue", "npm:server", "./docs"], "portcullis add b --env KEY=… npm:server -- ./docs"),
    ] {
        let ran = dir.run(&[&["add"], arguments].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(&format!("write `{line}`")), "{line}: {}", ran.err);
    }
    assert!(!dir.path("portcullis.toml").exists() || !text(&dir).contains("sources."));
}

#[test]
fn what_is_said_of_learn_when_a_source_is_added_is_what_it_does() {
    let dir = TestDir::new("");
    let said = added(&dir, &["search", "npm:@brave/brave-search-mcp-server"]);
    assert!(said.contains("`portcullis learn search` runs it, proposes") && said.contains("you agree to"), "{said}");
}

fn description() -> Value {
    json!({
        "name": "io.example/weather",
        "packages": [
            { "registryType": "oci", "identifier": "example/weather", "version": "2" },
            {
                "registryType": "npm", "identifier": "@example/weather", "version": "2.0.1",
                "runtimeArguments": [{ "type": "positional", "value": "-y" }],
                "packageArguments": [
                    { "type": "positional", "valueHint": "folder", "isRequired": true, "description": "where it looks" },
                    { "type": "named", "name": "--units", "default": "metric" },
                    { "type": "named", "name": "--verbose" },
                ],
                "environmentVariables": [
                    { "name": "API_KEY", "isRequired": true, "isSecret": true },
                    { "name": "LEVEL", "default": "info" },
                    { "name": "MORE" },
                ],
            },
        ],
    })
}

#[test]
fn a_server_json_becomes_a_source_and_its_secrets_stay_out_of_the_file() {
    let dir = TestDir::new("");
    fs::write(dir.path("server.json"), description().to_string()).unwrap();
    refused(&dir, &["weather", "server.json"], "--set folder=…  (where it looks)");
    refused(&dir, &["weather", "server.json", "--set", "folder=x", "--set", "fold=x"], "no setting \"fold\"");
    let said = added(&dir, &["weather", "server.json", "--set", "folder=./maps", "--set", "verbose=true"]);
    assert!(said.contains("portcullis secret set weather-api-key") && said.contains("io.example/weather"), "{said}");
    let expected = "[sources.weather]\ncommand = [\"npx\", \"-y\", \"@example/weather@2.0.1\", \"./maps\", \"--units\", \
                    \"metric\", \"--verbose\"]\nenv = { LEVEL = \"info\", API_KEY = { secret = \"weather-api-key\" } }\n";
    assert!(text(&dir).contains(expected), "{}", text(&dir));
    assert_eq!(dir.run(&["secret", "set", "weather-api-key"]).code, Some(1), "a secret needs a value");

    // A value stands in the place of its variable, and one that the user gives in the place of the description's.
    let mut templates = description();
    let package = &mut templates["packages"][1];
    package["packageArguments"][1]["value"] = json!("type=bind,src={path}");
    package["environmentVariables"][1] = json!({ "name": "TOKEN", "value": "Bearer {key}", "isSecret": true });
    fs::write(dir.path("server.json"), templates.to_string()).unwrap();
    let given = ["--set", "folder=x", "--set", "units=/maps", "--env", "API_KEY=mine"];
    let said = added(&dir, &[&["templates", "server.json"], &given[..]].concat());
    assert!(said.contains("writes `TOKEN` as `Bearer {key}`: store the whole text"), "{said}");
    assert!(!said.contains("templates-api-key"), "{said}");
    let written = text(&dir);
    assert!(
        written.contains("\"--units\", \"type=bind,src=/maps\"") && written.contains("API_KEY = \"mine\""),
        "{written}"
    );

    // The description's claims about itself are not believed.
    for (path, value, words) in [
        ("/packages/1/identifier", json!("--call=evil"), "not the name of a package"),
        ("/packages/1/packageArguments/0/isSecret", json!(true), "every process of this machine can read"),
        ("/packages/1/registryType", json!("nuget"), "it has oci, nuget"),
    ] {
        let mut bad = description();
        let (parent, key) = path.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value;
        fs::write(dir.path("server.json"), bad.to_string()).unwrap();
        refused(&dir, &["bad", "server.json", "--set", "folder=x"], words);
    }
}

#[test]
fn a_server_json_is_read_from_its_address_and_may_name_a_remote_server() {
    let remote = json!({ "server": {
        "name": "io.example/remote",
        "remotes": [{ "type": "streamable-http", "url": "https://mcp.example.com/mcp", "headers": [
            { "name": "X-Key", "isRequired": true, "isSecret": true }, { "name": "X-Region", "value": "eu" },
        ] }],
    } });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let body = remote.to_string();
        for answer in [format!("200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), "404 No\r\n\r\n".to_owned()] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            write!(stream, "HTTP/1.1 {answer}").unwrap();
        }
    });
    let dir = TestDir::new("");
    let url = format!("http://{address}/v0/server.json");
    let said = added(&dir, &["remote", &url]);
    assert!(said.contains("portcullis secret set remote-x-key"), "{said}");
    let expected = "[sources.remote]\nurl = \"https://mcp.example.com/mcp\"\nheaders = { X-Region = \"eu\", X-Key = { secret \
                    = \"remote-x-key\" } }\n";
    assert!(text(&dir).contains(expected), "{}", text(&dir));
    refused(&dir, &["again", &url], "status 404");
    served.join().unwrap();
}

fn bundle(dir: &TestDir, entry: &str) -> PathBuf {
    let file = dir.path("sums.mcpb");
    let mut zip = zip::ZipWriter::new(fs::File::create(&file).unwrap());
    let plain = zip::write::SimpleFileOptions::default();
    let manifest = json!({
        "manifest_version": "0.3", "name": "sums", "version": "1.2", "author": { "name": "Somebody" },
        "server": { "type": "binary", "entry_point": "server/run", "mcp_config": {
            "command": "${__dirname}/server/run", "args": ["${user_config.mode}", "${user_config.folders}"],
            "env": { "TOKEN": "${user_config.token}", "HERE": "${__dirname}" },
        } },
        "user_config": {
            "mode": { "type": "string", "default": "plain" },
            "folders": { "type": "directory", "multiple": true, "description": "what it may read" },
            "token": { "type": "string", "sensitive": true },
        },
    });
    zip.start_file("manifest.json", plain).unwrap();
    zip.write_all(manifest.to_string().as_bytes()).unwrap();
    zip.start_file(entry, plain).unwrap();
    zip.write_all(&fs::read(source_program("portcullis-test-source")).unwrap()).unwrap();
    zip.finish().unwrap();
    file
}

#[test]
fn a_bundle_is_unpacked_beside_the_configuration_and_runs_in_a_cell_with_what_the_user_gave() {
    let dir = TestDir::new("[profiles.default]\napprove = \"never\"\n");
    fs::create_dir(dir.path("more")).unwrap();
    let file = bundle(&dir, "server/run").display().to_string();
    refused(&dir, &["sums", &file], "--set folders=…  (what it may read)");
    let said = added(&dir, &["sums", &file, "--set", "folders=open", "--set", "folders=more"]);
    assert!(said.contains("portcullis secret set sums-token"), "{said}");
    let own = dir.path("bundles/sums").display().to_string();
    let (open, more) = (dir.path("open").display().to_string(), dir.path("more").display().to_string());
    let expected = format!(
        "[sources.sums]\ncommand = [\"{own}/server/run\", \"plain\", \"{open}\", \"{more}\"]\nenv = {{ HERE = \"{own}\", \
         TOKEN = {{ secret = \"sums-token\" }} }}\ncell = {{ read = [\"{own}\", \"{open}\", \"{more}\"] }}\n"
    );
    assert!(text(&dir).contains(&expected), "{}", text(&dir));
    let missing = dir.run(&["call", "sums__add", "{\"a\":1,\"b\":2}"]);
    assert!(missing.code == Some(1) && missing.err.contains("sums-token"), "{}", missing.err);
    let mut secret = dir.command(&["secret", "set", "sums-token"]);
    secret.stdin(fs::File::open(dir.path("portcullis.toml")).unwrap());
    assert_eq!(crate::test_dir::finish(secret).code, Some(0));
    let ran = dir.run(&["call", "sums__add", "{\"a\":1,\"b\":2}"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "3"), "{}", ran.err);

    refused(&dir, &["sums", &file, "--set", "folders=open"], "is there already");
    let evil = bundle(&dir, "../run").display().to_string();
    refused(&dir, &["evil", &evil, "--set", "folders=open"], "not below the bundle");
}
