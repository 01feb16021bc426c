//! Reads pages of package registries, and finds the hosts at which a Python index keeps the files of a package (in the
//! HTML pages of PEP 503, which every index supports).

use std::string::FromUtf8Error;
use std::time::Duration;

use portcullis_net::egress::{Egress, EgressError, OutgoingRequest, Reach};
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use tokio::time::timeout;
use url::Url;

/// The most hosts that a page of an index may name for its files. Each becomes one that the installer reaches.
const MAX_HOSTS: usize = 16;

const HTML: &str = "application/vnd.pypi.simple.v1+html, text/html;q=0.5";

/// The largest page of a package that is read, in bytes. Packages with thousands of files have pages of a few
/// megabytes.
const MAX_PAGE_BYTES: usize = 16 << 20;

/// The longest time for a registry to answer with a page.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// The hosts at which an index says that the files of a package are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileHosts {
    /// The hosts of the files, as `host:port`. Empty if the page cannot be read or has no links; the files are then
    /// taken to be at the index itself.
    pub(super) hosts: Vec<String>,
    /// The reach of those hosts: public addresses only, or private ones too. An index on the public internet cannot
    /// lead to a private address. An index at a private address was named by the user, so it can.
    pub(super) reach: Reach,
}

/// Asks an index where the files of a package are.
///
/// # Errors
/// If the index does not answer within `deadline`, as text for people.
pub(super) async fn file_hosts(index: &str, package: &str, deadline: Duration) -> Result<FileHosts, String> {
    let none = FileHosts { hosts: Vec::new(), reach: Reach::Public };
    let Ok(page) = Url::parse(&format!("{}/{package}/", index.trim_end_matches('/'))) else { return Ok(none) };
    match timeout(deadline, fetch_page(&page, HTML)).await {
        Ok(Ok((text, reach))) => Ok(FileHosts { hosts: hosts(&page, &text), reach }),
        Ok(Err(why)) => {
            tracing::debug!(%why, "the index does not say where its files are");
            Ok(none)
        }
        Err(_) => {
            let (host, seconds) = (page.host_str().unwrap_or_default(), deadline.as_secs());
            Err(format!("cannot be installed: its index at {host} did not answer within {seconds} s; try again later"))
        }
    }
}

/// Reads a page of a registry, with `accept` as the `Accept` header. Also returns the reach that was needed, since the
/// user may have named a registry at a private address.
///
/// # Errors
/// [`PageError`]
pub(super) async fn fetch_page(page: &Url, accept: &'static str) -> Result<(String, Reach), PageError> {
    match fetch(page, accept, Reach::Public).await {
        Err(PageError::Egress(EgressError::Refused { host, .. })) if page.host_str() == Some(&*host) => {
            Ok((fetch(page, accept, Reach::Private).await?, Reach::Private))
        }
        answer => Ok((answer?, Reach::Public)),
    }
}

/// An error that says why a page of a registry cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("{0}")]
    Egress(#[from] EgressError),
    #[error("the registry answered with status {0}")]
    Status(u16),
    #[error("its page of the package is too large")]
    TooLarge,
    #[error("its page of the package is not text")]
    NotText(#[from] FromUtf8Error),
}

async fn fetch(page: &Url, accept: &'static str, reach: Reach) -> Result<String, PageError> {
    let client = Egress::new().client_for(page, reach)?;
    let request = OutgoingRequest {
        method: Method::GET,
        url: page.clone(),
        headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]),
        secrets: HeaderMap::new(),
        body: None,
        on_body: None,
    };
    let mut response = client.send(request).await?;
    if !response.status().is_success() {
        return Err(PageError::Status(response.status().as_u16()));
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| EgressError::from_client(page, &error))? {
        if text.len() + chunk.len() > MAX_PAGE_BYTES {
            return Err(PageError::TooLarge);
        }
        text.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(text)?)
}

/// Returns the hosts that a page links to. A page that is not an index links to none, or to hosts that the installer
/// never asks for.
fn hosts(page: &Url, text: &str) -> Vec<String> {
    let links = text.split("href=").skip(1).filter_map(|rest| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        page.join(rest.split(quote).nth(1)?).ok()
    });
    let mut hosts: Vec<_> =
        links.filter_map(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))).collect();
    hosts.sort();
    hosts.dedup();
    hosts.truncate(MAX_HOSTS);
    hosts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    #[test]
    fn a_page_names_the_hosts_of_its_files() {
        let page = "https://index.example.com/simple/server/".parse().unwrap();
        let text = r#"<!DOCTYPE html><a href="https://files.example.com/a.whl#sha256=00">a.whl</a>
            <a data-requires-python="&gt;=3" href='../../b.whl'>b.whl</a><a href="https://files.example.com:8443/c.whl">
            <a href="https://files.example.com/d.whl"><a href=unquoted><a href="#;
        assert_eq!(hosts(&page, text), ["files.example.com:443", "files.example.com:8443", "index.example.com:443"]);
        assert!(hosts(&page, "{}").is_empty());
        let flood: String = (0..1000).map(|n| format!("<a href='https://h{n}.example.com/x.whl'>")).collect();
        assert_eq!(hosts(&page, &flood).len(), MAX_HOSTS);
    }

    #[tokio::test]
    async fn an_index_at_a_private_address_may_link_to_private_addresses() {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let index = format!("http://{}/simple", listener.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let size = stream.read(&mut request).unwrap();
            let page = "<a href='http://10.0.0.5/server.whl'>server.whl</a>";
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}", page.len())
                .unwrap();
            String::from_utf8_lossy(&request[..size]).into_owned()
        });
        let found = file_hosts(&index, "server", DEADLINE).await.unwrap();
        assert_eq!(found, FileHosts { hosts: vec!["10.0.0.5:80".to_owned()], reach: Reach::Private });
        assert!(answers.join().unwrap().starts_with("GET /simple/server/ "));
        let nowhere = file_hosts("http://127.0.0.1:1/simple", "server", DEADLINE).await.unwrap();
        assert_eq!(nowhere, FileHosts { hosts: Vec::new(), reach: Reach::Public });
    }

    #[tokio::test]
    async fn an_index_that_never_answers_is_an_error() {
        // The system accepts the connection, and nobody reads from it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let index = format!("http://{}/simple", listener.local_addr().unwrap());
        let why = file_hosts(&index, "server", Duration::from_millis(10)).await.unwrap_err();
        assert!(why.contains("its index at 127.0.0.1 did not answer"), "{why}");
    }
}
