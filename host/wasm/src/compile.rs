//! Compiles WebAssembly to code of this machine, and to plugins that start configured. Needs the feature `compiler`.

use std::borrow::Cow;

use portcullis_core::digest::Digest;
use wasmparser::{ComponentTypeRef, Parser, Payload, TypeBounds};
use wasmtime::component::Component;

use super::bake::{BakeError, bake};
use super::compiled::Precompiled;
use super::guest::GuestState;
use super::instance_pool::InstantiateError;
use super::load::{AllowedImports, CodeKey, ComponentInterface, PluginBytes, PluginCode, link};
use super::v0_1::{GuestFacts, World};
use super::{Host, PluginError, engine, limits};

/// Returns a plugin that starts with its settings, or `None` if each instance must be configured.
pub(super) fn configured<W: World>(
    host: &Host,
    wasm: &PluginBytes,
    allowed: &AllowedImports,
    settings: &String,
) -> Result<Option<Component>, PluginError> {
    let PluginCode::Wasm(bytes) = &wasm.form else { return Ok(None) };
    if allowed.confinement.as_ref().is_some_and(|confinement| confinement.wasi) {
        // It has a clock and random numbers, so two starts may differ.
        return Ok(None);
    }
    // A component may be a plugin of several kinds, and each of them has its own `configure`.
    let digest = Digest::of(format!("{} {} {settings}", W::EXPORT, wasm.digest).as_bytes());
    let code = CodeKey::Configured(digest);
    if let Some(component) = host.loaded.get(code) {
        return Ok(Some(component));
    }
    if let Some(component) = kept(host, &digest) {
        return Ok(Some(host.loaded.keep(code, component)));
    }
    let bytes = encoded(&wasm.plugin, bytes)?;
    let facts = GuestFacts { plugin: wasm.plugin.as_str().into(), ..GuestFacts::default() };
    let store = match &allowed.confinement {
        None => GuestState::store(&host.engine, &host.clock, facts),
        Some(confinement) => GuestState::confined(&host.engine, &host.clock, facts, confinement)
            .map_err(|failure| InstantiateError::Failed(failure).of(&wasm.plugin))?,
    };
    // The component that reads the settings is the same for all settings, so a change of them compiles one component
    // and not two.
    let prepare = |readable: &[u8]| {
        let component = compiled(host, &wasm.plugin, readable)?;
        Ok(link::<W>(&host.engine, wasm, &component, allowed, None)?.pre)
    };
    let baked = bake::<W>(store, &bytes, settings, prepare);
    match tokio::runtime::Handle::current().block_on(baked) {
        Ok(component) => {
            keep(host, &wasm.plugin, &digest, &component);
            Ok(Some(host.loaded.keep(code, component)))
        }
        Err(BakeError::Start(start_error)) => Err(start_error.of(&wasm.plugin)),
        Err(BakeError::Unable(error)) => {
            tracing::debug!(plugin = %wasm.plugin, %error, "plugin is configured in each instance");
            Ok(None)
        }
    }
}

/// Compiles a plugin, or loads it from the cache.
pub(super) fn component(host: &Host, wasm: &PluginBytes, bytes: &[u8]) -> Result<Component, PluginError> {
    if let Some(component) = kept(host, &wasm.digest) {
        return Ok(component);
    }
    let bytes = encoded(&wasm.plugin, bytes)?;
    let component = Component::from_binary(&host.engine, &bytes).map_err(|error| {
        let (plugin, reason) = (wasm.plugin.clone(), format!("{error:#}"));
        // A component that does not fit into the pool is still a component.
        if reason.contains("pool") || reason.contains("exceed") {
            let (memories, modules) = (limits::MEMORIES_PER_COMPONENT, limits::CORE_INSTANCES_PER_COMPONENT);
            let limit = format!("{memories} memories of 4 GiB and {modules} core modules");
            return PluginError::TooLarge { plugin, needs: reason, limit };
        }
        PluginError::NotAComponent { plugin, reason }
    })?;
    keep(host, &wasm.plugin, &wasm.digest, &component);
    Ok(component)
}

/// Returns the bytes of a plugin as a component.
pub(super) fn component_bytes(wasm: &PluginBytes) -> Result<Vec<u8>, PluginError> {
    match &wasm.form {
        PluginCode::Wasm(bytes) => encoded(&wasm.plugin, bytes).map(Cow::into_owned),
        PluginCode::Precompiled(_) => {
            let reason = "it is compiled code; name the .wasm file that it was made from".into();
            Err(PluginError::NotAComponent { plugin: wasm.plugin.clone(), reason })
        }
    }
}

/// Compiles a plugin for hosts without a compiler: for this processor, or for the named target.
pub(super) fn precompiled(wasm: &PluginBytes, target: Option<&str>) -> Result<Vec<u8>, PluginError> {
    let refuse = |reason: String| PluginError::NotAComponent { plugin: wasm.plugin.clone(), reason };
    let PluginCode::Wasm(bytes) = &wasm.form else { return Err(refuse("it is compiled already".into())) };
    let engine = engine::compiler(target)?;
    let manifest = manifest(&wasm.plugin, bytes)?;
    let code =
        engine.precompile_component(&encoded(&wasm.plugin, bytes)?).map_err(|error| refuse(format!("{error:#}")))?;
    Ok(Precompiled::file(wasm.digest, manifest.docs.as_deref(), &code))
}

/// Compiles a component that was derived from a plugin, or loads it from the cache.
fn compiled(host: &Host, plugin: &str, bytes: &[u8]) -> wasmtime::Result<Component> {
    let digest = Digest::of(bytes);
    if let Some(component) = kept(host, &digest) {
        return Ok(component);
    }
    let component = Component::from_binary(&host.engine, bytes)?;
    keep(host, plugin, &digest, &component);
    Ok(component)
}

/// Returns the component that was compiled before and kept under this digest.
fn kept(host: &Host, digest: &Digest) -> Option<Component> {
    host.compiled.as_ref()?.load(&host.engine, digest)
}

fn keep(host: &Host, plugin: &str, digest: &Digest, component: &Component) {
    if let Some(folder) = &host.compiled
        && let Err(error) = folder.store(&host.engine, digest, component)
    {
        tracing::warn!(%plugin, %error, "compiled plugin is not kept; the next start compiles it again");
    }
}

/// Returns the bytes as a component. A core module built by cargo and wit-bindgen is converted here, so that authors
/// need no other tool.
fn encoded<'a>(plugin: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, PluginError> {
    const CORE: &[u8] = b"\0asm\x01\0\0\0";
    let refuse = |reason: String| PluginError::NotAComponent { plugin: plugin.to_owned(), reason };
    if !bytes.starts_with(b"\0asm") {
        return Err(refuse("it does not begin as WebAssembly does".into()));
    }
    if !bytes.starts_with(CORE) {
        return Ok(bytes.into());
    }
    if memchr::memmem::find(bytes, b"wasi_snapshot_preview1").is_some() {
        return Err(refuse("it is a core module for an older WASI; build it for wasm32-wasip2".into()));
    }
    if memchr::memmem::find(bytes, b"component-type").is_none() {
        let reason = "it is a core module that does not name its world; generate its bindings with wit-bindgen";
        return Err(refuse(reason.into()));
    }
    let mut encoder = wit_component::ComponentEncoder::default();
    let encoded = encoder.validate(true).module(bytes).and_then(|encoder| encoder.encode());
    encoded.map(Into::into).map_err(|error| refuse(format!("its core module cannot be encoded: {error:#}")))
}

/// Returns what a component imports and exports, without compiling it.
pub(super) fn manifest(plugin: &str, bytes: &[u8]) -> Result<ComponentInterface, PluginError> {
    let bytes = encoded(plugin, bytes)?;
    let mut manifest = ComponentInterface { imports: Vec::new(), exports: Vec::new(), docs: None };
    let mut depth = 0;
    let scanned = Parser::new(0).parse_all(&bytes).try_for_each(|payload| {
        match payload? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    let import = import?;
                    // An import that only names a type requires nothing.
                    if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                        manifest.imports.push(import.name.name.to_owned());
                    }
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
        plugin: plugin.to_owned(),
        reason: error.to_string(),
    };
    scanned.map(|()| manifest).map_err(refuse)
}
