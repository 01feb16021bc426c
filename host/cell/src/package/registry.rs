//! Finds the registries that packages come from: in the user's own configuration of npm, uv and pip, read as files.
//! Credentials stay where they are. If nothing is configured, the installer is asked for its own default.
#![expect(
    clippy::disallowed_methods,
    reason = "the tools' own variables, such as npm_config_registry; no source sees them"
)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use portcullis_core::private::regular_file::{self, Symlinks};
use portcullis_net::egress::Reach;
use url::Url;

use super::super::{CellError, ProgramSearch};
use super::command::PackageManager;
use super::index::FileHosts;

mod index_settings;
mod npm_settings;

/// The largest configuration file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The user's configuration of an installer: its registry, and whether credentials or a proxy are set.
#[derive(Debug, Clone)]
pub(super) struct RegistryConfig {
    /// The registry's URL, or `None` for the installer's own default.
    pub(super) address: Option<String>,
    scopes: Vec<(String, String)>,
    certificates: Option<String>,
    has_credentials: bool,
    has_proxy: bool,
}

impl RegistryConfig {
    /// Reads the user's configuration, from variables and files.
    ///
    /// # Errors
    /// If it cannot be read, or names registries that the broker cannot use. No other registry may take their place: a
    /// stranger can offer a package there under the same name.
    pub(super) fn of(kind: PackageManager, programs: &ProgramSearch) -> Result<Self, String> {
        let variables = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = programs.home.as_deref();
        let mut configured = match kind {
            PackageManager::Npm => npm_settings::configured(home, &variables)?,
            PackageManager::Uv => index_settings::configured(home, Path::new("/etc"), &variables)?,
        };
        configured.has_proxy |=
            ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().any(|name| variables(name).is_some());
        Ok(configured)
    }

    /// Returns the registry at the configured address, or else at `default`.
    ///
    /// # Errors
    /// If the address is not the URL of a registry.
    pub(super) fn with_default(self, default: String) -> Result<PackageRegistry, CellError> {
        let address = self.address.unwrap_or(default);
        let mut registry = PackageRegistry::new(address, self.scopes, self.certificates).map_err(CellError::Program)?;
        registry.has_credentials |= self.has_credentials;
        registry.has_proxy = self.has_proxy;
        Ok(registry)
    }
}

/// The registry that an installer uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageRegistry {
    /// The registry's URL, without credentials.
    pub(super) address: String,
    /// Other registries of npm, by `@scope`.
    pub(super) scopes: Vec<(String, String)>,
    /// The file with the certificates to trust, if the user names one.
    pub(super) certificates: Option<PathBuf>,
    /// True if the user has credentials for the registry; they stay outside the cell.
    pub(super) has_credentials: bool,
    /// True if the user reaches the network through a proxy.
    pub(super) has_proxy: bool,
    /// All hosts that may be reached, as `host:port`.
    pub(super) hosts: Vec<String>,
    /// Those of `hosts` that the user did not name, and that must not have a private address.
    pub(super) must_be_public: Vec<String>,
}

impl PackageRegistry {
    /// Adds the hosts that keep the registry's files, if those are on other hosts.
    pub(super) fn links_to(&mut self, FileHosts { hosts, reach }: FileHosts) {
        if reach == Reach::Public {
            self.must_be_public = hosts.iter().filter(|host| !self.hosts.contains(host)).cloned().collect();
        }
        self.hosts.extend(hosts);
        self.hosts.sort();
        self.hosts.dedup();
    }

    fn new(address: String, scopes: Vec<(String, String)>, certificates: Option<String>) -> Result<Self, String> {
        let mut hosts = Vec::new();
        let mut has_credentials = false;
        let mut bare = |text: &str| -> Result<String, String> {
            let mut url = Url::parse(text).map_err(|error| format!("the registry's address is not a URL: {error}"))?;
            let host = url.host_str().map(str::to_owned).zip(url.port_or_known_default());
            let (host, port) = host
                .filter(|_| matches!(url.scheme(), "http" | "https"))
                .ok_or("the registry's address is neither http nor https")?;
            hosts.push(format!("{host}:{port}"));
            has_credentials |= !url.username().is_empty() || url.password().is_some();
            // Neither can fail for a URL with a host.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            Ok(url.into())
        };
        let address = bare(&address)?;
        let scopes = scopes.into_iter().map(|(scope, url)| Ok((scope, bare(&url)?))).collect::<Result<_, String>>()?;
        hosts.sort();
        hosts.dedup();
        let certificates =
            certificates.and_then(|file| Path::new(&file).canonicalize().ok()).filter(|file| file.is_file());
        Ok(Self { address, scopes, certificates, has_credentials, has_proxy: false, hosts, must_be_public: Vec::new() })
    }
}

/// The variables of the environment, by name; one that is empty is not set.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the text of a configuration file, or `None` if there is none.
///
/// # Errors
/// If it cannot be read: nobody knows then which registry the user means.
fn read(file: &Path) -> Result<Option<String>, String> {
    match regular_file::read_text(file, Symlinks::Follow, MAX_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn where_nothing_is_configured_the_installers_default_holds() {
        let home = tempfile::tempdir().unwrap();
        let global = |name: &str| (name == "NPM_CONFIG_GLOBALCONFIG").then(|| "/absent".to_owned());
        let npm = npm_settings::configured(Some(home.path()), &global).unwrap();
        let index = index_settings::configured(Some(home.path()), home.path(), &|_| None).unwrap();
        for configured in [npm, index] {
            assert_eq!(configured.address, None);
            let mut registry = configured.with_default("https://default.example.com/simple".to_owned()).unwrap();
            assert_eq!(registry.hosts, ["default.example.com:443"]);
            assert!(!registry.has_credentials);
            let hosts = vec!["files.example.com:443".to_owned(), "default.example.com:443".to_owned()];
            let mut near = registry.clone();
            registry.links_to(FileHosts { hosts: hosts.clone(), reach: Reach::Public });
            near.links_to(FileHosts { hosts, reach: Reach::Private });
            for registry in [&registry, &near] {
                assert_eq!(registry.hosts, ["default.example.com:443", "files.example.com:443"]);
            }
            assert_eq!(registry.must_be_public, ["files.example.com:443"], "what the user did not name must be public");
            assert!(near.must_be_public.is_empty());
        }
    }
}
