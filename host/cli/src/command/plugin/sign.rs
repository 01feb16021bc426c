//! `portcullis plugin sign`: signatures that brokers with `plugin-keys` ask for.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::config::PluginRef;
use portcullis::oci;
use portcullis::signature::SigningKey;
use serde_json::json;

use crate::docker_credentials;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Signs a file or a component in a registry, and reports where the signature is.
pub(super) fn run(plugin: &PluginRef, key: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(key).with_context(|| format!("{} cannot be read", key.display()))?;
    let key = SigningKey::from_pem(&text).map_err(|error| anyhow!("{}: {error}", key.display()))?;
    let signed = match plugin {
        PluginRef::Path(file) => beside(file, &key)?.display().to_string(),
        PluginRef::Oci(reference) => {
            let login = docker_credentials::login(reference.registry())?;
            let signed = runtime::block_on(async { Ok(oci::sign(reference, login, &key).await) })?;
            let digest = signed.with_context(|| format!("{reference} cannot be signed"))?;
            reference.clone().pinned_to(digest).to_string()
        }
        PluginRef::Builtin(_) | PluginRef::Native(_) | PluginRef::Pinned(..) => {
            bail!("{plugin} needs no signature: name a file, or a component in a registry")
        }
    };
    if json {
        output::json(&json!({ "plugin": plugin.to_string(), "signed": signed }))?;
    } else {
        output::text(&format!("{}\n", escape_hidden(&signed)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the signature of a file next to it, and returns the path.
fn beside(file: &Path, key: &SigningKey) -> anyhow::Result<PathBuf> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let signature = key.sign(&bytes).map_err(|error| anyhow!("{} cannot be signed: {error}", file.display()))?;
    let mut path = file.as_os_str().to_owned();
    path.push(".sig");
    let path = PathBuf::from(path);
    std::fs::write(&path, STANDARD.encode(signature)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
