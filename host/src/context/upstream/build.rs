//! Builds a configured source: a program in its cell, a server behind a URL, a component, or a part of this program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::call::Cause;
use crate::cell::CellFactory;
#[cfg(feature = "process")]
use crate::cell::ProcessCell;
use crate::config::{Endpoint, SourceConfig};
use crate::context::BuildError;
use crate::digest::Digest;
use crate::egress::ComponentEgress;
use crate::key_value::KeyValue;
use crate::limits;
use crate::plugin::{self, CommandComponent, Component, ComponentAccess, ComponentCell, ComponentKind, PluginHost};
use crate::secret::{ConfigValue, SecretStore};
#[cfg(feature = "remote")]
use crate::source::HttpSource;
#[cfg(feature = "process")]
use crate::source::ProcessSource;
use crate::source::{
    CommandSource, ComponentProgram, ComponentSource, GivenValues, InProcessServer, InProcessSource, NativeSource,
    PipeConfig, RedactedValues, Source, SourceError, SupervisionConfig, UnusableSource, log_file,
};

/// The parts of a broker that all its sources are made with.
pub(crate) struct SourceParts<'a> {
    pub(crate) secrets: &'a SecretStore,
    pub(crate) plugins: &'a PluginHost,
    pub(crate) cells: &'a Arc<CellFactory>,
    /// The sources of the program that embeds the broker.
    pub(crate) natives: &'a BTreeMap<String, Arc<dyn NativeSource>>,
    /// The tasks that close sources which no configuration has any more.
    pub(crate) closing: &'a TaskTracker,
}

/// A builder of one configured source, with everything that it needs.
pub(crate) struct SourceBuilder<'a> {
    pub(crate) config: &'a SourceConfig,
    pub(crate) parts: &'a SourceParts<'a>,
    pub(crate) data_dir: &'a Path,
    /// The folder of the configuration.
    #[cfg(feature = "process")]
    pub(crate) folder: Option<&'a Path>,
}

/// A source that has been made.
pub(super) struct BuiltSource {
    pub(super) source: Box<dyn Source>,
    /// The value whose digest identifies the source.
    pub(super) identity: serde_json::Value,
    #[cfg(feature = "process")]
    pub(super) process_cell: Option<Arc<ProcessCell>>,
    pub(super) component_cell: Option<Arc<ComponentCell>>,
    pub(super) component_egress: Option<Arc<ComponentEgress>>,
}

impl BuiltSource {
    fn new(source: Box<dyn Source>, identity: serde_json::Value) -> Self {
        Self {
            source,
            identity,
            #[cfg(feature = "process")]
            process_cell: None,
            component_cell: None,
            component_egress: None,
        }
    }
}

impl SourceBuilder<'_> {
    /// Makes the source, and starts nothing.
    pub(super) async fn build(&self) -> Result<BuiltSource, BuildError> {
        match &self.config.endpoint {
            #[cfg(not(feature = "process"))]
            Endpoint::Command { .. } => Err(self.failed(lacks("a `command`", "process"))),
            #[cfg(feature = "process")]
            Endpoint::Command { argv, cwd, env } => {
                let cell = Arc::new(ProcessCell::new(Arc::clone(self.parts.cells), self.config));
                let source = ProcessSource::new(self.config, Arc::clone(&cell), self.given(env)?);
                let source = source.map_err(|error| self.failed(error))?;
                let cwd = cwd.as_deref().map(|cwd| self.place(cwd));
                let identity = json!({ "command": self.command(argv), "cwd": cwd, "env": pairs(env) });
                Ok(BuiltSource { process_cell: Some(cell), ..BuiltSource::new(Box::new(source), identity) })
            }
            #[cfg(not(feature = "remote"))]
            Endpoint::Url { .. } => Err(self.failed(lacks("a `url`", "remote"))),
            #[cfg(all(feature = "remote", not(feature = "oauth")))]
            Endpoint::Url { oauth, .. } if *oauth != crate::config::OAuthConfig::default() => {
                Err(self.failed(lacks("`oauth`", "oauth")))
            }
            #[cfg(feature = "remote")]
            Endpoint::Url { url, headers, .. } => {
                let given = self.given(headers)?;
                let source = HttpSource::new(self.config, given, self.data_dir, self.parts.cells.recorder());
                let source = source.map_err(|error| self.failed(error))?;
                Ok(BuiltSource::new(Box::new(source), json!({ "url": url.as_str(), "headers": pairs(headers) })))
            }
            Endpoint::Component { component, settings, grant, env, args } => {
                let access = self.access(grant, self.variables(env)?, args)?;
                let confinement = access.clone();
                let loaded = self.parts.plugins.component(component, settings, grant, access).await;
                let place = || format!("source `{}`", self.config.name);
                let loaded = loaded.map_err(|error| BuildError::PluginAt { place: place(), error: error.into() })?;
                let mut identity = json!({
                    "component": loaded.kind.identity().digest, "settings": settings, "grant": grant, "env": pairs(env),
                });
                // Without arguments, the identity is the same as before arguments existed, so that lock files stay
                // valid.
                if let Some(identity) = identity.as_object_mut().filter(|_| !args.is_empty()) {
                    identity.insert("args".to_owned(), json!(args));
                }
                Ok(self.component(loaded, confinement, env, identity))
            }
            Endpoint::Native { name } => {
                let native = self.parts.natives.get(name).ok_or_else(|| self.missing_native(name))?;
                let identity = json!({ "native": name, "version": native.version() });
                Ok(BuiltSource::new(Box::new(self.native(name, native)), identity))
            }
        }
    }

    /// Returns a digest of everything that makes the source what it is: its configuration, the values of its secrets,
    /// and the bytes of its component.
    pub(crate) async fn fingerprint(&self) -> Digest {
        #[derive(serde::Serialize)]
        struct Fingerprinted<'a> {
            config: &'a SourceConfig,
            values: Vec<Result<Digest, String>>,
            component: Option<Digest>,
        }

        let secret = |value: &ConfigValue| match self.parts.secrets.resolve(value) {
            Ok(value) => Ok(Digest::of(value.expose_secret().as_bytes())),
            Err(error) => Err(error.to_string()),
        };
        let (values, component) = match &self.config.endpoint {
            Endpoint::Command { env, .. } => (Some(env), None),
            Endpoint::Url { headers, .. } => (Some(headers), None),
            Endpoint::Component { env, component, .. } => (Some(env), Some(component)),
            Endpoint::Native { .. } => (None, None),
        };
        let values = values.into_iter().flat_map(BTreeMap::values).map(secret).collect();
        let component = match component {
            Some(component) => self.parts.plugins.content_digest(component).await,
            None => None,
        };
        Digest::of_serialized(&Fingerprinted { config: self.config, values, component })
    }

    /// Creates the stand-in for a source that cannot be created.
    pub(super) fn unusable(&self, error: BuildError) -> BuiltSource {
        let cause = match error {
            BuildError::Source { error, .. } => error.into_cause(),
            error => super::unprefixed(error, self.config),
        };
        BuiltSource::new(Box::new(UnusableSource::new(cause)), json!({ "unusable": self.config.name }))
    }

    /// Returns a command as it identifies its source.
    #[cfg(feature = "process")]
    fn command(&self, argv: &[String]) -> Vec<serde_json::Value> {
        let word = |(index, word): (usize, &String)| match index == 0 && word.contains('/') {
            true => self.place(Path::new(word)),
            false => json!(word),
        };
        argv.iter().enumerate().map(word).collect()
    }

    /// Returns a path as it identifies its source. Within the folder of the configuration it is relative, as the lock
    /// file is shared with that folder; it is an object, which cannot be confused with another path.
    #[cfg(feature = "process")]
    fn place(&self, path: &Path) -> serde_json::Value {
        match self.folder.and_then(|folder| path.strip_prefix(folder).ok()) {
            Some(below) => json!({ "here": below.to_string_lossy() }),
            None => json!(path.to_string_lossy()),
        }
    }

    /// Returns what a component may access. `env` holds all variables that it sees, `args` the arguments behind its name.
    fn access(
        &self,
        grant: &[String],
        env: Vec<(String, String)>,
        args: &[String],
    ) -> Result<ComponentAccess, BuildError> {
        let Self { config, parts: SourceParts { cells, .. }, data_dir, .. } = self;
        let cell = cells.grant(config).map_err(|error| self.failed(SourceError::Start(Cause::of(error))))?;
        let keeps = grant.iter().any(|word| word == plugin::KEY_VALUE);
        Ok(ComponentAccess {
            env,
            args: match args.is_empty() {
                true => Vec::new(),
                false => [config.name.to_string()].iter().chain(args).cloned().collect(),
            },
            grant: cell,
            timeout: config.timeout,
            egress: cells.egress(&config.name, &config.cell),
            key_value: keeps.then(|| Arc::new(KeyValue::new(data_dir, &config.name))),
            instances: config.cell.instances.unwrap_or(limits::SOURCE_INSTANCES),
            output: config.cell.output.map_or(limits::PAYLOAD_OUTPUT_BYTES, bytes),
        })
    }

    /// Makes the source of a component that was loaded with this access.
    fn component(
        &self,
        loaded: Component,
        access: ComponentAccess,
        listed: &BTreeMap<String, ConfigValue>,
        identity: serde_json::Value,
    ) -> BuiltSource {
        let id = loaded.kind.identity();
        let component_egress = access.egress.clone();
        let cell = Arc::new(ComponentCell {
            component: id.name.clone(),
            digest: id.digest,
            kind: loaded.kind.as_str(),
            imports: loaded.imports,
            processor_time: access.processor_time(),
            instances: access.instances,
            output: access.output,
            grant: access.grant,
            has_store: loaded.has_store,
        });
        let source: Box<dyn Source> = match loaded.kind {
            ComponentKind::Tools(tools) => Box::new(ComponentSource::new(tools, self.config)),
            ComponentKind::Functions(functions) => Box::new(ComponentSource::of_functions(functions, self.config)),
            ComponentKind::Command(command) => {
                let given = GivenValues::new(listed, self.parts.secrets);
                Box::new(self.program(command, given, Arc::clone(&cell)))
            }
        };
        BuiltSource { component_cell: Some(cell), component_egress, ..BuiltSource::new(source, identity) }
    }

    /// Makes the source of a component that is a program and is spoken to like a process.
    fn program(&self, command: CommandComponent, given: GivenValues, cell: Arc<ComponentCell>) -> CommandSource {
        let Self { config, parts: SourceParts { cells, .. }, .. } = self;
        let (cells, name) = (Arc::clone(cells), config.name.clone());
        let pipe_config = self.pipe_config(config.cell.output.map_or(config.max_message, bytes));
        let supervision = SupervisionConfig::of(config, cells.recorder());
        let started = Box::new(move || cells.record_start(&name, cell.to_json()));
        CommandSource::new(supervision, ComponentProgram { command, pipe_config, given, started })
    }

    /// Makes the source of a server that is part of the program.
    fn native(&self, name: &str, server: &Arc<dyn NativeSource>) -> InProcessSource {
        let supervision = SupervisionConfig::of(self.config, self.parts.cells.recorder());
        let pipe_config = self.pipe_config(self.config.max_message);
        let (cells, source) = (Arc::clone(self.parts.cells), self.config.name.clone());
        let facts = json!({ "native": format!("native:{name}"), "version": server.version() });
        let started = Box::new(move || cells.record_start(&source, facts.clone()));
        InProcessSource::new(supervision, InProcessServer { server: Arc::clone(server), pipe_config, started })
    }

    fn pipe_config(&self, limit: usize) -> PipeConfig {
        let log = log_file(&self.parts.cells.data_dir, &self.config.name);
        PipeConfig { limit, log, secrets: RedactedValues::default() }
    }

    /// Returns the values that the source is given. All of their secrets are set, now.
    #[cfg(any(feature = "process", feature = "remote"))]
    fn given(&self, listed: &BTreeMap<String, ConfigValue>) -> Result<GivenValues, BuildError> {
        let given = GivenValues::new(listed, self.parts.secrets);
        self.read(&given)?;
        Ok(given)
    }

    fn variables(&self, env: &BTreeMap<String, ConfigValue>) -> Result<Vec<(String, String)>, BuildError> {
        let values = self.read(&GivenValues::new(env, self.parts.secrets))?;
        Ok(values.into_iter().map(|(name, value)| (name, value.expose_secret().to_owned())).collect())
    }

    fn read(&self, given: &GivenValues) -> Result<Vec<(String, SecretString)>, BuildError> {
        given.read().map_err(|error| BuildError::Secret { source_name: self.config.name.clone(), error })
    }

    fn missing_native(&self, name: &str) -> BuildError {
        BuildError::NativeMissing { source_name: self.config.name.clone(), name: name.to_owned() }
    }

    fn failed(&self, error: SourceError) -> BuildError {
        BuildError::Source { source_name: self.config.name.clone(), error }
    }
}

/// Returns the error of a source that needs a feature without which the program was built.
#[cfg(not(all(feature = "process", feature = "oauth")))]
fn lacks(what: &str, feature: &str) -> SourceError {
    let why = format!("it has {what}, for which this program was built without the feature `{feature}` of the library");
    SourceError::Start(Cause::own(why))
}

fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns names with their values as written.
fn pairs(values: &BTreeMap<String, ConfigValue>) -> Vec<serde_json::Value> {
    values.iter().map(|(name, value)| json!([name, written(value)])).collect()
}

/// Returns a value as written in the configuration: secrets by name, so that a rotated secret is the same source.
fn written(value: &ConfigValue) -> serde_json::Value {
    match value {
        ConfigValue::Plain(text) => json!(text),
        ConfigValue::Secret(name) => json!({ "secret": name }),
    }
}
