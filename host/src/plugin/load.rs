//! From a file to a component that is ready to be instantiated: read, encode, compile, check what it imports, link.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use wasmparser::{Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre, Linker};

use super::access::{self, Enclosure, KEY_VALUE};
use super::bake::{Unbaked, bake};
use super::error::PluginError;
use super::guest::State;
use super::v0_1::{self, Facts, PACKAGE, TRACK, World};
use super::{Host, builtin, limits};
use crate::config::PluginRef;
use crate::digest::Digest;

/// The capabilities that a configuration may grant, and the interface behind each.
pub(crate) const GRANTS: [&str; 2] = ["log", KEY_VALUE];

/// The bytes of a plugin.
pub(crate) struct Wasm {
    pub(crate) plugin: String,
    pub(crate) digest: Digest,
    bytes: Vec<u8>,
}

impl Wasm {
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Of the plugin with its settings in it.
    fn digest_with(&self, settings: &str) -> Digest {
        let mut text = format!("{} ", self.digest);
        text.push_str(settings);
        Digest::of(text.as_bytes())
    }
}

/// A component checked against its world.
pub(crate) struct Linked<W: World> {
    pub(crate) plugin: Arc<str>,
    pub(crate) pre: W::Pre,
    /// Slots that one instance takes.
    pub(crate) weight: u32,
    /// What each instance is still to be given. None if it starts configured.
    pub(crate) settings: Option<String>,
    /// What the component of a source may touch.
    pub(crate) enclosure: Option<Arc<Enclosure>>,
}

/// What a configuration lets a component import beside what its kind always has.
#[derive(Clone, Default)]
pub(crate) struct Allowed {
    /// The words of `grant`.
    pub(crate) grant: Vec<String>,
    /// Of the component of a source.
    pub(crate) enclosure: Option<Arc<Enclosure>>,
}

/// From a file to what instances are made of. The settings are given to the plugin here if they can be given once for all.
pub(crate) fn prepare<W: World>(
    host: &Host,
    wasm: &Wasm,
    allowed: &Allowed,
    settings: String,
) -> Result<Linked<W>, PluginError> {
    let in_each = |settings| link(&host.engine, wasm, &compile(host, wasm)?, allowed, Some(settings));
    if allowed.enclosure.as_ref().is_some_and(|enclosure| enclosure.wasi) {
        // It has a clock and chance, so that no two starts need be the same.
        return in_each(settings);
    }
    let configured = wasm.digest_with(&settings);
    if let Some(component) = host.compiled.as_ref().and_then(|folder| folder.load(&host.engine, &configured)) {
        return link(&host.engine, wasm, &component, allowed, None);
    }
    let bytes = component_bytes(wasm)?;
    let store =
        State::store(&host.engine, &host.clock, Facts { plugin: wasm.plugin.as_str().into(), ..Facts::default() });
    let baked = bake::<W>(store, &bytes, &settings, |component| {
        Ok(link::<W>(&host.engine, wasm, component, allowed, None)?.pre)
    });
    match tokio::runtime::Handle::current().block_on(baked) {
        Ok(component) => {
            keep(host, &wasm.plugin, &configured, &component);
            link(&host.engine, wasm, &component, allowed, None)
        }
        Err(Unbaked::Unready(unready)) => Err(unready.of(&wasm.plugin)),
        Err(Unbaked::Unable(error)) => {
            tracing::debug!(plugin = %wasm.plugin, %error, "plugin is configured in each instance");
            in_each(settings)
        }
    }
}

/// Reads a plugin.
pub(crate) fn read(plugin: &PluginRef) -> Result<Wasm, PluginError> {
    let (plugin, bytes) = match plugin {
        PluginRef::Builtin(name) => (format!("builtin:{name}"), builtin::find(name)?.to_vec()),
        PluginRef::Path(path) => {
            let name = path.display().to_string();
            let mut bytes = Vec::new();
            // One byte more than may be, to tell a large file from a cut one.
            let read = File::open(path).and_then(|file| file.take(limits::COMPONENT_BYTES + 1).read_to_end(&mut bytes));
            read.map_err(|error| PluginError::Read { plugin: name.clone(), reason: error.to_string() })?;
            (name, bytes)
        }
    };
    if bytes.len() as u64 > limits::COMPONENT_BYTES {
        let (needs, limit) = ("a larger file".into(), format!("{} MiB", limits::COMPONENT_BYTES >> 20));
        return Err(PluginError::TooLarge { plugin, needs, limit });
    }
    Ok(Wasm { plugin, digest: Digest::of(&bytes), bytes })
}

/// Compiles a plugin, or takes what was compiled before.
pub(crate) fn compile(host: &Host, wasm: &Wasm) -> Result<Component, PluginError> {
    if let Some(component) = host.compiled.as_ref().and_then(|folder| folder.load(&host.engine, &wasm.digest)) {
        return Ok(component);
    }
    let bytes = component_bytes(wasm)?;
    let component = Component::from_binary(&host.engine, &bytes).map_err(|error| {
        let (plugin, reason) = (wasm.plugin.clone(), format!("{error:#}"));
        // What the pool has no room for is a component all the same.
        if reason.contains("pool") || reason.contains("exceed") {
            let limit = format!("{} memories of 4 GiB", limits::MEMORIES_PER_COMPONENT);
            return PluginError::TooLarge { plugin, needs: reason, limit };
        }
        PluginError::NotAComponent { plugin, reason }
    })?;
    keep(host, &wasm.plugin, &wasm.digest, &component);
    Ok(component)
}

fn keep(host: &Host, plugin: &str, digest: &Digest, component: &Component) {
    if let Some(folder) = &host.compiled
        && let Err(error) = folder.store(&host.engine, digest, component)
    {
        tracing::warn!(%plugin, %error, "compiled plugin is not kept; the next start compiles it again");
    }
}

/// The component itself. A core module that cargo and wit-bindgen made becomes one here, so that an author needs no other tool.
fn component_bytes(wasm: &Wasm) -> Result<std::borrow::Cow<'_, [u8]>, PluginError> {
    const CORE: &[u8] = b"\0asm\x01\0\0\0";
    let refuse = |reason: String| PluginError::NotAComponent { plugin: wasm.plugin.clone(), reason };
    if !wasm.bytes.starts_with(b"\0asm") {
        return Err(refuse("it does not begin as WebAssembly does".into()));
    }
    if !wasm.bytes.starts_with(CORE) {
        return Ok(wasm.bytes.as_slice().into());
    }
    if memchr::memmem::find(&wasm.bytes, b"wasi_snapshot_preview1").is_some() {
        return Err(refuse("it is a core module for an older WASI; build it for wasm32-wasip2".into()));
    }
    if memchr::memmem::find(&wasm.bytes, b"component-type").is_none() {
        let reason = "it is a core module that says nothing of its world; generate its bindings with wit-bindgen";
        return Err(refuse(reason.into()));
    }
    let mut encoder = wit_component::ComponentEncoder::default();
    let encoded = encoder.validate(true).module(&wasm.bytes).and_then(|encoder| encoder.encode());
    encoded.map(Into::into).map_err(|error| refuse(format!("its core module cannot be encoded: {error:#}")))
}

/// Checks imports against the grant and exports against the world, and links.
fn link<W: World>(
    engine: &Engine,
    wasm: &Wasm,
    component: &Component,
    allowed: &Allowed,
    settings: Option<String>,
) -> Result<Linked<W>, PluginError> {
    let plugin = wasm.plugin.clone();
    let Manifest { imports, exports, .. } = Manifest::of(engine, component);
    if let Some(name) = imports.iter().chain(&exports).find(|name| other_track(name)) {
        return Err(PluginError::OtherTrack { plugin, package: package(name), served: TRACK });
    }
    if !exports.iter().any(|name| interface(name) == Some(W::EXPORT)) {
        let exports = listed(&exports);
        let interface = format!("{PACKAGE}/{}@{TRACK}", W::EXPORT);
        return Err(PluginError::WrongWorld { plugin, wanted: W::NAME, exports, interface });
    }
    let linker = linker(engine, &plugin, &imports, W::IMPORTS, allowed)?;
    let (pre, weight) = bind(&linker, &plugin, component, W::check)?;
    let enclosure = allowed.enclosure.clone();
    Ok(Linked { plugin: plugin.into(), pre, weight, settings, enclosure })
}

/// Checks imports against what is always there (`free`, interfaces of ours) and what is granted, and defines just that.
fn linker(
    engine: &Engine,
    plugin: &str,
    imports: &[String],
    free: &[&str],
    allowed: &Allowed,
) -> Result<Linker<State>, PluginError> {
    let Allowed { grant, enclosure } = allowed;
    let plugin = plugin.to_owned();
    let of_sources = |word: &str| word == KEY_VALUE && enclosure.is_none();
    if let Some(grant) = grant.iter().find(|word| !GRANTS.contains(&word.as_str()) || of_sources(word)) {
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
    if enclosure.as_ref().is_some_and(|enclosure| enclosure.wasi) {
        access::link(&mut linker, imports).map_err(contract)?;
    }
    Ok(linker)
}

/// Why an import is not to be had, and the way out; None if it is.
fn refusal<'a>(import: &'a str, free: &[&str], Allowed { grant, enclosure }: &Allowed) -> Option<(&'a str, String)> {
    let remedy = match (interface(import), enclosure) {
        (Some(name), _) if free.contains(&name) || grant.iter().any(|word| word == name) => return None,
        (None, Some(enclosure)) => enclosure.refusal(import)?,
        _ => remedy(import),
    };
    Some((import, remedy))
}

/// Refused imports with their ways out, each once.
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

/// What a component imports and exports, by name.
pub(crate) struct Manifest {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// Its section of documentation.
    pub(crate) docs: Option<Vec<u8>>,
}

impl Manifest {
    /// Of a component that is not compiled yet.
    pub(crate) fn scan(wasm: &Wasm) -> Result<Self, PluginError> {
        let bytes = component_bytes(wasm)?;
        let mut manifest = Self { imports: Vec::new(), exports: Vec::new(), docs: None };
        let mut depth = 0;
        let scanned = Parser::new(0).parse_all(&bytes).try_for_each(|payload| {
            match payload? {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        manifest.imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    for export in section {
                        manifest.exports.push(export?.name.name.to_owned());
                    }
                }
                Payload::CustomSection(section) if depth == 1 && section.name() == "package-docs" => {
                    manifest.docs = Some(section.data().to_vec());
                }
                _ => {}
            }
            Ok::<_, wasmparser::BinaryReaderError>(())
        });
        let refuse = |error: wasmparser::BinaryReaderError| PluginError::NotAComponent {
            plugin: wasm.plugin.clone(),
            reason: error.to_string(),
        };
        scanned.map(|()| manifest).map_err(refuse)
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

/// Names for a message.
pub(crate) fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// The interface, if the name is one of our package: `log` of `portcullis:plugin/log@0.1.0`.
pub(crate) fn interface(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(rest.split_once('@').map_or(rest, |(interface, _)| interface))
}

/// What has to be written down for a plugin to get this import, or that nothing helps.
pub(crate) fn remedy(import: &str) -> String {
    match interface(import) {
        Some(name) if GRANTS.contains(&name) => format!("add `grant = [\"{name}\"]` to its table"),
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

/// Links and compiles a component of another world than ours, for `check` to read. Also says how many slots it takes.
pub(crate) fn foreign<T>(
    host: &Host,
    wasm: &Wasm,
    manifest: &Manifest,
    allowed: &Allowed,
    check: impl FnOnce(InstancePre<State>) -> wasmtime::Result<T>,
) -> Result<(T, u32), PluginError> {
    let linker = linker(&host.engine, &wasm.plugin, &manifest.imports, &[], allowed)?;
    bind(&linker, &wasm.plugin, &compile(host, wasm)?, check)
}

fn bind<T>(
    linker: &Linker<State>,
    plugin: &str,
    component: &Component,
    check: impl FnOnce(InstancePre<State>) -> wasmtime::Result<T>,
) -> Result<(T, u32), PluginError> {
    let pre = linker.instantiate_pre(component).and_then(check).map_err(|error| contract(plugin, &error))?;
    Ok((pre, weight(plugin, component)?))
}

fn contract(plugin: &str, error: &wasmtime::Error) -> PluginError {
    PluginError::Contract { plugin: plugin.to_owned(), reason: format!("{error:#}") }
}

/// Slots are counted in memories, which is what the pool runs out of.
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
