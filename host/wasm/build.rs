//! Hands the reference plugins to `src/plugin/builtin.rs` as WebAssembly components. In the repository it builds them
//! from their sources; in a published package they are ready, in the folder `builtin`. Without the feature `compiler`,
//! which they need in order to run, there are none.
#![expect(clippy::disallowed_methods, reason = "a build script runs cargo and learns about the build from variables")]
#![allow(clippy::panic, reason = "a build script reports its errors by panicking")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugins that import only the contract. `builtin:NAME` is built from the package `portcullis-NAME`.
const PLUGINS: [&str; 8] = ["rules", "flow", "approval-memory", "redact", "jsonl", "calculator", "memory", "saboteur"];

const TARGET: &str = "wasm32-unknown-unknown";

/// The plugins that contain the engine of a language. They are built apart from the others, whose dependencies would
/// otherwise get the features that the engine needs, and with them their size. They also have their own folder: their
/// stack differs, and cargo rebuilds dependencies whenever the flags in a folder change.
const ENGINES: [&str; 1] = ["cedar"];

/// The plugins that import files or the network, and therefore WASI. The linker for this target itself makes
/// components.
const WASI_PLUGINS: [&str; 2] = ["filesystem", "fetch"];

const WASI_TARGET: &str = "wasm32-wasip2";

/// The cargo profile for plugins, defined in the workspace's Cargo.toml.
const PROFILE: &str = "guest";

/// Bytes of a guest's stack. The default of 1 MiB would be cleared for each decision, and no plugin nests deeply.
const STACK: u32 = 128 << 10;

/// Bytes of an engine's stack: its parser and its evaluator call themselves for each level of nesting.
const ENGINE_STACK: u32 = 1 << 20;

/// The first bytes of a core module, which is not a component yet.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

fn main() {
    let list =
        if cfg!(feature = "compiler") { plugins() } else { "static BUILTINS: [(&str, &[u8]); 0] = [];\n".into() };
    let file = variable("OUT_DIR").join("builtins.rs");
    fs::write(&file, list).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    println!("cargo::rerun-if-changed=build.rs");
}

/// Makes the plugins ready and returns Rust source with the list of them.
fn plugins() -> String {
    let package = variable("CARGO_MANIFEST_DIR");
    let root = package.join("../..");
    let folder = if root.join("plugins/sdk/src").is_dir() { build_all(&root) } else { package.join("builtin") };
    let names: Vec<_> = [PLUGINS.as_slice(), &ENGINES, &WASI_PLUGINS].concat();
    let mut list = format!("static BUILTINS: [(&str, &[u8]); {}] = [\n", names.len());
    for name in names {
        let file = folder.join(format!("{name}.wasm"));
        let _ = writeln!(list, "    ({name:?}, include_bytes!({:?})),", file.display().to_string());
    }
    list.push_str("];\n");
    list
}

/// Builds the plugins of a repository and returns the folder of the components.
fn build_all(root: &Path) -> PathBuf {
    let out = variable("OUT_DIR");
    for input in ["plugins", "wit", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }

    let folders = target_folder(&out);
    let groups = [
        ("guests", TARGET, PLUGINS.as_slice(), STACK),
        ("engines", TARGET, &ENGINES, ENGINE_STACK),
        ("guests", WASI_TARGET, &WASI_PLUGINS, STACK),
    ];
    for (folder, target, names, stack) in groups {
        ensure_target(target);
        let built = build(root, &folders.join(folder), target, names, stack);
        for name in names {
            let module = built.join(format!("portcullis_{}.wasm", name.replace('-', "_")));
            let file = out.join(format!("{name}.wasm"));
            fs::write(&file, component(&module))
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        }
    }
    out
}

/// Returns the folder that holds the target folders for plugins. The plugins have separate ones, because the cargo that
/// runs this script holds the lock of its own; they are next to the folders of the profiles, so that all builds share them.
fn target_folder(out: &Path) -> &Path {
    // OUT_DIR is TARGET_DIR[/TRIPLE]/PROFILE/build/PACKAGE-HASH/out.
    let profile =
        out.ancestors().find(|path| path.file_name().is_some_and(|name| name == "build")).and_then(Path::parent);
    profile.and_then(Path::parent).unwrap_or(out)
}

/// Builds the plugins with cargo, which decides itself what is up to date, and returns the folder of the results.
fn build(root: &Path, folder: &Path, target: &str, names: &[&str], stack: u32) -> PathBuf {
    let mut cargo = clean(Command::new(variable("CARGO")));
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--target", target, "--profile", PROFILE, "--target-dir"])
        .arg(folder);
    for name in names {
        cargo.arg("--package").arg(format!("portcullis-{name}"));
    }
    // Plugins mostly scan text, and every processor that this host compiles for has vector instructions. No plugin
    // contains the path of the build, so that everybody who builds the same sources gets the same bytes.
    let mut flags = vec![format!("-Clink-arg=-zstack-size={stack}"), "-Ctarget-feature=+simd128".to_owned()];
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    // Build scripts write into the target folder, which may be in the repository: the last prefix that fits is used.
    let folders = [(root, "portcullis"), (cargo_home(), "cargo"), (folder.to_owned(), "target")];
    flags.extend(folders.map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display())));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    run(cargo, "the reference plugins do not build");
    folder.join(target).join(PROFILE)
}

/// Returns the folder in which cargo has the sources of other packages.
fn cargo_home() -> PathBuf {
    let in_home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(in_home, PathBuf::from)
}

fn component(module: &Path) -> Vec<u8> {
    let bytes = fs::read(module).unwrap_or_else(|error| panic!("cannot read {}: {error}", module.display()));
    if !bytes.starts_with(CORE_MODULE) {
        return bytes;
    }
    let mut encoder = wit_component::ComponentEncoder::default();
    let encoded = encoder.validate(true).module(&bytes).and_then(|encoder| encoder.encode());
    encoded.unwrap_or_else(|error| panic!("{} is not a plugin: {error:#}", module.display()))
}

/// Adds the target if rustup manages the compiler and did not install it as the toolchain file asks.
fn ensure_target(target: &str) {
    let mut rustc = clean(Command::new(variable("RUSTC")));
    rustc.args(["--print", "target-libdir", "--target", target]);
    let folder = rustc.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if folder.is_some_and(|folder| Path::new(&folder).is_dir()) {
        return;
    }
    println!("cargo::warning=the plugins need the target {target}: running `rustup target add {target}`");
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", target]);
    run(rustup, &format!("the target {target} is missing and cannot be added; install it, then build again"));
}

/// Removes the variables that the outer cargo, or a clippy or coverage run, sets for the host's own build.
fn clean(mut command: Command) -> Command {
    for (name, _) in env::vars_os() {
        let leaks = name.to_str().is_some_and(|name| {
            name.contains("RUSTFLAGS")
                || name.contains("WRAPPER")
                || name.starts_with("CARGO_PROFILE")
                || name.starts_with("CARGO_FEATURE")
                || name.starts_with("CARGO_CFG")
                || name.starts_with("CARGO_PKG")
                || name.starts_with("CLIPPY")
                || matches!(name, "CARGO_TARGET_DIR" | "CARGO_BUILD_TARGET" | "CARGO_MANIFEST_DIR" | "CARGO_MAKEFLAGS")
                || matches!(name, "RUSTC" | "RUSTDOC" | "TARGET" | "PROFILE" | "OPT_LEVEL" | "DEBUG" | "OUT_DIR")
        });
        if leaks {
            command.env_remove(name);
        }
    }
    command
}

fn run(mut command: Command, failed: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{failed}: {:?}: {error}", command.get_program()));
    if !output.status.success() {
        panic!("{failed}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn variable(name: &str) -> PathBuf {
    env::var_os(name).unwrap_or_else(|| panic!("cargo did not set {name}")).into()
}
