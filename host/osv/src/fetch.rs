//! Downloads what the OSV project publishes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_net::egress::{Egress, OutgoingRequest, shown};
use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::time::timeout;
use url::Url;

use crate::build::MAX_ARCHIVE_BYTES;
use crate::{Ecosystem, OsvError};

/// The address at which the OSV project publishes its records: `ECOSYSTEM/all.zip` below it.
pub const DEFAULT_ADDRESS: &str = "https://osv-vulnerabilities.storage.googleapis.com";

/// The longest wait for the next bytes.
const STALL: Duration = Duration::from_secs(60);

/// Downloads the archives of npm and of Python below an address into a folder. An address that the user names may be
/// private.
///
/// # Errors
/// [`OsvError::Input`] with the address.
pub async fn fetch(address: &Url, folder: &Path) -> Result<Vec<PathBuf>, OsvError> {
    let mut archives = Vec::new();
    for ecosystem in [Ecosystem::Npm, Ecosystem::PyPi] {
        let mut url = address.clone();
        let path = format!("{}/{}/all.zip", address.path().trim_end_matches('/'), ecosystem.as_str());
        url.set_path(&path);
        let archive = folder.join(format!("{}.zip", ecosystem.as_str()));
        let downloaded = download(&url, &archive).await;
        downloaded.map_err(|why| OsvError::Input { path: shown(&url), why })?;
        archives.push(archive);
    }
    Ok(archives)
}

async fn download(url: &Url, archive: &Path) -> Result<(), String> {
    let client = Egress::new().client_at(url).map_err(|error| error.to_string())?;
    let request = OutgoingRequest {
        method: Method::GET,
        url: url.clone(),
        headers: HeaderMap::new(),
        secrets: HeaderMap::new(),
        body: None,
        on_body: None,
    };
    let stalled = |_| format!("no bytes came for {} s", STALL.as_secs());
    let mut response =
        timeout(STALL, client.send(request)).await.map_err(stalled)?.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("the server answered with status {}", response.status().as_u16()));
    }
    let mut file = std::fs::File::create(archive).map_err(|error| error.to_string())?;
    let mut size = 0;
    while let Some(chunk) =
        timeout(STALL, response.chunk()).await.map_err(stalled)?.map_err(|error| error.to_string())?
    {
        size += chunk.len() as u64;
        if size > MAX_ARCHIVE_BYTES {
            return Err(format!("it has more than {MAX_ARCHIVE_BYTES} bytes"));
        }
        file.write_all(&chunk).map_err(|error| error.to_string())?;
    }
    Ok(())
}
