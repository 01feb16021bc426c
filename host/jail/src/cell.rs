//! The cell of a source: the files, the network and the limits that it gets. Everything that is not listed here does
//! not exist for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The user and the group that a source has inside a cell of [`Tier::Full`]. In other tiers it has the broker's.
pub const USER: u32 = 1000;

/// The program that serves as the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// The running program itself, whose `main` calls `main_if_asked` first.
    SelfExec,
    /// Another program whose `main` does so: `portcullis`, or the smaller `portcullis-jail` of the crate of that name.
    Path(PathBuf),
}

/// The cell of one source.
///
/// A fresh value contains no file, no folder and no network of the machine: an empty root with `/proc`, `/tmp`,
/// `/dev/shm` and a few harmless devices, under the default [`CellLimits`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSpec {
    /// The tier that enforces the cell. The launcher builds this tier or refuses; it never falls back to another.
    pub tier: Tier,
    /// Files and folders of the machine that are visible, under the same path as outside. One may lie within another.
    /// An entry with a symbolic link in its path is refused.
    pub mounts: Vec<Mount>,
    /// Folders within the mounts that the source finds empty and cannot change, whatever they contain outside. No mount
    /// may lie within one. They need mounts or Seatbelt, so [`Tier::Reduced`] ignores them on Linux.
    pub hidden: Vec<PathBuf>,
    /// Symbolic links, each with its path and its target. They need a root of the cell's own, so [`Tier::Reduced`]
    /// ignores them.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files that exist inside only, world-readable, each with its path and content. [`Tier::Reduced`] ignores them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The private home, empty at the start and removed at the end. In [`Tier::Reduced`] a folder that exists outside.
    pub home: PathBuf,
    /// The network that the source can reach.
    pub network: Network,
    /// The limits on what the source can spend.
    pub limits: CellLimits,
    /// Names that the source can neither create nor change nor remove in a folder that it may write, at any depth, and
    /// folders in which it can do so with no name. They are compared without regard to case. An older kernel cannot
    /// protect them: see [`EnforcementReport::protects_names`](crate::EnforcementReport::protects_names).
    pub protected_names: Vec<String>,
    /// True if the broker is handed a [`SyscallListener`](crate::SyscallListener), which sees each attempt to use a
    /// file, a program or a socket before the kernel decides about it. The cell is the same, and slower. Linux only.
    pub recorded: bool,
}

impl Default for CellSpec {
    fn default() -> Self {
        Self {
            tier: Tier::Full,
            mounts: Vec::new(),
            hidden: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            home: "/home/source".into(),
            network: Network::None,
            limits: CellLimits::default(),
            protected_names: Vec::new(),
            recorded: false,
        }
    }
}

/// One visible file or folder, with everything beneath it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The path, absolute and without symbolic links. It is the same inside and outside.
    pub path: PathBuf,
    /// The access that the source has to it.
    pub access: MountAccess,
}

impl Mount {
    /// Returns a mount that can be read and executed as far as every user of the machine may.
    #[must_use]
    pub fn public(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: MountAccess::Public }
    }

    /// Returns a mount that can be read and executed.
    #[must_use]
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: MountAccess::Read }
    }

    /// Returns a mount that can be read, executed, changed and removed.
    #[must_use]
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: MountAccess::Write }
    }
}

/// The access of a source to a [`Mount`], the least first. No mount raises privileges or opens a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MountAccess {
    /// Read and execute what every user of the machine may: programs and libraries of the system. This differs from
    /// [`Self::Read`] only if the broker is root: its source reads other files with their owner's rights.
    Public,
    /// Read and execute.
    Read,
    /// Read, execute, change, create and remove.
    Write,
}

/// The network that a source can reach. It always has its own loopback interface, which leads nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing.
    None,
    /// Sockets of the broker. Each is bound inside the cell's network and handed to the broker once the cell is built,
    /// in this order. Nothing else leads out.
    Listeners(Vec<Listener>),
    /// As `Listeners`, and every address of IPv4 is one of the cell's own: a connection to any address reaches the
    /// socket that is bound to its port on all of them. For a source that is to find an internet where there is none.
    /// Only in [`Tier::Full`].
    Everywhere(Vec<Listener>),
}

/// A socket that is bound inside a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The kind of the socket.
    pub protocol: SocketProtocol,
    /// The address inside the cell: a loopback address, or the unspecified one for all of loopback. Ports below 1024
    /// are possible.
    pub address: SocketAddr,
}

impl Listener {
    /// Returns a listener that accepts TCP connections.
    #[must_use]
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { protocol: SocketProtocol::Tcp, address }
    }

    /// Returns a listener that receives UDP datagrams.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self { protocol: SocketProtocol::Udp, address }
    }

    /// Returns a listener that receives every UDP datagram, whether or not another socket receives it, too. Only in a
    /// network with [`Network::Everywhere`].
    #[must_use]
    pub const fn every_udp() -> Self {
        Self { protocol: SocketProtocol::EveryUdp, address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) }
    }
}

/// The kind of a [`Listener`]'s socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketProtocol {
    /// A listening stream socket.
    Tcp,
    /// A bound datagram socket.
    Udp,
    /// A raw socket that receives every datagram of UDP over IPv4, whichever port it is for, with its IP header.
    EveryUdp,
}

/// The limits on what a source can spend. How far each limit is enforced depends on the platform: see
/// [`ProbeReport`](crate::ProbeReport).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellLimits {
    /// Bytes of memory of each process, and of all together. A delegated cgroup enforces the sum exactly; without one,
    /// the full tiers end a cell that exceeds it within a second.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Processors that the source may keep busy, or `None` for all. A fraction counts only in a delegated cgroup;
    /// elsewhere it is rounded up.
    pub cpu: Option<f64>,
    /// Open descriptors of each process.
    pub files: u32,
    /// Bytes of any one file.
    pub file_size: u64,
    /// Bytes in `/tmp`, in the home folder and in `/dev/shm`, each.
    pub tmp: u64,
}

impl Default for CellLimits {
    /// Returns limits that suffice for a language runtime with its packages and a child or two.
    fn default() -> Self {
        Self { memory: 1 << 30, processes: 128, cpu: None, files: 4096, file_size: 256 << 20, tmp: 64 << 20 }
    }
}

/// The tier of a cell: how it is enforced, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Namespaces, Landlock, seccomp and limits, all made by the launcher.
    Full,
    /// As [`Self::Full`], but an installed bubblewrap makes the namespaces. Some systems allow them to bubblewrap only.
    FullViaBwrap,
    /// Landlock, seccomp and limits (on macOS: Seatbelt and limits). The machine's own root, processes and file names
    /// stay visible. Only for sources without a network, and only if the operator has accepted this tier by name.
    Reduced,
}

impl Tier {
    /// Returns the name that people read: `full`, `full-via-bwrap`, `reduced`.
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
