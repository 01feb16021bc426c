//! The servers that `setup.sh` has installed, and how each is started.

use std::path::{Path, PathBuf};

/// The servers by the name that their source has in these tests, and how many tools each shows to a client that declares
/// no capabilities.
pub(crate) const TOOLS: [(&str, usize); 5] =
    [("everything", 13), ("files", 14), ("git", 12), ("memory", 9), ("time", 2)];

/// Program and arguments of a server. `place` holds `docs/`, a folder, and `repo/`, a git repository.
pub(crate) fn command(server: &str, place: &Path) -> Vec<String> {
    let npm = |name: &str| node_modules().join(format!("@modelcontextprotocol/server-{name}/dist/index.js"));
    let python = |name: &str| root().join("python/bin").join(name);
    let words: Vec<PathBuf> = match server {
        "everything" => vec![node(), npm("everything")],
        "files" => vec![node(), npm("filesystem"), place.join("docs")],
        "memory" => vec![node(), npm("memory")],
        "git" => vec![python("mcp-server-git"), "--repository".into(), place.join("repo")],
        "time" => vec![python("python"), "-m".into(), "mcp_server_time".into(), "--local-timezone=UTC".into()],
        other => panic!("no server {other:?} is installed"),
    };
    words.into_iter().map(|word| word.into_os_string().into_string().unwrap()).collect()
}

/// The Node.js that came with the servers, or the machine's own where there is none for its kind.
pub(crate) fn node() -> PathBuf {
    let own = node_modules().join(".bin/node");
    if own.exists() { own } else { "node".into() }
}

/// The MCP Inspector, a script for [`node`].
pub(crate) fn inspector() -> PathBuf {
    node_modules().join(".bin/mcp-inspector")
}

/// The program under test, of the profile of this test. `cargo test` and `cargo build` in the workspace's root make it.
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

/// `target/PROFILE`, of `target/PROFILE/deps/TEST`.
fn profile_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}
