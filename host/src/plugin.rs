//! Plugins: WebAssembly components that decide, rewrite, settle, record, or are a source of tools.
//!
//! A plugin starts with nothing. It can call what its world imports and what the configuration grants; everything else is not
//! defined for it, and refused by name when it is loaded. Each decision gets a fresh instance, so that nothing of one call
//! reaches the next. Time, memory, tables, output and host calls are bounded ([`limits`]).
//!
//! Without the feature `compiler` there is no compiler in the program: it takes what `portcullis plugin compile` made, by digest.
//!
//! Whatever goes wrong while a plugin runs is a [`Failure`]; the gate denies on it. Whatever makes a plugin unusable is a
//! [`PluginError`], and stops the start.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;
use wasmtime::Engine;

use crate::config::{PluginConfig, PluginRef};
use crate::digest::Digest;
use crate::limits;
use crate::protocol::Json;

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
mod descriptors;
mod engine;
mod error;
mod functions;
mod guest;
mod inspect;
mod instance_pool;
mod load;
mod meter;
mod origin;
mod sink;
mod tools;
mod v0_1;

pub(crate) use access::KEY_VALUE;
pub use access::{Access, Opened};
pub use command::Command;
pub(crate) use command::{Running, Streams};
pub use component::{Component, ComponentKind};
pub use component_cell::ComponentCell;
pub use decide::{Approval, Policy, Transform};
pub use error::{Failure, FailureCode, PluginError};
pub use functions::Functions;
pub use inspect::{Import, Inspection};
pub use origin::Origin;
pub use sink::Sink;
pub use tools::{ToolFailure, Tools};

use clock::Clock;
#[cfg(feature = "compiler")]
use compiled::Cache;
use descriptors::Descriptors;
use instance_pool::{InstancePool, Slots};
use load::{Allowed, Loaded, Wasm};
use v0_1::World;

/// The plugin host: one engine, its clock, the code that is loaded and the folder of what was compiled, the slots. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Plugins(Arc<Host>);

struct Host {
    origin: Origin,
    engine: Engine,
    clock: Arc<Clock>,
    loaded: Loaded,
    descriptors: Descriptors,
    #[cfg(feature = "compiler")]
    compiled: Option<Cache>,
    decisions: Slots,
    tools: Slots,
    commands: Arc<Semaphore>,
}

/// Which plugin it was, for the ledger: a replay needs all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `builtin:rules`, or the path of the file.
    pub name: String,
    /// Of the `.wasm` file.
    pub digest: Digest,
    /// Of the settings' canonical form.
    pub settings: Digest,
}

/// What a policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to object.
    Pass,
    /// A person must agree; the text says why.
    Ask(String),
    /// Refused.
    Deny(Denial),
}

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// For machines: up to 64 lower-case letters, digits and dashes.
    pub code: String,
    /// For people.
    pub message: String,
}

/// What a transform makes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It stays byte for byte.
    Keep,
    /// It becomes this object.
    Replace(Json),
    /// The call ends here.
    Refuse(Denial),
}

/// Keeps values that the agent must not see. Lives as long as a session.
pub trait Vault: Send + Sync {
    /// Keeps `value` and returns its placeholder; the same for the same value and kind. `restore_to` are globs over exposed
    /// tool names; empty means the source whose call or result held it. Must not block: a guest is waiting.
    fn protect(&self, kind: &str, value: &str, restore_to: Vec<String>) -> String;
}

/// What an approval plugin is told of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskFacts {
    /// One for each policy that asks and one for the risk.
    pub reasons: Vec<String>,
    /// Earlier answers that would cover the call.
    pub grants: Vec<GrantFacts>,
    /// Whether the tool may be destructive or reach an open world.
    pub grave: bool,
}

/// An earlier answer that would cover a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFacts {
    /// The grant's identifier.
    pub id: String,
    /// How far it reaches.
    pub scope: Scope,
    /// Seconds since a person gave it.
    pub age: u32,
}

/// How an ask is settled, as a plugin would have it. The gate narrows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Put the question to a person.
    Question(Offer),
    /// Use the earlier answer of this id.
    Remembered(String),
    /// Refuse without asking.
    Refuse(Denial),
}

/// What a person may choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// As the plugin listed them; may hold duplicates.
    pub scopes: Vec<Scope>,
    /// Seconds for which a remembered answer holds.
    pub valid_for: u32,
    /// How often it may be used; 0 means without limit.
    pub uses: u32,
}

/// How far an answer reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// This call.
    Once,
    /// One later call with the same arguments.
    Arguments,
    /// The tool, in this session.
    Session,
    /// The tool, for this principal.
    Principal,
}

impl Plugins {
    /// Starts the engine and its clock. Compiled code is kept in `cache_dir`, which is created private, and must be this
    /// user's alone if it is there; without a folder every load compiles.
    ///
    /// # Errors
    /// [`PluginError::Engine`], and [`PluginError::Cache`] for a folder that is not ours alone.
    pub fn new(cache_dir: Option<&Path>) -> Result<Self, PluginError> {
        Self::with_origin(cache_dir, Origin::default())
    }

    /// The same, with plugins that are what they were pinned to.
    ///
    /// # Errors
    /// As [`Plugins::new`].
    pub fn with_origin(cache_dir: Option<&Path>, origin: Origin) -> Result<Self, PluginError> {
        #[cfg(feature = "compiler")]
        let compiled = cache_dir.map(cache).transpose()?;
        #[cfg(not(feature = "compiler"))]
        let _ = cache_dir;
        let (engine, clock) = engine::start()?;
        Ok(Self(Arc::new(Host {
            origin,
            engine,
            clock,
            loaded: Loaded::default(),
            descriptors: Descriptors::of_this_process(),
            #[cfg(feature = "compiler")]
            compiled,
            decisions: Slots::new(limits::DECISION_SLOTS),
            tools: Slots::new(limits::TOOL_SLOTS),
            commands: Arc::new(Semaphore::new(limits::COMMAND_SLOTS as usize)),
        })))
    }

    /// Loads a policy and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`]. Cancellation safe, as all functions here: compiling goes on to its end in the background.
    pub async fn policy(&self, config: &PluginConfig) -> Result<Policy, PluginError> {
        let (identity, stock) = self.decider(config).await?;
        Ok(Policy::new(identity, config, stock))
    }

    /// Loads a transform and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn transform(&self, config: &PluginConfig) -> Result<Transform, PluginError> {
        let (identity, stock) = self.decider(config).await?;
        Ok(Transform::new(identity, config, stock))
    }

    /// Loads an approval plugin and configures it once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn approval(&self, config: &PluginConfig) -> Result<Approval, PluginError> {
        let (identity, stock) = self.decider(config).await?;
        Ok(Approval::new(identity, config, stock))
    }

    /// Loads a sink, configures it once, and opens its file: the configured one, or `default_file`.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn sink(&self, config: &PluginConfig, default_file: &Path) -> Result<Sink, PluginError> {
        let (identity, stock) = self.decider(config).await?;
        Sink::open(identity, config.file.as_deref().unwrap_or(default_file), stock)
    }

    /// Loads a component that is a source, whichever kind it is, with what it may touch. One of tools is configured once.
    ///
    /// # Errors
    /// See [`PluginError`].
    pub async fn component(
        &self,
        plugin: &PluginRef,
        settings: &serde_json::Value,
        grant: &[String],
        access: Access,
    ) -> Result<Component, PluginError> {
        // Boxed: it holds the loading of each kind.
        Box::pin(Component::load(self, plugin, settings, grant, access)).await
    }

    /// What a plugin is and wants. Runs nothing of it.
    ///
    /// # Errors
    /// If it is no component.
    pub async fn inspect(&self, plugin: &PluginRef) -> Result<Inspection, PluginError> {
        let wasm = self.0.origin.read(plugin).await?;
        let host = self.0.clone();
        blocking(move || {
            let component = load::compile(&host, &wasm)?;
            Ok(inspect::inspect(&host.engine, &wasm, &component))
        })
        .await
    }

    /// Compiles a plugin for hosts without a compiler, of the same version: of this processor, or of `target`, such as `pulley64`,
    /// which an interpreter runs on any processor of 64 bits. What is written to a file is used as `FILE.cwasm@DIGEST`.
    ///
    /// # Errors
    /// If it is no component, or the target is none that is compiled for here.
    #[cfg(feature = "compiler")]
    pub async fn precompile(&self, plugin: &PluginRef, target: Option<&str>) -> Result<Vec<u8>, PluginError> {
        let wasm = self.0.origin.read(plugin).await?;
        let target = target.map(str::to_owned);
        blocking(move || compile::precompiled(&wasm, target.as_deref())).await
    }

    async fn decider<W: World>(&self, config: &PluginConfig) -> Result<(Identity, InstancePool<W>), PluginError> {
        let wasm = self.0.origin.read(&config.plugin).await?;
        let allowed = Allowed { grant: config.grant.clone(), confinement: None };
        self.load(wasm, &config.settings, allowed, &self.0.decisions).await
    }

    async fn load<W: World>(
        &self,
        wasm: Wasm,
        settings: &serde_json::Value,
        allowed: Allowed,
        slots: &Slots,
    ) -> Result<(Identity, InstancePool<W>), PluginError> {
        let host = self.0.clone();
        let settings = Json::of(settings);
        let identity = Identity::new(&wasm, &settings);
        let text = settings.as_str().to_owned();
        let linked = blocking(move || load::prepare::<W>(&host, &wasm, &allowed, text)).await?;
        let (engine, clock) = (self.0.engine.clone(), self.0.clock.clone());
        let stock = InstancePool::start(engine, clock, linked, slots.clone()).await?;
        Ok((identity, stock))
    }
}

#[cfg(feature = "compiler")]
fn cache(folder: &Path) -> Result<Cache, PluginError> {
    Cache::open(folder)
        .map_err(|error| PluginError::Cache { folder: folder.display().to_string(), reason: error.to_string() })
}

impl Identity {
    fn new(wasm: &Wasm, settings: &Json) -> Self {
        Self {
            name: wasm.plugin.clone(),
            digest: wasm.digest,
            // Settings that came from TOML hold no key twice, the one thing that has no canonical form.
            settings: Digest::of_json(settings).unwrap_or_else(|_| Digest::of(settings.as_bytes())),
        }
    }
}

/// Compiling takes from 50 ms to seconds of processor time.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(PluginError::Engine(format!("loading was cut off: {error}"))))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
