//! Reads one document from an address that a person names.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use url::Url;

use super::{Egress, OutgoingRequest, shown};

/// The longest time that a document may take to come.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads the document at an address, of at most `max_bytes`. Redirects are followed within the rules of [`Egress`]. The
/// address may be private, because a person named it; a redirect target may not.
///
/// # Errors
/// A sentence that names the address and the cause.
pub async fn read_document(url: &Url, max_bytes: usize) -> Result<Vec<u8>, String> {
    let named = |why: String| format!("{}: {why}", shown(url));
    let read = async {
        let client = Egress::new().client_at(url).map_err(|error| error.to_string())?;
        let request = OutgoingRequest {
            method: Method::GET,
            url: url.clone(),
            headers: HeaderMap::new(),
            secrets: HeaderMap::new(),
            body: None,
            on_body: None,
        };
        let mut response = client.send(request).await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("the server answered with status {}", response.status().as_u16()));
        }
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
            if document.len() + chunk.len() > max_bytes {
                return Err(format!("the document has more than {max_bytes} bytes"));
            }
            document.extend_from_slice(&chunk);
        }
        Ok(document)
    };
    let late = |_| Err(format!("the download did not finish within {} s", DEADLINE.as_secs()));
    tokio::time::timeout(DEADLINE, read).await.unwrap_or_else(late).map_err(named)
}
