#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod cases;
mod robust;

use std::collections::BTreeSet;

use portcullis_core::call::{Phase, TrustLevel};

use super::*;

/// The example from the documentation.
const DOCUMENTED: &str = include_str!("tests/documented.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/srv/broker/portcullis.toml"))
}

fn source(config: &Config, name: &str) -> SourceConfig {
    config.sources[&name.parse::<SourceName>().unwrap()].clone()
}

#[test]
fn the_documented_example_means_what_the_documentation_says() {
    let config = parse(DOCUMENTED).unwrap();
    assert_eq!(config.data_dir, Path::new("/srv/broker/.portcullis"));
    assert_eq!(config.file.as_deref(), Some(Path::new("/srv/broker/portcullis.toml")));
    let files = source(&config, "files");
    let Endpoint::Command { argv, cwd, env } = &files.endpoint else { panic!("{files:?}") };
    assert_eq!(argv, &["npx", "-y", "@modelcontextprotocol/server-filesystem", "./docs"]);
    assert_eq!(cwd.as_deref(), Some(Path::new("/srv/broker")));
    assert_eq!(env["LOG_LEVEL"], ConfigValue::Plain("info".into()));
    assert_eq!(env["API_KEY"], ConfigValue::Secret("files-key".into()));
    assert_eq!((files.names.clone(), files.required, files.eager), (Naming::Source, true, false));
    assert_eq!(files.deny, ["move_*"]);
    let cell = CellConfig {
        read: vec!["/srv/broker/docs".into()],
        write: vec!["/srv/broker/out".into()],
        network: vec!["api.example.com:443".into()],
        memory: Some(512 << 20),
        processes: Some(64),
        cpu: Some(1.0),
        ..CellConfig::default()
    };
    assert_eq!(files.cell, cell);
    assert!(matches!(source(&config, "calc").endpoint,
        Endpoint::Component { component: PluginRef::Builtin(name), .. } if name == "calculator"));
    assert!(matches!(source(&config, "tickets").endpoint, Endpoint::Url { headers, .. }
        if headers["authorization"] == ConfigValue::Secret("tickets-token".into())));
    let rules = &config.policies[0];
    assert_eq!(rules.settings, serde_json::json!({ "deny": ["*__delete_*"], "ask": ["files__write_*"] }));
    assert_eq!((rules.on.as_slice(), rules.shadow), ([Phase::Call].as_slice(), false));
    assert_eq!((config.approvals.len(), config.sinks.len(), config.transforms.len()), (1, 1, 0));
    let mirror = source(&config, "mirror");
    assert_eq!((mirror.era, source(&config, "archive").era), (None, Some(portcullis_core::protocol::Era::Legacy)));
    assert_eq!((mirror.priority, mirror.required), (40, false));
    assert_eq!(mirror.concurrency, Some(ConcurrencyConfig { concurrency: 8, queue: 16 }));
    let groups: Vec<_> = config.groups().into_iter().collect();
    let [(name, members)] = groups.as_slice() else { panic!("{groups:?}") };
    let members: Vec<_> = members.iter().map(|source| source.name.as_str()).collect();
    assert_eq!((name.as_str(), members), ("search", vec!["archive", "mirror"]));
    let hourly = |amount| Some(Rate { amount, per: Duration::from_secs(3600) });
    let budget = BudgetConfig { calls: hourly(1000.0), bytes: hourly(104_857_600.0), time: hourly(1800.0) };
    assert_eq!(config.profiles[&"review".parse::<ProfileName>().unwrap()].budget, Some(budget));
}

#[test]
fn an_empty_file_gives_what_is_documented_as_default() {
    let config = parse("").unwrap();
    let default = &config.profiles[&"default".parse::<ProfileName>().unwrap()];
    assert_eq!((default.trust, default.approve, default.record), (TrustLevel::Medium, Approve::Risky, Detail::Shape));
    assert_eq!((default.sources.as_slice(), default.allow.as_deref()), (["*".to_owned()].as_slice(), None));
    assert_eq!(config.serve.listen.to_string(), "127.0.0.1:8765");
    assert!(!config.serve.dangerous_no_token && config.serve.token.is_none() && config.sources.is_empty());
    assert_eq!(config.ask_timeout, Duration::from_secs(300));
}

#[test]
fn sizes_durations_and_hosts_read_as_written() {
    let config = parse(
        r#"
        [broker]
        ask-timeout = "90s"
        data-dir = "../state/./x"
        [sources.a]
        command = ["./bin/server", "./stays"]
        timeout = "2m"
        names = { prefix = "repo_a_" }
        cell = { network = ["API.Example.com:443", "192.0.2.1:80", "[2001:db8::1]:8080"], tmp = "1GiB", memory = "65536KiB", cpu = 2 }
        [sources.b]
        component = "plugins/b.wasm"
        settings = { when = 2026-01-02, depth = { list = [1, 2.5, true] } }
        "#,
    )
    .unwrap();
    assert_eq!((config.ask_timeout.as_secs(), config.data_dir.to_str()), (90, Some("/srv/state/x")));
    let a = source(&config, "a");
    assert!(matches!(&a.endpoint, Endpoint::Command { argv, .. } if argv == &["/srv/broker/bin/server", "./stays"]));
    assert_eq!(a.cell.network, ["api.example.com:443", "192.0.2.1:80", "[2001:db8::1]:8080"]);
    assert_eq!((a.cell.tmp, a.cell.memory, a.cell.cpu), (Some(1 << 30), Some(64 << 20), Some(2.0)));
    assert_eq!((a.timeout.as_secs(), a.names), (120, Naming::Prefix("repo_a_".into())));
    let Endpoint::Component { component, settings, .. } = source(&config, "b").endpoint else { panic!() };
    assert_eq!(component, PluginRef::Path("/srv/broker/plugins/b.wasm".into()));
    assert_eq!(settings, serde_json::json!({ "when": "2026-01-02", "depth": { "list": [1, 2.5, true] } }));
}

#[test]
fn a_name_under_which_the_front_is_called_may_have_a_port() {
    let with =
        |name: &str| parse(&format!("[sources.a]\ncomponent = \"builtin:calculator\"\n[serve]\nhosts = [\"{name}\"]"));
    for name in ["broker.example.com", "LOCALHOST:9000", "192.0.2.1:80", "[::1]:9000", "[::1]"] {
        assert_eq!(with(name).unwrap().serve.hosts, [name.to_ascii_lowercase()]);
    }
    for name in [
        "https://broker.example.com",
        "*.example.com",
        "localhost:",
        "localhost:0",
        "localhost:+80",
        "localhost:99999",
        ":80",
        "a b",
    ] {
        let error = with(name).unwrap_err().to_string();
        assert!(error.contains("is not a host name"), "{name}: {error}");
    }
}

#[test]
fn a_file_that_is_missing_long_or_no_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("portcullis.toml");
    let error = |file: &Path| Config::load(Some(file)).unwrap_err().to_string();
    assert!(error(&file).contains("cannot be read") && error(&file).contains("--config"));
    std::fs::write(&file, vec![b'#'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
    assert!(error(&file).contains("is longer than"));
    std::fs::write(&file, b"# \xff\n").unwrap();
    assert!(error(&file).contains("is not UTF-8 at byte 2"));
    std::fs::write(&file, DOCUMENTED).unwrap();
    assert_eq!(Config::load(Some(&file)).unwrap().data_dir, folder.path().join(".portcullis"));
}

#[test]
fn a_wrapped_command_is_checked_like_a_written_one() {
    let wrap = WrapOptions {
        argv: ["npx", "-y", "@modelcontextprotocol/server-filesystem@1.2", "."].map(str::to_owned).to_vec(),
        read: vec![".".into()],
        network: vec!["api.example.com:443".into()],
        env: vec![("LOG_LEVEL".into(), "debug".into())],
        approve: Some(Approve::Never),
        data_dir: Some("/home/a/.local/share/portcullis".into()),
        base: "/home/a/work".into(),
        ..WrapOptions::default()
    };
    let config = Config::for_wrap(&wrap).unwrap();
    let source = config.sources.values().next().unwrap().clone();
    assert_eq!((source.discovery, source.cell.dangerous_allow_private), (ToolListUpdates::Live, false));
    assert_eq!((source.names, source.cell.read), (Naming::Plain, vec![PathBuf::from("/home/a/work")]));
    assert!(matches!(&source.endpoint, Endpoint::Command { argv, cwd: Some(cwd), .. }
        if argv == &wrap.argv && cwd == Path::new("/home/a/work")));
    assert_eq!(
        config.profiles.values().map(|p| (p.approve, p.sampling)).collect::<Vec<_>>(),
        [(Approve::Never, false)]
    );
    let sampling = Config::for_wrap(&WrapOptions { sampling: true, ..wrap.clone() }).unwrap();
    assert!(sampling.profiles.values().all(|profile| profile.sampling));

    let refused = |wrap: WrapOptions| Config::for_wrap(&wrap).unwrap_err().to_string();
    assert!(refused(WrapOptions { argv: Vec::new(), ..wrap.clone() }).contains("names no program"));
    assert!(
        refused(WrapOptions { env: vec![("LD_PRELOAD".into(), "x".into())], ..wrap.clone() }).contains("LD_PRELOAD")
    );
    assert!(refused(WrapOptions { write: vec!["/home".into()], ..wrap.clone() }).contains("data folder"));
    assert!(refused(WrapOptions { network: vec!["example.com".into()], ..wrap }).contains("no port"));
}

#[test]
fn wrapped_commands_get_a_telling_name() {
    let name = |argv: &[&str]| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let wrap = WrapOptions { argv, data_dir: Some("/d".into()), base: "/w".into(), ..WrapOptions::default() };
        Config::for_wrap(&wrap).unwrap().sources.into_keys().next().unwrap().to_string()
    };
    let telling = |argv: &[&str]| name(argv).rsplit_once('-').unwrap().0.to_owned();
    assert_eq!(telling(&["uvx", "mcp-server-time", "--local-timezone", "UTC"]), "pypi-mcp-server-time");
    assert_eq!(telling(&["npx", "-y", "@playwright/mcp@0.0.41"]), "npm-playwright-mcp");
    assert_eq!(telling(&["uvx", "mcp-server-time==1.2"]), "pypi-mcp-server-time");
    assert_eq!(telling(&["/opt/tools/my__server.sh"]), "my_server-sh");
    assert_eq!(telling(&["node", "dist/index.js"]), "index-js");
    assert_eq!(telling(&["npx"]), "npx");
    assert_eq!(telling(&["日本"]), "wrapped");
    assert!(name(&["npx", &"x".repeat(200)]).len() <= portcullis_core::name::MAX_NAME_BYTES);
}

#[test]
fn no_wrapped_package_takes_the_name_of_another() {
    let name = |argv: &[&str], base: &str| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let wrap = WrapOptions { argv, data_dir: Some("/d".into()), base: base.into(), ..WrapOptions::default() };
        Config::for_wrap(&wrap).unwrap().sources.into_keys().next().unwrap().to_string()
    };
    let others: [&[&str]; 7] = [
        &["npx", "-y", "@playwright/mcp"],
        &["npx", "-y", "@eslint/mcp"],
        &["npx", "-y", "mcp"],
        &["npx", "-y", "mcp@1.0.0"],
        &["uvx", "mcp"],
        &["node", "dist/mcp"],
        &["/opt/mcp"],
    ];
    let names: BTreeSet<String> = others.iter().map(|argv| name(argv, "/w")).collect();
    assert_eq!(names.len(), others.len(), "{names:?}");
    // The arguments of a server do not change which package it is, and a relative program depends on where it is.
    assert_eq!(name(&["npx", "-y", "mcp", "/a"], "/w"), name(&["npx", "mcp", "/b"], "/elsewhere"));
    assert_ne!(name(&["node", "index.js"], "/a"), name(&["node", "index.js"], "/b"));
}

#[test]
fn a_private_address_that_is_written_for_a_wrapped_command_is_meant() {
    let allows = |host: &str| {
        let (argv, network) = (vec!["server".to_owned()], vec!["api.example.com:443".to_owned(), host.to_owned()]);
        let wrap =
            WrapOptions { argv, network, data_dir: Some("/d".into()), base: "/w".into(), ..WrapOptions::default() };
        let cell = Config::for_wrap(&wrap).unwrap().sources.into_values().next().unwrap().cell;
        assert!(cell.public.contains(&"api.example.com:443".to_owned()), "a name must not lead to one");
        assert_eq!(cell.public.contains(&host.to_owned()), !cell.dangerous_allow_private, "{host}");
        cell.dangerous_allow_private
    };
    for host in ["127.0.0.1:5432", "localhost:5432", "[::1]:80", "10.1.2.3:443"] {
        assert!(allows(host), "{host}");
    }
    assert!(!allows("db.example.com:5432"));
}

#[test]
fn the_schema_takes_what_the_parser_takes() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let json = |text: &str| serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
    let errors: Vec<String> = schema.iter_errors(&json(DOCUMENTED)).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for bad in [
        "[sources.a]\ncomand = ['x']",
        "[sources.a]\ncommand = []",
        "[sources.a]\ncommand = ['x']\nurl = 'http://x'",
        "[sources.a]\ntags = ['x']",
        "[sources.a]\ncommand = ['x']\npriority = 101",
        "[sources.a]\ncommand = ['x']\nnames = 'plane'",
        "[sources.a]\ncommand = ['x']\nenv = { K = { sercet = 'x' } }",
        "[sources.a]\ncommand = ['x']\nconcurrency = 0",
        "[sources.a]\ncommand = ['x']\n[groups.b]\nsource = ['a']",
        "[profiles.a]\nbudget = { call = '1/h' }",
        "[broker]\ndata_dir = 'x'",
        "[[policies]]\nmode = 'shadow'",
        "[profiles.a]\ntrust = 'total'",
        "unknown = 1",
    ] {
        assert!(!schema.is_valid(&json(bad)), "{bad}");
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_argument_that_would_be_looked_for_in_the_wrong_place_is_pointed_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::create_dir(folder.path().join("npx")).unwrap();
    let misplaced = |extra: &str, last: &str| {
        let text = format!("[sources.a]\ncommand = [\"npx\", \"npx\", {last:?}]\n{extra}");
        let config = Config::parse(&text, &folder.path().join("portcullis.toml")).unwrap();
        config.sources.values().next().unwrap().misplaced_argument(folder.path()).map(str::to_owned)
    };
    assert_eq!(misplaced("", "./docs").as_deref(), Some("./docs"));
    assert_eq!(misplaced("cwd = \".\"", "./docs"), None);
    assert_eq!(misplaced("", "@scope/docs"), None, "a package is not a path");
}
