//! The servers that `setup.sh` has installed, and the command that starts each.

use std::path::{Path, PathBuf};

/// The servers by the name that their source has in these tests, and how many tools each shows to a client that
/// declares no capabilities.
pub(crate) const TOOLS: [(&str, usize); 8] = [
    ("everything", 13),
    ("fetch", 1),
    ("files", 14),
    ("git", 12),
    ("memory", 9),
    ("sqlite", 6),
    ("thinking", 1),
    ("time", 2),
];

/// Reports whether a server shows as many tools as it should. `everything` has one more for each capability of the
/// client that it can use.
pub(crate) fn shows(server: &str, tools: usize) -> bool {
    let asks = if server == "everything" { 3 } else { 0 };
    TOOLS.iter().any(|(name, least)| *name == server && (*least..=least + asks).contains(&tools))
}

/// Returns the program and arguments of a server. `dir` holds the folder `docs/` and the git repository `repo/`.
pub(crate) fn command(server: &str, dir: &Path) -> Vec<String> {
    let npm = |name: &str| node_modules().join(format!("@modelcontextprotocol/server-{name}/dist/index.js"));
    let words: Vec<PathBuf> = match server {
        "everything" => vec![node(), npm("everything")],
        "fetch" => vec![python("mcp-server-fetch")],
        "files" => vec![node(), npm("filesystem"), dir.join("docs")],
        "memory" => vec![node(), npm("memory")],
        "git" => vec![python("mcp-server-git"), "--repository".into(), dir.join("repo")],
        "sqlite" => vec![root().join("old/bin/mcp-server-sqlite"), "--db-path".into(), dir.join("memory/db")],
        "thinking" => vec![node(), npm("sequential-thinking")],
        "time" => vec![python("python"), "-m".into(), "mcp_server_time".into(), "--local-timezone=UTC".into()],
        other => panic!("no server {other:?} is installed"),
    };
    words.into_iter().map(|word| word.into_os_string().into_string().unwrap()).collect()
}

/// Returns the grants of the server's cell as options of `wrap`: only what its work needs. `everything` gets a host
/// that does not exist, so that its calls are risky.
pub(crate) fn cell(server: &str, dir: &Path) -> Vec<[String; 2]> {
    let write = |name: &str| vec![["--write".to_owned(), dir.join(name).display().to_string()]];
    match server {
        "everything" => vec![["--network".to_owned(), "nowhere.invalid:443".to_owned()]],
        "files" => write("docs"),
        "git" => write("repo"),
        "memory" | "sqlite" => write("memory"),
        _ => Vec::new(),
    }
}

/// Returns a program of the virtual environment.
pub(crate) fn python(name: &str) -> PathBuf {
    root().join("python/bin").join(name)
}

/// Returns a program of the official Python SDK's environment, which has the SDK's server for the conformance suite.
pub(crate) fn sdk(name: &str) -> PathBuf {
    root().join("sdk/bin").join(name)
}

/// Returns the interpreter of the environment with AgentDojo's suites.
pub(crate) fn agentdojo() -> PathBuf {
    root().join("agentdojo/bin/python")
}

/// Returns the Node.js that was installed with the servers, or the machine's own if there is none for its platform.
pub(crate) fn node() -> PathBuf {
    let own = node_modules().join(".bin/node");
    if own.exists() { own } else { "node".into() }
}

/// Returns Debian's registry, or `None` if the machine does not have it and `setup.sh` could not unpack it.
pub(crate) fn registry() -> Option<PathBuf> {
    let own = root().join("debian/usr/bin/docker-registry");
    [own, "/usr/bin/docker-registry".into()].into_iter().find(|program| program.is_file())
}

/// Returns the component of `examples/tool-in-LANGUAGE`.
pub(crate) fn tool(language: &str) -> PathBuf {
    root().join("examples").join(format!("tool-in-{language}")).join("words.wasm")
}

/// Returns the program that makes components from a language.
pub(crate) fn componentizer(language: &str) -> PathBuf {
    match language {
        "javascript" => root().join("examples/tool-in-javascript/node_modules/.bin/componentize-qjs"),
        _ => python("componentize-py"),
    }
}

/// Returns the component of `tests/interop/text`.
pub(crate) fn text_component() -> PathBuf {
    root().join("text.wasm")
}

/// Returns the MCP Inspector, a script for [`node`].
pub(crate) fn inspector() -> PathBuf {
    node_modules().join(".bin/mcp-inspector")
}

/// Returns the conformance suite, a script for [`node`].
pub(crate) fn conformance() -> PathBuf {
    node_modules().join(".bin/conformance")
}

/// Returns a counterpart of the conformance suite: `conformance-fixture`, the server that it expects, or
/// `conformance-agent`, the client. `cargo build --examples --features portcullis-tests/interop` builds them.
pub(crate) fn example(name: &str) -> PathBuf {
    let program = profile_folder().join("examples").join(name);
    assert!(program.is_file(), "{} is missing; run `just interop`", program.display());
    program
}

/// Returns the program under test, in the profile of this test. `cargo test` and `cargo build` in the workspace's root
/// build it.
pub(crate) fn portcullis() -> PathBuf {
    let program = profile_folder().join("portcullis");
    assert!(program.is_file(), "{} is missing; run `cargo build -p portcullis-cli` first", program.display());
    program
}

fn node_modules() -> PathBuf {
    root().join("node/node_modules")
}

fn root() -> PathBuf {
    let root = profile_folder().parent().unwrap().join("interop");
    assert!(root.join("installed").is_file(), "{} is not filled; run tests/interop/setup.sh first", root.display());
    root
}

/// Returns the folder `target/PROFILE` of the test program `target/PROFILE/deps/TEST`.
fn profile_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}
