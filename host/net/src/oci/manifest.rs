//! The manifest of an artifact (opencontainers/image-spec v1.1, "OCI Image Manifest").

use portcullis_core::digest::Digest;
use portcullis_core::limits;
use serde::Deserialize;

use super::OciError;

/// The media type of a manifest that is pushed.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The accepted media types of a manifest: WebAssembly artifacts have the first, and older tools push the second.
pub(super) const MEDIA_TYPES: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// The media types of a layer that is a component: the CNCF's for WebAssembly artifacts, and wasm-to-oci's before it.
pub(super) const COMPONENT_TYPES: [&str; 2] = ["application/wasm", "application/vnd.wasm.content.layer.v1+wasm"];

/// The part of a manifest that leads to the component.
#[derive(Debug, Deserialize)]
pub(super) struct OciManifest {
    /// `None` in an index, which lists manifests instead.
    layers: Option<Vec<Descriptor>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

/// The layer that contains the component.
#[derive(Debug, Clone, Copy)]
pub(super) struct ComponentLayer {
    pub(super) digest: Digest,
    /// The size of the layer in bytes, which is within the limit for components.
    pub(super) size: u64,
}

impl OciManifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        serde_json::from_slice(bytes)
            .map_err(|error| OciError::NoComponent(format!("its manifest cannot be parsed: {error}")))
    }

    pub(super) fn component(&self) -> Result<ComponentLayer, OciError> {
        let refuse = |why: String| Err(OciError::NoComponent(why));
        let Some(layers) = &self.layers else {
            return refuse("it is an index of several artifacts; name one of those".to_owned());
        };
        let components: Vec<_> =
            layers.iter().filter(|layer| COMPONENT_TYPES.contains(&layer.media_type.as_str())).collect();
        let [layer] = components.as_slice() else {
            let count = components.len();
            return refuse(format!("its manifest has {count} layers of `{}`, and must have one", COMPONENT_TYPES[0]));
        };
        if layer.size > limits::COMPONENT_BYTES {
            return refuse(format!("it has {} bytes; the limit is {}", layer.size, limits::COMPONENT_BYTES));
        }
        match layer.digest.parse() {
            Ok(digest) => Ok(ComponentLayer { digest, size: layer.size }),
            Err(error) => refuse(format!("the digest of its layer is not supported: {error}")),
        }
    }
}
