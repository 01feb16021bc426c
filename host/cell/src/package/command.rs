//! The package that an `npx` or `uvx` command asks for.

use std::path::Path;

use portcullis_osv::Ecosystem;

use super::super::CellError;

/// The tool that installs a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageManager {
    /// npm, from an npm registry.
    Npm,
    /// uv, from an index of Python packages.
    Uv,
}

impl PackageManager {
    /// Returns the prefix that such a package has in the lock file.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Uv => "pypi",
        }
    }

    /// Returns the ecosystem of its packages.
    pub(crate) fn ecosystem(self) -> Ecosystem {
        match self {
            Self::Npm => Ecosystem::Npm,
            Self::Uv => Ecosystem::PyPi,
        }
    }
}

/// A command that fetches the package that it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageCommand {
    pub kind: PackageManager,
    /// `npx` or `uvx`, as configured. The installer (`npm` or `uv`) is looked for next to it.
    pub runner: String,
    /// The packages to install, the one with the program first: `name`, `name@1.2.3`, `name==1.2.3`.
    pub(crate) specs: Vec<String>,
    /// The program to run, or `None` for the package's default.
    pub program: Option<String>,
    /// The arguments of the program.
    pub arguments: Vec<String>,
}

impl PackageCommand {
    /// Parses a command. Returns `None` for one that fetches nothing.
    ///
    /// # Errors
    /// [`CellError::Program`] for a command that names something other than a package of a registry, or that has an
    /// unknown option before the package, as it could change the installed package.
    pub(crate) fn of(argv: &[String]) -> Result<Option<Self>, CellError> {
        let Some((runner, words)) = argv.split_first() else { return Ok(None) };
        let name = Path::new(runner).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let package = match name {
            "npx" => npx(runner, words),
            "uvx" => uvx(runner, words),
            _ => return Ok(None),
        };
        let package = package.map_err(|why| CellError::Program(format!("`{name}` {why}")))?;
        for spec in &package.specs {
            require_registry_package(spec)
                .map_err(|why| CellError::Program(format!("`{name}` package {spec:?} {why}")))?;
        }
        Ok(Some(package))
    }

    /// Returns the name of the request in the lock file: the package as the command names it, whatever that resolves
    /// to.
    pub(crate) fn lock_key(&self) -> String {
        format!("{}:{}", self.kind.as_str(), self.specs.join(" "))
    }

    /// Returns the name of the main package, without a version.
    pub(crate) fn name(&self) -> &str {
        let spec = self.specs.first().map(String::as_str).unwrap_or_default();
        match self.kind {
            PackageManager::Npm => npm_name(spec),
            PackageManager::Uv => spec.split(['=', '<', '>', '~', '!', '[', ' ', '@']).next().unwrap_or(spec),
        }
    }
}

/// Returns `name` of `name@version`, where the name may begin with `@scope/`.
fn npm_name(spec: &str) -> &str {
    let version = spec.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1);
    version.and_then(|at| spec.get(..at)).unwrap_or(spec)
}

/// Parses `npx [-y] [-p PACKAGE]… [--] PACKAGE|PROGRAM ARGUMENT…`.
fn npx(runner: &str, words: &[String]) -> Result<PackageCommand, String> {
    let mut specs = Vec::new();
    let mut words = words.iter();
    let first = loop {
        let word = words.next().ok_or("names no package")?;
        match word.as_str() {
            "-y" | "--yes" | "-q" | "--quiet" => {}
            "-p" | "--package" => specs.push(words.next().ok_or("has `-p` without a package")?.clone()),
            "--" => break words.next().ok_or("names no package")?,
            option if option.starts_with("--package=") => specs.push(after_equals(option)),
            option if option.starts_with('-') => return Err(unknown(option, "-y, -p PACKAGE")),
            _ => break word,
        }
    };
    let program = (!specs.is_empty()).then(|| first.clone());
    if specs.is_empty() {
        specs.push(first.clone());
    }
    Ok(PackageCommand {
        kind: PackageManager::Npm,
        runner: runner.to_owned(),
        specs,
        program,
        arguments: words.cloned().collect(),
    })
}

/// Parses `uvx [--from SPEC] [--with SPEC]… PROGRAM[@VERSION] ARGUMENT…`.
fn uvx(runner: &str, words: &[String]) -> Result<PackageCommand, String> {
    let (mut from, mut with) = (None, Vec::new());
    let mut words = words.iter();
    let first = loop {
        let word = words.next().ok_or("names no program")?;
        match word.as_str() {
            "-q" | "--quiet" => {}
            "--from" => from = Some(words.next().ok_or("has `--from` without a package")?.clone()),
            "--with" => with.push(words.next().ok_or("has `--with` without a package")?.clone()),
            "--" => break words.next().ok_or("names no program")?,
            option if option.starts_with("--from=") => from = Some(after_equals(option)),
            option if option.starts_with("--with=") => with.push(after_equals(option)),
            option if option.starts_with('-') => return Err(unknown(option, "--from SPEC, --with SPEC")),
            _ => break word,
        }
    };
    let (name, version) = first.split_once('@').map_or((first.as_str(), None), |(name, version)| (name, Some(version)));
    let main = from.unwrap_or_else(|| match version {
        None | Some("latest") => name.to_owned(),
        Some(version) => format!("{name}=={version}"),
    });
    let specs = std::iter::once(main).chain(with).collect();
    let (runner, program) = (runner.to_owned(), Some(name.to_owned()));
    Ok(PackageCommand { kind: PackageManager::Uv, runner, specs, program, arguments: words.cloned().collect() })
}

fn after_equals(option: &str) -> String {
    option.split_once('=').map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn unknown(option: &str, known: &str) -> String {
    format!("option {option:?} is not understood before the package; the known ones are {known}")
}

/// Refuses a package that is not in a registry: only a registry's package can be pinned by version and integrity.
fn require_registry_package(spec: &str) -> Result<(), &'static str> {
    const NOT_IN_REGISTRY: &str =
        "is not a package of a registry, so it cannot be pinned; install it yourself and name its program";
    let plain = |c: char| c.is_ascii_alphanumeric() || "@/._-=<>~!^*+,[] ".contains(c);
    let local = spec.starts_with(['.', '/', '~', '-']) || spec.contains("..");
    // `owner/repository` is a repository on GitHub; a scope begins with `@`.
    let repository = spec.contains('/') && !(spec.starts_with('@') && spec.matches('/').count() == 1);
    if spec.trim().is_empty() || local || repository || !spec.chars().all(plain) || spec.contains(" @ ") {
        return Err(NOT_IN_REGISTRY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn package(line: &str) -> Result<Option<PackageCommand>, CellError> {
        PackageCommand::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    /// Returns the request, the package's name, the program and the arguments of a command.
    fn read(line: &str) -> (String, String, Option<String>, String) {
        let package = package(line).unwrap().unwrap();
        (package.lock_key(), package.name().to_owned(), package.program.clone(), package.arguments.join(" "))
    }

    #[test]
    fn what_is_asked_for_is_read_as_npx_and_uvx_would() {
        let some = |text: &str| Some(text.to_owned());
        for (line, requested, name, program, arguments) in [
            ("npx -y @org/server ./docs -p x", "npm:@org/server", "@org/server", None, "./docs -p x"),
            ("/opt/node/bin/npx server@1.2.3", "npm:server@1.2.3", "server", None, ""),
            ("npx --yes --package=@org/a@^2 -p b -- tool -y", "npm:@org/a@^2 b", "@org/a", some("tool"), "-y"),
            (
                "uvx mcp-server-git --repository /r",
                "pypi:mcp-server-git",
                "mcp-server-git",
                some("mcp-server-git"),
                "--repository /r",
            ),
            ("uvx server@1.0", "pypi:server==1.0", "server", some("server"), ""),
            ("uvx server@latest", "pypi:server", "server", some("server"), ""),
            ("uvx --from mcp[cli]>=1.2 --with httpx mcp run", "pypi:mcp[cli]>=1.2 httpx", "mcp", some("mcp"), "run"),
        ] {
            let expected = (requested.to_owned(), name.to_owned(), program, arguments.to_owned());
            assert_eq!(read(line), expected, "{line}");
        }
        assert_eq!(package("node server.js").unwrap(), None);
        assert_eq!(package("/srv/npx-tool a").unwrap(), None);
    }

    #[test]
    fn what_no_registry_has_is_refused() {
        for line in [
            "npx owner/repository",
            "npx github:owner/repository",
            "npx https://example.com/a.tgz",
            "npx ./server",
            "npx -p ../x tool",
            "npx @a/b/c",
            "uvx --from git+https://example.com/x tool",
            "uvx --from /srv/x tool",
        ] {
            let error = package(line).unwrap_err().to_string();
            assert!(error.contains("install it yourself"), "{line}: {error}");
        }
        for (line, why) in [
            ("npx", "names no package"),
            ("npx -c script", "\"-c\" is not understood"),
            ("uvx --index-url http://evil.example tool", "\"--index-url\" is not understood"),
            ("uvx --from", "without a package"),
        ] {
            let error = package(line).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
