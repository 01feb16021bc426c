//! Finds the files that a program needs to run, by inspecting files. Nothing is executed.
//!
//! The system's own programs need nothing: every cell has `/usr`. Programs elsewhere (a toolchain in the home, a
//! virtual environment, a server's folder) are opened read-only, as narrowly as their kind allows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portcullis_core::private::regular_file::{self, Symlinks};

use super::symlinks::follow;
use super::{CellError, ProgramSearch, system_mounts};

mod node;
mod python;
mod script;
mod shim;
#[cfg(test)]
mod tests;

/// The folders that have programs on every system. They end the search path of every source.
const STANDARD: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The number of bytes of a script's first line that are read to find its interpreter: as many as the kernel reads.
const MAX_HEAD_BYTES: u64 = 256;

/// The largest number of programs that may lead to one another as interpreters and shims. More are a cycle.
const MAX_STEPS: usize = 8;

/// The kind of runtime that runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Node.js.
    Node,
    /// Python.
    Python,
    /// A shell or another interpreter of the system.
    Script,
    /// A binary that needs only the system's libraries.
    Binary,
}

impl Runtime {
    /// Returns a word for people.
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

/// The files, links and folders that a program needs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramNeeds {
    /// The absolute path that is executed. Its last component may decide how the program behaves.
    pub program: PathBuf,
    /// The kind of runtime that runs the program.
    pub runtime: Runtime,
    /// Files and folders outside the system's own that the program needs to read: absolute, without links.
    pub read: BTreeSet<PathBuf>,
    /// The symbolic links that lead to them, with their targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Notes on how the program was found, for `check`.
    pub notes: Vec<String>,
    /// The folders of the program and its interpreters, which come first in the search path.
    folders: Vec<PathBuf>,
}

impl ProgramNeeds {
    /// Inspects the files of a command: the program, then the script that its first argument names. A relative one is
    /// relative to `directory`. `package` is the name of the package that the program was installed with, if the broker
    /// has installed it.
    ///
    /// # Errors
    /// [`CellError::Program`] if the program is missing or cannot work in a cell, with the remedy.
    pub fn of(
        argv: &[String],
        package: Option<&str>,
        directory: Option<&Path>,
        programs: &ProgramSearch,
    ) -> Result<Self, CellError> {
        let (program, arguments) =
            argv.split_first().ok_or_else(|| CellError::Program("an empty `command`; name a program".to_owned()))?;
        let program = programs.resolve(program)?;
        refuse_unsupported(&program, arguments)?;
        let needs = Self::fresh(program.clone());
        let called = program.clone();
        let mut search = Search { programs, directory, called, needs, steps: 0, interpreted: None };
        let found = search.program(&program)?;
        search.needs.runtime = found.runtime;
        if found.is_script {
            search.script(found.runtime, &found.real);
        }
        if script::runs_its_argument(&found, package) {
            search.argument(&found, package, arguments);
        }
        let Search { mut needs, .. } = search;
        let all = needs.read.clone();
        needs.read.retain(|path| !path.ancestors().skip(1).any(|around| all.contains(around)));
        Ok(needs)
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

    /// Merges the needs of another program, which this program starts.
    pub fn take_in(&mut self, other: Self) {
        self.read.extend(other.read);
        self.links.extend(other.links);
        self.folders.extend(other.folders);
    }

    /// Returns the search path of the source: the folders of its program and interpreter, then the standard ones. No
    /// other folder of the user's `PATH` is on it.
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

/// Refuses programs that delegate work to a process outside the cell, or that download the program that they run.
fn refuse_unsupported(program: &Path, arguments: &[String]) -> Result<(), CellError> {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let first = arguments.iter().map(String::as_str).find(|word| !word.starts_with('-'));
    let why = match (name.as_str(), first) {
        ("docker" | "podman" | "nerdctl", _) => {
            "asks a daemon of the machine to run a container, which no cell can reach; name the server's own program"
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

/// Reports whether Deno would fetch this argument from a network.
fn is_remote(word: &str) -> bool {
    ["npm:", "jsr:", "http://", "https://"].iter().any(|scheme| word.starts_with(scheme))
}

/// A search for the needs of a program, with the needs found so far.
struct Search<'a> {
    programs: &'a ProgramSearch,
    directory: Option<&'a Path>,
    /// The program as called: it may be a shim.
    called: PathBuf,
    needs: ProgramNeeds,
    steps: usize,
    /// The program, if it is a script and its interpreter is being added.
    interpreted: Option<PathBuf>,
}

/// A program whose file, and that of its interpreter, were added.
struct FoundProgram {
    runtime: Runtime,
    real: PathBuf,
    is_script: bool,
}

impl Search<'_> {
    /// Adds a program and, if it is a script, its interpreter. For an interpreter that is itself a script, only its
    /// file is added: the author of the first line chose it.
    fn program(&mut self, path: &Path) -> Result<FoundProgram, CellError> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            let why =
                format!("{} leads from interpreter to interpreter without end; correct `command`", path.display());
            return Err(CellError::Program(why));
        }
        if let Some(real) = shim::resolve(path, self.directory, self.programs)? {
            self.needs.notes.push(format!("{} stands for {}", path.display(), real.display()));
            if self.needs.program == path {
                self.needs.program.clone_from(&real);
            }
            return self.program(&real);
        }
        self.folder_of(path);
        let real = self.file(path).ok_or_else(|| unreadable(path))?;
        if self.interpreted.is_some() && self.programs.is_credential(&real) {
            let why =
                format!("{} is named as an interpreter and holds credentials; correct the script", real.display());
            return Err(CellError::Program(why));
        }
        let Some(line) = first_line(&real) else {
            let runtime = Runtime::of(&real);
            match runtime {
                Runtime::Node => node::toolchain(self, &real),
                Runtime::Python => python::add_interpreter(self, path, &real),
                Runtime::Script | Runtime::Binary => self.binary(&real),
            }
            return Ok(FoundProgram { runtime, real, is_script: false });
        };
        let Some(named) = named_interpreter(&line) else {
            return Ok(FoundProgram { runtime: Runtime::Script, real, is_script: true });
        };
        let interpreter = self.interpreter(named).ok_or_else(|| {
            let line = portcullis_core::escape::escape_hidden(&line).into_owned();
            CellError::Program(format!(
                "{} begins with {line:?}, and that program was not found; install it",
                path.display()
            ))
        })?;
        self.interpreted.get_or_insert_with(|| real.clone());
        let runtime = match self.program(&interpreter)?.runtime {
            Runtime::Binary => Runtime::Script,
            runtime => runtime,
        };
        Ok(FoundProgram { runtime, real, is_script: true })
    }

    /// Adds the script that an interpreter runs, if it is sure that nothing else runs instead.
    fn argument(&mut self, found: &FoundProgram, package: Option<&str>, arguments: &[String]) {
        let base = self.directory.unwrap_or(Path::new("/"));
        let Some(path) = script::named(found, arguments).map(|word| base.join(word)) else { return };
        let Ok(traced) = follow(&path) else { return };
        if !traced.real.is_file() {
            return;
        }
        let why = if self.programs.is_withheld(&path) || self.programs.is_withheld(&traced.real) {
            "it holds credentials or is a file of the broker"
        } else if !script::is_genuine(&self.called, package, &traced.real, self.programs) {
            "the program may be another one than its name says"
        } else {
            if let Some(real) = self.file(&path) {
                self.script(found.runtime, &real);
            }
            return;
        };
        let note = format!("{} is not opened as the script of the command: {why}; list it in `read`", path.display());
        self.needs.notes.push(note);
    }

    /// Adds what a script needs besides its interpreter.
    fn script(&mut self, runtime: Runtime, real: &Path) {
        match runtime {
            Runtime::Node => node::script(self, real),
            Runtime::Python => python::add_script(self, real),
            Runtime::Script | Runtime::Binary => {}
        }
    }

    /// Adds what a binary needs besides the system's libraries: its whole folder under `/opt`, or the whole package
    /// store, as packages in it refer to each other.
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

    /// Returns the interpreter that a first line names: for `node`, the one that `env` would find in the cell.
    fn interpreter(&self, name: &str) -> Option<PathBuf> {
        if name.starts_with('/') {
            return self.programs.resolve(name).ok();
        }
        let beside = self
            .needs
            .folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| super::program_search::is_program(path));
        beside.or_else(|| self.programs.find(name, |_| true))
    }

    /// Opens one file under the path as written, and returns its real path.
    fn file(&mut self, path: &Path) -> Option<PathBuf> {
        let traced = follow(path).ok()?;
        self.needs.links.extend(traced.links.into_iter().filter(|(link, _)| !system_mounts::is_shared(link)));
        if !system_mounts::is_shared(&traced.real) {
            self.needs.read.insert(traced.real.clone());
        }
        Some(traced.real)
    }

    /// Opens a file or folder of a program, unless it is missing, contains more than the program, holds credentials, or
    /// is a link to another folder: the author of the program may have made the link.
    fn need(&mut self, path: &Path) {
        let Ok(real) = path.canonicalize() else { return };
        let around = path.parent().and_then(|folder| folder.canonicalize().ok()).unwrap_or_default();
        let stays = path.file_name().is_some_and(|name| real == around.join(name))
            // `lib64` of a virtual environment is a link to `lib`; workspaces share their packages.
            || real == around.join("lib")
            || real.ends_with("node_modules")
            || system_mounts::is_shared(&real);
        if stays && !self.programs.is_too_wide(&real) && !self.programs.holds_credentials(&real) {
            self.file(path);
        }
    }

    fn folder_of(&mut self, program: &Path) {
        if let Some(folder) = program.parent().filter(|folder| !self.needs.folders.iter().any(|known| known == folder))
        {
            self.needs.folders.push(folder.to_owned());
        }
    }
}

fn unreadable(path: &Path) -> CellError {
    CellError::Program(format!("{} cannot be read; correct its permissions", path.display()))
}

/// Returns what follows `#!` in the first line of a file.
fn first_line(file: &Path) -> Option<String> {
    let mut head = Vec::new();
    regular_file::open(file, Symlinks::Follow).ok()??.take(MAX_HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(String::from_utf8_lossy(head.strip_prefix(b"#!")?).lines().next()?.trim().to_owned())
}

/// Returns the interpreter that a first line names: an absolute path, or a name that `env` looks up. A line that can be
/// read in another way than the kernel and `env` read it, such as one with options of `env`, names none.
fn named_interpreter(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return first.starts_with('/').then_some(first);
    }
    let is_plain = |word: &str| {
        let mut bytes = word.bytes();
        !word.starts_with('-') && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
    };
    let is_assignment = |word: &str| {
        let value_is_literal = |value: &str| !value.contains(['"', '\'', '\\', '$', '#']);
        word.split_once('=').is_some_and(|(name, value)| is_plain(name) && value_is_literal(value))
    };
    let mut name = words.next()?;
    if name == "-S" {
        name = words.find(|word| !is_assignment(word))?;
    }
    is_plain(name).then_some(name)
}
