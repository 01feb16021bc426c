//! Signatures of components in registries, in the form of cosign's signatures with a key: an artifact next to the
//! component, under the tag `sha256-DIGEST.sig`, with a layer for each signature. The layer is a text that names the
//! digest of the component's manifest, and the signature of this text is an annotation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest::{ComponentLayer, MANIFEST_TYPE};
use super::registry::{OciRegistry, RegistryLogin};
use super::{ComponentReference, ComponentStore, OciError, within};
use crate::signature::{SigningKey, TrustedKey};

/// The media type of a signed text.
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The media type of the configuration of an artifact with signatures.
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// The annotation with the signature, in base64.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";

/// The largest number of signatures that are read of one component: the newest ones, as each is one more request.
const MAX_SIGNATURES: usize = 16;

/// The largest signed text, in bytes; cosign's have about 250.
const MAX_PAYLOAD_BYTES: u64 = 64 << 10;

/// A signed text with its signature, as the store keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SignedPayload {
    payload: String,
    /// The signature in base64.
    signature: String,
}

impl SignedPayload {
    /// Reports whether one of these keys signed that the component has this digest.
    fn vouches(&self, digest: Digest, keys: &[TrustedKey]) -> bool {
        let says = serde_json::from_str::<Value>(&self.payload).unwrap_or_default();
        let named = says.pointer("/critical/image/docker-manifest-digest").and_then(Value::as_str);
        let signature = STANDARD.decode(&self.signature).unwrap_or_default();
        named == Some(&*digest.to_string()) && keys.iter().any(|key| key.made(&signature, self.payload.as_bytes()))
    }
}

/// Reports whether one of these keys signed the component whose manifest has this digest. A signature that counted
/// before is in the store, and needs no registry.
///
/// # Errors
/// See [`OciError`].
pub async fn is_signed(
    store: &ComponentStore,
    reference: &ComponentReference,
    digest: Digest,
    keys: &[TrustedKey],
) -> Result<bool, OciError> {
    let kept = store.signatures(digest).await?.and_then(|kept| serde_json::from_slice(&kept).ok());
    let vouch = |signed: &[SignedPayload]| signed.iter().any(|payload| payload.vouches(digest, keys));
    if kept.is_some_and(|kept: Vec<SignedPayload>| vouch(&kept)) {
        return Ok(true);
    }
    let mut registry = OciRegistry::of(reference)?;
    let found = within(async {
        let mut found = Vec::new();
        for (layer, signature) in layers(registry.manifest_if_any(&tag(digest)).await?) {
            let payload = String::from_utf8(registry.layer(&layer).await?);
            found.extend(payload.ok().map(|payload| SignedPayload { payload, signature }));
        }
        Ok(found)
    })
    .await?;
    if !vouch(&found) {
        return Ok(false);
    }
    store.put_signatures(digest, json!(found).to_string().into_bytes()).await?;
    Ok(true)
}

/// Signs the component that the registry has now for a reference, and returns the digest of its manifest. Earlier
/// signatures stay.
///
/// # Errors
/// See [`OciError`].
pub async fn sign(
    reference: &ComponentReference,
    login: Option<RegistryLogin>,
    key: &SigningKey,
) -> Result<Digest, OciError> {
    let mut registry = OciRegistry::of(reference)?.with_login(login, "pull,push");
    within(async {
        let digest = Digest::of(&registry.manifest(reference.digest()).await?);
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": format!("{}/{}", reference.registry(), reference.name()) },
                "image": { "docker-manifest-digest": digest },
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        let signature = STANDARD.encode(key.sign(payload.as_bytes()).map_err(OciError::Key)?);
        let earlier = registry.manifest_if_any(&tag(digest)).await?;
        let mut layers = all_layers(earlier.as_deref());
        layers.push(json!({
            "mediaType": PAYLOAD_TYPE,
            "digest": Digest::of(payload.as_bytes()),
            "size": payload.len(),
            "annotations": { ANNOTATION: signature },
        }));
        let digests: Vec<_> = layers.iter().filter_map(|layer| layer.get("digest").cloned()).collect();
        let config = json!({
            "architecture": "", "os": "", "config": {}, "rootfs": { "type": "layers", "diff_ids": digests },
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": { "mediaType": CONFIG_TYPE, "digest": Digest::of(config.as_bytes()), "size": config.len() },
            "layers": layers,
        });
        registry.upload(payload.as_bytes()).await?;
        registry.upload(config.as_bytes()).await?;
        registry.put_manifest(&tag(digest), manifest.to_string().as_bytes()).await?;
        Ok(digest)
    })
    .await
}

/// Returns the tag under which the signatures of a component are.
fn tag(digest: Digest) -> String {
    format!("{}.sig", digest.to_string().replace(':', "-"))
}

fn all_layers(manifest: Option<&[u8]>) -> Vec<Value> {
    let manifest = manifest.and_then(|manifest| serde_json::from_slice::<Value>(manifest).ok());
    manifest.and_then(|manifest| manifest.get("layers")?.as_array().cloned()).unwrap_or_default()
}

/// Returns the layers of a manifest that are signed texts, each with its signature, the newest first. Malformed layers
/// are left out: they are not signatures.
fn layers(manifest: Option<Vec<u8>>) -> Vec<(ComponentLayer, String)> {
    let signed = all_layers(manifest.as_deref()).into_iter().rev().filter_map(|layer| {
        let digest = layer.get("digest")?.as_str()?.parse().ok()?;
        let size = layer.get("size")?.as_u64().filter(|size| *size <= MAX_PAYLOAD_BYTES)?;
        let signature = layer.get("annotations")?.get(ANNOTATION)?.as_str()?.to_owned();
        (layer.get("mediaType")? == PAYLOAD_TYPE).then_some((ComponentLayer { digest, size }, signature))
    });
    signed.take(MAX_SIGNATURES).collect()
}
