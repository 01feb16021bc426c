//! Makes bytes into a component that is ready to be instantiated: checks its imports and links it. Code that is not
//! compiled yet is compiled by `compile`.

use std::collections::HashMap;
use std::sync::Arc;

use portcullis_core::digest::Digest;
use portcullis_core::sync::Mutex;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker};

use super::access::{self, CALLER, EnforcedAccess, KEY_VALUE};
#[cfg(feature = "compiler")]
use super::compile;
use super::compiled::Precompiled;
use super::error::PluginError;
use super::guest::GuestState;
use super::v0_1::{self, PACKAGE, TRACK, World};
use super::{Host, limits};

/// The capabilities that a configuration may grant to a source. Each is also the name of the interface behind it.
pub(crate) const GRANTS: [&str; 2] = [KEY_VALUE, CALLER];

/// A plugin's bytes as read.
pub(crate) struct PluginBytes {
    pub plugin: String,
    /// The digest of the `.wasm` file, even if the plugin was compiled elsewhere.
    pub digest: Digest,
    pub(super) form: PluginCode,
}

pub(super) enum PluginCode {
    /// WebAssembly that is still to be compiled.
    Wasm(Vec<u8>),
    Precompiled(Precompiled),
}

impl PluginBytes {
    pub(super) fn new(plugin: String, bytes: Vec<u8>) -> Self {
        Self { plugin, digest: Digest::of(&bytes), form: PluginCode::Wasm(bytes) }
    }

    pub(super) fn precompiled(plugin: String, code: Precompiled) -> Self {
        Self { plugin, digest: code.wasm(), form: PluginCode::Precompiled(code) }
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> usize {
        match &self.form {
            PluginCode::Wasm(bytes) => bytes.len(),
            PluginCode::Precompiled(code) => code.size(),
        }
    }
}

/// The origin of compiled code; the key of [`LoadedCode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CodeKey {
    /// A component with this digest.
    Plain(Digest),
    /// A component together with its settings.
    #[cfg(feature = "compiler")]
    Configured(Digest),
    /// A file that was compiled elsewhere, by the digest of the file.
    Precompiled(Digest),
}

/// The code that a host has loaded. Code is most of the memory of an idle plugin, so equal plugins share it.
#[derive(Default)]
pub(super) struct LoadedCode(Mutex<HashMap<CodeKey, Component>>);

impl LoadedCode {
    pub(super) fn get(&self, code: CodeKey) -> Option<Component> {
        self.0.lock().get(&code).cloned()
    }

    pub(super) fn keep(&self, code: CodeKey, component: Component) -> Component {
        let mut loaded = self.0.lock();
        loaded.entry(code).or_insert(component).clone()
    }
}

/// A component that was checked against its world and linked.
pub(crate) struct LinkedComponent<W: World> {
    pub plugin: Arc<str>,
    pub pre: W::Prepared,
    /// The slots that one instance takes.
    pub weight: u32,
    /// True if the plugin can ask for the information flow of a call.
    pub reads_flow: bool,
    /// The settings that each instance must be given; `None` if instances start configured.
    pub settings: Option<String>,
    /// The confinement of the component of a source.
    pub(crate) confinement: Option<Arc<EnforcedAccess>>,
}

/// The imports that the configuration allows a component in addition to those that its kind may always have.
#[derive(Clone, Default)]
pub(crate) struct AllowedImports {
    /// The words of `grant`.
    pub grant: Vec<String>,
    /// The confinement of the component of a source.
    pub(crate) confinement: Option<Arc<EnforcedAccess>>,
}

/// Makes bytes into a linked component. If the plugin can be configured once for all instances, it is configured here.
pub(crate) fn prepare<W: World>(
    host: &Host,
    wasm: &PluginBytes,
    allowed: &AllowedImports,
    settings: String,
) -> Result<LinkedComponent<W>, PluginError> {
    #[cfg(feature = "compiler")]
    if let Some(component) = compile::configured::<W>(host, wasm, allowed, &settings)? {
        return link(&host.engine, wasm, &component, allowed, None);
    }
    link(&host.engine, wasm, &compile(host, wasm)?, allowed, Some(settings))
}

/// Returns the code of a plugin for this machine.
pub(crate) fn compile(host: &Host, wasm: &PluginBytes) -> Result<Component, PluginError> {
    let code = match &wasm.form {
        PluginCode::Precompiled(code) => CodeKey::Precompiled(code.digest()),
        PluginCode::Wasm(_) => CodeKey::Plain(wasm.digest),
    };
    match host.loaded.get(code) {
        Some(component) => Ok(component),
        None => Ok(host.loaded.keep(code, load(host, wasm)?)),
    }
}

fn load(host: &Host, wasm: &PluginBytes) -> Result<Component, PluginError> {
    match &wasm.form {
        PluginCode::Precompiled(code) => code.load(&host.engine).map_err(|error| {
            let (plugin, reason) = (wasm.plugin.clone(), format!("{error:#}"));
            PluginError::OtherEngine { plugin, reason }
        }),
        #[cfg(feature = "compiler")]
        PluginCode::Wasm(bytes) => compile::component(host, wasm, bytes),
        #[cfg(not(feature = "compiler"))]
        PluginCode::Wasm(_) => Err(PluginError::NoCompiler { plugin: wasm.plugin.clone() }),
    }
}

/// Checks imports against the grants and exports against the world, and links.
pub(super) fn link<W: World>(
    engine: &Engine,
    wasm: &PluginBytes,
    component: &Component,
    allowed: &AllowedImports,
    settings: Option<String>,
) -> Result<LinkedComponent<W>, PluginError> {
    let plugin = wasm.plugin.clone();
    let ComponentInterface { imports, exports, .. } = ComponentInterface::of(engine, component);
    if let Some(name) = imports.iter().chain(&exports).find(|name| other_track(name)) {
        return Err(PluginError::OtherTrack { plugin, package: package(name), served: TRACK });
    }
    if !exports.iter().any(|name| interface(name) == Some(W::EXPORT)) {
        let exports = comma_separated(&exports);
        let interface = format!("{PACKAGE}/{}@{TRACK}", W::EXPORT);
        return Err(PluginError::WrongWorld { plugin, wanted: W::NAME, exports, interface });
    }
    let linker = linker(engine, &plugin, &imports, W::IMPORTS, allowed)?;
    let (pre, weight) = bind(&linker, &plugin, component, W::check)?;
    let confinement = allowed.confinement.clone();
    let reads_flow = reads_flow(engine, component);
    Ok(LinkedComponent { plugin: plugin.into(), pre, weight, reads_flow, settings, confinement })
}

/// Reports whether a component imports a method of a call that concerns its information flow. A component imports only
/// the methods that its code names.
fn reads_flow(engine: &Engine, component: &Component) -> bool {
    let kind = component.component_type();
    let mut calls = kind.imports(engine).filter(|(name, _)| interface(name) == Some("calls"));
    calls.any(|(_, import)| match import.ty {
        ComponentItem::ComponentInstance(calls) => {
            calls.exports(engine).any(|(method, _)| v0_1::FLOW_METHODS.contains(&method))
        }
        _ => false,
    })
}

/// Checks imports against the interfaces that are always available (`free`, those of our package) and the granted ones,
/// and defines exactly these.
fn linker(
    engine: &Engine,
    plugin: &str,
    imports: &[String],
    free: &[&str],
    allowed: &AllowedImports,
) -> Result<Linker<GuestState>, PluginError> {
    let AllowedImports { grant, confinement } = allowed;
    let plugin = plugin.to_owned();
    if let Some(grant) = grant.iter().find(|word| confinement.is_none() || !GRANTS.contains(&word.as_str())) {
        return Err(PluginError::UnknownGrant { plugin, grant: grant.clone() });
    }
    let refused: Vec<(&str, String)> = imports.iter().filter_map(|name| refusal(name, free, allowed)).collect();
    if !refused.is_empty() {
        return Err(PluginError::NotGranted { plugin, imports: by_remedy(&refused) });
    }
    let contract = |error| contract(&plugin, &error);
    let mut linker = Linker::new(engine);
    for interface in free.iter().copied().chain(grant.iter().map(String::as_str)) {
        v0_1::link(&mut linker, interface).map_err(contract)?;
    }
    if confinement.as_ref().is_some_and(|confinement| confinement.wasi) {
        access::link(&mut linker, imports).map_err(contract)?;
    }
    Ok(linker)
}

/// Returns an import that is not available, with what to do about it; `None` if it is available.
fn refusal<'a>(
    import: &'a str,
    free: &[&str],
    AllowedImports { grant, confinement }: &AllowedImports,
) -> Option<(&'a str, String)> {
    let remedy = match (interface(import), confinement) {
        (Some(name), _) if free.contains(&name) || grant.iter().any(|word| word == name) => return None,
        (None, Some(confinement)) => access::refusal(import, &confinement.access)?,
        _ => remedy(import, confinement.is_some()),
    };
    Some((import, remedy))
}

/// Lists refused imports, grouped by what to do about them.
fn by_remedy(refused: &[(&str, String)]) -> String {
    let mut lines = Vec::<(&str, Vec<&str>)>::new();
    for (import, remedy) in refused {
        match lines.iter_mut().find(|(known, _)| known == remedy) {
            Some((_, imports)) => imports.push(import),
            None => lines.push((remedy, vec![import])),
        }
    }
    let lines =
        lines.iter().map(|(remedy, imports)| format!("{}, which it is not granted: {remedy}", imports.join(", ")));
    lines.collect::<Vec<_>>().join("; and ")
}

/// The names of a component's imports and exports.
pub(crate) struct ComponentInterface {
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// The component's documentation section.
    pub docs: Option<Vec<u8>>,
}

impl ComponentInterface {
    /// Reads the manifest of a plugin. WebAssembly is not compiled for it.
    pub(crate) fn read(host: &Host, wasm: &PluginBytes) -> Result<Self, PluginError> {
        let docs = match &wasm.form {
            #[cfg(feature = "compiler")]
            PluginCode::Wasm(bytes) => return compile::manifest(&wasm.plugin, bytes),
            #[cfg(not(feature = "compiler"))]
            PluginCode::Wasm(_) => None,
            PluginCode::Precompiled(code) => code.docs(),
        };
        Ok(Self { docs, ..Self::of(&host.engine, &compile(host, wasm)?) })
    }

    pub(crate) fn of(engine: &Engine, component: &Component) -> Self {
        let kind = component.component_type();
        Self {
            imports: kind.imports(engine).map(|(name, _)| name.to_owned()).collect(),
            exports: kind.exports(engine).map(|(name, _)| name.to_owned()).collect(),
            docs: None,
        }
    }
}

/// Joins names for a message.
pub(crate) fn comma_separated(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Returns the interface if the name belongs to our package: `log` for `portcullis:plugin/log@0.1.0`.
pub(crate) fn interface(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(rest.split_once('@').map_or(rest, |(interface, _)| interface))
}

/// Returns what to write so that a plugin gets this import, or that nothing helps. Only a source can be granted
/// something.
pub(crate) fn remedy(import: &str, is_source: bool) -> String {
    match interface(import) {
        Some(name) if is_source && GRANTS.contains(&name) => format!("add `grant = [\"{name}\"]` to its table"),
        Some(_) => "it belongs to another kind of plugin".into(),
        None => {
            "no grant exists for it; a Rust plugin built for wasm32-unknown-unknown imports nothing of the kind".into()
        }
    }
}

fn other_track(name: &str) -> bool {
    let version = name.split_once('@').map_or("", |(_, version)| version);
    let ours = version.strip_prefix(TRACK).is_some_and(|rest| rest.starts_with('.'));
    interface(name).is_some() && !ours
}

fn package(name: &str) -> String {
    name.split_once('@').map_or_else(|| PACKAGE.to_owned(), |(_, version)| format!("{PACKAGE}@{version}"))
}

/// Compiles and links a component of a world that is not ours, for `check` to examine. Also returns how many slots an
/// instance takes.
pub(crate) fn foreign<T>(
    host: &Host,
    wasm: &PluginBytes,
    manifest: &ComponentInterface,
    allowed: &AllowedImports,
    check: impl FnOnce(InstancePre<GuestState>) -> wasmtime::Result<T>,
) -> Result<(T, u32), PluginError> {
    let linker = linker(&host.engine, &wasm.plugin, &manifest.imports, &["log"], allowed)?;
    bind(&linker, &wasm.plugin, &compile(host, wasm)?, check)
}

fn bind<T>(
    linker: &Linker<GuestState>,
    plugin: &str,
    component: &Component,
    check: impl FnOnce(InstancePre<GuestState>) -> wasmtime::Result<T>,
) -> Result<(T, u32), PluginError> {
    let pre = linker.instantiate_pre(component).and_then(check).map_err(|error| contract(plugin, &error))?;
    Ok((pre, weight(plugin, component)?))
}

fn contract(plugin: &str, error: &wasmtime::Error) -> PluginError {
    PluginError::Contract { plugin: plugin.to_owned(), reason: format!("{error:#}") }
}

/// Returns how many slots an instance takes. Slots are counted in memories, which the pool runs out of first.
fn weight(plugin: &str, component: &Component) -> Result<u32, PluginError> {
    let too_large = |needs: String, limit: u32| {
        Err(PluginError::TooLarge { plugin: plugin.to_owned(), needs, limit: limit.to_string() })
    };
    let most = limits::MEMORIES_PER_COMPONENT;
    match component.resources_required() {
        None => too_large("modules from outside".into(), 0),
        Some(needs) if needs.num_memories > most => too_large(format!("{} memories", needs.num_memories), most),
        Some(needs) if needs.num_tables > most => too_large(format!("{} tables", needs.num_tables), most),
        Some(needs) => Ok(needs.num_memories.max(1)),
    }
}
