//! Provenance: whether a registry names attestations of a package, in the metadata that its installer reads too. None
//! is verified here.
//!
//! Specification: npm, `dist.attestations` of a version; Python, PEP 691 (the index as JSON) and PEP 740 (`provenance`
//! of a file).

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;
use url::Url;

use super::index::{DEADLINE, fetch_page};
use super::{Installer, PackageCommand, PackageManager, uv};
use crate::CellError;

/// The format in which npm reads what a registry has of a package.
const NPM: &str = "application/vnd.npm.install-v1+json, application/json;q=0.5";

/// The format in which uv reads what an index has of a package.
const PYPI: &str = "application/vnd.pypi.simple.v1+json";

/// The attestations that a registry lists for one version of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// The registry names attestations for some of the files of the version. They were not verified.
    Attested {
        /// The number of files with attestations.
        files: usize,
        /// The number of files that an installer may choose from.
        of: usize,
    },
    /// The registry names none.
    Unattested,
    /// The registry was not asked, or gave no answer.
    Unknown(String),
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attested { files, of } if files == of => f.write_str("has attestations (not verified)"),
            Self::Attested { files, of } => write!(f, "has attestations for {files} of its {of} files (not verified)"),
            Self::Unattested => f.write_str("has no attestations"),
            Self::Unknown(why) => write!(f, "attestations not checked: {why}"),
        }
    }
}

/// One version of a package, by the hash that its bytes must have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackageRelease<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) integrity: &'a str,
}

impl Installer<'_> {
    /// Returns the attestations that the package's registry reports.
    ///
    /// # Errors
    /// [`CellError`] if no registry is known.
    pub(crate) async fn provenance(&self, released: PackageRelease<'_>) -> Result<Provenance, CellError> {
        let registry = self.registry().await?;
        let of_scope = |scope: &str| registry.scopes.iter().find(|(known, _)| known == scope);
        let scope = released.name.split_once('/').and_then(|(scope, _)| of_scope(scope));
        let address = scope.map_or(&registry.address, |(_, address)| address);
        Ok(ask(self.package(), address, released).await.unwrap_or_else(Provenance::Unknown))
    }
}

/// Asks a registry at an address. An error tells why there is no answer.
async fn ask(package: &PackageCommand, address: &str, released: PackageRelease<'_>) -> Result<Provenance, String> {
    let address = address.trim_end_matches('/');
    let (path, format) = match package.kind {
        PackageManager::Npm => (released.name.replace('/', "%2f"), NPM),
        PackageManager::Uv => (format!("{}/", uv::normal(released.name)), PYPI),
    };
    let url = Url::parse(&format!("{address}/{path}")).map_err(|error| error.to_string())?;
    let answer = timeout(DEADLINE, fetch_page(&url, format)).await;
    let answer = answer.map_err(|_| format!("the registry did not answer within {} s", DEADLINE.as_secs()))?;
    let (text, _) = answer.map_err(|error| error.to_string())?;
    match package.kind {
        PackageManager::Npm => of_npm(&text, released),
        PackageManager::Uv => of_index(&text, released.version),
    }
}

/// Reads an npm registry's answer about a version. It must be about the bytes that are installed.
fn of_npm(text: &str, released: PackageRelease<'_>) -> Result<Provenance, String> {
    #[derive(Deserialize)]
    struct Document {
        versions: HashMap<String, Version>,
    }
    #[derive(Deserialize)]
    struct Version {
        dist: Dist,
    }
    #[derive(Deserialize)]
    struct Dist {
        integrity: Option<String>,
        attestations: Option<HashMap<String, IgnoredAny>>,
    }
    let Document { mut versions } = serde_json::from_str(text)
        .map_err(|_| "the registry's answer is not what npm reads of a package".to_owned())?;
    let Some(Version { dist }) = versions.remove(released.version) else {
        return Err(format!("the registry's answer does not name version {}", released.version));
    };
    if dist.integrity.as_deref() != Some(released.integrity) {
        return Err("the registry names other bytes for it".to_owned());
    }
    Ok(match dist.attestations {
        Some(attestations) if !attestations.is_empty() => Provenance::Attested { files: 1, of: 1 },
        _ => Provenance::Unattested,
    })
}

/// Reads a Python index's answer about the wheels of a version.
fn of_index(text: &str, version: &str) -> Result<Provenance, String> {
    #[derive(Deserialize)]
    struct Index {
        files: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        filename: String,
        provenance: Option<String>,
    }
    let Index { files } = serde_json::from_str(text).map_err(|_| "the index does not answer in JSON".to_owned())?;
    let is_wheel = |file: &&Listed| {
        let mut parts = file.filename.split('-');
        file.filename.ends_with(".whl") && parts.nth(1) == Some(version)
    };
    let wheels: Vec<&Listed> = files.iter().filter(is_wheel).collect();
    match (wheels.iter().filter(|file| file.provenance.is_some()).count(), wheels.len()) {
        (_, 0) => Err(format!("the index names no wheel of version {version}")),
        (0, _) => Ok(Provenance::Unattested),
        (files, of) => Ok(Provenance::Attested { files, of }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::io::{Read as _, Write as _};

    use serde_json::{Value, json};

    use super::*;

    fn released(name: &str) -> PackageRelease<'_> {
        PackageRelease { name, version: "1.2.0", integrity: "sha512-a" }
    }

    fn said(result: Result<Provenance, String>) -> String {
        result.unwrap_or_else(Provenance::Unknown).to_string()
    }

    #[test]
    fn attestations_count_for_the_installed_bytes_of_an_npm_package_only() {
        let with = |dist: Value| json!({ "versions": { "1.2.0": { "dist": dist } } }).to_string();
        let named = json!({ "url": "https://r.example/a", "provenance": { "predicateType": "x" } });
        for (text, expected) in [
            (with(json!({ "integrity": "sha512-a", "attestations": named })), "has attestations (not verified)"),
            (with(json!({ "integrity": "sha512-a" })), "has no attestations"),
            (with(json!({ "integrity": "sha512-a", "attestations": null })), "has no attestations"),
            (with(json!({ "integrity": "sha512-a", "attestations": {} })), "has no attestations"),
            (
                with(json!({ "integrity": "sha512-b", "attestations": named })),
                "not checked: the registry names other bytes",
            ),
            (with(json!({ "attestations": named })), "not checked: the registry names other bytes"),
            (json!({ "versions": {} }).to_string(), "not checked: the registry's answer does not name version 1.2.0"),
            (
                with(json!({ "integrity": "sha512-a", "attestations": "yes" })),
                "not checked: the registry's answer is not",
            ),
            ("<html>".to_owned(), "not checked: the registry's answer is not what npm reads"),
        ] {
            let said = said(of_npm(&text, released("server")));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn attestations_count_for_the_wheels_of_the_version_of_a_python_package_only() {
        let file = |name: &str, provenance: Value| json!({ "filename": name, "provenance": provenance });
        let index = |files: Vec<Value>| json!({ "files": files }).to_string();
        let named = || json!("https://i.example/p");
        for (text, expected) in [
            (index(vec![file("s-1.2.0-py3-none-any.whl", named())]), "has attestations (not verified)"),
            (
                index(vec![file("s-1.2.0-a.whl", named()), file("s-1.2.0-b.whl", Value::Null)]),
                "has attestations for 1 of its 2 files (not verified)",
            ),
            (index(vec![file("s-1.2.0-a.whl", Value::Null), file("s-1.3.0-a.whl", named())]), "has no attestations"),
            (index(vec![file("s-1.2.0.tar.gz", named())]), "not checked: the index names no wheel of version 1.2.0"),
            ("<!DOCTYPE html>".to_owned(), "not checked: the index does not answer in JSON"),
        ] {
            let said = said(of_index(&text, "1.2.0"));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[tokio::test]
    async fn the_registry_of_the_package_is_asked_as_its_installer_asks_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/mirror/", listener.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            ["200 OK", "200 OK", "401 -"].map(|status| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let size = stream.read(&mut request).unwrap();
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
                String::from_utf8_lossy(&request[..size]).to_lowercase()
            })
        });
        let package = |words: [&str; 2]| PackageCommand::of(&words.map(str::to_owned)).unwrap().unwrap();
        let (npx, uvx) = (package(["npx", "@me/server"]), package(["uvx", "my_server"]));
        assert!(said(ask(&npx, &address, released("@me/server")).await).contains("not what npm reads"));
        assert!(said(ask(&uvx, &address, released("my_server")).await).contains("in JSON"));
        assert!(said(ask(&uvx, &address, released("my_server")).await).contains("status 401"));
        let asked = answers.join().unwrap();
        assert!(asked[0].starts_with("get /mirror/@me%2fserver ") && asked[0].contains("npm.install-v1+json"));
        assert!(asked[1].starts_with("get /mirror/my-server/ ") && asked[1].contains("pypi.simple.v1+json"));
    }
}
