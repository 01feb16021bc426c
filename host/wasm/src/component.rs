//! A component as a source: its kind, its access, and its loading.

use std::sync::Arc;

use portcullis_config::PluginRef;
use portcullis_core::protocol::Json;

use super::access::{self, ComponentAccess, EnforcedAccess, GrantedImports, KEY_VALUE};
use super::instance_pool::LoadedPlugin;
use super::load::{AllowedImports, ComponentInterface, GRANTS, PluginBytes, comma_separated, interface};
use super::v0_1::{PACKAGE, TRACK, ToolsWorld, World as _};
use super::{CommandComponent, FunctionsComponent, PluginError, PluginHost, PluginIdentity, ToolsComponent, blocking};

/// A loaded component that is a source. No part of it runs yet.
#[derive(Debug)]
pub struct Component {
    /// The kind of source, with the loaded component.
    pub kind: ComponentKind,
    /// The component's imports, and what it gets from them.
    pub imports: Vec<GrantedImports>,
    /// True if the component has a key-value store.
    pub has_store: bool,
}

/// The kinds of components that are sources.
#[derive(Debug)]
pub enum ComponentKind {
    /// A component of our `tools` world.
    Tools(ToolsComponent),
    /// A program that speaks MCP over its standard streams.
    Command(CommandComponent),
    /// Any other component that exports functions.
    Functions(FunctionsComponent),
}

/// The kind of source, as the component's exports determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DetectedKind {
    Tools,
    Command,
    Functions,
}

impl Component {
    pub(super) async fn load(
        plugins: &PluginHost,
        plugin: &PluginRef,
        settings: &serde_json::Value,
        grant: &[String],
        mut access: ComponentAccess,
    ) -> Result<Self, PluginError> {
        let wasm = plugins.reader.read(plugin).await?;
        let host = plugins.host()?;
        let reader = Arc::clone(host);
        let scan = move || {
            let manifest = ComponentInterface::read(&reader, &wasm)?;
            Ok((wasm, manifest))
        };
        let (wasm, manifest) = blocking(scan).await?;
        let shape = DetectedKind::of(&wasm, &manifest)?;
        check_grants_are_used(&wasm, &manifest, &access)?;
        let capability = |name: &&String| interface(name).is_some_and(|interface| GRANTS.contains(&interface));
        if let Some(import) = manifest.imports.iter().find(capability).filter(|_| shape == DetectedKind::Command) {
            let imports =
                format!("{import}, which a component that is an MCP server cannot have: it serves all callers at once");
            return Err(PluginError::NotGranted { plugin: wasm.plugin, imports });
        }
        if !manifest.imports.iter().any(|name| interface(name) == Some(KEY_VALUE)) {
            access.key_value = None;
        }
        let has_store = access.key_value.is_some();
        let offers_resources = ToolsWorld::offers_resources(&manifest.exports);
        let imports = access::opened(&manifest.imports, &access);
        let confinement = Arc::new(EnforcedAccess::new(access, &manifest.imports, &host.descriptors));
        let allowed = AllowedImports { grant: grant.to_vec(), confinement: Some(Arc::clone(&confinement)) };
        let kind = match shape {
            DetectedKind::Tools => {
                let LoadedPlugin { identity, pool, .. } =
                    plugins.load::<ToolsWorld>(wasm, settings, allowed, &host.tools).await?;
                let kept = Arc::clone(&host.kept_sessions);
                ComponentKind::Tools(ToolsComponent::start(identity, pool, offers_resources, kept).await?)
            }
            DetectedKind::Command | DetectedKind::Functions => {
                let settings = no_settings(&wasm, settings)?;
                let host = Arc::clone(host);
                let identity = PluginIdentity::new(&wasm, &settings);
                let load = move || match shape {
                    DetectedKind::Functions => {
                        FunctionsComponent::load(&host, &wasm, &manifest, &allowed, confinement, identity)
                            .map(ComponentKind::Functions)
                    }
                    _ => CommandComponent::load(&host, &wasm, &manifest, &allowed, confinement, identity)
                        .map(ComponentKind::Command),
                };
                blocking(load).await?
            }
        };
        Ok(Self { kind, imports, has_store })
    }
}

impl ComponentKind {
    /// Returns which component it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        match self {
            Self::Tools(tools) => tools.identity(),
            Self::Command(command) => command.identity(),
            Self::Functions(functions) => functions.identity(),
        }
    }

    /// Returns the name of the kind, for reports.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tools(_) => DetectedKind::Tools.as_str(),
            Self::Command(_) => DetectedKind::Command.as_str(),
            Self::Functions(_) => DetectedKind::Functions.as_str(),
        }
    }
}

impl DetectedKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Command => "command",
            Self::Functions => "functions",
        }
    }

    /// Returns the kind for these exports, or `None` if they belong to no kind of source.
    pub(super) fn found(exports: &[String]) -> Option<Self> {
        let has = |fits: &dyn Fn(&str) -> bool| exports.iter().any(|name| fits(name));
        if has(&|name| interface(name) == Some(ToolsWorld::EXPORT)) {
            return Some(Self::Tools);
        }
        if has(&|name| access::wasi(name) == Some(("cli", "run"))) {
            return Some(Self::Command);
        }
        let foreign = |name: &str| interface(name).is_none() && !name.starts_with("wasi:");
        has(&foreign).then_some(Self::Functions)
    }

    fn of(wasm: &PluginBytes, manifest: &ComponentInterface) -> Result<Self, PluginError> {
        let why = || {
            let ours = manifest.exports.iter().find_map(|name| interface(name));
            let http = manifest.exports.iter().any(|name| name.starts_with("wasi:http/"));
            match ours {
                Some(interface) => {
                    format!("it is a plugin that exports `{interface}`, which is configured in another table")
                }
                None if http => {
                    "it is an HTTP server; run it in a host for `wasi:http` and configure its `url`".to_owned()
                }
                None => format!(
                    "it exports {}; a source exports `{PACKAGE}/{}@{TRACK}`, `wasi:cli/run@0.2` (and speaks MCP over its \
                     standard streams), or functions",
                    comma_separated(&manifest.exports),
                    ToolsWorld::EXPORT,
                ),
            }
        };
        Self::found(&manifest.exports).ok_or_else(|| PluginError::NoSource { plugin: wasm.plugin.clone(), why: why() })
    }
}

/// Checks that the component imports what each of its grants is for. Otherwise it could never use the grant, and would
/// count as risky without need.
fn check_grants_are_used(
    wasm: &PluginBytes,
    manifest: &ComponentInterface,
    access: &ComponentAccess,
) -> Result<(), PluginError> {
    let imports = |wanted| manifest.imports.iter().any(|name| access::wasi(name) == Some(wanted));
    let (variables, folders) = (("cli", "environment"), ("filesystem", "preopens"));
    let (sockets, http) = (("sockets", "tcp"), ("http", "outgoing-handler"));
    let checks = [
        ("env", access.env.is_empty(), variables),
        ("args", access.args.is_empty(), variables),
        ("read", access.grant.read.is_empty(), folders),
        ("write", access.grant.write.is_empty(), folders),
        ("network", access.grant.network.is_empty() || imports(sockets), http),
    ];
    match checks.into_iter().find(|(_, unused, import)| !unused && !imports(*import)) {
        None => Ok(()),
        Some((key, _, (package, interface))) => {
            let import = format!("wasi:{package}/{interface}");
            Err(PluginError::Useless { plugin: wasm.plugin.clone(), key, import })
        }
    }
}

/// Refuses settings: only the `tools` world has a `configure` that takes them.
fn no_settings(wasm: &PluginBytes, settings: &serde_json::Value) -> Result<Json, PluginError> {
    match settings.as_object() {
        Some(settings) if !settings.is_empty() => Err(PluginError::NoSettings { plugin: wasm.plugin.clone() }),
        _ => Ok(Json::empty_object()),
    }
}
