//! Plugins: WebAssembly components that decide about calls, rewrite values, remember answers, export records, or are
//! tool sources.
//!
//! A plugin starts with nothing. It can call what its world imports and what the configuration grants; nothing
//! else is defined for it, and any other import is refused by name when the plugin is loaded. Each decision gets a
//! fresh instance, so that no state of one call reaches the next. Time, memory, tables, output and host calls are
//! limited ([`limits`]).
//!
//! Without the feature `compiler` the program contains no compiler: it loads what `portcullis plugin compile` produced,
//! pinned by digest.
//!
//! An error while a plugin runs is a [`PluginFailure`], for which the gate denies the call. An error that makes a
//! plugin unusable is a [`PluginError`], which keeps the broker from starting.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use portcullis_config::{PluginConfig, PluginRef};
use portcullis_core::digest::Digest;
use portcullis_core::limits;
use portcullis_core::protocol::Json;
use portcullis_core::sync::Mutex;
use tokio::sync::Semaphore;
use wasmtime::Engine;

mod access;
#[cfg(feature = "compiler")]
mod bake;
mod builtin;
mod clock;
mod command;
#[cfg(feature = "compiler")]
mod compile;
mod compiled;
mod component;
mod component_cell;
mod decide;
mod description;
mod descriptors;
mod engine;
mod error;
mod functions;
mod guest;
mod inspect;
mod instance_pool;
pub mod key_value;
mod load;
mod meter;
mod native;
mod observe;
mod plugin_reader;
mod sink;
mod tools;
mod v0_1;
mod verdict;

pub use access::{ComponentAccess, GrantedImports, KEY_VALUE};
pub use builtin::{builtin_descriptions, builtin_names};
pub use command::{CommandComponent, CommandStreams, RunningCommand};
pub use component::{Component, ComponentKind};
pub use component_cell::ComponentCell;
pub use decide::{Approval, Policy, Transform};
pub use description::PluginDescription;
#[cfg(feature = "compiler")]
pub use description::with_description;
pub use error::{FailureCode, PluginError, PluginFailure};
pub use functions::FunctionsComponent;
pub use inspect::{Import, Inspection};
pub use native::{NativeError, NativePlugins, NativePolicy, NativeSink};
pub use observe::{DecisionUsage, ObservedDecision};
pub use plugin_reader::PluginReader;
pub use sink::Sink;
pub use tools::{ToolFailure, ToolsComponent};
pub use verdict::{
    AnswerScope, AskFacts, Concern, Denial, GrantFacts, Offer, Settlement, TransformDecision, Vault, Verdict,
};

use clock::EpochClock;
#[cfg(feature = "compiler")]
use compiled::Cache;
use decide::PolicyCode;
use description::PassedCalls;
use descriptors::Descriptors;
use engine::EngineSettings;
use instance_pool::{InstancePool, InstanceSlots, LoadedPlugin};
use load::{AllowedImports, LoadedCode, PluginBytes};
use v0_1::World;

/// The plugin host: one engine with its clock, the loaded code, the cache of compiled code, and the slots for
/// instances. The engine starts with the first plugin. Clones are cheap and share the host.
#[derive(Clone)]
pub struct PluginHost {
    shared: Arc<SharedHost>,
    reader: Arc<PluginReader>,
    natives: Arc<NativePlugins>,
}

impl std::fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginHost").field("reader", &self.reader).finish_non_exhaustive()
    }
}

/// The state that all clones of a plugin host share.
#[derive(Default)]
struct SharedHost {
    settings: EngineSettings,
    #[cfg(feature = "compiler")]
    compiled: Option<Arc<Cache>>,
    /// The host, once its engine has started. A broker without plugins and components never needs it.
    started: OnceLock<Arc<Host>>,
    /// Held while the engine starts, so that it starts once.
    starting: Mutex<()>,
}

struct Host {
    engine: Engine,
    clock: Arc<EpochClock>,
    loaded: LoadedCode,
    descriptors: Descriptors,
    #[cfg(feature = "compiler")]
    compiled: Option<Arc<Cache>>,
    decisions: InstanceSlots,
    tools: InstanceSlots,
    kept_sessions: Arc<tools::KeptSessions>,
    commands: Arc<Semaphore>,
}

impl Host {
    fn start(shared: &SharedHost) -> Result<Self, String> {
        let (engine, clock) = engine::start(&shared.settings)?;
        Ok(Self {
            engine,
            clock,
            loaded: LoadedCode::default(),
            descriptors: Descriptors::of_this_process(),
            #[cfg(feature = "compiler")]
            compiled: shared.compiled.clone(),
            decisions: InstanceSlots::of_deciders(limits::DECISION_SLOTS),
            tools: InstanceSlots::new(limits::TOOL_SLOTS),
            kept_sessions: Arc::default(),
            commands: Arc::new(Semaphore::new(limits::COMMAND_SLOTS as usize)),
        })
    }
}

/// The identity of a plugin, as the ledger records it with each decision. A replay needs all three fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginIdentity {
    /// The name in the configuration: `builtin:rules`, or the path of the file.
    pub name: String,
    /// The digest of the `.wasm` file.
    pub digest: Digest,
    /// The digest of the settings' canonical form.
    pub settings: Digest,
}

impl PluginHost {
    /// Returns a host. Compiled code is kept in `cache_dir`, which is created private to this user; an existing folder
    /// must be private to this user, too. Without a folder every load compiles.
    ///
    /// # Errors
    /// [`PluginError::Cache`] for a folder that is not private to this user.
    pub fn new(cache_dir: Option<&Path>) -> Result<Self, PluginError> {
        Self::with_reader(cache_dir, PluginReader::default())
    }

    /// Returns a host, as [`PluginHost::new`] does, which reads plugins through `reader`, and loads only those that
    /// match its pins.
    ///
    /// # Errors
    /// The errors of [`PluginHost::new`].
    pub fn with_reader(cache_dir: Option<&Path>, reader: PluginReader) -> Result<Self, PluginError> {
        #[cfg(not(feature = "compiler"))]
        let _ = cache_dir;
        let shared = SharedHost {
            #[cfg(feature = "compiler")]
            compiled: cache_dir.map(cache).transpose()?.map(Arc::new),
            ..SharedHost::default()
        };
        Ok(Self { shared: Arc::new(shared), reader: Arc::new(reader), natives: Arc::default() })
    }

    /// Returns a host with the same plugins whose engine counts instructions: [`DecisionUsage`] then has their number.
    /// Its guests are slower, and its compiled code is not kept.
    #[cfg(feature = "compiler")]
    #[must_use]
    pub fn counting(&self) -> Self {
        let settings = EngineSettings { counts: true, ..EngineSettings::default() };
        let shared = SharedHost { settings, ..SharedHost::default() };
        Self { shared: Arc::new(shared), ..self.clone() }
    }

    /// Returns the host, whose engine and clock start now if they have not. That takes some milliseconds.
    ///
    /// # Errors
    /// [`PluginError::Engine`].
    fn host(&self) -> Result<&Arc<Host>, PluginError> {
        if let Some(host) = self.shared.started.get() {
            return Ok(host);
        }
        let _starting = self.shared.starting.lock();
        if self.shared.started.get().is_none() {
            let host = Host::start(&self.shared).map_err(PluginError::Engine)?;
            // No other thread can have set it while this one holds the lock.
            let _ = self.shared.started.set(Arc::new(host));
        }
        self.shared.started.get().ok_or_else(|| PluginError::Engine("it has not started".into()))
    }

    /// Returns this host with the policies and sinks of the program that embeds the broker.
    #[must_use]
    pub fn with_natives(self, natives: NativePlugins) -> Self {
        Self { natives: Arc::new(natives), ..self }
    }

    /// Returns this host with another reader, such as one with the pins of a lock file that has changed.
    #[must_use]
    pub fn with_other_pins(&self, reader: PluginReader) -> Self {
        Self { reader: Arc::new(reader), ..self.clone() }
    }

    /// Returns a digest that changes with the content of a plugin, as far as that can be told without a network: that
    /// of a file, or else the pin. `None` if there is neither.
    pub async fn content_digest(&self, plugin: &PluginRef) -> Option<Digest> {
        self.reader.content(plugin).await
    }

    /// Loads a policy and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`]. Cancellation safe, as are all functions here: compilation finishes in the background.
    pub async fn policy(&self, config: &PluginConfig) -> Result<Policy, PluginError> {
        if let PluginRef::Native(name) = &config.plugin {
            let policy = self.natives.policy(name)?;
            native::has_no_keys_of_components(config)?;
            return Ok(Policy::new(native::identity(name, policy.version()), config, PolicyCode::Native(policy)));
        }
        let LoadedPlugin { identity, pool, passes } = self.load_plugin(config).await?;
        Ok(Policy::new(identity, config, PolicyCode::Component { pool, passes }))
    }

    /// Loads a transform and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn transform(&self, config: &PluginConfig) -> Result<Transform, PluginError> {
        let LoadedPlugin { identity, pool, .. } = self.load_plugin(config).await?;
        Ok(Transform::new(identity, config, pool))
    }

    /// Loads an approval plugin and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn approval(&self, config: &PluginConfig) -> Result<Approval, PluginError> {
        let LoadedPlugin { identity, pool, .. } = self.load_plugin(config).await?;
        Ok(Approval::new(identity, config, pool))
    }

    /// Loads a sink, configures it once, and opens its file: the configured file, or else `default_file`.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn sink(&self, config: &PluginConfig, default_file: &Path) -> Result<Sink, PluginError> {
        if let PluginRef::Native(name) = &config.plugin {
            let sink = self.natives.sink(name)?;
            native::has_no_keys_of_components(config)?;
            return Ok(Sink::native(native::identity(name, ""), sink));
        }
        let LoadedPlugin { identity, pool, .. } = self.load_plugin(config).await?;
        Sink::open(identity, config.file.as_deref().unwrap_or(default_file), pool)
    }

    /// Loads a component source of any [`ComponentKind`], with the access that it is given. A [`ToolsComponent`] is
    /// configured once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn component(
        &self,
        plugin: &PluginRef,
        settings: &serde_json::Value,
        grant: &[String],
        access: ComponentAccess,
    ) -> Result<Component, PluginError> {
        // Boxed, because the future contains the loading of every kind.
        Box::pin(Component::load(self, plugin, settings, grant, access)).await
    }

    /// Returns a plugin's kind and needs, without running any of it.
    ///
    /// # Errors
    /// [`PluginError`] if the plugin cannot be read, or is not a component.
    pub async fn inspect(&self, plugin: &PluginRef) -> Result<Inspection, PluginError> {
        let wasm = self.reader.read(plugin).await?;
        let host = Arc::clone(self.host()?);
        blocking(move || {
            let component = load::compile(&host, &wasm)?;
            inspect::inspect(&host.engine, &wasm, &component)
        })
        .await
    }

    /// Returns the bytes of a plugin as a component, also of a core module that cargo built.
    ///
    /// # Errors
    /// [`PluginError`] if the plugin cannot be read, or is not a component.
    #[cfg(feature = "compiler")]
    pub async fn component_bytes(&self, plugin: &PluginRef) -> Result<Vec<u8>, PluginError> {
        let wasm = self.reader.read(plugin).await?;
        blocking(move || compile::component_bytes(&wasm)).await
    }

    /// Compiles a plugin for hosts of the same version that have no compiler: for this processor, or for `target`, such
    /// as `pulley64`, whose interpreter runs on any 64-bit processor. The configuration names the resulting file as
    /// `FILE.cwasm@DIGEST`.
    ///
    /// # Errors
    /// [`PluginError`] if the plugin is not a component, or this program cannot compile for the target.
    #[cfg(feature = "compiler")]
    pub async fn precompile(&self, plugin: &PluginRef, target: Option<&str>) -> Result<Vec<u8>, PluginError> {
        let wasm = self.reader.read(plugin).await?;
        let target = target.map(str::to_owned);
        blocking(move || compile::precompiled(&wasm, target.as_deref())).await
    }

    async fn load_plugin<W: World>(&self, config: &PluginConfig) -> Result<LoadedPlugin<W>, PluginError> {
        let wasm = self.reader.read(&config.plugin).await?;
        let allowed = AllowedImports { grant: config.grant.clone(), confinement: None };
        self.load(wasm, &config.settings, allowed, &self.host()?.decisions).await
    }

    async fn load<W: World>(
        &self,
        wasm: PluginBytes,
        settings: &serde_json::Value,
        allowed: AllowedImports,
        slots: &InstanceSlots,
    ) -> Result<LoadedPlugin<W>, PluginError> {
        let host = Arc::clone(self.host()?);
        let (engine, clock) = (host.engine.clone(), Arc::clone(&host.clock));
        let settings = Json::of(settings);
        let identity = PluginIdentity::new(&wasm, &settings);
        let text = settings.as_str().to_owned();
        let (described, linked) = blocking(move || {
            let described = description::fitting(&wasm, &settings.to_value());
            // The `configure` of a source may use what the source is granted.
            if allowed.confinement.is_some() {
                described?;
                return Ok((Ok(None), load::prepare::<W>(&host, &wasm, &allowed, text)));
            }
            Ok((described, load::prepare::<W>(&host, &wasm, &allowed, text)))
        })
        .await?;
        let pool = match linked {
            Ok(linked) => InstancePool::start(engine, clock, linked, slots.clone()).await,
            Err(error) => Err(error),
        };
        match (described, pool) {
            // The plugin's own words tell more than its schema.
            (_, Err(refused @ PluginError::Settings { .. })) => Err(refused),
            (Err(misfit), _) => Err(misfit),
            (Ok(description), pool) => {
                Ok(LoadedPlugin { identity, pool: pool?, passes: PassedCalls::of(description.as_ref()) })
            }
        }
    }
}

#[cfg(feature = "compiler")]
fn cache(folder: &Path) -> Result<Cache, PluginError> {
    Cache::open(folder)
        .map_err(|error| PluginError::Cache { folder: folder.display().to_string(), reason: error.to_string() })
}

impl PluginIdentity {
    fn new(wasm: &PluginBytes, settings: &Json) -> Self {
        Self {
            name: wasm.plugin.clone(),
            digest: wasm.digest,
            // Only duplicate keys prevent a canonical form, and settings that came from TOML have none.
            settings: Digest::of_json(settings).unwrap_or_else(|_| Digest::of(settings.as_bytes())),
        }
    }
}

/// Runs work on a thread for blocking tasks: compiling takes from 50 ms to seconds of processor time.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(PluginError::Engine(format!("a task of the plugin host failed: {error}"))))
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
