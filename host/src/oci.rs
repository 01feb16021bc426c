//! Components from registries, by the OCI distribution protocol (opencontainers/distribution-spec v1.1).
//!
//! A component is an artifact: a manifest with one layer, which is the `.wasm`. A reference leads to a manifest by its digest, or
//! by a tag that the lock has pinned to one; the manifest leads to the layer by its digest. Both are checked against those while
//! they are read, and again each time that they are taken from the store, so that it matters to nobody who serves them.
//!
//! What was fetched is kept by digest in `components` of the data folder, and asked for only once.

mod manifest;
mod reference;
mod registry;
mod store;

use std::time::Duration;

pub use reference::{Reference, ReferenceError};
pub(crate) use store::Store;

use crate::digest::Digest;
use crate::egress::EgressError;
use manifest::Manifest;
use registry::Registry;

/// How long all of one component may take. The largest takes a minute at 10 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// The largest manifest, in bytes: what the specification tells registries to accept at least, and a thousand times what a
/// component's has.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// Why there is no component. Each text names the address or the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OciError {
    /// The registry cannot be reached.
    #[error(transparent)]
    Egress(EgressError),
    /// The registry leads to where nothing may be asked for.
    #[error("`{host}` is not asked: it is {what}, and only the registry itself may be near; {DOWNLOAD}")]
    Near {
        /// Where it leads.
        host: String,
        /// What is wrong with that.
        what: &'static str,
    },
    /// The registry wants to know who asks.
    #[error("`{url}` wants a login, and credentials are not sent to registries in this version; {DOWNLOAD}")]
    Login {
        /// Without its query.
        url: String,
    },
    /// The registry answered with something else than what was asked for.
    #[error("`{url}` {what}")]
    Answer {
        /// Without its query.
        url: String,
        /// What it did.
        what: String,
    },
    /// The registry sent other bytes.
    #[error("`{url}` gave {found} instead of {wanted}")]
    Digest {
        /// Without its query.
        url: String,
        /// What came.
        found: Digest,
        /// What was asked for.
        wanted: Digest,
    },
    /// What the reference leads to is something else.
    #[error("it is no component: {0}")]
    NoComponent(String),
    /// A tag that nobody has pinned.
    #[error(
        "what the tag stands for was not accepted yet: run `portcullis lock accept --components`, or write the digest"
    )]
    Unpinned,
    /// What was fetched cannot be kept.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: std::path::PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It took too long.
    #[error("it did not come within {} s", DEADLINE.as_secs())]
    Late,
}

const DOWNLOAD: &str = "download the component by other means and name its path";

impl From<EgressError> for OciError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Refused { host, what, .. } => Self::Near { host, what },
            other => Self::Egress(other),
        }
    }
}

/// The bytes of the component whose manifest has this digest: from the store, else from the registry. Cancellation safe: what
/// came whole is kept.
///
/// # Errors
/// See [`OciError`].
pub(crate) async fn fetch(store: &Store, reference: &Reference, digest: Digest) -> Result<Vec<u8>, OciError> {
    let mut registry = None;
    let manifest = match store.get(digest).await? {
        Some(bytes) => bytes,
        None => {
            let bytes = within(registry.insert(Registry::of(reference)?).manifest(Some(digest))).await?;
            store.put(digest, &bytes).await?;
            bytes
        }
    };
    layer(store, reference, registry, &manifest).await
}

/// The digest of the manifest that the registry has now for the reference's tag. It and the component are in the store then.
///
/// # Errors
/// See [`OciError`].
pub(crate) async fn resolve(store: &Store, reference: &Reference) -> Result<Digest, OciError> {
    let registry = Registry::of(reference)?;
    let mut registry = registry;
    let bytes = within(registry.manifest(None)).await?;
    let digest = Digest::of(&bytes);
    layer(store, reference, Some(registry), &bytes).await?;
    store.put(digest, &bytes).await?;
    Ok(digest)
}

async fn layer(
    store: &Store,
    reference: &Reference,
    registry: Option<Registry>,
    manifest: &[u8],
) -> Result<Vec<u8>, OciError> {
    let layer = Manifest::parse(manifest)?.component()?;
    if let Some(bytes) = store.get(layer.digest).await? {
        return Ok(bytes);
    }
    let mut registry = match registry {
        Some(registry) => registry,
        None => Registry::of(reference)?,
    };
    let bytes = within(registry.layer(&layer)).await?;
    store.put(layer.digest, &bytes).await?;
    Ok(bytes)
}

async fn within<T>(work: impl Future<Output = Result<T, OciError>>) -> Result<T, OciError> {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or(Err(OciError::Late))
}

#[cfg(test)]
mod tests;
