//! The bearer token that a source's transport sends. It is renewed in time, and only once for all requests that need
//! it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use url::Url;

use super::store::{Login, LoginRecord, Logins};
use super::{OAuthError, OAuthHttp, hint, token};
use crate::egress::{Challenge, Reach};
use crate::file_stamp::FileStamp;
use crate::limits::CLOSE_DEADLINE;
use crate::name::SourceName;
use crate::secret::SecretError;
use crate::sync::{Mutex, MutexGuard};

/// The number of seconds before its expiry at which a token is renewed: a request must arrive while the token is valid,
/// on clocks that differ.
const MARGIN: i64 = 30;

/// The time for which a renewal is not retried after it failed, so that many calls do not wait one after another for a
/// server that is down.
const RENEWAL_BACKOFF: Duration = Duration::from_secs(10);

/// The login of one source, as the source's transport uses it.
pub(crate) struct Bearer {
    source: SourceName,
    url: Url,
    logins: Logins,
    http: OAuthHttp,
    held: Mutex<Held>,
    /// The last challenge of the source, whether or not it is stored.
    challenge: Mutex<Option<Challenge>>,
    /// Locked by the task that renews the login.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// Inode and modification time of the file from which `login` was read. They change with every login, renewal and
    /// logout, by any process.
    stamp: Option<FileStamp>,
    login: Option<Login>,
    /// If `login` could not be written and is newer than the file: the time from which the next attempt is made.
    write_at: Option<Instant>,
    /// The reason why the last renewal failed, and the time until which none is attempted.
    problem: Option<(String, Instant)>,
}

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bearer").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Bearer {
    /// Returns what a source needs in order to send a login that is kept in the data folder, now or later.
    pub(crate) fn kept(
        source: &SourceName,
        url: &Url,
        reach: Reach,
        data_dir: &std::path::Path,
    ) -> Result<Option<Arc<Self>>, OAuthError> {
        Self::new(source, url, reach, data_dir).map(Some)
    }

    /// Creates the bearer for the source at `url`. Its authorization server may be reached with the same reach as the
    /// source.
    pub(crate) fn new(
        source: &SourceName,
        url: &Url,
        reach: Reach,
        data_dir: &std::path::Path,
    ) -> Result<Arc<Self>, OAuthError> {
        Ok(Arc::new(Self {
            source: source.clone(),
            url: url.clone(),
            logins: Logins::new(data_dir),
            http: OAuthHttp::new(url, reach)?,
            held: Mutex::default(),
            challenge: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns the token to send, if somebody has logged in. Cancellation safe: a renewal that has begun continues.
    pub(crate) async fn token(self: &Arc<Self>) -> Option<SecretString> {
        let login = self.login()?;
        if self.write_is_due() {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.write_held().await });
        }
        let expires = login.expires_at.is_some_and(|at| at - MARGIN <= Timestamp::now().as_second());
        if !expires || login.refresh.is_none() {
            return Some(login.access);
        }
        // If the renewal fails, the old token may still be valid; if it is not, the server says so.
        Some(self.renew(&login.access).await.unwrap_or(login.access))
    }

    /// Reports whether somebody has logged in.
    pub(crate) fn has_login(&self) -> bool {
        self.login().is_some()
    }

    /// Returns the token with which to retry once, after the server refused a request that carried `sent`. If there is
    /// none, stores the server's challenge for the next login. Cancellation safe: a renewal that has begun continues.
    pub(crate) async fn refused(
        self: &Arc<Self>,
        response: &Response,
        sent: Option<&SecretString>,
    ) -> Option<SecretString> {
        let challenge = Challenge::of(response.headers()).unwrap_or_default();
        let known = self.login().map(|login| login.access);
        let other = known.filter(|known| sent.is_none_or(|sent| known.expose_secret() != sent.expose_secret()));
        let instead = match (response.status(), other, sent) {
            // Somebody logged in, or renewed the login, meanwhile.
            (_, Some(other), _) => Some(other),
            (StatusCode::UNAUTHORIZED, None, Some(sent)) => self.renew(sent).await,
            _ => None,
        };
        if instead.is_none() && wants_login(response.status(), &challenge) {
            self.store_challenge(challenge).await;
        }
        instead
    }

    /// Returns the last challenge of the source that could not be met.
    pub(crate) fn challenge(&self) -> Option<Challenge> {
        self.challenge.lock().clone()
    }

    /// Returns what a person does about a refusal, or `None` if a login would not help.
    pub(crate) fn advice(&self, response: &Response) -> Option<String> {
        let challenge = Challenge::of(response.headers()).unwrap_or_default();
        if !wants_login(response.status(), &challenge) {
            return None;
        }
        let mut advice = format!("source `{}` {}", self.source, hint(&self.source));
        if let (StatusCode::FORBIDDEN, Some(scope)) = (response.status(), &challenge.scope) {
            advice = format!("{advice} (it wants the scope `{}`)", crate::escape::escape_hidden(scope));
        } else if let Some((problem, _)) = &self.held().problem {
            advice = format!("{advice} (the last login was not renewed: {problem})");
        }
        Some(advice)
    }

    /// Waits up to [`CLOSE_DEADLINE`] for a renewal in progress, since its result must be stored, and for the last attempt
    /// to store a result that could not be stored before.
    pub(crate) async fn finish_renewal(&self) {
        let _ = tokio::time::timeout(CLOSE_DEADLINE, self.write_held()).await;
    }

    /// Returns the login, reading the file again if it has changed.
    fn login(&self) -> Option<Login> {
        let stamp = self.stamp();
        let mut held = self.held();
        if stamp != held.stamp {
            let read = self.logins.read(&self.source, &self.url).map(|record| record.login);
            let problem = match &read {
                Err(error) => Some((error.to_string(), Instant::now())),
                // This keeps the reason why the login ended.
                Ok(None) => held.problem.take(),
                Ok(Some(_)) => None,
            };
            *held = Held { stamp, login: read.ok().flatten(), write_at: None, problem };
        }
        held.login.clone()
    }

    fn stamp(&self) -> Option<FileStamp> {
        FileStamp::at(&self.logins.file(&self.source))
    }

    async fn renew(self: &Arc<Self>, sent: &SecretString) -> Option<SecretString> {
        let (this, sent) = (Arc::clone(self), sent.clone());
        // The task runs to its end even if no caller waits: a server that accepted the old refresh token delivers the
        // new one only in this response.
        let renewed = tokio::spawn(async move {
            let _turn = this.turn.lock().await;
            if this.held().problem.as_ref().is_some_and(|(_, until)| Instant::now() < *until) {
                return None;
            }
            match this.exchange(&sent).await {
                Ok(access) => Some(access),
                Err(error) => {
                    tracing::warn!(source = %this.source, %error, "a login was not renewed");
                    this.held().problem = Some((error.to_string(), Instant::now() + RENEWAL_BACKOFF));
                    None
                }
            }
        });
        renewed.await.ok().flatten()
    }

    /// Renews the login that `sent` belongs to, unless another process has done so.
    async fn exchange(&self, sent: &SecretString) -> Result<SecretString, OAuthError> {
        let nobody = || OAuthError::Source("nobody is logged in any more".to_owned());
        let (_lock, record) = self.locked().await?;
        let mut record = record.ok_or_else(nobody)?;
        let login = record.login.take().ok_or_else(nobody)?;
        if login.access.expose_secret() != sent.expose_secret() {
            return Ok(login.access);
        }
        let Some(refresh) = login.refresh.clone() else {
            return Err(OAuthError::Source("it has ended, and its server gave nothing to renew it with".to_owned()));
        };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
            ("resource", login.resource.as_str()),
        ];
        let endpoint = self.http.url(&login.endpoint, &login.issuer)?;
        let login = match token::ask(&self.http, &endpoint, &login.client, &form).await {
            Ok(tokens) => login.renewed(tokens),
            Err(error) => {
                if matches!(&error, OAuthError::Refused { code, .. } if code == "invalid_grant") {
                    // The login has ended. The next one asks for the same scopes.
                    let scope = Some(login.scopes.join(" ")).filter(|scope| !scope.is_empty());
                    record.challenge.get_or_insert_default().scope = scope;
                    self.stored(move |logins, source| logins.write(source, &record)).await?;
                }
                return Err(error);
            }
        };
        let access = login.access.clone();
        record.login = Some(login.clone());
        record.challenge = None;
        let written = self.stored(move |logins, source| logins.write(source, &record)).await;
        let write_at = written.is_err().then(|| Instant::now() + RENEWAL_BACKOFF);
        if let Err(error) = written {
            tracing::error!(source = %self.source, %error, "a renewed login is held in memory only");
        }
        *self.held() = Held { stamp: self.stamp(), login: Some(login), write_at, problem: None };
        Ok(access)
    }

    /// Locks the stored record and reads it; `None` is a record for another URL. Its login is the held one if that could
    /// not be written and nobody has changed the file since: the refresh token in the file is used up then.
    async fn locked(&self) -> Result<(std::fs::File, Option<LoginRecord>), OAuthError> {
        let url = self.url.clone();
        let locked = self.stored(move |logins, source| Ok((logins.lock(source)?, logins.read_own(source, &url)?)));
        let (lock, mut record) = locked.await?;
        if let (Some(record), Some(login)) = (&mut record, self.unwritten()) {
            record.login = Some(login);
        }
        Ok((lock, record))
    }

    /// Returns the held login if it is newer than the file.
    fn unwritten(&self) -> Option<Login> {
        let stamp = self.stamp();
        let held = self.held();
        held.login.clone().filter(|_| held.write_at.is_some() && held.stamp == stamp)
    }

    /// Reports whether the held login is to be written now. It is so once for each attempt.
    fn write_is_due(&self) -> bool {
        let now = Instant::now();
        let mut held = self.held();
        let due = held.write_at.is_some_and(|at| at <= now);
        if due {
            held.write_at = Some(now + RENEWAL_BACKOFF);
        }
        due
    }

    /// Writes the held login if that failed before, so that other brokers and the next one find it.
    async fn write_held(&self) {
        let _turn = self.turn.lock().await;
        if self.unwritten().is_none() {
            return;
        }
        let Ok((_lock, Some(record))) = self.locked().await else { return };
        // Another process may have stored a login meanwhile.
        if self.unwritten().is_none() {
            return;
        }
        if self.stored(move |logins, source| logins.write(source, &record)).await.is_ok() {
            let stamp = self.stamp();
            let mut held = self.held();
            (held.stamp, held.write_at) = (stamp, None);
        }
    }

    /// Works with the stored logins, where that may wait for the disk and for other processes.
    async fn stored<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logins, &SourceName) -> Result<T, SecretError> + Send + 'static,
    ) -> Result<T, OAuthError> {
        let (logins, source) = (self.logins.clone(), self.source.clone());
        let done = tokio::task::spawn_blocking(move || work(&logins, &source)).await;
        Ok(done.map_err(|error| OAuthError::Source(error.to_string()))??)
    }

    /// Stores the server's challenge for the next login, beside the login that there is. A record that cannot be read now,
    /// or is for another URL, may hold a login and stays as it is.
    async fn store_challenge(&self, challenge: Challenge) {
        *self.challenge.lock() = Some(challenge.clone());
        let noted = async {
            let (_lock, record) = self.locked().await?;
            let Some(mut record) = record.filter(|record| record.challenge.as_ref() != Some(&challenge)) else {
                return Ok(());
            };
            record.challenge = Some(challenge);
            self.stored(move |logins, source| logins.write(source, &record)).await
        };
        let noted: Result<(), OAuthError> = noted.await;
        // A failure does little harm: the login asks the server for its challenge again.
        if let Err(error) = noted {
            tracing::debug!(source = %self.source, %error, "the challenge of a server could not be stored");
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

/// Reports whether a login would help against a refusal.
fn wants_login(status: StatusCode, challenge: &Challenge) -> bool {
    let scope = challenge.error.as_deref() == Some("insufficient_scope");
    status == StatusCode::UNAUTHORIZED || (status == StatusCode::FORBIDDEN && scope)
}
