//! What a source is given. Everything that is not listed here does not exist for it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The user and the group that a source is for itself in [`Tier::Full`]. Elsewhere it is who the broker is.
pub const USER: u32 = 1000;

/// Which program is the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// The running program itself, whose `main` calls `main_if_asked` first.
    SelfExec,
    /// Another program that does so, such as the `portcullis-jail` binary.
    Path(PathBuf),
}

/// The cell of one source.
///
/// A fresh value gives no file, no folder and no network: an empty root with `/proc`, `/tmp`, `/dev/shm` and a handful of
/// harmless devices, under the default [`Limits`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// How it is enforced. The launcher builds this tier or refuses; it never falls back to another.
    pub tier: Tier,
    /// Files and folders of the machine that are visible, under the path that they have outside. One may lie within
    /// another. An entry with a symbolic link in its path is refused.
    pub view: Vec<Mount>,
    /// Symbolic links: where, and where to. Only in a root of its own, so not in [`Tier::Reduced`].
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files that exist inside only, world-readable: where, and what stands in them. Not in [`Tier::Reduced`].
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// A private folder, empty at the start and gone at the end. In [`Tier::Reduced`] a folder that exists outside.
    pub home: PathBuf,
    /// What it can reach.
    pub network: Network,
    /// What it can spend.
    pub limits: Limits,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            tier: Tier::Full,
            view: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            home: "/home/source".into(),
            network: Network::None,
            limits: Limits::default(),
        }
    }
}

/// One file or folder, with everything beneath it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute and without symbolic links; the same inside and outside.
    pub path: PathBuf,
    /// What may be done with it.
    pub access: Access,
}

impl Mount {
    /// To be read and executed, as far as everybody may.
    #[must_use]
    pub fn public(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: Access::Public }
    }

    /// To be read, and executed.
    #[must_use]
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: Access::Read }
    }

    /// To be read, executed, changed and removed.
    #[must_use]
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: Access::Write }
    }
}

/// What may be done with a [`Mount`], least first. Nothing that is visible raises privileges or opens a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute what every user of the machine may: programs and libraries of the system. Differs from [`Self::Read`]
    /// where the broker is root, whose source reads the rest as its owner could.
    Public,
    /// Read and execute.
    Read,
    /// Read, execute, change, create and remove.
    Write,
}

/// What a source can reach. It always has a loopback interface of its own, which leads to nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing.
    None,
    /// Sockets of the broker: each is bound inside the cell's network and handed to the broker once the cell is built, in
    /// this order. Nothing else leads out.
    Listeners(Vec<Listener>),
}

/// A socket that is bound inside a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// What it speaks.
    pub protocol: Protocol,
    /// An address inside the cell: loopback, or unspecified for all of loopback. Ports below 1024 are possible.
    pub address: SocketAddr,
}

impl Listener {
    /// Accepts TCP connections.
    #[must_use]
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { protocol: Protocol::Tcp, address }
    }

    /// Receives UDP datagrams.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self { protocol: Protocol::Udp, address }
    }
}

/// What a [`Listener`] speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// A listening stream socket.
    Tcp,
    /// A bound datagram socket.
    Udp,
}

/// What a source can spend. How far each is enforced depends on the platform: see [`Probe`](crate::Probe).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory of each process, and of all together: exactly in a delegated cgroup; in the full tiers elsewhere a cell
    /// that holds more is ended within a second.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Processors that it may keep busy; a fraction counts in a delegated cgroup only, else it is rounded up. None for all.
    pub cpu: Option<f64>,
    /// Open descriptors of each process.
    pub files: u32,
    /// Bytes of any one file.
    pub file_size: u64,
    /// Bytes in `/tmp`, in the home folder and in `/dev/shm`, each.
    pub tmp: u64,
}

impl Default for Limits {
    /// Enough for a language runtime with its packages and a child or two, and no more.
    fn default() -> Self {
        Self { memory: 1 << 30, processes: 128, cpu: None, files: 4096, file_size: 256 << 20, tmp: 64 << 20 }
    }
}

/// How a cell is enforced, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Namespaces, Landlock, seccomp and limits, all made by the launcher.
    Full,
    /// The same, but the namespaces are made by an installed bubblewrap, which some systems allow what they deny to others.
    FullViaBwrap,
    /// Landlock, seccomp and limits (on macOS: Seatbelt and limits): the machine's own root, processes and file names stay
    /// visible. Only for sources without a network, and only where the operator accepted it by name.
    Reduced,
}

impl Tier {
    /// As people read it: `full`, `full-via-bwrap`, `reduced`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FullViaBwrap => "full-via-bwrap",
            Self::Reduced => "reduced",
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
