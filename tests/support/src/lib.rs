//! Builds the guests of `tests/guests` for whoever tests with them.
#![expect(clippy::disallowed_methods, reason = "tests build guests with cargo")]
#![allow(clippy::panic, reason = "a test without its guests has nothing to report but why")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The one guest that needs the standard library's WASI imports.
const WASI_GUEST: &str = "wasi-env";

/// The `.wasm` of a guest, by the name of its folder. The first call of a process builds all of them, which takes a second if
/// nothing has changed.
///
/// # Panics
/// If they cannot be built, with what cargo says; and for a name that no guest has.
#[must_use]
pub fn guest(name: &str) -> PathBuf {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    let target = TARGET.get_or_init(build);
    let triple = if name == WASI_GUEST { "wasm32-wasip2" } else { "wasm32-unknown-unknown" };
    let file = format!("guest_{}.wasm", name.replace('-', "_"));
    let path = target.join(triple).join("release").join(file);
    assert!(path.is_file(), "no guest {name:?} in tests/guests: {} is missing", path.display());
    path
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A folder of its own, so that the lock of the cargo that runs this test is not waited for.
    let target = root.join("target/guests");
    let wasi = format!("guest-{WASI_GUEST}");
    cargo(&root, &target, &["--target", "wasm32-unknown-unknown", "--workspace", "--exclude", &wasi]);
    cargo(&root, &target, &["--target", "wasm32-wasip2", "--package", &wasi]);
    target
}

fn cargo(root: &Path, target: &Path, arguments: &[&str]) {
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(target).args(arguments);
    command.current_dir(root.join("tests/guests"));
    // What the outer cargo, or a clippy, sets for the host's own build is not meant for guests.
    for (name, _) in std::env::vars_os() {
        let leaks = name.to_str().is_some_and(|name| {
            name.contains("RUSTFLAGS")
                || name.contains("WRAPPER")
                || name.starts_with("CARGO_PROFILE")
                || name == "RUSTC"
        });
        if leaks || name == "CARGO_TARGET_DIR" || name == "CARGO_BUILD_TARGET" {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap_or_else(|error| panic!("cargo cannot be run: {error}"));
    assert!(output.status.success(), "the guests do not build:\n{}", String::from_utf8_lossy(&output.stderr));
}
