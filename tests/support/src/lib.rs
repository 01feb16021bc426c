//! Builds what tests run: the guests of `tests/guests`, a policy from outside the workspace, and the programs that
//! stand in for sources. Reads the blocks of code in the book.
#![expect(clippy::disallowed_methods, reason = "tests build guests and programs with cargo")]
#![allow(clippy::panic, reason = "a test whose guests cannot be built can only say why")]

mod book;
mod chance;
mod edge_host;
mod policies;
mod results;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use book::{CodeBlock, code_blocks, policy_of_the_book};
pub use chance::Chance;
pub use edge_host::EdgeHost;
pub use policies::cedar_policies;
pub use results::ordinary_results;

/// The guests that need the WASI imports of the standard library.
const WASI_GUESTS: [&str; 5] = ["wasi-env", "server", "dialer", "explorer", "thief"];

/// Returns the `.wasm` file of a guest, by the name of its folder. The first call in a process builds all guests, which
/// takes a second if nothing has changed.
///
/// # Panics
/// If the guests cannot be built, with the output of cargo, or if no guest has this name.
#[must_use]
pub fn guest(name: &str) -> PathBuf {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    let target = TARGET.get_or_init(build);
    let triple = if WASI_GUESTS.contains(&name) { "wasm32-wasip2" } else { "wasm32-unknown-unknown" };
    let file = format!("guest_{}.wasm", name.replace('-', "_"));
    let path = target.join(triple).join("release").join(file);
    assert!(path.is_file(), "no guest {name:?} in tests/guests: {} is missing", path.display());
    path
}

/// Builds the policy of `examples/write-a-policy` as its README says, and returns its file.
///
/// # Panics
/// If it cannot be built, with the output of cargo.
#[must_use]
pub fn outside_policy() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| outside("write-a-policy", "stay_inside")).clone()
}

/// Builds a plugin of `examples` on its own, as its README says, and returns its file.
///
/// # Panics
/// If it cannot be built, with the output of cargo.
#[must_use]
pub fn outside(example: &str, name: &str) -> PathBuf {
    let target = root().join("target/outside");
    cargo(&root().join("examples").join(example), &target, ["--target", "wasm32-unknown-unknown"]);
    target.join("wasm32-unknown-unknown/release").join(name).with_extension("wasm")
}

/// Builds the project in `folder`, which `portcullis plugin new` has just made, and returns its component. The versions
/// of its dependencies are those of `examples/write-a-policy`, which has the same.
///
/// # Panics
/// If it cannot be built, with the output of cargo.
#[must_use]
pub fn new_plugin(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let lock = std::fs::read_to_string(root().join("examples/write-a-policy/Cargo.lock")).unwrap_or_default();
    let lock = lock.replace("name = \"stay-inside\"", &format!("name = \"{name}\""));
    let written = std::fs::write(folder.join("Cargo.lock"), lock);
    written.unwrap_or_else(|error| panic!("{} cannot be written: {error}", folder.display()));
    let target = root().join("target/outside");
    cargo(folder, &target, ["--target", "wasm32-unknown-unknown"]);
    target.join("wasm32-unknown-unknown/release").join(name.replace('-', "_")).with_extension("wasm")
}

/// Builds the verifier of `examples/verify-a-ledger` as its README says, and returns the component.
///
/// # Panics
/// If it cannot be built, with the output of cargo.
#[must_use]
pub fn verifier() -> PathBuf {
    let target = root().join("target/outside");
    cargo(&root().join("examples/verify-a-ledger"), &target, ["--target", "wasm32-wasip2"]);
    target.join("wasm32-wasip2/release/verify-a-ledger.wasm")
}

/// Builds the server of `tests/calculator`, which is written with rmcp, as a component, and returns its file.
///
/// # Panics
/// If it cannot be built, with the output of cargo.
#[must_use]
pub fn rmcp_server() -> PathBuf {
    let target = root().join("target/guests");
    cargo(&root(), &target, ["--target", "wasm32-wasip2", "--package", "portcullis-test-calculator"]);
    target.join("wasm32-wasip2/release/portcullis-test-calculator.wasm")
}

/// Returns a program of `tests/sources`, such as `portcullis-test-source`, in the profile of the running test or
/// benchmark. The first call in a process builds them, which takes a second if nothing has changed.
///
/// # Panics
/// If they cannot be built, with the output of cargo.
#[must_use]
pub fn source_program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        // The test is target/PROFILE/deps/TEST-HASH.
        let test = std::env::current_exe().unwrap_or_default();
        let is_release = test.ancestors().nth(2).is_some_and(|profile| profile.ends_with("release"));
        let target = root().join("target/sources");
        let mut command = clean(Command::new("cargo"));
        command.args(["build", "--quiet", "--locked", "--package", "portcullis-test-sources", "--target-dir"]);
        command.arg(&target).current_dir(root());
        if is_release {
            command.arg("--release");
        }
        run(command, "the programs of tests/sources");
        target.join(if is_release { "release" } else { "debug" })
    });
    folder.join(name)
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

fn build() -> PathBuf {
    // A target folder of its own, so that the build does not wait for the lock of the cargo that runs this test.
    let (folder, target) = (root().join("tests/guests"), root().join("target/guests"));
    let wasi = WASI_GUESTS.map(|name| format!("guest-{name}"));
    let each = |option| wasi.iter().flat_map(move |name| [option, name.as_str()]);
    cargo(&folder, &target, ["--target", "wasm32-unknown-unknown", "--workspace"].into_iter().chain(each("--exclude")));
    cargo(&folder, &target, ["--target", "wasm32-wasip2"].into_iter().chain(each("--package")));
    target
}

fn cargo<'a>(folder: &Path, target: &Path, arguments: impl IntoIterator<Item = &'a str>) {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if let ["--target", triple, ..] = arguments[..] {
        ensure_target(triple);
    }
    let mut command = clean(Command::new("cargo"));
    command.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(target).args(arguments);
    command.current_dir(folder);
    run(command, "the guests");
}

/// Adds the target if rustup manages the compiler and has not installed the target from the toolchain file.
fn ensure_target(triple: &str) {
    let mut rustc = clean(Command::new("rustc"));
    rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(root());
    let folder = rustc.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if folder.is_some_and(|folder| Path::new(&folder).is_dir()) {
        return;
    }
    eprintln!("the guests need the target {triple}: running `rustup target add {triple}`");
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", triple]).current_dir(root());
    run(rustup, &format!("the target {triple}"));
}

/// Removes the environment variables that the outer cargo, or clippy, sets for its own build.
fn clean(mut command: Command) -> Command {
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
    command
}

fn run(mut command: Command, what: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{:?} cannot be run: {error}", command.get_program()));
    assert!(output.status.success(), "{what} was not built:\n{}", String::from_utf8_lossy(&output.stderr));
}
