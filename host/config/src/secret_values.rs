//! Secrets of a configuration: puts them into the store, and recognises values that probably belong there and not into
//! a file.

use portcullis_core::secret::{SecretError, SecretStore};

use super::Config;

/// Words in the names of variables, headers and options whose values are secrets.
const NAMES: [&str; 10] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
    "CONNECTION_STRING",
    "DATABASE_URL",
];

/// Beginnings that only tokens have.
const STARTS: [&str; 11] =
    ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "eyJ", "Bearer "];

impl Config {
    /// Stores a secret in the data folder, as `portcullis secret set` does, and replaces an earlier one of this name.
    /// Then `{ secret = "NAME" }` refers to it in `env` and `headers`. Only this user can read the file. A source that
    /// runs gets the value when it connects the next time. Waits for the disk.
    ///
    /// # Errors
    /// [`SecretError`]: the name is not 1 to 128 ASCII letters, digits, `-`, `_` and `.`, or begins with `-`; the value
    /// is empty, longer than 64 KiB or has a NUL character; there are 256 secrets already; or the folder cannot be
    /// used.
    ///
    /// # Example
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// # use portcullis_config as portcullis;
    /// use portcullis::{Config, SourceTable};
    /// let search = SourceTable::url("https://mcp.example.com/mcp");
    /// let headers = serde_json::json!({ "X-Api-Key": { "secret": "search-key" } });
    /// let config = Config::builder(folder).source("search", search.key("headers", headers)).build()?;
    /// config.store_secret("search-key", "s3cr3t")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn store_secret(&self, name: &str, value: &str) -> Result<(), SecretError> {
        SecretStore::open(&self.data_dir)?.set(name, &value.into())
    }
}

/// Reports whether the value of a variable, header or option is probably a secret: by its name, or by its form.
#[must_use]
pub fn looks_secret(name: &str, value: &str) -> bool {
    (is_secret_name(name) && !value.is_empty()) || looks_like_token(value)
}

/// Returns the arguments of a command that are probably secrets, each as it may be shown: an option without its value,
/// or the number of an argument.
#[must_use]
pub fn secret_arguments(argv: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: Option<&str> = None;
    for (number, word) in argv.iter().enumerate().skip(1) {
        let shown = match (word.split_once('='), before) {
            (Some((option, value)), _) if looks_secret(option, value) => Some(format!("`{option}=…`")),
            (None, Some(option)) if !word.starts_with('-') && is_secret_name(option) => Some(format!("`{option} …`")),
            _ if looks_like_token(word) => Some(format!("number {number}")),
            _ => None,
        };
        found.extend(shown);
        before = Some(word.as_str()).filter(|word| word.starts_with('-'));
    }
    found
}

/// Reports whether the name of a variable, header or option indicates that its value is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase().replace('-', "_");
    NAMES.iter().any(|word| upper.contains(word))
}

/// Reports whether a value has a form that only tokens have, or is a URL with a password in it.
pub(super) fn looks_like_token(value: &str) -> bool {
    STARTS.iter().any(|start| value.starts_with(start))
        || url::Url::parse(value).is_ok_and(|url| url.password().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_arguments_are_named_without_their_values() {
        let argv = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, found) in [
            ("server --api-key abc --port 80", vec!["`--api-key …`"]),
            ("server --token=abc --verbose", vec!["`--token=…`"]),
            ("server ghp_abc postgres://me:pw@db/x", vec!["number 1", "number 2"]),
            ("server --token --verbose docs", vec![]),
            ("server --keep docs", vec![]),
        ] {
            assert_eq!(secret_arguments(&argv(line)), found, "{line}");
        }
    }
}
