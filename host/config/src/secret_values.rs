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

/// The words before the credentials in a header, in lower case.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// The shortest credentials that are recognised by the word before them. Shorter ones are ordinary words.
const MIN_CREDENTIALS: usize = 8;

/// The largest number of names before a secret in one argument: an option and a header.
const MEMBER_LEVELS: usize = 2;

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

/// Returns the arguments of a command that are probably secrets, each as it may be shown: an option or a header without
/// its value, or the number of an argument. A variable that the program fills in itself (`${NAME}`) is not one.
#[must_use]
pub fn secret_arguments(argv: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: Option<&str> = None;
    for (number, word) in argv.iter().enumerate().skip(1) {
        let shown = match (secret_member(word, MEMBER_LEVELS), before) {
            (Some(member), _) => Some(format!("`{member}`")),
            (None, Some(option)) if is_secret_value_of(option, word) => Some(format!("`{option} …`")),
            _ if is_token(word) => Some(format!("number {number}")),
            _ => None,
        };
        found.extend(shown);
        before = Some(word.as_str()).filter(|word| word.starts_with('-'));
    }
    found
}

/// Reports whether a word is the value of the option before it, and the option names a secret.
fn is_secret_value_of(option: &str, word: &str) -> bool {
    !word.starts_with('-') && !option.contains('=') && is_secret_name(option) && !is_variable(word)
}

/// Returns the name before a secret in a word such as `--token=abc`, `Authorization: Bearer abc` or
/// `--header=X-Key: abc`, with `…` for the secret. At most `levels` names stand before it.
fn secret_member(word: &str, levels: usize) -> Option<String> {
    let at = word.find(['=', ':']).filter(|_| levels > 0)?;
    let (name, after) = (word.get(..at)?, word.get(at + 1..)?);
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return None;
    }
    let separator = if word.get(at..=at) == Some("=") { "=" } else { ": " };
    let value = after.trim_start();
    // A short word after a colon may be a port, or a version.
    let is_short = separator == ": " && value.len() == after.len() && value.len() < MIN_CREDENTIALS;
    let is_secret = !is_short && !is_variable(value) && (looks_secret(name, value) || is_token(value));
    let inner = secret_member(value, levels - 1).or_else(|| is_secret.then(|| "…".to_owned()));
    inner.map(|inner| format!("{name}{separator}{inner}"))
}

/// Reports whether a text has a form that only tokens have, or holds the credentials of a header.
fn is_token(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let credentials = SCHEMES.iter().any(|scheme| {
        let after = lower.find(scheme).and_then(|at| lower.get(at + scheme.len()..)).unwrap_or_default();
        let token = after.trim_end_matches(['"', '\'']);
        token.len() >= MIN_CREDENTIALS && !token.contains(char::is_whitespace) && !is_variable(token)
    });
    !is_variable(text) && (credentials || looks_like_token(text))
}

/// Reports whether a text is the name of a variable (`${NAME}`, `$NAME`), perhaps after the scheme of a header, and not
/// a value.
pub(super) fn is_variable(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let scheme = SCHEMES.iter().find(|scheme| lower.starts_with(**scheme)).map_or(0, |scheme| scheme.len());
    let name = text.get(scheme..).and_then(|rest| rest.trim().strip_prefix('$')).unwrap_or_default();
    let name = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
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
            ("server X-Api-Key:abcdefgh --header=X-Key:abcdefgh", vec!["`X-Api-Key: …`", "`--header=X-Key: …`"]),
            ("server --token=${TOKEN} --token ${TOKEN} X-Key:$KEY", vec![]),
            ("server https://example.com:443/a?b=c C:/docs a:b keycloak:8080 secret-server:latest", vec![]),
        ] {
            assert_eq!(secret_arguments(&argv(line)), found, "{line}");
        }
        for (word, found) in [
            ("Authorization: Bearer abc", Some("`Authorization: …`")),
            ("Authorization: Basic YWxleDpzM2NyM3Q==", Some("`Authorization: …`")),
            ("--header=Authorization: bearer abcdefgh", Some("`--header=Authorization: …`")),
            ("X-Forwarded: Bearer abcdefgh", Some("`X-Forwarded: …`")),
            ("{\"headers\": \"Bearer abcdefgh\"", Some("number 2")),
            ("Authorization: Bearer ${TOKEN}", None),
            ("Basic words of a longer text", None),
        ] {
            let argv = ["mcp-remote", "--header", word].map(str::to_owned);
            assert_eq!(secret_arguments(&argv), Vec::from_iter(found.map(str::to_owned)), "{word}");
        }
    }
}
