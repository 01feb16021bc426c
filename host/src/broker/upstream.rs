//! One configured source with what the broker knows of it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_jail::Launcher;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::BuildError;
use crate::catalog::{self, Tool};
use crate::config::{Endpoint, SourceConfig, Value};
use crate::digest::Digest;
use crate::message::Json;
use crate::plugin::Plugins;
use crate::secret::Secrets;
use crate::source::{ComponentSource, HttpSource, ProcessSource, Source, SourceError};

/// One configured source with what the broker knows of it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: SourceConfig,
    /// Digest of what the source is. Whatever was accepted or granted for another one does not count for it.
    pub(crate) identity: Digest,
    pub(crate) source: Box<dyn Source>,
    last: Mutex<Last>,
}

/// What the last discovery found, for `status` and so that an unchanged list is not digested again.
#[derive(Debug, Default)]
struct Last {
    definitions: Vec<Json>,
    tools: Option<Arc<[Arc<Tool>]>>,
    error: Option<String>,
    protocol: String,
    server: Option<Json>,
}

impl Upstream {
    pub(super) async fn new(
        config: &SourceConfig,
        data_dir: &Path,
        secrets: &Secrets,
        plugins: &Plugins,
        launcher: &Launcher,
    ) -> Result<Self, BuildError> {
        let source_name = || config.name.clone();
        let resolve = |value: &Value| -> Result<SecretString, BuildError> {
            secrets.resolve(value).map_err(|error| BuildError::Secret { source_name: source_name(), error })
        };
        let failed = |error: SourceError| BuildError::Source { source_name: source_name(), error };
        let (source, identity): (Box<dyn Source>, _) = match &config.endpoint {
            Endpoint::Command { argv, cwd, env } => {
                let mut resolved = Vec::with_capacity(env.len());
                for (name, value) in env {
                    resolved.push((name.clone(), resolve(value)?.expose_secret().to_owned()));
                }
                let source = ProcessSource::new(config, data_dir, resolved, launcher.clone()).map_err(failed)?;
                let env: Vec<_> = env.iter().map(|(name, value)| json!([name, written(value)])).collect();
                (Box::new(source), json!({ "command": argv, "cwd": cwd, "env": env }))
            }
            Endpoint::Url { url, headers, .. } => {
                let mut resolved = Vec::with_capacity(headers.len());
                for (name, value) in headers {
                    resolved.push((name.clone(), resolve(value)?));
                }
                let source = HttpSource::new(config, resolved).map_err(failed)?;
                let headers: Vec<_> = headers.iter().map(|(name, value)| json!([name, written(value)])).collect();
                (Box::new(source), json!({ "url": url.as_str(), "headers": headers }))
            }
            Endpoint::Component { component, settings, grant } => {
                let tools = plugins.tools(component, settings, grant).await?;
                let identity = json!({ "component": tools.identity().digest, "settings": settings, "grant": grant });
                (Box::new(ComponentSource::new(tools, config.timeout)), identity)
            }
        };
        // With its name: the same program twice may stand for two accounts, and a yes to one is none to the other.
        let identity = Digest::of(json!([config.name, identity]).to_string().as_bytes());
        Ok(Self { config: config.clone(), identity, source, last: Mutex::default() })
    }

    /// Connects if need be, and gives the source's tools under their exposed names.
    pub(crate) async fn discover(&self) -> Result<Arc<[Arc<Tool>]>, SourceError> {
        let found = self.source.discover().await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let named = found.and_then(|discovery| {
            if let Some(tools) = last.tools.clone().filter(|_| last.definitions == discovery.tools) {
                return Ok(tools);
            }
            let tools = catalog::tools_of(&self.config, &discovery.tools);
            let tools: Arc<[_]> =
                tools.map_err(|error| SourceError::Protocol(unprefixed(&error.to_string(), &self.config)))?.into();
            *last = Last {
                definitions: discovery.tools,
                tools: Some(tools.clone()),
                error: None,
                protocol: discovery.protocol,
                server: Some(discovery.server),
            };
            Ok(tools)
        });
        last.error = named.as_ref().err().map(ToString::to_string);
        named
    }

    /// For `portcullis status`.
    pub(super) fn status(&self) -> serde_json::Value {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = match &self.config.endpoint {
            Endpoint::Command { .. } => "command",
            Endpoint::Url { .. } => "url",
            Endpoint::Component { .. } => "component",
        };
        let state = match (&last.tools, &last.error) {
            (_, Some(_)) => "failed",
            (Some(_), None) => "discovered",
            (None, None) => "idle",
        };
        json!({
            "name": self.config.name,
            "kind": kind,
            "state": state,
            "tools": last.tools.as_ref().map(|tools| tools.len()),
            "protocol": last.protocol,
            "server": last.server.as_ref().map(Json::to_value),
            "error": last.error,
            "required": self.config.required,
        })
    }
}

/// The catalog names the source in its errors, and so does whoever passes them on.
fn unprefixed(text: &str, config: &SourceConfig) -> String {
    let prefix = format!("source `{}`", config.name);
    text.strip_prefix(&prefix).unwrap_or(text).trim_start_matches([':', ' ']).to_owned()
}

/// A value as it is written in the configuration: secrets by name, so that a rotated secret is the same source.
fn written(value: &Value) -> serde_json::Value {
    match value {
        Value::Plain(text) => json!(text),
        Value::Secret(name) => json!({ "secret": name }),
    }
}
