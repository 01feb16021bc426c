//! The broker's own bearer tokens, which callers of the HTTP front may bring.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::broker::ServingProblem;
use crate::config::Config;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::private;
use crate::secret::{ConfigValue, SecretError, SecretStore};

/// The principal of the holder of the broker's own token. A named caller's principal is this, a colon and the name.
const TOKEN_HOLDER: &str = "token";

/// The number of random bytes in a generated token.
const TOKEN_BYTES: usize = 32;

/// The longest token that is read, in bytes.
const MAX_BYTES: u64 = 4096;

/// The fewest bytes of a token that is not called weak: 16 random bytes cannot be guessed over a network, in any spelling.
const MIN_BYTES: usize = 16;

/// An error in reading or making the tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The configuration names a secret that cannot be read.
    #[error("{place}: {error}")]
    Secret {
        /// The place of the configuration that names it.
        place: String,
        /// The cause.
        error: SecretError,
    },
    /// Two callers have the same token, so that they could not be distinguished.
    #[error("caller `{0}` under [serve] has the same token as another caller; give each caller its own")]
    Shared(String),
    /// The token for metrics is also a caller's, so that this caller could read them.
    #[error("`metrics-token` under [serve] is the token of a caller too; give it one of its own")]
    Metrics,
    /// A person's token is also another's, or a caller's, which could then answer its own questions.
    #[error("person `{0}` under [serve.people] has the token of another person or of a caller; give each their own")]
    Person(String),
    /// The generated token cannot be stored or read.
    #[error("the token in {path} cannot be used: {error}; remove the file to get a new token")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
}

/// The tokens and their holders.
#[derive(Debug)]
pub struct AccessTokens {
    holders: Vec<Holder>,
    /// The token that reads `/metrics`, and nothing else.
    metrics: Option<SecretString>,
    /// The tokens of the people who answer questions, and do nothing else.
    people: Vec<(Arc<str>, SecretString)>,
}

/// The holder of a token.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    token: SecretString,
    pub(super) principal: Principal,
    /// The profile, if the holder has one of its own.
    pub(super) profile: Option<ProfileName>,
    pub(super) mark: TokenMark,
}

/// The mark that distinguishes a token from others of the same holder, without revealing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenMark(u64);

impl TokenMark {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl AccessTokens {
    /// Returns the one token of the broker, whose holder is the principal `token`.
    #[must_use]
    pub fn one(token: SecretString) -> Self {
        let mut tokens = Self::none();
        tokens.hold(token, TOKEN_HOLDER, None);
        tokens
    }

    /// Returns no token, so that nobody is admitted.
    fn none() -> Self {
        Self { holders: Vec::new(), metrics: None, people: Vec::new() }
    }

    fn hold(&mut self, token: SecretString, principal: &str, profile: Option<ProfileName>) {
        let (principal, mark) = (Principal::established(principal), TokenMark::new());
        self.holders.push(Holder { token, principal, profile, mark });
    }

    /// Returns these tokens, those with the marks that they had among the tokens before which are the same.
    pub(super) fn after(mut self, before: &Self) -> Self {
        for holder in &mut self.holders {
            let same = |other: &&Holder| {
                let tokens = is(&other.token, holder.token.expose_secret().as_bytes());
                tokens && (&other.principal, &other.profile) == (&holder.principal, &holder.profile)
            };
            if let Some(known) = before.holders.iter().find(same) {
                holder.mark = known.mark;
            }
        }
        self
    }

    /// Reports whether the token with this mark still admits its holder.
    pub(super) fn has(&self, mark: TokenMark) -> bool {
        self.holders.iter().any(|holder| holder.mark == mark)
    }

    /// Reports whether a caller, a person or the collector of metrics has this token.
    fn is_known(&self, given: &[u8]) -> bool {
        self.holder(given).is_some() || self.person(given).is_some() || self.reads_metrics(given) == Some(true)
    }

    /// Describes the tokens that are so short that they can be guessed.
    pub(super) fn weak(&self) -> Vec<String> {
        let holders = self.holders.iter().map(|holder| (holder.principal.to_string(), &holder.token));
        let people = self.people.iter().map(|(name, token)| (format!("person {name}"), token));
        let metrics = self.metrics.iter().map(|token| ("metrics".to_owned(), token));
        let weak = holders.chain(people).chain(metrics).filter(|(_, token)| token.expose_secret().len() < MIN_BYTES);
        let described = |(holder, token): (String, &SecretString)| {
            format!(
                "the token of `{holder}` under [serve] has {} bytes and could be guessed; `openssl rand -hex 32` makes a good one",
                token.expose_secret().len()
            )
        };
        weak.map(described).collect()
    }

    /// Adds a token that reads `/metrics`, and nothing else.
    #[must_use]
    pub fn with_metrics(self, token: SecretString) -> Self {
        Self { metrics: Some(token), ..self }
    }

    /// Returns the holder of this token. The time that this takes tells nothing about the tokens.
    pub(super) fn holder(&self, given: &[u8]) -> Option<&Holder> {
        let is_it = |holder: &Holder| is(&holder.token, given);
        self.holders.iter().fold(None, |found, holder| if is_it(holder) { Some(holder) } else { found })
    }

    /// Reports whether anybody may answer questions.
    pub(super) fn has_people(&self) -> bool {
        !self.people.is_empty()
    }

    /// Returns the name of the person who holds this token. The time that this takes tells nothing about the tokens.
    pub(super) fn person(&self, given: &[u8]) -> Option<Arc<str>> {
        let found =
            |found, (name, token): &(Arc<str>, SecretString)| if is(token, given) { Some(name.clone()) } else { found };
        self.people.iter().fold(None, found)
    }

    /// Reports whether this token reads metrics; `None` if no token does.
    pub(super) fn reads_metrics(&self, given: &[u8]) -> Option<bool> {
        Some(is(self.metrics.as_ref()?, given))
    }

    /// Reports whether one of them is empty, which would admit every caller that sends an empty one.
    pub(super) fn any_empty(&self) -> bool {
        let holders = self.holders.iter().map(|holder| &holder.token);
        let people = self.people.iter().map(|(_, token)| token);
        holders.chain(&self.metrics).chain(people).any(|token| token.expose_secret().is_empty())
    }
}

/// Returns the path of the generated token, which has mode 0600.
#[must_use]
pub fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("token")
}

/// Returns the tokens of a configuration: the one that `[serve]` names, or else the generated one of the data folder,
/// which is made on first use; those of the callers and people that are named there; and the one for metrics.
///
/// # Errors
/// See [`TokenError`].
pub fn of(config: &Config) -> Result<AccessTokens, TokenError> {
    Reader::new(config, Err)?.all()
}

/// Returns the tokens as [`of`] does, without those that cannot be used, which then admit nobody. The log says why.
pub(super) fn usable(config: &Config) -> AccessTokens {
    let left_out = |error: TokenError| {
        tracing::error!(%error, "nobody is admitted with this token");
        Ok(())
    };
    Reader::new(config, left_out).and_then(Reader::all).unwrap_or_else(|error| {
        tracing::error!(%error, "nobody is admitted");
        AccessTokens::none()
    })
}

/// Returns the problems of the tokens that a configuration names, without making one: those that cannot be used, with
/// which no front starts, and those that can be guessed.
#[must_use]
pub fn problems(config: &Config) -> Vec<ServingProblem> {
    let mut refused = Vec::new();
    let reader = Reader::new(config, |error| {
        refused.push(error);
        Ok(())
    });
    let (weak, unreadable) = match reader.and_then(Reader::named) {
        Ok(tokens) => (tokens.weak(), None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let refused = refused.into_iter().chain(unreadable).map(|error| (true, error.to_string()));
    let all = refused.chain(weak.into_iter().map(|weak| (false, weak)));
    all.map(|(fatal, message)| ServingProblem { fatal, message }).collect()
}

/// Reads the tokens of a configuration.
struct Reader<'a, F> {
    config: &'a Config,
    secrets: SecretStore,
    tokens: AccessTokens,
    /// Decides whether to continue without a token that cannot be used.
    refused: F,
}

impl<'a, F: FnMut(TokenError) -> Result<(), TokenError>> Reader<'a, F> {
    fn new(config: &'a Config, refused: F) -> Result<Self, TokenError> {
        let place = || "the secrets of [serve]".to_owned();
        let secrets =
            SecretStore::open(&config.data_dir).map_err(|error| TokenError::Secret { place: place(), error })?;
        Ok(Self { config, secrets, tokens: AccessTokens::none(), refused })
    }

    /// Returns all tokens, also the generated one.
    fn all(mut self) -> Result<AccessTokens, TokenError> {
        if self.config.serve.token.is_none() {
            let path = file(&self.config.data_dir);
            match generated(&path) {
                Ok(token) => self.tokens.hold(token, TOKEN_HOLDER, None),
                Err(error) => (self.refused)(TokenError::File { path, error })?,
            }
        }
        self.named()
    }

    /// Returns the tokens that the configuration names.
    fn named(mut self) -> Result<AccessTokens, TokenError> {
        let config = self.config;
        let serve = &config.serve;
        if let Some(value) = &serve.token
            && let Some(token) = self.resolve(value, || "`token` under [serve]".to_owned())?
        {
            self.tokens.hold(token, TOKEN_HOLDER, None);
        }
        for (name, caller) in &serve.callers {
            let place = || format!("`token` under [serve.callers.{name}]");
            let Some(token) = self.resolve(&caller.token, place)? else { continue };
            if self.tokens.holder(token.expose_secret().as_bytes()).is_some() {
                (self.refused)(TokenError::Shared(name.clone()))?;
                continue;
            }
            self.tokens.hold(token, &format!("{TOKEN_HOLDER}:{name}"), Some(caller.profile.clone()));
        }
        if let Some(value) = &serve.metrics_token
            && let Some(token) = self.resolve(value, || "`metrics-token` under [serve]".to_owned())?
        {
            if self.tokens.holder(token.expose_secret().as_bytes()).is_some() {
                (self.refused)(TokenError::Metrics)?;
            } else {
                self.tokens.metrics = Some(token);
            }
        }
        for (name, value) in &serve.people {
            let Some(token) = self.resolve(value, || format!("`{name}` under [serve.people]"))? else { continue };
            if self.tokens.is_known(token.expose_secret().as_bytes()) {
                (self.refused)(TokenError::Person(name.clone()))?;
                continue;
            }
            self.tokens.people.push((name.as_str().into(), token));
        }
        Ok(self.tokens)
    }

    fn resolve(
        &mut self,
        value: &ConfigValue,
        place: impl FnOnce() -> String,
    ) -> Result<Option<SecretString>, TokenError> {
        match self.secrets.resolve(value) {
            Ok(token) => Ok(Some(token)),
            Err(error) => (self.refused)(TokenError::Secret { place: place(), error }).map(|()| None),
        }
    }
}

fn is(token: &SecretString, given: &[u8]) -> bool {
    given.ct_eq(token.expose_secret().as_bytes()).into()
}

fn generated(path: &Path) -> std::io::Result<SecretString> {
    if let Some(file) = open(path)? {
        return read(file);
    }
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    // The token is written atomically, and never over that of a broker that started at the same time.
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
    writeln!(file, "{}", URL_SAFE_NO_PAD.encode(bytes))?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
        _ => read(open(path)?.ok_or(std::io::ErrorKind::NotFound)?),
    }
}

/// Opens the file, if there is one, after checking that it is private to this user and not a link.
fn open(path: &Path) -> std::io::Result<Option<std::fs::File>> {
    private::open(path).map_err(std::io::Error::other)
}

fn read(file: std::fs::File) -> std::io::Result<SecretString> {
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
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
            assert!(generated(&path).unwrap_err().to_string().contains("another user (uid 4242)"));
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(generated(&path).unwrap_err().to_string().contains("symbolic link"), "a link is not followed");
        std::fs::remove_file(&path).unwrap();
        // Brokers that start together share one token.
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
