//! `portcullis plugin push` and `pull`: components in registries, with the user's accounts.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::PluginRef;
use portcullis::digest::Digest;
use portcullis::oci::{self, ComponentNames, ComponentReference};
use portcullis::plugin::{Inspection, PluginHost};
use serde_json::json;

use crate::config_file;
use crate::docker_credentials;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// Pushes a plugin under a tag, and prints its name with the digest, for configurations.
pub(super) fn push(plugin: &PluginRef, to: &ComponentReference, json: bool) -> anyhow::Result<ExitCode> {
    if to.digest().is_some() {
        bail!("{to} has a digest, which follows from what is pushed: name a tag alone");
    }
    let login = docker_credentials::login(to.registry())?;
    let (digest, size) = runtime::block_on(async {
        let host = PluginHost::new(None)?;
        let Inspection { world, imports, exports, .. } = host.inspect(plugin).await?;
        if world == "none" {
            bail!("{plugin} exports no interface of a plugin: `portcullis plugin inspect` lists its exports");
        }
        let imports: Vec<_> = imports.into_iter().map(|import| import.name).collect();
        let component = host.component_bytes(plugin).await?;
        let names = ComponentNames { imports: &imports, exports: &exports };
        let digest = oci::push(to, login, &component, names).await;
        Ok((digest.with_context(|| format!("{plugin} cannot be pushed to {to}"))?, component.len()))
    })?;
    let pinned = to.clone().pinned_to(digest);
    if json {
        output::json(&json!({ "reference": pinned.to_string(), "digest": digest, "size": size }))?;
    } else {
        output::text(&format!("{pinned}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the component that a registry has for a reference into a file, and prints the file's name with its digest.
pub(super) fn pull(from: &ComponentReference, file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let login = docker_credentials::login(from.registry())?;
    let (component, manifest) =
        runtime::block_on(async { oci::pull(from, login).await.with_context(|| format!("{from} cannot be pulled")) })?;
    config_file::put(file, &component).with_context(|| format!("cannot write {}", file.display()))?;
    let digest = Digest::of(&component);
    if json {
        output::json(&json!({ "file": file, "digest": digest, "manifest": manifest, "size": component.len() }))?;
    } else {
        output::text(&format!("{}@{digest}\n", escape_hidden(&file.to_string_lossy())))?;
    }
    Ok(ExitCode::SUCCESS)
}
