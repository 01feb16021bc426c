//! Launch profiles: what a program itself needs to run, found by looking at files. Nothing is executed to find out.
//!
//! The system's own programs need nothing: every cell has `/usr`. What stands elsewhere (a toolchain in the home, a virtual
//! environment, a server's folder) is opened to be read, as narrowly as its kind allows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::trace::trace;
use super::{CellError, Machine, system};

mod node;
mod python;
mod shim;
#[cfg(test)]
mod tests;

/// Where programs are on every system. A source finds these, and what it needs itself.
const STANDARD: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The longest first line of a script that is looked at for its interpreter: what the kernel reads.
const MAX_HEAD_BYTES: u64 = 256;

/// Interpreters of interpreters, and shims of shims: more is a circle.
const MAX_STEPS: usize = 8;

/// What a program is run by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Node.js.
    Node,
    /// Python.
    Python,
    /// A shell or another interpreter of the system.
    Script,
    /// Nothing but the system's libraries.
    Binary,
}

impl Runtime {
    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Python => "python",
            Self::Script => "script",
            Self::Binary => "binary",
        }
    }

    fn of(program: &Path) -> Self {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let versioned = |stem: &str| {
            name.strip_prefix(stem).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        };
        match name.as_str() {
            "node" | "nodejs" => Self::Node,
            "sh" | "bash" | "dash" | "zsh" | "perl" | "ruby" => Self::Script,
            _ if versioned("python") || versioned("pypy") => Self::Python,
            _ => Self::Binary,
        }
    }
}

/// What a program needs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What is executed: an absolute path, whose last name the program may go by.
    pub program: PathBuf,
    /// What runs it.
    pub runtime: Runtime,
    /// Files and folders outside the system's own that it needs to read: absolute, without links.
    pub read: BTreeSet<PathBuf>,
    /// Links on the way to them, with their targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// How it was found, for `check`: a line each.
    pub notes: Vec<String>,
    /// Folders in which it finds the programs it is made of, before the standard ones.
    folders: Vec<PathBuf>,
}

impl Profile {
    /// Looks at the files of a command: program first, then its arguments. `directory` is what relative arguments are
    /// relative to.
    ///
    /// # Errors
    /// [`CellError::Program`] if the program is missing, or is one that cannot work in a cell, with the way out.
    pub(crate) fn of(argv: &[String], directory: Option<&Path>, machine: &Machine) -> Result<Self, CellError> {
        let (program, arguments) =
            argv.split_first().ok_or_else(|| CellError::Program("an empty `command`; name a program".to_owned()))?;
        let program = machine.resolve(program)?;
        unfit(&program, arguments)?;
        let mut search = Search { machine, directory, profile: Self::fresh(program.clone()), steps: 0 };
        search.profile.runtime = search.program(&program)?;
        search.argument(arguments);
        let Search { mut profile, .. } = search;
        let all = profile.read.clone();
        profile.read.retain(|path| !path.ancestors().skip(1).any(|around| all.contains(around)));
        Ok(profile)
    }

    fn fresh(program: PathBuf) -> Self {
        Self {
            program,
            runtime: Runtime::Binary,
            read: BTreeSet::new(),
            links: BTreeMap::new(),
            notes: Vec::new(),
            folders: Vec::new(),
        }
    }

    /// Takes what another program needs with it: one that this one starts.
    pub(crate) fn take_in(&mut self, other: Self) {
        self.read.extend(other.read);
        self.links.extend(other.links);
        self.folders.extend(other.folders);
    }

    /// The search path of the source: the folders of its program and interpreter, then the standard ones. Nothing else of
    /// the user's.
    #[must_use]
    pub fn search_path(&self) -> OsString {
        let mut folders: Vec<&Path> = Vec::new();
        for folder in self.folders.iter().map(PathBuf::as_path).chain(STANDARD.iter().map(Path::new)) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        std::env::join_paths(folders).unwrap_or_else(|_| STANDARD.join(":").into())
    }
}

/// Programs that hand the work to something outside the cell, or fetch what they run.
fn unfit(program: &Path, arguments: &[String]) -> Result<(), CellError> {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let first = arguments.iter().map(String::as_str).find(|word| !word.starts_with('-'));
    let why = match (name.as_str(), first) {
        ("docker" | "podman" | "nerdctl", _) => {
            "asks a service of the machine to run a container, and no cell reaches one; name the server's own program"
        }
        ("uv", Some("run")) => {
            "may change the project and fetch packages at every start; run `uv sync` once, name the program in \
             `.venv/bin`, and grant the project with `read`"
        }
        ("bunx" | "pnpx", _) | ("pnpm" | "yarn", Some("dlx")) | ("bun", Some("x")) | ("npm", Some("exec" | "x")) => {
            "fetches what it runs; write `npx PACKAGE`, which is installed in a cell of its own and pinned"
        }
        ("deno", Some(_)) if arguments.iter().any(|word| is_remote(word)) => {
            "fetches what it runs; install the server with npm and name its program"
        }
        ("pipx", Some("run")) | ("uv", Some("tool" | "x")) => {
            "fetches what it runs; write `uvx PACKAGE`, which is installed in a cell of its own and pinned"
        }
        _ => return Ok(()),
    };
    let shown = first.map_or_else(|| name.clone(), |first| format!("{name} {first}"));
    Err(CellError::Program(format!("`{shown}` {why}")))
}

/// Where Deno finds what is not a file.
fn is_remote(word: &str) -> bool {
    ["npm:", "jsr:", "http://", "https://"].iter().any(|scheme| word.starts_with(scheme))
}

/// A profile in the making.
struct Search<'a> {
    machine: &'a Machine,
    directory: Option<&'a Path>,
    profile: Profile,
    steps: usize,
}

impl Search<'_> {
    /// A program and, if it is a script, what runs it.
    fn program(&mut self, path: &Path) -> Result<Runtime, CellError> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            let why =
                format!("{} leads from interpreter to interpreter without end; correct `command`", path.display());
            return Err(CellError::Program(why));
        }
        if let Some(real) = shim::resolve(path, self.directory, self.machine)? {
            self.profile.notes.push(format!("{} stands for {}", path.display(), real.display()));
            if self.profile.program == path {
                self.profile.program.clone_from(&real);
            }
            return self.program(&real);
        }
        self.folder_of(path);
        let real = self.file(path).ok_or_else(|| unreadable(path))?;
        let Some(line) = first_line(&real) else {
            let runtime = Runtime::of(&real);
            match runtime {
                Runtime::Node => node::toolchain(self, &real),
                Runtime::Python => python::toolchain(self, path, &real),
                Runtime::Script | Runtime::Binary => self.binary(&real),
            }
            return Ok(runtime);
        };
        let interpreter = self.interpreter(&line).ok_or_else(|| {
            let line = crate::visible::visible(&line).into_owned();
            CellError::Program(format!(
                "{} begins with {line:?}, and that program was not found; install it",
                path.display()
            ))
        })?;
        let runtime = match self.program(&interpreter)? {
            Runtime::Binary => Runtime::Script,
            runtime => runtime,
        };
        self.script(runtime, &real);
        Ok(runtime)
    }

    /// The first argument that is a file is the program of an interpreter.
    fn argument(&mut self, arguments: &[String]) {
        if self.profile.runtime == Runtime::Binary {
            return;
        }
        // After `-m` or `-c` comes no file.
        let words = arguments.iter().take_while(|word| !matches!(word.as_str(), "-m" | "-c" | "-e"));
        let base = self.directory.unwrap_or(Path::new("/"));
        let path = words.filter(|word| !word.starts_with('-')).map(|word| base.join(word)).find(|path| path.is_file());
        if let Some(real) = path.and_then(|path| self.file(&path)) {
            self.script(self.profile.runtime, &real);
        }
    }

    /// What belongs to a script beside its interpreter.
    fn script(&mut self, runtime: Runtime, real: &Path) {
        match runtime {
            Runtime::Node => node::script(self, real),
            Runtime::Python => python::script(self, real),
            Runtime::Script | Runtime::Binary => {}
        }
    }

    /// A program with nothing but libraries. What was installed as one folder under `/opt`, or in a store of packages that
    /// name each other, is opened as that.
    fn binary(&mut self, real: &Path) {
        for store in ["/nix/store", "/gnu/store"].map(Path::new) {
            if real.starts_with(store) {
                self.need(store);
            }
        }
        if let Ok(below) = real.strip_prefix("/opt")
            && let Some(first) = below.components().next()
        {
            self.need(&Path::new("/opt").join(first));
        }
    }

    /// `node` for a script that begins with `#!/usr/bin/env node`, found as `env` would in the cell.
    fn interpreter(&self, line: &str) -> Option<PathBuf> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if !first.ends_with("/env") {
            return self.machine.resolve(first).ok().filter(|_| first.starts_with('/'));
        }
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        let beside =
            self.profile.folders.iter().map(|folder| folder.join(name)).find(|path| super::machine::is_program(path));
        beside.or_else(|| self.machine.find(name, |_| true))
    }

    /// Opens one file under the path as written, and gives its real place.
    fn file(&mut self, path: &Path) -> Option<PathBuf> {
        let traced = trace(path).ok()?;
        self.profile.links.extend(traced.links.into_iter().filter(|(link, _)| !system::holds(link)));
        if !system::holds(&traced.real) {
            self.profile.read.insert(traced.real.clone());
        }
        Some(traced.real)
    }

    /// Opens a file or folder, if it is there and holds nothing but what belongs to the program.
    fn need(&mut self, path: &Path) {
        let wide = path.canonicalize().is_ok_and(|real| self.machine.is_too_wide(&real));
        if !wide {
            self.file(path);
        }
    }

    fn folder_of(&mut self, program: &Path) {
        if let Some(folder) =
            program.parent().filter(|folder| !self.profile.folders.iter().any(|known| known == folder))
        {
            self.profile.folders.push(folder.to_owned());
        }
    }
}

fn unreadable(path: &Path) -> CellError {
    CellError::Program(format!("{} cannot be read; correct its permissions", path.display()))
}

/// What stands after `#!`.
fn first_line(file: &Path) -> Option<String> {
    let mut head = Vec::new();
    std::fs::File::open(file).ok()?.take(MAX_HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(String::from_utf8_lossy(head.strip_prefix(b"#!")?).lines().next()?.trim().to_owned())
}
