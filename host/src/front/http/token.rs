//! The bearer token that callers of the HTTP front need.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;

use crate::config::Config;
use crate::secret::{SecretError, Secrets};

/// Random bytes of a generated token.
const TOKEN_BYTES: usize = 32;

/// The longest token that is read, in bytes.
const MAX_BYTES: u64 = 4096;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The configuration names a secret that cannot be read.
    #[error("`token` under [serve]: {0}")]
    Secret(#[from] SecretError),
    /// The generated token cannot be kept or read.
    #[error("{path}: {error}; remove the file to get a new token")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
}

/// Where the generated token is kept, mode 0600.
#[must_use]
pub fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("token")
}

/// The token that `[serve]` names, or else the generated one of the data folder, which is made on first use.
///
/// # Errors
/// See [`TokenError`].
pub fn of(config: &Config) -> Result<SecretString, TokenError> {
    if let Some(value) = &config.serve.token {
        return Ok(Secrets::open(&config.data_dir)?.resolve(value)?);
    }
    let path = file(&config.data_dir);
    generated(&path).map_err(|error| TokenError::File { path, error })
}

fn generated(path: &Path) -> std::io::Result<SecretString> {
    match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        file => return read(file?),
    }
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    // Whole or not at all, and never over the token of a broker that started at the same time.
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
    writeln!(file, "{}", URL_SAFE_NO_PAD.encode(bytes))?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
        _ => read(std::fs::File::open(path)?),
    }
}

fn read(file: std::fs::File) -> std::io::Result<SecretString> {
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(std::io::Error::other("others can read it: run `chmod 600` on it, or better make a new one"));
    }
    let mut token = String::new();
    file.take(MAX_BYTES).read_to_string(&mut token)?;
    match token.trim() {
        "" => Err(std::io::Error::other("it is empty")),
        token => Ok(token.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use secrecy::ExposeSecret as _;

    #[test]
    fn a_token_is_made_once_kept_private_and_refused_when_others_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path());
        let made = generated(&path).unwrap();
        assert!(made.expose_secret().len() >= 43);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(generated(&path).unwrap().expose_secret(), made.expose_secret());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(generated(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::remove_file(&path).unwrap();
        // Brokers that start together have one token.
        let together: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn({
                    let path = path.clone();
                    move || generated(&path).unwrap().expose_secret().to_owned()
                })
            })
            .collect();
        let tokens: std::collections::HashSet<_> = together.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(tokens.len(), 1);
        assert_ne!(generated(&path).unwrap().expose_secret(), made.expose_secret());
    }
}
