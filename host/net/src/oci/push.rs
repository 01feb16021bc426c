//! Pushes a component to a registry, as a WebAssembly artifact (the CNCF's "Wasm OCI Artifact Layout").

use portcullis_core::digest::Digest;
use serde_json::json;

use super::manifest::{COMPONENT_TYPES, MANIFEST_TYPE};
use super::registry::{OciRegistry, RegistryLogin};
use super::{ComponentReference, OciError, within};

/// The media type of the configuration of a WebAssembly artifact.
const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";

/// The time of creation that every artifact has, so that the same component has the same digest.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The names of what a component imports and exports, which its configuration in the registry lists.
#[derive(Debug, Clone, Copy)]
pub struct ComponentNames<'a> {
    /// The imports.
    pub imports: &'a [String],
    /// The exports.
    pub exports: &'a [String],
}

/// Pushes a component under the tag of the reference, and returns the digest of its manifest. The account is used if
/// the registry requires one.
///
/// # Errors
/// See [`OciError`].
pub async fn push(
    reference: &ComponentReference,
    login: Option<RegistryLogin>,
    component: &[u8],
    names: ComponentNames<'_>,
) -> Result<Digest, OciError> {
    let ComponentNames { imports, exports } = names;
    let digest = Digest::of(component);
    let config = json!({
        "created": CREATED,
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest],
        "component": { "imports": imports, "exports": exports },
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": Digest::of(config.as_bytes()), "size": config.len() },
        "layers": [{ "mediaType": COMPONENT_TYPES[0], "digest": digest, "size": component.len() }],
    })
    .to_string();
    let mut registry = OciRegistry::of(reference)?.with_login(login, "pull,push");
    within(async {
        registry.upload(config.as_bytes()).await?;
        registry.upload(component).await?;
        registry.put_manifest(reference.tag(), manifest.as_bytes()).await
    })
    .await?;
    Ok(Digest::of(manifest.as_bytes()))
}
