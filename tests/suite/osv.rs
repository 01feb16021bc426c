//! Known malicious packages: the user's database is asked about the packages of an `npx` source, before they are
//! installed and before each start.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::test_dir::TestDir;

/// An npm that reaches no registry: it resolves `far-server` and what that needs, and installs a server of one tool.
const NPM: &str = r##"#!/bin/sh
case "$1" in
install) cat > package-lock.json <<'END'
{"lockfileVersion":3,"packages":{"":{"dependencies":{"far-server":"1.0.0"}},
"node_modules/far-server":{"version":"1.0.0","integrity":"sha512-a"},"node_modules/dep":{"version":"2.1.0","integrity":"sha512-b"}}}
END
;;
ci) mkdir -p node_modules/far-server node_modules/dep node_modules/.bin
echo '{"name":"far-server","version":"1.0.0","bin":"far-server"}' > node_modules/far-server/package.json
echo '{"name":"dep","version":"2.1.0"}' > node_modules/dep/package.json
cat > node_modules/.bin/far-server <<'END'
#!/bin/sh
while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case "$line" in
  *\"initialize\"*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}' ;;
  *tools/list*) r='{"tools":[{"name":"ping","inputSchema":{"type":"object"}}]}' ;;
  *tools/call*) r='{"content":[]}' ;;
  *\"id\"*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}"; continue ;;
  *) continue ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$r}"
done
END
chmod 755 node_modules/.bin/far-server ;;
esac
"##;

/// Makes the installer's registry have another version of the package.
pub(crate) fn release(dir: &TestDir, version: &str) {
    for name in ["npx", "npm"] {
        let npm = NPM.replace("\"1.0.0\"", &format!("\"{version}\"")).replace("sha512-a", &format!("sha512-{version}"));
        fs::write(dir.path("bin").join(name), npm).unwrap();
    }
}

/// Returns a folder with that npm and a source of its package.
pub(crate) fn dir() -> TestDir {
    let dir = TestDir::new("[sources.far]\ncommand = [\"@dir@/bin/npx\", \"-y\", \"far-server\"]\n");
    fs::create_dir_all(dir.path("bin")).unwrap();
    fs::create_dir_all(dir.path("home")).unwrap();
    for name in ["npx", "npm"] {
        fs::write(dir.path("bin").join(name), NPM).unwrap();
        fs::set_permissions(dir.path("bin").join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.path("home/.npmrc"), "registry=http://127.0.0.1:9/\n").unwrap();
    dir
}

fn record(id: &str, ecosystem: &str, name: &str) -> Value {
    json!({
        "id": id, "summary": "steals \u{1b}[31mkeys", "modified": "2026-11-20T08:00:00Z",
        "affected": [{ "package": { "ecosystem": ecosystem, "name": name }, "ranges": [
            { "type": "SEMVER", "events": [{ "introduced": "2.0.0" }, { "fixed": "2.2.0" }] },
        ] }],
    })
}

fn archive(record: &Value) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("record.json", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(record.to_string().as_bytes()).unwrap();
    zip.finish().unwrap().into_inner()
}

/// Puts a database in place that has this record.
fn know(dir: &TestDir, record: &Value) {
    let file = dir.path("records.zip");
    fs::write(&file, archive(record)).unwrap();
    let ran = dir.run(&["evaluate", &format!("--update-osv={}", file.display())]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("OSV of 2026-11-20T08:00:00Z (1 entries)"), "{}", ran.err);
}

fn packages(dir: &TestDir) -> usize {
    let folder = dir.data("sources/far/packages");
    let trees = fs::read_dir(folder).into_iter().flatten().flatten();
    trees.filter(|entry| entry.file_type().unwrap().is_dir()).count()
}

#[test]
fn a_package_that_needs_a_malicious_one_is_never_installed() {
    let dir = dir();
    know(&dir, &record("MAL-2026-1", "npm", "dep"));
    let ran = dir.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let error = report["sources"][0]["error"].as_str().unwrap();
    for said in [
        "npm:far-server is neither installed nor started",
        "MAL-2026-1",
        "dep 2.1.0",
        "remove the source",
        "2026-11-20",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_eq!((packages(&dir), dir.data("portcullis.lock").exists()), (0, false), "nothing is installed or pinned");

    // `evaluate` finds it, and starts nothing either.
    let npx = dir.path("bin/npx").display().to_string();
    let ran = dir.run(&["evaluate", "--json", "--idle", "0", "--", &npx, "far-server"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["findings"][0]["rule"]), (Some(1), &json!("known-malicious")), "{report:#}");
    assert_eq!(report["exercised"]["runs"], json!([]), "nothing was started");
    assert!(!report.to_string().contains('\u{1b}') && report.to_string().contains("steals"), "{report:#}");
}

#[test]
fn what_becomes_known_after_the_installation_keeps_the_source_from_starting() {
    let dir = dir();
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("not checked; `portcullis evaluate --update-osv`"), "{}", ran.out);

    know(&dir, &record("GHSA-1", "npm", "dep"));
    let ran = dir.run(&["check"]);
    assert_eq!(ran.code, Some(0), "a vulnerability is said and keeps nothing from starting: {}", ran.err);
    assert!(
        ran.out.contains("2 packages looked up in OSV of 2026-11-20T08:00:00Z (1 entries): 1 record"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("dep 2.1.0: GHSA-1 (steals \\u{1b}[31mkeys)"), "{}", ran.out);
    assert_eq!(packages(&dir), 1);

    know(&dir, &record("MAL-2", "npm", "dep"));
    let ran = dir.run(&["check"]);
    assert!(ran.out.contains("neither installed nor started") && ran.out.contains("MAL-2"), "{}", ran.out);

    fs::write(dir.state().join("osv.sqlite"), "damaged").unwrap();
    let ran = dir.run(&["check"]);
    assert!(ran.out.contains("cannot be checked") && ran.out.contains("--update-osv"), "it fails closed: {}", ran.out);
}

#[test]
fn what_was_pinned_before_is_compared_with_what_the_registry_has_now() {
    let dir = dir();
    let npx = dir.path("bin/npx").display().to_string();
    let evaluated = || {
        let ran = dir.run(&["evaluate", "--json", "--idle", "0", "--", &npx, "far-server"]);
        (ran.code, serde_json::from_str::<Value>(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err)))
    };
    assert_eq!(dir.run(&["check"]).code, Some(0));
    let (code, report) = evaluated();
    assert_eq!(code, Some(0), "{report:#}");
    let about = report["about"][0].as_str().unwrap();
    assert!(about.contains("far-server 1.0.0 is what portcullis.lock (source far) pins"), "{about}");

    let npm = dir.path("bin/npm");
    fs::write(&npm, NPM.replace("sha512-a", "sha512-other")).unwrap();
    let (code, report) = evaluated();
    assert_eq!((code, &report["findings"][0]["rule"]), (Some(1), &json!("pinned-package")), "{report:#}");
}

#[test]
fn a_report_says_whether_the_registry_names_attestations_and_claims_no_more() {
    let dir = dir();
    let npx = dir.path("bin/npx").display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(dir.path("home/.npmrc"), format!("registry=http://{}/\n", listener.local_addr().unwrap())).unwrap();
    let dist = |dist: Value| json!({ "versions": { "1.0.0": { "dist": dist } } }).to_string();
    let attested = json!({ "url": "https://r.example/a\u{1b}[31m" });
    let answers = [
        dist(json!({ "integrity": "sha512-a", "attestations": attested })),
        dist(json!({ "integrity": "sha512-a" })),
        dist(json!({ "integrity": "sha512-other", "attestations": attested })),
    ];
    let served = std::thread::spawn(move || {
        for body in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
        }
    });
    let report = || {
        let ran = dir.run(&["evaluate", "--json", "--idle", "0", "--", &npx, "far-server"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
        (report["about"].to_string(), report["exercised"]["not"].to_string())
    };
    let (about, not) = report();
    assert!(about.contains("far-server 1.0.0: has attestations (not verified)"), "{about}");
    assert!(not.contains("who built the packages that it needs (provenance): not checked"), "{not}");
    assert!(report().0.contains("far-server 1.0.0: has no attestations"));
    let (about, not) = report();
    assert!(not.contains("attestations not checked: the registry names other bytes"), "{not}");
    assert!(!about.contains("attestations"), "{about}");
    served.join().unwrap();
    // Nobody answers there any more.
    assert!(report().1.contains("attestations not checked: cannot connect"));
}

#[test]
fn a_database_that_cannot_be_fetched_is_no_finding() {
    let dir = dir();
    let ran = dir.run(&["evaluate", "--update-osv=nonsense"]);
    assert!(ran.code == Some(2) && ran.err.contains("names no URL, folder or archive"), "{}", ran.err);
}

#[test]
fn the_database_is_fetched_from_the_address_that_the_user_names() {
    let dir = dir();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--update-osv=http://{}/mirror/", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for record in [record("MAL-1", "npm", "dep"), record("MAL-2", "PyPI", "other")] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let size = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..size]).into_owned();
            asked.push(request.lines().next().unwrap().to_owned());
            let body = archive(&record);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).unwrap();
            stream.write_all(&body).unwrap();
        }
        // The next update finds nothing.
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        asked
    });
    let ran = dir.run(&["evaluate", &address]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("(2 entries)"), "{}", ran.err);
    let ran = dir.run(&["evaluate", &address]);
    assert!(ran.code != Some(0) && ran.err.contains("status 404"), "{}", ran.err);
    let asked = served.join().unwrap();
    assert_eq!(asked, ["GET /mirror/npm/all.zip HTTP/1.1", "GET /mirror/PyPI/all.zip HTTP/1.1"]);
    assert!(dir.run(&["check"]).out.contains("MAL-1"), "the older database stays");
    assert_eq!(fs::read_dir(dir.state()).unwrap().flatten().filter(|file| is_archive(&file.path())).count(), 0);
}

/// Reports whether a file is an archive: fetched archives are not kept.
fn is_archive(file: &std::path::Path) -> bool {
    let mut start = [0; 2];
    File::open(file).is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"PK"
}
