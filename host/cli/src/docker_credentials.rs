//! Accounts at registries, from Docker's `config.json`, which other tools for registries write as well.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::config::environment_variable;
use portcullis::oci::RegistryLogin;
use serde::Deserialize;

/// The part of Docker's configuration that has accounts.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: BTreeMap<String, StoredAccount>,
    /// The helper for all registries that `cred_helpers` does not name.
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

/// An account as the file has it; empty if a helper keeps it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StoredAccount {
    /// The name and the password, with a colon between them, in base64.
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// The answer of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAccount {
    username: String,
    secret: String,
}

/// Returns the user's account at a registry, or `None` if Docker's configuration has none.
///
/// # Errors
/// The configuration cannot be read, or a helper that it names fails.
pub(crate) fn login(registry: &str) -> anyhow::Result<Option<RegistryLogin>> {
    let folder = environment_variable("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".docker")));
    folder.map_or(Ok(None), |folder| account(&folder.join("config.json"), registry))
}

fn account(file: &Path, registry: &str) -> anyhow::Result<Option<RegistryLogin>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
    };
    let shown = file.display();
    let config: DockerConfig =
        serde_json::from_str(&text).with_context(|| format!("{shown} is not a configuration of Docker"))?;
    let named = |key: &String| host(key) == registry;
    if let Some((_, helper)) = config.cred_helpers.iter().find(|(key, _)| named(key)) {
        return from_helper(helper, registry).with_context(|| format!("{shown}: the helper {helper:?}"));
    }
    let stored = config.auths.iter().find(|(key, _)| named(key)).map(|(_, account)| account);
    if let Some(account) = stored.and_then(StoredAccount::login) {
        return Ok(Some(account));
    }
    match &config.creds_store {
        Some(helper) => from_helper(helper, registry).with_context(|| format!("{shown}: the helper {helper:?}")),
        None => Ok(None),
    }
}

/// Returns the registry that a key of the configuration names: `host:port`, by itself or within a URL.
fn host(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(host, _)| host)
}

impl StoredAccount {
    fn login(&self) -> Option<RegistryLogin> {
        if let (Some(username), Some(password)) = (&self.username, &self.password) {
            return Some(RegistryLogin { username: username.clone(), password: password.clone() });
        }
        let text =
            STANDARD.decode(self.auth.as_deref()?.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        let (username, password) = text.split_once(':')?;
        Some(RegistryLogin { username: username.to_owned(), password: password.to_owned() })
    }
}

/// Asks a helper of Docker for an account: `docker-credential-NAME get`.
#[expect(
    clippy::disallowed_methods,
    reason = "no source: the helper that the user's own file names, which needs the environment of the user's session"
)]
fn from_helper(name: &str, registry: &str) -> anyhow::Result<Option<RegistryLogin>> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        bail!("its name is not one of letters, digits, dashes and dots");
    }
    let program = format!("docker-credential-{name}");
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut helper = command.spawn().with_context(|| format!("`{program}` cannot be run"))?;
    // One that ends before it has read everything says why by its exit code.
    let _ = helper.stdin.take().map(|mut stdin| stdin.write_all(registry.as_bytes()));
    let output = helper.wait_with_output().with_context(|| format!("`{program}` cannot be run"))?;
    if !output.status.success() {
        // A helper that knows no account fails as well.
        return Ok(None);
    }
    let HelperAccount { username, secret: password } = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the answer of `{program}` is not an account"))?;
    if username == "<token>" {
        bail!("it keeps an identity token: log in with a password or an access token instead");
    }
    Ok(Some(RegistryLogin { username, password }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn found(config: &str, registry: &str) -> Result<Option<(String, String)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, config).unwrap();
        let account = account(&file, registry).map_err(|error| format!("{error:#}"))?;
        Ok(account.map(|account| (account.username, account.password)))
    }

    #[test]
    fn an_account_is_found_as_docker_writes_it() {
        let expected = Some(("ada".to_owned(), "a:b".to_owned()));
        let auth = STANDARD.encode("ada:a:b");
        for key in ["registry.example.com", "https://registry.example.com", "https://registry.example.com/v2/"] {
            let config = format!(r#"{{"auths":{{"other.example.com":{{}},"{key}":{{"auth":"{auth}"}}}}}}"#);
            assert_eq!(found(&config, "registry.example.com").unwrap(), expected, "{key}");
            assert_eq!(found(&config, "example.com").unwrap(), None);
            assert_eq!(found(&config, "registry.example.com:5000").unwrap(), None);
        }
        let plain = r#"{"auths":{"127.0.0.1:5000":{"username":"ada","password":"a:b"}}}"#;
        assert_eq!(found(plain, "127.0.0.1:5000").unwrap(), expected);
        assert_eq!(found("{}", "127.0.0.1:5000").unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        assert!(account(&folder.path().join("config.json"), "127.0.0.1").unwrap().is_none());
    }

    #[test]
    fn a_configuration_that_cannot_be_used_is_named() {
        let error = found("{", "127.0.0.1").unwrap_err();
        assert!(error.contains("config.json is not a configuration of Docker"), "{error}");
        let error = found(r#"{"credsStore":"../evil"}"#, "127.0.0.1").unwrap_err();
        assert!(error.contains("config.json: the helper \"../evil\": its name"), "{error}");
        let error = found(r#"{"credHelpers":{"127.0.0.1":"no-such-helper"}}"#, "127.0.0.1").unwrap_err();
        assert!(error.contains("`docker-credential-no-such-helper` cannot be run"), "{error}");
    }
}
