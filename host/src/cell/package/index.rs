//! Where a Python index keeps its files, as it says itself (the simple API in HTML, PEP 503, which all of them speak).

use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use url::Url;

use crate::egress::{Egress, Outgoing, Reach};

const HTML: &str = "application/vnd.pypi.simple.v1+html, text/html;q=0.5";

/// The largest page that is read. Packages with thousands of files have pages of a few megabytes.
const MAX_PAGE_BYTES: usize = 16 << 20;

/// The `host:port` of every file of a package. Empty where the index gives no such page: its files are then beside it.
pub(super) async fn file_hosts(index: &str, package: &str) -> Vec<String> {
    let Ok(page) = Url::parse(&format!("{}/{package}/", index.trim_end_matches('/'))) else { return Vec::new() };
    let text = match fetch(&page).await {
        Ok(text) => text,
        Err(why) => {
            tracing::debug!(why, "the index does not say where its files are");
            return Vec::new();
        }
    };
    hosts(&page, &text)
}

async fn fetch(page: &Url) -> Result<String, String> {
    // As near as the user's own configuration says.
    let client = Egress::new().client_for(page, Reach::Private).map_err(|error| error.to_string())?;
    let request = Outgoing {
        method: Method::GET,
        url: page.clone(),
        headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(HTML))]),
        secrets: HeaderMap::new(),
        body: None,
        on_body: None,
    };
    let mut response = client.send(request).await.map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        if text.len() + chunk.len() > MAX_PAGE_BYTES {
            return Err("its page of the package is too large".to_owned());
        }
        text.extend_from_slice(&chunk);
    }
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// The hosts that the page links to. A page that is no index links to none, or to some that the installer never asks for.
fn hosts(page: &Url, text: &str) -> Vec<String> {
    let links = text.split("href=").skip(1).filter_map(|rest| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        page.join(rest.split(quote).nth(1)?).ok()
    });
    let mut hosts: Vec<_> =
        links.filter_map(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_page_names_the_hosts_of_its_files() {
        let page = "https://index.example.com/simple/server/".parse().unwrap();
        let text = r#"<!DOCTYPE html><a href="https://files.example.com/a.whl#sha256=00">a.whl</a>
            <a data-requires-python="&gt;=3" href='../../b.whl'>b.whl</a><a href="https://files.example.com:8443/c.whl">
            <a href="https://files.example.com/d.whl"><a href=unquoted><a href="#;
        assert_eq!(hosts(&page, text), ["files.example.com:443", "files.example.com:8443", "index.example.com:443"]);
        assert!(hosts(&page, "{}").is_empty());
    }
}
