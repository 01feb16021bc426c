//! What came of logins, kept sealed in the data folder: `logins/SOURCE.login`, under the key `logins/key`.
//!
//! The key lies beside what it seals. That keeps tokens out of backups, searches and mistakes that take one file; whoever can
//! read all of the user's files can read them.

use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::identity::Identity;
use super::token::Tokens;
use crate::egress::Challenge;
use crate::name::SourceName;
use crate::private;
use crate::seal::Seal;
use crate::secret::{SecretError, io, open_private};

/// The folder in the data folder.
const FOLDER: &str = "logins";

/// The largest file that is read, in bytes: tokens of 12 KiB, secrets and URLs, sealed and in base64.
const MAX_FILE_BYTES: u64 = 256 * 1024;

const KEY_BYTES: usize = 32;

/// The logins of one data folder. Nothing is kept in memory: another process may log in, renew or log out at any time.
#[derive(Debug, Clone)]
pub(crate) struct Logins {
    folder: PathBuf,
}

/// What is known of one source.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LoginRecord {
    source: String,
    url: String,
    /// What the source asked for last, and did not get.
    pub(crate) challenge: Option<Challenge>,
    pub(crate) login: Option<Login>,
}

impl LoginRecord {
    /// Of a source that nothing is known of.
    pub(crate) fn new(source: &SourceName, url: &Url) -> Self {
        Self { source: source.to_string(), url: url.to_string(), challenge: None, login: None }
    }
}

/// A login: tokens, and all that it takes to renew them. `Debug` shows none of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) issuer: String,
    /// Where tokens are renewed.
    pub(crate) endpoint: String,
    /// Where they are taken back; None where the server does not offer it.
    #[serde(default)]
    pub(crate) revocation: Option<String>,
    pub(crate) client: Identity,
    pub(crate) resource: String,
    pub(crate) scopes: Vec<String>,
    #[serde(serialize_with = "exposed_one")]
    pub(crate) access: SecretString,
    #[serde(serialize_with = "exposed")]
    pub(crate) refresh: Option<SecretString>,
    /// In Unix seconds.
    pub(crate) expires_at: Option<i64>,
}

impl Login {
    /// The same with other tokens. One that does not come anew stays (OAuth 2.1, section 4.3.2).
    pub(crate) fn renewed(self, tokens: Tokens) -> Self {
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

    /// What is known of a source at this very URL. Empty for another URL: what was given for one server is not sent to another.
    pub(crate) fn read(&self, source: &SourceName, url: &Url) -> Result<LoginRecord, SecretError> {
        let kept = self.kept(source)?.filter(|record| record.url == url.as_str());
        Ok(kept.unwrap_or_else(|| LoginRecord::new(source, url)))
    }

    fn kept(&self, source: &SourceName) -> Result<Option<LoginRecord>, SecretError> {
        let path = self.file(source);
        let Some(file) = open_private(&path)? else { return Ok(None) };
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
        let seal = read.ok().and(self.key()?).map(|key| Seal::with_key(&key, FOLDER));
        let opened = seal.and_then(|seal| seal.open(text.trim_end())).map(Zeroizing::new);
        let record = opened.and_then(|json| serde_json::from_slice::<LoginRecord>(&json).ok());
        let record = record.filter(|record| record.source == source.as_str());
        record.map(Some).ok_or_else(|| SecretError::Login(path.display().to_string(), source.to_string()))
    }

    /// Keeps a record in place of what was known. The caller holds [`Logins::lock`].
    pub(crate) fn write(&self, source: &SourceName, record: &LoginRecord) -> Result<(), SecretError> {
        let path = self.file(source);
        let json = serde_json::to_vec(record).map(Zeroizing::new).map_err(|error| io(&path, error.into()))?;
        let sealed = Seal::with_key(&*self.key_or_new()?, FOLDER).close(&json);
        if sealed.is_empty() {
            return Err(io(&path, std::io::Error::other("the system gives no random numbers")));
        }
        Ok(private::replace(&path, sealed.as_bytes())?)
    }

    /// Forgets what is known of a source. None if there was no login; of one that cannot be read, which may be one, nothing but
    /// that it was there. Else the URL of the source, and the login.
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

    /// Held while a record is renewed, so that of several brokers one uses a refresh token that can be used once. Blocks as long
    /// as another holds it, which is the time that a renewal may take.
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
        // One lock for all sources: two that log in for the first time at once make one key.
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

/// For the sealed file alone.
pub(crate) fn exposed<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|secret| secret.expose_secret()).serialize(to)
}

fn exposed_one<S: Serializer>(secret: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    secret.expose_secret().serialize(to)
}
