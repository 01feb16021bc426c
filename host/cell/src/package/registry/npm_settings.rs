//! The registry in the user's own configuration of npm.

use std::path::{Path, PathBuf};

use super::{RegistryConfig, Variables, read};

/// The `key = value` settings of all files. Of two with the same key, the first one holds.
type Settings = Vec<(String, String)>;

/// Reads the configuration of npm.
///
/// # Errors
/// If a file is there and cannot be read.
pub(super) fn configured(home: Option<&Path>, variables: Variables<'_>) -> Result<RegistryConfig, String> {
    let mut settings = Settings::new();
    for file in files(home, variables) {
        let text = read(&file)?.unwrap_or_default();
        // Of two lines of a file, npm reads the last one.
        settings.extend(text.lines().rev().filter_map(setting));
    }
    let find = |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let address = from_variable("registry", variables).or_else(|| find("registry"));
    let mut scopes: Vec<(String, String)> = Vec::new();
    for (key, value) in &settings {
        if let Some(scope) = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@'))
            && !scopes.iter().any(|(known, _)| known == scope)
        {
            scopes.push((scope.to_owned(), value.clone()));
        }
    }
    let certificates =
        from_variable("cafile", variables).or_else(|| find("cafile")).or_else(|| variables("NODE_EXTRA_CA_CERTS"));
    let secret = |key: &str| ["_authToken", "_auth", "_password"].iter().any(|name| key.ends_with(name));
    let has_credentials = settings.iter().any(|(key, _)| secret(key));
    let has_proxy = ["proxy", "https-proxy"].iter().any(|key| find(key).is_some());
    Ok(RegistryConfig { address, scopes, certificates, has_credentials, has_proxy })
}

/// Returns npm's configuration files: the user's, the one next to the system's npm, the system's.
fn files(home: Option<&Path>, variables: Variables<'_>) -> Vec<PathBuf> {
    let named = |name: &str| from_variable(name, variables).map(PathBuf::from);
    let user = named("userconfig").or_else(|| home.map(|home| home.join(".npmrc")));
    let system = match named("globalconfig") {
        Some(file) => vec![file],
        None => ["/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"].map(PathBuf::from).into(),
    };
    user.into_iter().chain(system).collect()
}

/// Returns a setting of npm from the environment.
fn from_variable(name: &str, variables: Variables<'_>) -> Option<String> {
    let spelled = [format!("npm_config_{name}"), format!("NPM_CONFIG_{}", name.to_uppercase())];
    spelled.iter().find_map(|name| variables(name))
}

/// Reads a line `key = value`. Behind a value without quotes there may be a comment.
fn setting(line: &str) -> Option<(String, String)> {
    let (key, value) = line.trim().split_once('=')?;
    if key.starts_with(['#', ';']) {
        return None;
    }
    let value = value.trim();
    let value = match value.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        Some(quote) => value.trim_matches(quote),
        None => value.split(['#', ';']).next().unwrap_or_default().trim_end(),
    };
    Some((key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::PackageRegistry;
    use super::*;
    use crate::CellError;

    /// Reads an `.npmrc` with these lines, which the variable `NPM_CONFIG_USERCONFIG` names.
    fn read_lines(lines: &str, more: (&str, &str)) -> Result<PackageRegistry, CellError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine"), lines).unwrap();
        let file = dir.path().join("mine").display().to_string();
        let variables = |name: &str| match name {
            "NPM_CONFIG_USERCONFIG" => Some(file.clone()),
            "NPM_CONFIG_GLOBALCONFIG" => Some("/absent".to_owned()),
            name => (name == more.0).then(|| more.1.to_owned()),
        };
        let configured = configured(Some(Path::new("/absent")), &variables).unwrap();
        configured.with_default("https://default.example.com/".to_owned())
    }

    #[test]
    fn the_registry_is_the_users_and_its_credentials_stay_outside() {
        let lines = "; mine\nregistry=https://old.example.com\nregistry=https://me:hunter2@npm.example.com/mirror/ # ours\n\
                     @org:registry = \"https://org.example.com:8443/\"\n//npm.example.com/mirror/:_authToken=hunter2\n";
        let registry = read_lines(lines, ("", "")).unwrap();
        assert_eq!(registry.address, "https://npm.example.com/mirror/");
        assert_eq!(registry.scopes, [("@org".to_owned(), "https://org.example.com:8443/".to_owned())]);
        assert_eq!(registry.hosts, ["npm.example.com:443", "org.example.com:8443"]);
        assert!(registry.has_credentials);
        assert!(!format!("{registry:?}").contains("hunter2"));
    }

    #[test]
    fn a_variable_goes_before_a_file_and_no_registry_is_an_error() {
        let variable = ("NPM_CONFIG_REGISTRY", "http://variable.example.com:4873");
        let registry = read_lines("registry=https://file.example.com/\n", variable).unwrap();
        assert_eq!(registry.hosts, ["variable.example.com:4873"]);
        assert!(read_lines("registry=${MIRROR}\n", ("", "")).unwrap_err().to_string().contains("not a URL"));
        assert!(read_lines("registry=file:///srv\n", ("", "")).is_err());
        assert_eq!(read_lines("", ("", "")).unwrap().hosts, ["default.example.com:443"]);
    }
}
