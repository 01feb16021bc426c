//! `portcullis plugin push` and `pull`: components and WIT packages in registries, with the user's accounts.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use portcullis::config::PluginRef;
use portcullis::digest::Digest;
use portcullis::oci::{self, ComponentNames, ComponentReference};
use portcullis::plugin::{Inspection, PluginHost};
use serde_json::json;
use wit_parser::Resolve;

use crate::config_file;
use crate::docker_credentials;
use crate::output::{self, escape_hidden};
use crate::runtime;

/// A component or a WIT package as a registry keeps it.
struct Artifact {
    bytes: Vec<u8>,
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Pushes a plugin, or the WIT package in a folder, under a tag, and prints its name with the digest.
pub(super) fn push(plugin: &PluginRef, to: &ComponentReference, json: bool) -> anyhow::Result<ExitCode> {
    if to.digest().is_some() {
        bail!("{to} has a digest, which follows from what is pushed: name a tag alone");
    }
    let login = docker_credentials::login(to.registry())?;
    let (digest, size) = runtime::block_on(async {
        let Artifact { bytes, imports, exports } = match plugin {
            PluginRef::Path(folder) if folder.is_dir() => wit_package(folder)?,
            _ => component(plugin).await?,
        };
        let names = ComponentNames { imports: &imports, exports: &exports };
        let digest = oci::push(to, login, &bytes, names).await;
        Ok((digest.with_context(|| format!("{plugin} cannot be pushed to {to}"))?, bytes.len()))
    })?;
    let pinned = to.clone().pinned_to(digest);
    if json {
        output::json(&json!({ "reference": pinned.to_string(), "digest": digest, "size": size }))?;
    } else {
        output::text(&format!("{pinned}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn component(plugin: &PluginRef) -> anyhow::Result<Artifact> {
    let host = PluginHost::new(None)?;
    let Inspection { world, imports, exports, .. } = host.inspect(plugin).await?;
    if world == "none" {
        bail!("{plugin} exports no interface of a plugin: `portcullis plugin inspect` lists its exports");
    }
    let imports = imports.into_iter().map(|import| import.name).collect();
    Ok(Artifact { bytes: host.component_bytes(plugin).await?, imports, exports })
}

/// Returns the WIT package of a folder in its binary form, which tools such as wkg fetch.
fn wit_package(folder: &Path) -> anyhow::Result<Artifact> {
    let mut resolve = Resolve::default();
    let shown = folder.display();
    let pushed = resolve.push_dir(folder).with_context(|| format!("{shown} holds no WIT package that can be read"))?;
    let bytes = wit_component::encode(&resolve, pushed.0).with_context(|| format!("{shown} cannot be encoded"))?;
    let package = resolve.packages.get(pushed.0).with_context(|| format!("{shown} holds no package"))?;
    let exports = package.interfaces.keys().map(|interface| package.name.interface_id(interface)).collect();
    Ok(Artifact { bytes, imports: Vec::new(), exports })
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
