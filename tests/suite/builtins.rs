//! The builtin sources, as an agent uses them.

use std::io::{Read as _, Write as _};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, ERAS};
use crate::test_dir::{Ran, TestDir};

fn call(dir: &TestDir, tool: &str, arguments: &Value) -> Ran {
    dir.run(&["call", tool, &arguments.to_string()])
}

#[test]
fn the_filesystem_source_reaches_only_the_granted_folders() {
    let dir = TestDir::new(
        "[sources.files]\ncomponent = \"builtin:filesystem\"\ncell = { read = [\"open\"], write = [\"drop\"] }\n\
         [profiles.default]\napprove = \"never\"\n",
    );
    std::fs::create_dir(dir.path("drop")).unwrap();
    std::fs::write(dir.path("open/note.txt"), "a needle\nin a haystack\n").unwrap();
    std::fs::write(dir.path("secret.txt"), "hunter22").unwrap();
    std::os::unix::fs::symlink(dir.path("secret.txt"), dir.path("drop/link")).unwrap();
    let good = |tool: &str, arguments: Value| {
        let ran = call(&dir, tool, &arguments);
        assert_eq!(ran.code, Some(0), "{tool}: {}{}", ran.out, ran.err);
        ran.out
    };
    let listed = good("files__list", json!({}));
    assert!(listed.contains(dir.path("open").to_str().unwrap()) && listed.contains(dir.path("drop").to_str().unwrap()));
    assert!(good("files__list", json!({ "path": dir.path("open") })).contains("note.txt (23 bytes)"));
    assert!(good("files__read", json!({ "path": dir.path("open/note.txt") })).contains("in a haystack"));
    assert!(good("files__search", json!({ "text": "NEEDLE" })).contains("note.txt:1: a needle"));
    good("files__write", json!({ "path": dir.path("drop/deep/new.txt"), "text": "mine" }));
    assert_eq!(std::fs::read_to_string(dir.path("drop/deep/new.txt")).unwrap(), "mine");
    for (tool, path) in [
        ("files__read", dir.path("secret.txt")),
        ("files__read", dir.path("open/../secret.txt")),
        ("files__read", dir.path("drop/link")),
        ("files__read", "/etc/passwd".into()),
        ("files__list", "/".into()),
        ("files__write", dir.path("open/note.txt")),
        ("files__write", dir.path("portcullis.toml")),
    ] {
        let ran = call(
            &dir,
            tool,
            &match tool {
                "files__write" => json!({ "path": path, "text": "theirs" }),
                _ => json!({ "path": path }),
            },
        );
        assert_ne!(ran.code, Some(0), "{tool} {}: {}", path.display(), ran.out);
        assert!(!ran.out.contains("hunter22") && !ran.out.contains("root:"), "{}", ran.out);
    }
    assert_eq!(std::fs::read_to_string(dir.path("open/note.txt")).unwrap(), "a needle\nin a haystack\n");
}

#[test]
fn stored_facts_survive_a_killed_broker_and_are_listed_as_resources() {
    let dir = TestDir::new(
        "[sources.memory]\ncomponent = \"builtin:memory\"\ngrant = [\"key-value\"]\n\
         [profiles.default]\napprove = \"never\"\n[profiles.other]\napprove = \"never\"\n",
    );
    let mut agent = Agent::start(&dir, ERAS[0]);
    let fact = json!({ "entity": "Ada", "kind": "person", "observations": ["wrote the first program"] });
    let answer = agent.call("memory__remember", &fact, None);
    assert!(answer["ok"].as_str().is_some(), "{answer}");
    agent.running.signal(Signal::KILL);
    drop(agent);
    dir.await_no_process();
    for era in ERAS {
        let mut agent = Agent::start(&dir, era);
        let recalled = agent.call("memory__recall", &json!({ "words": "FIRST program" }), None);
        assert!(recalled["ok"].as_str().is_some_and(|text| text.contains("Ada (person)")), "{recalled}");
        let listed = agent.request("resources/list", json!({}));
        let uri = listed["result"]["resources"][0]["uri"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
        assert_eq!(uri, "portcullis://memory/memory:///Ada");
        let read = agent.request("resources/read", json!({ "uri": uri }));
        assert_eq!(read["result"]["contents"][0]["text"], "Ada (person)\n- wrote the first program", "{read}");
        let missing = agent.request("resources/read", json!({ "uri": "portcullis://memory/memory:///Bob" }));
        assert!(missing["error"]["code"].as_i64().is_some(), "{missing}");
        agent.leave();
    }
    let mut other = Agent::under(&dir, "other", ERAS[0]);
    let recalled = other.call("memory__recall", &json!({}), None);
    assert!(recalled["ok"].as_str().is_some_and(|text| text.contains("nothing is known")), "{recalled}");
    other.leave();
}

/// Starts a web server with one page, which redirects to the target that the path names. Returns its port.
fn web() -> u16 {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.accept() {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = match path.strip_prefix("/to/") {
                Some(to) => {
                    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                }
                None => {
                    let page =
                        "<html><body><h1>Welcome</h1><script>no()</script><p>to the &lt;web&gt;</p></body></html>";
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                        page.len()
                    )
                }
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn pages_are_fetched_as_text_and_only_from_granted_hosts() {
    let port = web();
    let config = |more: &str| {
        format!(
            "[sources.web]\ncomponent = \"builtin:fetch\"\ncell = {{ network = [\"localhost:{port}\"] }}\n{more}\
             [profiles.default]\napprove = \"never\"\n"
        )
    };
    let dir = TestDir::new(&config("dangerous-allow-private = true\n"));
    let fetch = |dir: &TestDir, url: &str| call(dir, "web__fetch", &json!({ "url": url }));
    let page = fetch(&dir, &format!("http://localhost:{port}/"));
    assert!(page.out.contains("# Welcome") && page.out.contains("to the <web>"), "{}{}", page.out, page.err);
    assert!(!page.out.contains("no()"), "{}", page.out);
    let followed = fetch(&dir, &format!("http://localhost:{port}/to//page"));
    assert!(followed.out.contains("# Welcome"), "{}{}", followed.out, followed.err);
    for url in [
        format!("http://localhost:{port}/to/http://169.254.169.254/latest/meta-data/"),
        format!("http://127.0.0.1:{port}/"),
        "http://169.254.169.254/".to_owned(),
        "https://example.com/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let ran = fetch(&dir, &url);
        let said = format!("{}{}", ran.out, ran.err);
        assert_ne!(ran.code, Some(0), "{url}: {said}");
        assert!(said.contains("is not granted") || said.contains("is not an HTTP address"), "{url}: {said}");
    }
    let refused = dir.records_of("egress.refused");
    assert!(refused.iter().any(|record| record["body"]["host"] == "169.254.169.254"), "{refused:?}");
    let near = TestDir::new(&config(""));
    let ran = fetch(&near, &format!("http://localhost:{port}/"));
    let said = format!("{}{}", ran.out, ran.err);
    assert!(ran.code != Some(0) && !said.contains("Welcome"), "{said}");
}

#[test]
fn check_shows_the_grants_and_the_risk_of_builtin_sources() {
    let dir = TestDir::new(
        "[sources.files]\ncomponent = \"builtin:filesystem\"\ncell = { read = [\"open\"] }\n\
         [sources.memory]\ncomponent = \"builtin:memory\"\ngrant = [\"key-value\"]\n",
    );
    let ran = dir.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    let of = |name: &str| {
        let sources = report["sources"].as_array().unwrap();
        sources.iter().find(|source| source["name"] == name).unwrap()["cell"].clone()
    };
    assert_eq!((&of("files")["harmless"], &of("memory")["harmless"]), (&json!(true), &json!(false)));
    let imports = of("memory")["imports"].to_string();
    assert!(imports.contains("key-value"), "{imports}");
    let lists = report["sources"].as_array().unwrap().iter().map(|source| &source["listErrors"]);
    assert!(lists.clone().count() == 2 && lists.into_iter().all(|errors| *errors == json!([])), "{}", ran.out);

    let dir = TestDir::new("[sources.memory]\ncomponent = \"builtin:memory\"\n");
    let ran = dir.run(&["check"]);
    assert!(ran.code != Some(0) && ran.out.contains("add `grant = [\"key-value\"]`"), "{}", ran.out);
}

#[test]
fn check_shows_when_a_policy_is_asked_and_that_one_in_shadow_mode_decides_nothing() {
    let dir = TestDir::new(
        "[sources.calc]\ncomponent = \"builtin:calculator\"\n[[policies]]\nplugin = \"builtin:rules\"\n\
         on = [\"call\", \"list\"]\nmode = \"shadow\"\n[[policies]]\nplugin = \"builtin:rules\"\n",
    );
    let text = dir.run(&["check"]).out;
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("policy ")).collect();
    assert!(lines[0].ends_with("  on call, list  shadow: its verdicts are recorded and not applied"), "{text}");
    assert!(lines[1].ends_with("  on call"), "{text}");
    let report: Value = serde_json::from_str(&dir.run(&["check", "--json"]).out).unwrap();
    let of = |place: usize| (&report["plugins"][place]["on"], &report["plugins"][place]["shadow"]);
    assert_eq!(of(0), (&json!(["call", "list"]), &json!(true)));
    assert_eq!(of(1), (&json!(["call"]), &json!(false)));
}

/// Returns the validator of a configuration that `portcullis schema` prints.
fn schema() -> jsonschema::Validator {
    let printed = TestDir::new("").run(&["schema"]);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    jsonschema::validator_for(&serde_json::from_str(&printed.out).unwrap()).unwrap()
}

#[test]
fn the_schema_of_the_configuration_knows_the_settings_of_each_built_in_plugin() {
    let schema = schema();
    let fits = |text: &str| schema.is_valid(&serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap());
    for (good, bad) in [
        (
            "[[policies]]\nplugin = \"builtin:rules\"\nsettings = { deny = [\"*\", { arguments = { n = 1, to = { not = \"x\" } } }] }",
            "deny",
        ),
        ("[[policies]]\nplugin = \"builtin:cedar\"\nsettings = { policies = \"\" }", "policies"),
        ("[[policies]]\nplugin = \"builtin:flow\"\nsettings = { private-labels = [\"crm\"] }", "private-labels"),
        ("[[policies]]\nplugin = \"builtin:saboteur\"\nsettings = { loop = [\"*\"] }", "loop"),
        ("[[transforms]]\nplugin = \"builtin:redact\"\nsettings = { one-way = \"all\" }", "one-way"),
        ("[[approvals]]\nplugin = \"builtin:approval-memory\"\nsettings = { valid-for = \"8h\" }", "valid-for"),
        ("[[sinks]]\nplugin = \"builtin:jsonl\"\nsettings = { kinds = [\"call.*\"] }", "kinds"),
        ("[[policies]]\nplugin = \"./own.wasm\"\nsettings = { anything = 1 }", ""),
    ] {
        assert!(fits(good), "{good}");
        if !bad.is_empty() {
            assert!(!fits(&good.replace(bad, "mistyped")), "{good}");
        }
    }
    assert!(!fits("[[policies]]\nplugin = \"builtin:cedar\""), "it needs policies");
    assert!(!fits("[sources.calc]\ncomponent = \"builtin:calculator\"\nsettings = { digits = 2 }"));
}

/// The book's own configurations fit the schema as well: it refuses nothing that a plugin takes.
#[test]
fn the_schema_of_the_configuration_refuses_nothing_that_the_book_shows() {
    let schema = schema();
    let blocks = portcullis_test_support::code_blocks();
    let whole: Vec<_> = blocks.iter().filter(|block| block.is("toml") && !block.is("fragment")).collect();
    assert!(whole.len() > 20, "only {} are found: does the test still see them?", whole.len());
    for block in whole {
        let configuration = serde_json::to_value(block.text.parse::<toml::Table>().unwrap()).unwrap();
        if let Err(error) = schema.validate(&configuration) {
            panic!("{}: {}: {error}", block.place(), error.instance_path());
        }
    }
}
