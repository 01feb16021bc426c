//! Finds the registries that packages come from: in the user's own configuration of npm, uv and pip, read as files.
//! Credentials stay where they are. If nothing is configured, the installer is asked for its own default.
#![expect(
    clippy::disallowed_methods,
    reason = "the tools' own variables, such as npm_config_registry; no source sees them"
)]

use std::path::{Path, PathBuf};

use portcullis_core::private::regular_file::{self, Symlinks};
use portcullis_net::egress::Reach;
use url::Url;

use super::super::{CellError, ProgramSearch};
use super::command::PackageManager;
use super::index::FileHosts;

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
    pub(super) fn of(kind: PackageManager, programs: &ProgramSearch) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mut configured = match kind {
            PackageManager::Npm => npm(&settings(&npm_files(programs)), variable),
            PackageManager::Uv => index(&settings(&index_files(programs)), variable),
        };
        configured.has_proxy |=
            ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().any(|name| variable(name).is_some());
        configured
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

/// The `key = value` settings of all files; those of the file that takes precedence come first.
type Settings = Vec<(String, String)>;

/// Returns npm's configuration files: the user's, the one next to the system's npm, the system's.
fn npm_files(programs: &ProgramSearch) -> Vec<PathBuf> {
    let user = programs.home.as_ref().map(|home| home.join(".npmrc"));
    user.into_iter().chain(["/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"].map(PathBuf::from)).collect()
}

/// Returns uv's configuration files, then pip's.
fn index_files(programs: &ProgramSearch) -> Vec<PathBuf> {
    let of_user = |name: &str| programs.home.as_ref().map(|home| home.join(name));
    let user = [".config/uv/uv.toml", ".config/pip/pip.conf", ".pip/pip.conf"].into_iter().filter_map(of_user);
    user.chain(["/etc/uv/uv.toml", "/etc/pip.conf"].map(PathBuf::from)).collect()
}

/// Reads the lines `key = value` of files that are INI or as simple. Sections are ignored: the keys that matter are
/// unique.
fn settings(files: &[PathBuf]) -> Settings {
    let texts = files.iter().filter_map(|file| read(file));
    let mut settings = Vec::new();
    for text in texts {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if let Some((key, value)) = line.split_once('=') {
                settings.push((key.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()));
            }
        }
    }
    settings
}

fn read(file: &Path) -> Option<String> {
    regular_file::read_text(file, Symlinks::Follow, MAX_BYTES).ok()
}

fn npm(settings: &Settings, variable: impl Fn(&str) -> Option<String>) -> RegistryConfig {
    let find = |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let from_variable = |name: &str| {
        let spelled = [format!("npm_config_{name}"), format!("NPM_CONFIG_{}", name.to_uppercase())];
        spelled.iter().find_map(|name| variable(name))
    };
    let address = from_variable("registry").or_else(|| find("registry"));
    let mut scopes: Vec<(String, String)> = Vec::new();
    for (key, value) in settings {
        if let Some(scope) = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@'))
            && !scopes.iter().any(|(known, _)| known == scope)
        {
            scopes.push((scope.to_owned(), value.clone()));
        }
    }
    let certificates = from_variable("cafile").or_else(|| find("cafile")).or_else(|| variable("NODE_EXTRA_CA_CERTS"));
    let secret = |key: &str| ["_authToken", "_auth", "_password"].iter().any(|name| key.ends_with(name));
    let has_credentials = settings.iter().any(|(key, _)| secret(key));
    let has_proxy = ["proxy", "https-proxy"].iter().any(|key| find(key).is_some());
    RegistryConfig { address, scopes, certificates, has_credentials, has_proxy }
}

fn index(settings: &Settings, variable: impl Fn(&str) -> Option<String>) -> RegistryConfig {
    let find = |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let variables = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"];
    let address = variables.iter().find_map(|name| variable(name)).or_else(|| find("index-url"));
    let certificates = variable("SSL_CERT_FILE").or_else(|| variable("PIP_CERT")).or_else(|| find("cert"));
    let has_proxy = find("proxy").is_some();
    RegistryConfig { address, scopes: Vec::new(), certificates, has_credentials: false, has_proxy }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn known(configured: RegistryConfig) -> Result<PackageRegistry, CellError> {
        assert!(configured.address.is_some());
        configured.with_default("https://default.example.com/".to_owned())
    }

    fn lines(text: &str) -> Settings {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), text).unwrap();
        settings(&[dir.path().join("absent"), dir.path().join("file")])
    }

    #[test]
    fn the_registry_is_the_users_and_its_credentials_stay_outside() {
        let settings = lines(
            "; mine\nregistry=https://me:hunter2@npm.example.com/mirror/\n@org:registry = https://org.example.com:8443/\n\
             //npm.example.com/mirror/:_authToken=hunter2\n",
        );
        let registry = known(npm(&settings, |_| None)).unwrap();
        assert_eq!(registry.address, "https://npm.example.com/mirror/");
        assert_eq!(registry.scopes, [("@org".to_owned(), "https://org.example.com:8443/".to_owned())]);
        assert_eq!(registry.hosts, ["npm.example.com:443", "org.example.com:8443"]);
        assert!(registry.has_credentials);
        assert!(!format!("{registry:?}").contains("hunter2"));
    }

    #[test]
    fn where_nothing_is_configured_the_installers_default_holds() {
        for configured in [npm(&Vec::new(), |_| None), index(&Vec::new(), |_| None)] {
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

    #[test]
    fn a_variable_goes_before_a_file_and_no_registry_is_an_error() {
        let settings = lines("registry=https://file.example.com/\n");
        let variable =
            |name: &str| (name == "NPM_CONFIG_REGISTRY").then(|| "http://variable.example.com:4873".to_owned());
        assert_eq!(known(npm(&settings, variable)).unwrap().hosts, ["variable.example.com:4873"]);
        let settings = lines("[global]\nindex-url = \"https://pip.example.com/simple\"\n");
        assert_eq!(known(index(&settings, |_| None)).unwrap().address, "https://pip.example.com/simple");
        assert!(known(npm(&lines("registry=${MIRROR}\n"), |_| None)).unwrap_err().to_string().contains("not a URL"));
        assert!(known(npm(&lines("registry=file:///srv\n"), |_| None)).is_err());
    }
}
