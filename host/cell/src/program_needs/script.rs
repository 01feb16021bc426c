//! The script that a command of an interpreter names, and what may run in its place.
//!
//! The file is opened for the source, and with Node.js and Python what is around it. Whoever wrote the command may not be the user: it may
//! come from a bundle or from the configuration of another program. Other code in the place of the script could read what was
//! opened for it. So the script is taken for one only behind options that are known to run no code.

use super::Runtime;

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

/// The options of Python that are letters, take no value and run no code: they can stand together behind one dash.
const PYTHON_OPTIONS: &[u8] = b"BEIOPRSbdqsuv";

/// The words with which programs that run scripts begin: `mcp run server.py`, `tsx watch server.ts`.
const RUN_WORDS: [&str; 3] = ["dev", "run", "watch"];

/// The beginnings of the names of variables by which interpreters, their libraries and the loader choose code.
const CHOOSING: [&str; 18] = [
    "BASH",
    "DYLD_",
    "ENV",
    "GCONV_PATH",
    "GLIBC_",
    "HOME",
    "LD_",
    "NODE_",
    "OPENSSL_",
    "PATH",
    "PERL",
    "PYTHON",
    "RUBY",
    "SHELLOPTS",
    "TSX_",
    "TS_NODE_",
    "XDG_",
    "ZDOTDIR",
];

/// The variables with such a beginning that choose no code.
const HARMLESS: [&str; 13] = [
    "NODE_DEBUG",
    "NODE_ENV",
    "NODE_EXTRA_CA_CERTS",
    "NODE_NO_WARNINGS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONNOUSERSITE",
    "PYTHONSAFEPATH",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
];

/// Returns the argument that names the script. `is_runner` is true for a program such as `mcp`, which is a script itself and runs
/// another one. Returns `None` if an option before it may run other code, or if there is none.
pub(super) fn named(runtime: Runtime, is_runner: bool, arguments: &[String]) -> Option<&str> {
    let words = arguments.iter().map(String::as_str);
    let mut words = words.skip_while(|word| runs_no_code(runtime, word));
    let word = words.next()?;
    let word = if is_runner && RUN_WORDS.contains(&word) { words.next()? } else { word };
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
        Runtime::Script => ["-u", "-w", "-x"].contains(&word),
        Runtime::Binary => false,
    }
}

/// Returns the name of the first variable by which other code may run in the place of the script.
pub(super) fn choosing_variable(runtime: Runtime, variables: &[(String, String)]) -> Option<&str> {
    let chooses = |name: &str| CHOOSING.iter().any(|begin| name.starts_with(begin)) && !HARMLESS.contains(&name);
    // What a binary is given is no script.
    let names = variables.iter().map(|(name, _)| name.as_str()).filter(|_| runtime != Runtime::Binary);
    names.into_iter().find(|name| chooses(name))
}
