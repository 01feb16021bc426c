//! Rules for the source text of the host: names of the protocol are written in one place, and a module imports only
//! from those below it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::string_slice, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::repository::{root, rust_files};

/// The folder in which the names of the protocol are written.
const PROTOCOL: &str = "host/core/src/protocol";

/// A word of HTML that the protocol uses too: the attribute with the addresses that learn of a click.
const OF_HTML: (&str, &str) = ("host/src/session/conversion/links.rs", "ping");

#[test]
fn names_of_the_protocol_are_written_only_in_the_protocol_module() {
    let words: BTreeSet<String> =
        host().iter().filter(|file| file.text_is_protocol()).flat_map(Source::words).collect();
    for word in ["tools/call", "initialize", "2026-07-28", "mcp-method", "io.modelcontextprotocol/clientInfo", "-32002"]
    {
        assert!(words.contains(word), "{word} is not found in {PROTOCOL}: is the test still looking there?");
    }
    let mut elsewhere = Vec::new();
    for file in host().iter().filter(|file| !file.text_is_protocol()) {
        let mut written = file.words();
        if file.path == Path::new(OF_HTML.0) {
            written.remove(OF_HTML.1);
        }
        elsewhere.extend(written.intersection(&words).map(|word| format!("{}: {word}", file.path.display())));
    }
    assert!(elsewhere.is_empty(), "{PROTOCOL} has a name for each of these:\n{}", elsewhere.join("\n"));
}

/// A file of the host without its tests.
struct Source {
    /// The path from the root of the repository.
    path: PathBuf,
    text: String,
}

impl Source {
    fn text_is_protocol(&self) -> bool {
        self.path.starts_with(PROTOCOL) || self.path.with_extension("") == Path::new(PROTOCOL)
    }

    /// Returns the names of the protocol that the code holds: whole string literals, and the numbers of its error
    /// codes.
    fn words(&self) -> BTreeSet<String> {
        let code = self.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.flat_map(|line| literals(line).chain(codes(line))).collect()
    }
}

/// Returns the files of the host except tests, and code that only tests and benchmarks use.
fn host() -> Vec<Source> {
    let mut files = Vec::new();
    for file in rust_files() {
        let path = file.strip_prefix(root()).unwrap().to_owned();
        let for_tests = ["tests", "tests.rs", "testing.rs", "testing", "benches"];
        if !path.starts_with("host") || path.iter().any(|part| for_tests.iter().any(|name| part == *name)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        files.push(Source { path, text });
    }
    assert!(files.len() > 200, "{} files of the host are found", files.len());
    files
}

/// Returns the string literals of a line that have the form of a method, a revision, a header or a key of `_meta`.
fn literals(line: &str) -> impl Iterator<Item = String> {
    let is_word = |text: &&str| {
        let date = text.len() == 10 && text.starts_with("20") && text.bytes().all(|b| b == b'-' || b.is_ascii_digit());
        let method = text.contains('/') && text.bytes().all(|b| b.is_ascii_alphabetic() || b"/_".contains(&b));
        let known = ["initialize", "ping", "last-event-id"].contains(text);
        date || method || known || text.starts_with("mcp-") || text.starts_with("io.modelcontextprotocol")
    };
    line.split('"').skip(1).step_by(2).filter(is_word).map(ToOwned::to_owned)
}

/// Returns the numbers of a line that are codes of JSON-RPC and of the protocol.
fn codes(line: &str) -> impl Iterator<Item = String> {
    let code = |rest: &str| format!("-32{}", rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let line = line.split("//").next().unwrap_or_default();
    line.split("-32").skip(1).map(code).filter(|code| code.len() == 6)
}

/// The crates of the host from the lowest layer up, and the modules of each, as in ARCHITECTURE.md. Cargo keeps the
/// order of the crates; a module imports only from those before it.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "host/core/src",
        &[
            &[
                "sync",
                "name",
                "escape",
                "file_stamp",
                "principal",
                "protocol",
                "digest",
                "private",
                "sealing_key",
                "age",
                "limits",
                "metrics",
            ],
            &["flow", "item", "call", "agent"],
            &["secret", "lockfile", "trust"],
        ],
    ),
    ("host/scan/src", &[&["scan"]]),
    ("host/ledger/src", &[&["ledger"]]),
    ("host/net/src", &[&["egress"], &["signature"], &["oci"]]),
    ("host/osv/src", &[&["osv"]]),
    ("host/config/src", &[&["config"]]),
    ("host/cell/src", &[&["cell"]]),
    ("host/learn/src", &[&["learn"]]),
    ("host/evaluate/src", &[&["evaluate"]]),
    ("host/wasm/src", &[&["plugin"]]),
    (
        "host/src",
        &[
            &["schema_repair", "limited_lines", "lock_reader", "http_receiver", "receivers", "shared_limit"],
            &["telemetry"],
            &["provenance"],
            &["catalog", "gate", "oauth", "source", "login"],
            &["context", "session"],
            &["control", "broker"],
            &["front"],
        ],
    ),
];

#[test]
fn no_module_imports_one_above_it() {
    let mut upward = Vec::new();
    for (folder, layers) in LAYERS {
        let order: Vec<&str> = layers.iter().copied().flatten().copied().collect();
        let mut found = BTreeSet::new();
        for file in host() {
            let Ok(path) = file.path.strip_prefix(folder) else { continue };
            let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            if matches!(module.as_str(), "lib" | "reexports") || order.len() == 1 {
                continue;
            }
            let layer = order.iter().position(|known| *known == module);
            let layer =
                layer.unwrap_or_else(|| panic!("{module} is in no layer: add it to LAYERS and to ARCHITECTURE.md"));
            for imported in modules_named_in(&file.text) {
                if order.iter().position(|known| *known == imported).is_some_and(|above| above > layer) {
                    upward.push(format!("{} imports {imported}", file.path.display()));
                }
            }
            found.insert(module);
        }
        assert!(order.len() == 1 || found.len() == order.len(), "{folder} has {found:?}, and LAYERS has {order:?}");
    }
    assert!(upward.is_empty(), "a module imports from those below it alone:\n{}", upward.join("\n"));
}

#[test]
fn the_layers_match_those_in_the_architecture_document() {
    let listed = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let from = listed.find("<!-- layers -->").unwrap();
    let listed = &listed[from..];
    let place = |module: &str| listed.find(&format!("`{module}`")).unwrap_or_else(|| panic!("{module} is not listed"));
    let layers: Vec<_> = LAYERS.iter().flat_map(|(_, layers)| layers.iter()).collect();
    for pair in layers.windows(2) {
        // The document has the highest layer first.
        let lowest = pair[1].iter().map(|module| place(module)).max();
        let highest = pair[0].iter().map(|module| place(module)).min();
        assert!(lowest < highest, "{:?} is listed above {:?}", pair[1], pair[0]);
    }
}

/// Returns the modules of the library that a file names in its code.
fn modules_named_in(text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut named = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let first = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            Some(list) => {
                named.extend(list.split('}').next().unwrap_or_default().split(',').map(|item| first(item.trim())))
            }
            None => drop(named.insert(first(rest))),
        }
    }
    named
}

/// Types that share a name on purpose: the arguments of each command, and a type that another build replaces.
const SHARED_NAMES: [&str; 12] = [
    "Args",
    "Bearer",
    "ControlGroup",
    "Exporter",
    "ForkServer",
    "JwtVerifier",
    "KnownCalls",
    "LogExporter",
    "MetricsExporter",
    "MetricsSender",
    "Proof",
    "TokenDenial",
];

#[test]
fn no_two_types_that_a_module_shows_share_a_name() {
    let mut places = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for file in host() {
        for name in file.text.lines().filter_map(shown_type) {
            places.entry(name.to_owned()).or_default().insert(file.path.clone());
        }
    }
    assert!(places.len() > 300, "{} types are found", places.len());
    places.retain(|name, files| files.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
    assert!(places.is_empty(), "one name means one thing; give each of these a longer one: {places:#?}");
}

/// Returns the name of the type that a line defines, if other modules can see it.
fn shown_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
    let mut words = rest.trim_start().split(' ');
    words.next().filter(|word| ["struct", "enum", "trait", "type", "union"].contains(word))?;
    // A macro's `$name` is no name.
    words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}
