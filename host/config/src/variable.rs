//! The environment variables that a source may be given: which names are refused, and why.

use super::error::UnlocatedProblem;
use super::raw::Located;

/// The longest name of a variable, in bytes. Real names are shorter than 60.
const MAX_NAME_BYTES: usize = 128;

/// Variables that the broker sets for every source, so that they reveal nothing about this machine.
const BROKERS_OWN: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// Variables that make a program load or run something that its command line does not show. A `*` at the end matches
/// any ending.
const DANGEROUS: [(&str, &[&str]); 8] = [
    (
        "makes the system's loader load other code into the program",
        &[
            "LD_*",
            "DYLD_*",
            "GCONV_PATH",
            "GLIBC_TUNABLES",
            "LOCPATH",
            "NLSPATH",
            "HOSTALIASES",
            "RESOLV_HOST_CONF",
            "OPENSSL_CONF",
            "OPENSSL_ENGINES",
            "OPENSSL_MODULES",
        ],
    ),
    (
        "makes Node.js load other code",
        &[
            "NODE_OPTIONS",
            "NODE_PATH",
            "NODE_REPL_EXTERNAL_MODULE",
            "NODE_COMPILE_CACHE",
            "ESBUILD_*",
            "TS_NODE_*",
            "TSX_*",
            "ELECTRON_RUN_AS_NODE",
            "NPM_CONFIG_NODE_OPTIONS",
            "NPM_CONFIG_SCRIPT_SHELL",
            "NPM_CONFIG_SHELL",
            "NPM_CONFIG_GIT",
            "NPM_CONFIG_PREFIX",
            "NPM_CONFIG_GLOBALCONFIG",
            "NPM_CONFIG_USERCONFIG",
            "BUN_OPTIONS",
            "DENO_*",
        ],
    ),
    (
        "makes Python load other code",
        &[
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PYTHONINSPECT",
            "PYTHONBREAKPOINT",
            "PYTHONWARNINGS",
            "PYTHONUSERBASE",
            "PYTHONPLATLIBDIR",
            "PYTHONEXECUTABLE",
            "PYTHONPYCACHEPREFIX",
        ],
    ),
    (
        "makes a shell run other commands",
        &[
            "BASH_ENV",
            "ENV",
            "ZDOTDIR",
            "SHELLOPTS",
            "BASHOPTS",
            "BASH_FUNC_*",
            "PROMPT_COMMAND",
            "PS4",
            "IFS",
            "CDPATH",
            "FPATH",
        ],
    ),
    (
        "makes an interpreter load other code",
        &[
            "RUBYOPT",
            "RUBYLIB",
            "PERL5OPT",
            "PERL5LIB",
            "PERL5DB",
            "PERLLIB",
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "LUA_INIT*",
            "LUA_PATH*",
            "LUA_CPATH*",
            "R_PROFILE*",
            "ERL_*",
            "GEM_PATH",
            "GEM_HOME",
            "BUNDLE_GEMFILE",
        ],
    ),
    (
        "makes a virtual machine load other code",
        &[
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "JAVA_OPTS",
            "CLASSPATH",
            "MAVEN_OPTS",
            "GRADLE_OPTS",
            "DOTNET_STARTUP_HOOKS",
            "DOTNET_ADDITIONAL_DEPS",
            "CORECLR_*",
            "COR_*",
            "WASMTIME_*",
        ],
    ),
    (
        "makes git or ssh run other commands",
        &[
            "GIT_SSH*",
            "GIT_EXEC_PATH",
            "GIT_EXTERNAL_DIFF",
            "GIT_PAGER",
            "GIT_EDITOR",
            "GIT_SEQUENCE_EDITOR",
            "GIT_ASKPASS",
            "GIT_PROXY_COMMAND",
            "GIT_CONFIG*",
            "GIT_TEMPLATE_DIR",
            "SSH_ASKPASS*",
        ],
    ),
    (
        "names a program that others run",
        &["EDITOR", "VISUAL", "PAGER", "BROWSER", "SHELL", "MANPAGER", "LESSOPEN", "LESSCLOSE"],
    ),
];

/// Checks whether a source may be given a variable of this name.
pub(super) fn check(name: &Located<String>) -> Result<(), UnlocatedProblem> {
    match refusal(name) {
        None => Ok(()),
        Some((why, help)) => {
            Err(UnlocatedProblem::new(name.span(), format!("environment variable {:?} {why}", name.as_str()))
                .help(help))
        }
    }
}

/// Returns why a name is refused, and the way out.
pub(super) fn refusal(name: &str) -> Option<(String, &'static str)> {
    let upper = name.to_ascii_uppercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || !name.bytes().all(plain)
        || name.as_bytes().first().is_some_and(u8::is_ascii_digit)
    {
        return Some((
            "is not a name of letters, digits and `_`".to_owned(),
            "a name starts with a letter or `_` and has at most 128 characters",
        ));
    }
    // npm reads its variables in any case, and there is no use for the others in another spelling.
    if BROKERS_OWN.contains(&upper.as_str()) {
        return Some((
            "is set by the broker".to_owned(),
            "leave it out; a program outside the usual folders is named by its whole path in `command`",
        ));
    }
    let matches = |pattern: &str| pattern.strip_suffix('*').map_or(pattern == upper, |start| upper.starts_with(start));
    let (why, _) = DANGEROUS.iter().find(|(_, patterns)| patterns.iter().any(|pattern| matches(pattern)))?;
    Some((
        (*why).to_owned(),
        "if you must, set it in a script of your own and name that script in `command`, where it is seen",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_run_other_code_are_refused_in_any_spelling() {
        for bad in [
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "NODE_OPTIONS",
            "npm_config_node_options",
            "BASH_ENV",
            "PATH",
            "Home",
            "GIT_SSH_COMMAND",
            "BASH_FUNC_ls",
            "",
            "A=B",
            "A B",
            "1A",
            "É",
            "BASH_FUNC_x%%",
        ] {
            assert!(refusal(bad).is_some(), "{bad:?}");
        }
        for good in
            ["LOG_LEVEL", "API_KEY", "npm_config_registry", "PYTHONUNBUFFERED", "GITHUB_TOKEN", "LDAP_URL", "_X"]
        {
            assert_eq!(refusal(good), None, "{good:?}");
        }
    }
}
