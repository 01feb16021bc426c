//! The access of component sources besides our contract: the interfaces of WASI 0.2, each backed only by what the
//! source is granted.
//!
//! Streams, clocks, random numbers, an empty environment and an empty file system are expected by programs, so they are
//! always available. Granted variables and folders appear in them. The network is available only if some of it is
//! granted: otherwise a component that imports it is not loaded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_cell::CellGrant;
use portcullis_config::TIMEOUT;
use portcullis_core::limits;
use portcullis_net::egress::{ComponentEgress, Destination};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::descriptors::Descriptors;
use super::error::{FailureCode, PluginFailure};
use super::guest::GuestState;
use super::load::interface;
use super::v0_1::{PACKAGE, TRACK};
use crate::key_value::KeyValue;

mod files;
mod listing;
mod network;
mod place;
mod streams;

use network::InstanceNetwork;

/// The interface of key-value stores, which is also the word for it in `grant`.
pub const KEY_VALUE: &str = "key-value";

/// The interface that identifies the caller, which is also the word for it in `grant`.
pub(crate) const CALLER: &str = "caller";

/// The most random bytes that a component gets at a time, which are made in memory of the broker.
const RANDOM_BYTES: u64 = 1 << 20;

/// The WASI release that this host serves.
const SERVED: &str = "0.2";

/// The access of a component source. The default grants nothing.
#[derive(Clone)]
pub struct ComponentAccess {
    /// All environment variables that the component sees, with their secrets.
    pub env: Vec<(String, String)>,
    /// The command-line arguments that the component sees. The first of them is its name.
    pub args: Vec<String>,
    /// The granted folders and network, and the limits of memory and processor. The paths were checked when
    /// the grant was made.
    pub grant: CellGrant,
    /// The longest time that one call of the source may take.
    pub timeout: Duration,
    /// The egress for the entries of the grant's `network`; `None` if that is empty.
    pub egress: Option<Arc<ComponentEgress>>,
    /// The stores of the source; `None` unless it is granted `key-value`.
    pub key_value: Option<Arc<KeyValue>>,
    /// The number of instances that may run at once, where one with several memories counts as that many, and of
    /// sessions for which the source keeps state: 1 to 256.
    pub instances: u32,
    /// The bytes that may pass between component and host in one call, whichever of the two makes it.
    pub output: usize,
}

impl Default for ComponentAccess {
    fn default() -> Self {
        let mut grant = CellGrant::nothing();
        grant.limits.memory = limits::SOURCE_MEMORY_BYTES;
        Self {
            env: Vec::new(),
            args: Vec::new(),
            grant,
            timeout: TIMEOUT,
            egress: None,
            key_value: None,
            instances: limits::SOURCE_INSTANCES,
            output: limits::PAYLOAD_OUTPUT_BYTES,
        }
    }
}

impl std::fmt::Debug for ComponentAccess {
    // Omits the values of variables, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let Self { grant, timeout, egress, .. } = self;
        f.debug_struct("ComponentAccess")
            .field("env", &names)
            .field("grant", grant)
            .field("timeout", timeout)
            .field("egress", egress)
            .finish()
    }
}

/// A component's access, with what enforces its limits across instances.
pub(crate) struct EnforcedAccess {
    pub access: ComponentAccess,
    /// True if the component imports any WASI interface.
    pub wasi: bool,
    /// One permit for each memory of the instances that run at once: slots are counted in memories, too.
    turns: Arc<Semaphore>,
    descriptors: Descriptors,
}

impl EnforcedAccess {
    pub(crate) fn new(access: ComponentAccess, imports: &[String], descriptors: &Descriptors) -> Self {
        let turns = Arc::new(Semaphore::new(access.instances as usize));
        let wasi = imports.iter().any(|name| wasi(name).is_some());
        Self { access, wasi, turns, descriptors: descriptors.clone() }
    }

    /// Creates the WASI context of one instance and opens the granted resources. `more` adds variables and standard
    /// streams; otherwise there are no variables, and the streams are closed.
    ///
    /// # Errors
    /// A granted folder cannot be opened.
    pub(crate) fn open(&self, more: impl FnOnce(&mut WasiCtxBuilder)) -> Result<Wasi, PluginFailure> {
        let ComponentAccess { args, grant, egress, .. } = &self.access;
        let mut builder = WasiCtxBuilder::new();
        builder.args(args).max_random_size(RANDOM_BYTES);
        let read = grant.read.iter().map(|path| (path, FsPerms::ReadOnly));
        let write = grant.write.iter().map(|path| (path, FsPerms::ReadWrite));
        for (path, rights) in read.chain(write) {
            files::preopen(&mut builder, path, rights).map_err(|error| {
                let detail = format!("the granted folder {} cannot be opened: {error}", path.display());
                PluginFailure::new(FailureCode::Start, detail)
            })?;
        }
        let reachable = InstanceNetwork::by(egress.as_ref());
        reachable.open(&mut builder);
        more(&mut builder);
        let mut table = ResourceTable::new();
        table.set_max_capacity(self.descriptors.each());
        Ok(Wasi { context: builder.build(), http: WasiHttpCtx::new(), reachable, table })
    }

    /// Reserves the descriptors that an instance may hold; `None` for an instance that can open
    /// nothing. Cancellation safe.
    ///
    /// # Errors
    /// The errors of [`Descriptors::share`].
    pub(crate) async fn share(&self) -> Result<Option<OwnedSemaphorePermit>, PluginFailure> {
        if self.opens() { self.descriptors.share().await.map(Some) } else { Ok(None) }
    }

    /// Reports whether an instance may be made in advance, before a call needs it.
    pub(crate) fn has_room(&self) -> bool {
        !self.opens() || self.descriptors.are_plentiful()
    }

    fn opens(&self) -> bool {
        let CellGrant { read, write, network, .. } = &self.access.grant;
        self.wasi && !(read.is_empty() && write.is_empty() && network.is_empty())
    }

    /// Waits for permission to run one more instance, which takes `weight` slots, for at most half of a call's timeout,
    /// so that enough time is left for the work. Cancellation safe.
    ///
    /// # Errors
    /// [`FailureCode::Busy`], whose text names the setting that raises the limit.
    pub(crate) async fn instance_permit(&self, weight: u32) -> Result<OwnedSemaphorePermit, PluginFailure> {
        let most = self.access.instances;
        // An instance that has more memories than that runs alone.
        let turns = Arc::clone(&self.turns).acquire_many_owned(weight.min(most));
        let turns = timeout(self.access.timeout / 2, turns).await;
        turns.ok().and_then(Result::ok).ok_or_else(|| {
            let hint = match most.max(weight).saturating_mul(2).min(limits::SOURCE_INSTANCES_MOST) {
                more if more > most => {
                    format!("to let it have more, write `cell = {{ instances = {more} }}` in its source")
                }
                _ => "no setting raises this limit".to_owned(),
            };
            let instances = most.checked_div(weight).unwrap_or(most).max(1);
            let detail = format!("all {instances} instances that it may have are at work; {hint}");
            PluginFailure::new(FailureCode::Busy, detail)
        })
    }
}

/// Returns why a component may not have an import and what to do about it, or `None` if it may.
pub(crate) fn refusal(import: &str, access: &ComponentAccess) -> Option<String> {
    let refusal = match wasi(import) {
        Some((package, _)) => provides(package, access).err()?.to_owned(),
        None if import.starts_with("wasi:") => format!("this host serves WASI {SERVED}; build it for that"),
        None => "no grant exists for it; compose the component with one that provides it".to_owned(),
    };
    Some(refusal)
}

/// The WASI context of one instance.
pub(crate) struct Wasi {
    context: WasiCtx,
    http: WasiHttpCtx,
    reachable: InstanceNetwork,
    table: ResourceTable,
}

impl ComponentAccess {
    /// Reports whether the component can neither change anything nor send anything out.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.grant.is_harmless() && self.key_value.is_none()
    }

    /// Returns the processor time of one call; of a command, the time between two messages. A component with a `cpu`
    /// share may use that share for as long as a call may take.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        match self.grant.limits.cpu {
            Some(cpu) => self.timeout.mul_f64(cpu.min(1.0)),
            None => limits::TOOL_DEADLINE,
        }
    }

    /// Returns the bytes of memory that one instance may have.
    pub fn memory(&self) -> usize {
        usize::try_from(self.grant.limits.memory).unwrap_or(usize::MAX)
    }
}

impl GuestState {
    fn wasi(&mut self) -> &mut Wasi {
        let nothing = || Wasi {
            context: WasiCtxBuilder::new().build(),
            http: WasiHttpCtx::new(),
            reachable: InstanceNetwork::default(),
            table: ResourceTable::new(),
        };
        self.wasi.get_or_insert_with(|| Box::new(nothing()))
    }

    fn reachable(&mut self) -> &mut InstanceNetwork {
        &mut self.wasi().reachable
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Wasi { context, table, .. } = self.wasi();
        WasiCtxView { ctx: context, table }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let Wasi { http, reachable, table, .. } = self.wasi();
        WasiHttpCtxView { ctx: http, hooks: reachable, table }
    }
}

/// Defines WASI in a linker, for a component with these imports. The caller has checked which of them the
/// component may have.
pub(crate) fn link(linker: &mut Linker<GuestState>, imports: &[String]) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    files::link(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    network::link_names(linker, imports)
}

/// The imports of a component from one package, and what the component gets from them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct GrantedImports {
    /// The package, such as `wasi:filesystem@0.2`.
    pub package: String,
    /// The imported interfaces, such as `types` and `preopens`.
    pub interfaces: Vec<String>,
    /// The resource behind the package, in words, such as "the operator's log".
    pub behind: String,
}

/// Returns what a component's imports give it, by package. Imports that are not granted are left out.
pub(crate) fn opened(imports: &[String], access: &ComponentAccess) -> Vec<GrantedImports> {
    let mut packages = BTreeMap::<String, GrantedImports>::new();
    for import in imports {
        let (package, interface, behind) = match (wasi(import), interface(import)) {
            (Some((package, interface)), _) => match provides(package, access) {
                Ok(behind) => (format!("wasi:{package}@{SERVED}"), interface, behind),
                Err(_) => continue,
            },
            (None, Some(ours)) => match own(ours) {
                Some(behind) => (format!("{PACKAGE}/{ours}@{TRACK}"), ours, behind.to_owned()),
                None => continue,
            },
            (None, None) => continue,
        };
        let fresh = || GrantedImports { package: package.clone(), interfaces: Vec::new(), behind };
        packages.entry(package.clone()).or_insert_with(fresh).interfaces.push(interface.to_owned());
    }
    packages.into_values().collect()
}

/// Returns what a component of a source gets from an interface of our package.
fn own(interface: &str) -> Option<&'static str> {
    match interface {
        "log" => Some("the operator's log"),
        KEY_VALUE => Some("a store for each profile"),
        CALLER => Some("the caller's name, profile and session"),
        _ => None,
    }
}

/// Returns package and interface if the name belongs to the WASI release that is served: `cli` and `run` for
/// `wasi:cli/run@0.2.3`.
pub(crate) fn wasi(name: &str) -> Option<(&str, &str)> {
    let (path, version) = name.strip_prefix("wasi:")?.split_once('@')?;
    let served = version.strip_prefix(SERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    path.split_once('/').filter(|_| served)
}

/// Returns what a component gets from a WASI package, or else what to do to get it.
fn provides(package: &str, ComponentAccess { env, grant, .. }: &ComponentAccess) -> Result<String, &'static str> {
    let folders = |paths: &[PathBuf]| match paths {
        [] => "nothing".to_owned(),
        paths => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
    };
    Ok(match package {
        "io" => "streams".to_owned(),
        "clocks" => "the time".to_owned(),
        "random" => "random numbers".to_owned(),
        "cli" if env.is_empty() => "standard streams; no variables".to_owned(),
        "cli" => {
            let names: Vec<_> = env.iter().map(|(name, _)| name.as_str()).collect();
            format!("standard streams; the variables {}", names.join(" "))
        }
        "filesystem" => format!("{} to read, {} to write", folders(&grant.read), folders(&grant.write)),
        // Runtimes import them for programs that never connect: access without a grant is refused at the time of use.
        "sockets" | "http" if grant.network.is_empty() => {
            "no host; to let it reach one, write `cell = { network = [\"HOST:PORT\"] }` in its source".to_owned()
        }
        "sockets" => match socket_destinations(&grant.network) {
            sockets if sockets.is_empty() => "no host; ports 80 and 443 of host names are for `wasi:http`".to_owned(),
            sockets => format!("connections to {}", sockets.join(" ")),
        },
        "http" => format!("requests to {}", grant.network.join(" ")),
        _ => return Err("no grant exists for it"),
    })
}

/// Returns the entries of a grant's `network` to which a component may open connections of its own.
fn socket_destinations(network: &[String]) -> Vec<&str> {
    let allows = |entry: &&str| entry.parse::<Destination>().is_ok_and(|to| to.allows_sockets());
    network.iter().map(String::as_str).filter(allows).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn sockets_are_shown_with_the_destinations_that_they_reach() {
        let mut access = ComponentAccess::default();
        let mut shown = |network: &[&str]| {
            access.grant.network = network.iter().map(ToString::to_string).collect();
            provides("sockets", &access).unwrap()
        };
        assert!(shown(&["a.example:443"]).contains("are for `wasi:http`"));
        let network = ["a.example:443", "a.example:5432", "[2001:db8::1]:443"];
        assert_eq!(shown(&network), "connections to a.example:5432 [2001:db8::1]:443");
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_with_several_memories_counts_as_many_instances() {
        let confined = |instances| {
            let access = ComponentAccess { instances, ..ComponentAccess::default() };
            EnforcedAccess::new(access, &[], &Descriptors::of_this_process())
        };
        for (instances, at_once, more) in [(8, 2, 16), (1, 1, 6)] {
            let confined = confined(instances);
            let mut held = Vec::new();
            for _ in 0..at_once {
                held.push(confined.instance_permit(3).await.unwrap());
            }
            let busy = confined.instance_permit(3).await.unwrap_err();
            let detail = format!("all {at_once} instances that it may have are at work");
            assert!(busy.code == FailureCode::Busy && busy.detail.contains(&detail), "{busy}");
            assert!(busy.detail.contains(&format!("`cell = {{ instances = {more} }}`")), "{busy}");
            held.pop();
            held.push(confined.instance_permit(3).await.unwrap());
        }
    }
}
