//! The files, hosts and limits that a source is granted, checked against the disk.

use std::path::{Path, PathBuf};

use portcullis_config::{CellConfig, Endpoint, SourceConfig};
use portcullis_core::escape::shell_word;
use portcullis_core::limits::SOURCE_MEMORY_BYTES;
use portcullis_core::trust::{DATA_FOLDER, KEPT_NAMES};
use portcullis_jail::CellLimits;

use super::CellError;
#[cfg(feature = "process")]
use super::ProgramNeeds;
use super::symlinks::follow;

/// Folders that every cell replaces with its own. A grant would put the machine's in their place.
const PRIVATE: [&str; 6] = ["/", "/etc", "/home", "/run", "/tmp", "/usr"];

/// Folders in which the kernel shows the state of the whole machine.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The files, hosts and limits that a source is granted besides what its program needs to run. A fresh grant opens no
/// file and no host, and limits everything.
#[derive(Debug, Clone, PartialEq)]
pub struct CellGrant {
    /// Files and folders that the source may read: absolute, without links, none within another.
    pub read: Vec<PathBuf>,
    /// Files and folders that the source may read and write: absolute, without links, none within another.
    pub write: Vec<PathBuf>,
    /// Configurations and data folders of brokers that lie in the writable folders. The source may read them, but not
    /// change them.
    pub protected: Vec<PathBuf>,
    /// Data folders of brokers in what the source may read or write, or in what its program needs. In a full cell the
    /// source finds them empty.
    pub hidden: Vec<PathBuf>,
    /// The destinations that the source may reach, as `host:port`.
    pub network: Vec<String>,
    /// The working directory of the source, or `None` for its private home.
    pub directory: Option<PathBuf>,
    /// The limits on what the source may spend, such as memory and processes.
    pub limits: CellLimits,
    /// True if the operator accepts a weaker cell where the platform has no full one.
    pub dangerous_allow_reduced: bool,
}

impl CellGrant {
    /// Returns a grant that opens nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            protected: Vec::new(),
            hidden: Vec::new(),
            network: Vec::new(),
            directory: None,
            limits: CellLimits::default(),
            dangerous_allow_reduced: false,
        }
    }

    /// Returns what the configuration of a source that runs on this machine grants. `own` are the broker's own files:
    /// its data folders and configuration. `known` are the real paths of other trusted configurations and data folders.
    /// Those that lie in a writable folder are protected from changes, as is anything at the top of such a folder under
    /// a name that brokers look for.
    ///
    /// # Errors
    /// [`CellError::Path`] for a path that is missing, leads through a link, is neither file nor folder, lies within
    /// another granted path, would replace one of the cell's own folders, would open the broker's own files, or would
    /// let the source write to a configuration or data folder of any broker.
    pub fn of(source: &SourceConfig, own: &[PathBuf], known: &[PathBuf]) -> Result<Self, CellError> {
        let CellConfig { read, write, network, memory, processes, cpu, files, tmp, dangerous_allow_reduced, .. } =
            &source.cell;
        let own: Vec<PathBuf> = own.iter().flat_map(|path| [path.clone(), real(path)]).collect();
        let named: Vec<(&'static str, &PathBuf)> =
            read.iter().map(|path| ("read", path)).chain(write.iter().map(|path| ("write", path))).collect();
        for (key, path) in &named {
            sound(key, path)?;
            refuse_broker_files(key, path, &own)?;
        }
        disjoint(&named)?;
        let mut default = CellLimits::default();
        match &source.endpoint {
            Endpoint::Command { cwd: Some(cwd), .. } => is_folder("cwd", cwd, "create it or change `cwd`")?,
            Endpoint::Component { .. } => {
                default.memory = SOURCE_MEMORY_BYTES;
                for (key, path) in &named {
                    is_folder(key, path, "a component is given folders: name the one that it stands in")?;
                }
            }
            Endpoint::Command { .. } | Endpoint::Url { .. } | Endpoint::Native { .. } => {}
        }
        let grant = Self {
            read: read.clone(),
            write: write.clone(),
            protected: write.iter().map(|path| protected_in(path, known)).collect::<Result<Vec<_>, _>>()?.concat(),
            hidden: Vec::new(),
            network: network.clone(),
            directory: None,
            limits: CellLimits {
                memory: memory.unwrap_or(default.memory),
                processes: processes.unwrap_or(default.processes),
                cpu: *cpu,
                files: files.unwrap_or(default.files),
                tmp: tmp.unwrap_or(default.tmp),
                ..default
            },
            dangerous_allow_reduced: *dangerous_allow_reduced,
        };
        if let Endpoint::Component { .. } = &source.endpoint {
            // A component can change nothing under these names, wherever it is.
            let by_name = |path: &Path| KEPT_NAMES.iter().any(|name| path.file_name().is_some_and(|it| it == *name));
            grant.check_protected("a component, to which no mount applies,", by_name)?;
        }
        Ok(grant)
    }

    /// Refuses the grant if a writable folder contains a path that must be protected and is not. `who` could then
    /// change that path.
    pub(crate) fn check_protected(&self, who: &str, is_protected: impl Fn(&Path) -> bool) -> Result<(), CellError> {
        let Some(open) = self.protected.iter().find(|path| !is_protected(path)) else { return Ok(()) };
        let folder = self.write.iter().find(|folder| open.starts_with(folder)).unwrap_or(open);
        Err(CellError::Path {
            key: "write",
            path: folder.clone(),
            reason: format!("holds {}, which brokers trust and {who} could change", open.display()),
            hint: "name smaller folders, or run a program in a full cell, which protects it".to_owned(),
        })
    }

    /// Hides the data folders in `folders`: the one at the top of each, also behind a link, and those of `known` at any
    /// depth. A folder of `folders` that is itself a data folder, or lies in one, was named by the user and stays
    /// visible.
    pub(crate) fn hide_data_folders(&mut self, folders: &[PathBuf], known: &[PathBuf]) {
        let at_top = folders.iter().filter_map(|folder| folder.join(DATA_FOLDER).canonicalize().ok());
        let at_top = at_top.filter(|path| path.is_dir());
        let within = |path: &PathBuf| folders.iter().any(|folder| path != folder && path.starts_with(folder));
        self.hidden.extend(at_top.chain(known.iter().cloned()).filter(within));
        self.hidden.sort();
        // In this order a folder comes after those that contain it.
        self.hidden.dedup_by(|path, around| path.starts_with(around));
    }

    /// Makes `cwd` the source's working directory if its cell has that folder: one within a granted path or one that
    /// the program needs, or one above such a path, which then contains nothing else. Otherwise, and if the folder lies
    /// in a hidden one, the source starts in its private home.
    #[cfg(feature = "process")]
    pub(crate) fn start_in(&mut self, cwd: &Path, needs: &ProgramNeeds) {
        let cwd = real(cwd);
        let mut there = self.read.iter().chain(&self.write).chain(&needs.read);
        let is_there = there.any(|path| cwd.starts_with(path) || path.starts_with(&cwd));
        let is_hidden = self.hidden.iter().any(|folder| cwd.starts_with(folder));
        self.directory = (is_there && !is_hidden).then_some(cwd);
    }

    /// Reports whether the source can neither write anything nor reach a network.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.write.is_empty() && self.network.is_empty()
    }
}

/// Checks that a path exists under its real name, is a file or a folder, and belongs neither to the kernel nor to the
/// cell.
fn sound(key: &'static str, path: &Path) -> Result<(), CellError> {
    let refuse = |reason: String, hint: String| Err(CellError::Path { key, path: path.to_owned(), reason, hint });
    if let Some(folder) = KERNEL.iter().find(|folder| path.starts_with(folder)) {
        let reason = format!("lies in {folder}, where the kernel shows the whole machine");
        return refuse(reason, "a cell has its own; remove it".to_owned());
    }
    if PRIVATE.iter().any(|folder| path == Path::new(folder)) {
        return refuse(
            "every cell replaces with its own".to_owned(),
            "name the files or folders in it that the source needs".to_owned(),
        );
    }
    let traced = match follow(path) {
        Ok(traced) => traced,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return refuse("does not exist".to_owned(), format!("create it, or remove it from `{key}`"));
        }
        Err(error) => {
            return refuse(format!("cannot be looked at: {error}"), "correct its permissions or the path".to_owned());
        }
    };
    if let Some((link, _)) = traced.links.first() {
        let reason =
            format!("leads through the link {}, and whoever can change a link could change the grant", link.display());
        return refuse(reason, format!("name what is meant: {}", traced.real.display()));
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() || meta.is_file() => {}
        _ => return refuse("is neither a file nor a folder".to_owned(), format!("remove it from `{key}`")),
    }
    let wanted = if key == "write" { rustix::fs::Access::WRITE_OK } else { rustix::fs::Access::READ_OK };
    rustix::fs::access(path, wanted).or_else(|error| {
        let reason = format!("you have no right to {key} yourself: {error}");
        refuse(reason, "correct its permissions, or remove it".to_owned())
    })
}

/// Refuses a path that would open the broker's own files, which no source gets (ARCHITECTURE.md, invariant 6).
fn refuse_broker_files(key: &'static str, path: &Path, own: &[PathBuf]) -> Result<(), CellError> {
    let Some(file) = own.iter().find(|own| own.starts_with(path) || path.starts_with(own)) else { return Ok(()) };
    Err(CellError::Path {
        key,
        path: path.to_owned(),
        reason: format!("would open the broker's own {} to the source", file.display()),
        hint: "name smaller folders, or keep configuration and `data-dir` elsewhere".to_owned(),
    })
}

/// Returns the protected paths in a writable folder: the configuration and data folder at its top, and the known ones
/// at any depth. Refuses a grant of a protected path itself, and a link under such a name, which everything that looks
/// for a configuration would follow.
fn protected_in(path: &Path, known: &[PathBuf]) -> Result<Vec<PathBuf>, CellError> {
    let refuse = |reason: String, hint: String| CellError::Path { key: "write", path: path.to_owned(), reason, hint };
    if let Some(name) = KEPT_NAMES.into_iter().find(|name| path.components().any(|part| part.as_os_str() == *name)) {
        let reason = format!("is or lies in `{name}`, by which brokers find what they trust");
        return Err(refuse(reason, "grant another folder".to_owned()));
    }
    if let Some(known) = known.iter().find(|known| path.starts_with(known)) {
        let reason = format!("is or lies in {}, which a broker trusts", known.display());
        return Err(refuse(reason, "grant another folder".to_owned()));
    }
    let there = KEPT_NAMES.into_iter().map(|name| path.join(name)).filter_map(|name| {
        let about = std::fs::symlink_metadata(&name).ok()?;
        let word = || shell_word(&name.to_string_lossy());
        let link = || refuse(format!("holds the link {}", name.display()), format!("run `rm {}`", word()));
        Some(if about.is_symlink() { Err(link()) } else { Ok(name) })
    });
    let mut protected = there.collect::<Result<Vec<_>, _>>()?;
    for known in known.iter().filter(|known| known.starts_with(path)) {
        if !protected.iter().any(|protected| known.starts_with(protected)) {
            protected.push(known.clone());
        }
    }
    Ok(protected)
}

/// Refuses a path that lies within another: which of the two grants a file gets would depend on the order of mounts.
fn disjoint(named: &[(&'static str, &PathBuf)]) -> Result<(), CellError> {
    for (at, (key, path)) in named.iter().enumerate() {
        let others = named.iter().enumerate().filter(|(other, _)| *other != at);
        if let Some((_, (other_key, other))) = others.into_iter().find(|(_, (_, other))| path.starts_with(other)) {
            return Err(CellError::Path {
                key,
                path: (*path).clone(),
                reason: format!("lies within {}, granted by `{other_key}`", other.display()),
                hint: "keep one of them, or name the smaller folders separately".to_owned(),
            });
        }
    }
    Ok(())
}

fn is_folder(key: &'static str, path: &Path, hint: &str) -> Result<(), CellError> {
    let refuse =
        || CellError::Path { key, path: path.to_owned(), reason: "is not a folder".to_owned(), hint: hint.to_owned() };
    path.is_dir().then_some(()).ok_or_else(refuse)
}

/// Returns the path with its links resolved, or unchanged if it does not exist.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests;
