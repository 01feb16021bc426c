//! Components from registries, fetched by the OCI distribution protocol (opencontainers/distribution-spec v1.1).
//!
//! A component is an artifact: a manifest with one layer, which is the `.wasm`. A reference leads to a manifest by its
//! digest, or by a tag that the lock file has pinned to one; the manifest leads to the layer by its digest. The digests
//! are checked while manifest and layer are downloaded, and again each time that they are taken from the store, so the
//! server that delivers them need not be trusted.
//!
//! Downloads are kept by digest in `components` of the data folder, so each is downloaded only once.

mod manifest;
mod push;
mod reference;
mod registry;
mod signatures;
mod store;

use std::time::Duration;

use portcullis_core::digest::Digest;

pub use push::{ComponentNames, push};
pub use reference::{ComponentReference, ReferenceError};
pub use registry::RegistryLogin;
pub use signatures::{is_signed, sign};
pub use store::ComponentStore;

use crate::egress::EgressError;
use crate::signature::KeyError;
use manifest::OciManifest;
use registry::OciRegistry;

/// The timeout for each download. The largest component takes a minute at 10 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// The largest manifest, in bytes: the size that the specification expects registries to accept, and a thousand times
/// what a component needs.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// An error that says why a component could not be fetched. Most messages name the address or the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OciError {
    /// The registry cannot be reached.
    #[error(transparent)]
    Egress(EgressError),
    /// The registry leads to an address that may not be reached.
    #[error("`{host}` is refused: it is {what}, and only the registry itself may have such an address; {DOWNLOAD}")]
    PrivateAddress {
        /// The host that the registry leads to.
        host: String,
        /// The kind of address that the host has, such as "a private address".
        what: &'static str,
    },
    /// The registry requires a login.
    #[error(
        "`{url}` wants a login, and a broker sends no credentials to registries: run `portcullis plugin pull`, which does, \
         and name the file"
    )]
    Login {
        /// The URL without its query.
        url: String,
    },
    /// The registry does not accept the account, or there is none.
    #[error(
        "`{url}` wants an account that may do this: run `docker login {registry}` with one, or another tool that writes \
         Docker's config.json"
    )]
    NoAccount {
        /// The URL without its query.
        url: String,
        /// The registry.
        registry: String,
    },
    /// The registry's response does not match the request.
    #[error("`{url}` {what}")]
    Answer {
        /// The URL without its query.
        url: String,
        /// The fault of the response, as a verb phrase.
        what: String,
    },
    /// The registry sent bytes with another digest.
    #[error("`{url}` gave {found} instead of {wanted}")]
    Digest {
        /// The URL without its query.
        url: String,
        /// The digest of the bytes that were received.
        found: Digest,
        /// The digest that was asked for.
        wanted: Digest,
    },
    /// The reference leads to something that is not a component.
    #[error("it is not a component: {0}")]
    NoComponent(String),
    /// The reference has a tag that no accepted digest is pinned to.
    #[error(
        "the component with this tag was not accepted yet: run `portcullis lock accept --components`, or write the digest"
    )]
    Unpinned,
    /// The download cannot be stored or read back.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The component cannot be signed.
    #[error("it cannot be signed: {0}")]
    Key(KeyError),
    /// The download took too long.
    #[error("the download did not finish within {} s", DEADLINE.as_secs())]
    TimedOut,
}

const DOWNLOAD: &str = "download the component by other means and name its path";

impl From<EgressError> for OciError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Refused { host, what, .. } => Self::PrivateAddress { host, what },
            other => Self::Egress(other),
        }
    }
}

/// Returns the bytes of the component whose manifest has this digest, from the store or else from the registry.
/// Cancellation safe: completed downloads are kept.
///
/// # Errors
/// See [`OciError`].
pub async fn fetch(
    store: &ComponentStore,
    reference: &ComponentReference,
    digest: Digest,
) -> Result<Vec<u8>, OciError> {
    let mut registry = None;
    let manifest = match store.get(digest).await? {
        Some(bytes) => bytes,
        None => {
            let bytes = within(registry.insert(OciRegistry::of(reference)?).manifest(Some(digest))).await?;
            store.put(digest, &bytes).await?;
            bytes
        }
    };
    layer(store, reference, registry, &manifest).await
}

/// Returns the digest of the manifest that the registry has now for the reference's tag. The manifest and the component
/// are then in the store.
///
/// # Errors
/// See [`OciError`].
pub async fn resolve(store: &ComponentStore, reference: &ComponentReference) -> Result<Digest, OciError> {
    let mut registry = OciRegistry::of(reference)?;
    let bytes = within(registry.manifest(None)).await?;
    let digest = Digest::of(&bytes);
    layer(store, reference, Some(registry), &bytes).await?;
    store.put(digest, &bytes).await?;
    Ok(digest)
}

/// Returns the bytes of the component that the registry has now for a reference, and the digest of its manifest. The
/// account is used if the registry requires one.
///
/// # Errors
/// See [`OciError`].
pub async fn pull(reference: &ComponentReference, login: Option<RegistryLogin>) -> Result<(Vec<u8>, Digest), OciError> {
    let mut registry = OciRegistry::of(reference)?.with_login(login, "pull");
    within(async {
        let manifest = registry.manifest(reference.digest()).await?;
        let layer = OciManifest::parse(&manifest)?.component()?;
        Ok((registry.layer(&layer).await?, Digest::of(&manifest)))
    })
    .await
}

async fn layer(
    store: &ComponentStore,
    reference: &ComponentReference,
    registry: Option<OciRegistry>,
    manifest: &[u8],
) -> Result<Vec<u8>, OciError> {
    let layer = OciManifest::parse(manifest)?.component()?;
    if let Some(bytes) = store.get(layer.digest).await? {
        return Ok(bytes);
    }
    let mut registry = match registry {
        Some(registry) => registry,
        None => OciRegistry::of(reference)?,
    };
    let bytes = within(registry.layer(&layer)).await?;
    store.put(layer.digest, &bytes).await?;
    Ok(bytes)
}

async fn within<T>(work: impl Future<Output = Result<T, OciError>>) -> Result<T, OciError> {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or(Err(OciError::TimedOut))
}

#[cfg(test)]
mod tests;
