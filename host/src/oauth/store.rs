//! The store of logins, sealed in the data folder: `logins/SOURCE.login`, encrypted with the key `logins/key`.
//!
//! The key lies next to the files that it protects. This keeps tokens out of backups, searches and accidents that
//! expose a single file; a process that can read all of the user's files can read the tokens.

use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::identity::OAuthIdentity;
use super::token::TokenSet;
use crate::egress::Challenge;
use crate::name::SourceName;
use crate::private;
use crate::sealing_key::SealingKey;
use crate::secret::{SecretError, io, open_private};

/// The folder of logins, in the data folder.
const FOLDER: &str = "logins";

/// The largest part of a file that is read, in bytes: it holds tokens of 12 KiB, secrets and URLs, sealed and in
/// base64.
const MAX_FILE_BYTES: u64 = 256 * 1024;

const KEY_BYTES: usize = 32;

/// The logins of one data folder. None is kept in memory: another process may log in, renew or log out at any time.
#[derive(Debug, Clone)]
pub(crate) struct Logins {
    folder: PathBuf,
}

/// The stored record of one source: its login, and the last challenge that could not be met.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LoginRecord {
    source: String,
    url: String,
    /// The last challenge of the source that could not be met.
    pub(crate) challenge: Option<Challenge>,
    pub(crate) login: Option<Login>,
}

impl LoginRecord {
    /// Creates the empty record of a source.
    pub(crate) fn new(source: &SourceName, url: &Url) -> Self {
        Self { source: source.to_string(), url: url.to_string(), challenge: None, login: None }
    }
}

/// A login: the tokens, and everything that is needed to renew them. `Debug` shows no secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) issuer: String,
    /// The endpoint that renews tokens.
    pub(crate) endpoint: String,
    /// The endpoint that revokes tokens; `None` if the server does not support it.
    #[serde(default)]
    pub(crate) revocation: Option<String>,
    pub(crate) client: OAuthIdentity,
    pub(crate) resource: String,
    pub(crate) scopes: Vec<String>,
    #[serde(serialize_with = "exposed_one")]
    pub(crate) access: SecretString,
    #[serde(serialize_with = "exposed")]
    pub(crate) refresh: Option<SecretString>,
    /// The time at which the access token expires, in seconds since the Unix epoch; `None` if the server did not say.
    pub(crate) expires_at: Option<i64>,
}

impl Login {
    /// Returns the login with other tokens. If the server sent no new refresh token, the old one stays (OAuth 2.1,
    /// section 4.3.2).
    pub(crate) fn renewed(self, tokens: TokenSet) -> Self {
        Self {
            access: tokens.access,
            refresh: tokens.refresh.or(self.refresh),
            expires_at: tokens.expires_at,
            scopes: tokens.scopes.unwrap_or(self.scopes),
            ..self
        }
    }
}

impl Logins {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { folder: data_dir.join(FOLDER) }
    }

    /// Returns the record of a source at exactly this URL. It is empty for another URL: tokens of one server are not
    /// sent to another.
    pub(crate) fn read(&self, source: &SourceName, url: &Url) -> Result<LoginRecord, SecretError> {
        Ok(self.read_own(source, url)?.unwrap_or_else(|| LoginRecord::new(source, url)))
    }

    /// Returns the record of a source at exactly this URL, an empty one if the source has none, or `None` if the record is
    /// for another URL.
    pub(crate) fn read_own(&self, source: &SourceName, url: &Url) -> Result<Option<LoginRecord>, SecretError> {
        let kept = self.kept(source)?.unwrap_or_else(|| LoginRecord::new(source, url));
        Ok(Some(kept).filter(|record| record.url == url.as_str()))
    }

    fn kept(&self, source: &SourceName) -> Result<Option<LoginRecord>, SecretError> {
        let path = self.file(source);
        let Some(file) = open_private(&path)? else { return Ok(None) };
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
        let seal = read.ok().and(self.key()?).map(|key| SealingKey::with_key(&key, FOLDER));
        let opened = seal.and_then(|seal| seal.open(text.trim_end())).map(Zeroizing::new);
        let record = opened.and_then(|json| serde_json::from_slice::<LoginRecord>(&json).ok());
        let record = record.filter(|record| record.source == source.as_str());
        record.map(Some).ok_or_else(|| SecretError::Login(path.display().to_string(), source.to_string()))
    }

    /// Stores a record in place of the previous one. The caller holds [`Logins::lock`].
    pub(crate) fn write(&self, source: &SourceName, record: &LoginRecord) -> Result<(), SecretError> {
        let path = self.file(source);
        let json = serde_json::to_vec(record).map(Zeroizing::new).map_err(|error| io(&path, error.into()))?;
        let sealed = SealingKey::with_key(&*self.key_or_new()?, FOLDER).seal(&json);
        if sealed.is_empty() {
            return Err(io(&path, std::io::Error::other("the system gives no random numbers")));
        }
        Ok(private::replace(&path, sealed.as_bytes())?)
    }

    /// Forgets a source and returns its URL and login. Returns `None` if there was no login, and `Some(None)` if the
    /// record could not be read and may have contained one.
    pub(crate) fn forget(&self, source: &SourceName) -> Result<Option<Option<(String, Login)>>, SecretError> {
        let path = self.file(source);
        if open_private(&path)?.is_none() {
            return Ok(None);
        }
        let _lock = self.lock(source)?;
        let kept = self.kept(source);
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(&path, error)),
        }
        match kept {
            Ok(record) => Ok(record.and_then(|record| Some(Some((record.url, record.login?))))),
            Err(_) => Ok(Some(None)),
        }
    }

    /// Locks the record of a source. The lock is held during a renewal, so that only one of several brokers uses a
    /// refresh token that can be used once. Blocks while another process holds it, at most for the duration of a
    /// renewal.
    pub(crate) fn lock(&self, source: &SourceName) -> Result<std::fs::File, SecretError> {
        let create = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        create.map_err(|error| io(&self.folder, error))?;
        Ok(private::lock(&self.folder.join(format!("{source}.lock")))?)
    }

    pub(crate) fn file(&self, source: &SourceName) -> PathBuf {
        self.folder.join(format!("{source}.login"))
    }

    fn key(&self) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, SecretError> {
        let Some(mut file) = open_private(&self.folder.join("key"))? else { return Ok(None) };
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        Ok(file.read_exact(&mut *key).is_ok().then_some(key))
    }

    fn key_or_new(&self) -> Result<Zeroizing<[u8; KEY_BYTES]>, SecretError> {
        // One lock covers all sources: two first logins at the same time create one key.
        let path = self.folder.join("key");
        let _lock = private::lock(&self.folder.join("key.lock"))?;
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *key).map_err(|error| io(&path, std::io::Error::other(error)))?;
        private::replace(&path, &*key)?;
        Ok(key)
    }
}

/// Serialises a secret; for the sealed file only.
pub(crate) fn exposed<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|secret| secret.expose_secret()).serialize(to)
}

fn exposed_one<S: Serializer>(secret: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    secret.expose_secret().serialize(to)
}
