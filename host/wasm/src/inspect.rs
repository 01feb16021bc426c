//! The inspection of a plugin, for a person who decides whether to trust it.

use portcullis_core::digest::Digest;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::access::{self, ComponentAccess};
use super::component::DetectedKind;
use super::description::PluginDescription;
use super::error::PluginError;
use super::load::{ComponentInterface, GRANTS, PluginBytes, interface, remedy};
use super::v0_1::{ApprovalWorld, PolicyWorld, SinkWorld, ToolsWorld, TransformWorld, World};

/// A description of a plugin: its kind and its needs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Inspection {
    /// The plugin: `builtin:NAME`, or the path.
    pub plugin: String,
    /// The digest of the `.wasm` file.
    pub digest: Digest,
    /// The size of the file in bytes.
    pub size: usize,
    /// The kind of plugin that its exports make it: `policy`, `transform`, `approval`, `audit`, `tools`, `command`,
    /// `functions` or `none`.
    pub world: &'static str,
    /// The imports: everything that the plugin needs from its host.
    pub imports: Vec<Import>,
    /// The names of its exports.
    pub exports: Vec<String>,
    /// The plugin's description of itself, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<PluginDescription>,
}

/// An interface that a plugin imports from its host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Import {
    /// The package, interface and version.
    pub name: String,
    /// The word for it in `grant`; `None` if it needs no grant, or if none exists.
    pub grant: Option<&'static str>,
    /// The reason why the import is refused even with every grant; `None` if it is not.
    pub refused: Option<String>,
}

pub(super) fn inspect(engine: &Engine, wasm: &PluginBytes, component: &Component) -> Result<Inspection, PluginError> {
    let ComponentInterface { imports, exports, .. } = ComponentInterface::of(engine, component);
    let source = DetectedKind::found(&exports);
    let (world, free) = world(&exports).unwrap_or((source.map_or("none", DetectedKind::as_str), &["log"]));
    let access = source.map(|_| ComponentAccess::default());
    let imports = imports.into_iter().map(|name| import(name, free, access.as_ref())).collect();
    let (plugin, digest, size) = (wasm.plugin.clone(), wasm.digest, wasm.size());
    let description = PluginDescription::of(wasm)?;
    Ok(Inspection { plugin, digest, size, world, imports, exports, description })
}

fn world(exports: &[String]) -> Option<(&'static str, &'static [&'static str])> {
    fn entry<W: World>() -> (&'static str, &'static str, &'static [&'static str]) {
        (W::EXPORT, W::NAME, W::IMPORTS)
    }
    let worlds = [
        entry::<PolicyWorld>(),
        entry::<TransformWorld>(),
        entry::<ApprovalWorld>(),
        entry::<SinkWorld>(),
        entry::<ToolsWorld>(),
    ];
    let fits = |export: &str| exports.iter().any(|name| interface(name) == Some(export));
    worlds.into_iter().find(|(export, ..)| fits(export)).map(|(_, name, imports)| (name, imports))
}

fn import(name: String, free: &[&str], access: Option<&ComponentAccess>) -> Import {
    let ours = interface(&name);
    let grants = access.map_or(&[][..], |_| &GRANTS);
    let grant = grants.iter().copied().find(|grant| ours == Some(grant));
    let refused = match (ours, access) {
        (Some(interface), _) if free.contains(&interface) || grant.is_some() => None,
        (None, Some(access)) => access::refusal(&name, access),
        _ => Some(remedy(&name, access.is_some())),
    };
    Import { name, grant, refused }
}
