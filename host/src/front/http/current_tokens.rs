//! The tokens of a front as they are now: they are read again when the configuration or the store of secrets has changed.
//! A token that was replaced or removed admits nobody from then on, although the broker runs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::sync::{Mutex, MutexGuard};

use super::token::{self, AccessTokens, TokenError};
use crate::config::Config;
use crate::file_stamp::FileStamp;
use crate::secret::SecretStore;

/// The time for which the files count as unchanged after a check.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The tokens, and the configuration that names them.
pub(super) struct CurrentTokens {
    /// Returns the configuration in force. `None` if the tokens never change, as in tests.
    config: Option<ConfigInForce>,
    look_interval: Duration,
    known: Mutex<KnownTokens>,
}

type ConfigInForce = Box<dyn Fn() -> Arc<Config> + Send + Sync>;

struct KnownTokens {
    tokens: Arc<AccessTokens>,
    /// The configuration from which they were read.
    config: Option<Arc<Config>>,
    looked: Instant,
    files: TokenFiles,
    /// True if nobody has asked for the change since they were read again.
    changed: bool,
}

/// The states of the files that hold tokens: the store of secrets, and the generated token.
type TokenFiles = [Option<FileStamp>; 2];

impl CurrentTokens {
    /// Reads the tokens that the configuration in force names.
    ///
    /// # Errors
    /// As for [`token::of`].
    pub(super) fn of(in_force: impl Fn() -> Arc<Config> + Send + Sync + 'static) -> Result<Self, TokenError> {
        let config = in_force();
        // Looked at before, so that a change meanwhile is seen.
        let files = files(&config.data_dir);
        let tokens = Arc::new(token::of(&config)?);
        let known = KnownTokens { tokens, config: Some(config), looked: Instant::now(), files, changed: false };
        Ok(Self { config: Some(Box::new(in_force)), look_interval: LOOK_INTERVAL, known: Mutex::new(known) })
    }

    /// Returns tokens that never change.
    #[cfg(test)]
    pub(super) fn fixed(tokens: AccessTokens) -> Self {
        let (tokens, files) = (Arc::new(tokens), TokenFiles::default());
        let known = KnownTokens { tokens, config: None, looked: Instant::now(), files, changed: false };
        Self { config: None, look_interval: LOOK_INTERVAL, known: Mutex::new(known) }
    }

    /// Returns the tokens. They are at most a second old.
    pub(super) fn now(&self) -> Arc<AccessTokens> {
        self.look().tokens.clone()
    }

    /// Returns the tokens if they were read again since the last time that this was asked.
    pub(super) fn changed(&self) -> Option<Arc<AccessTokens>> {
        let mut known = self.look();
        std::mem::take(&mut known.changed).then(|| known.tokens.clone())
    }

    /// Reads the tokens again if they may have changed in the last second.
    fn look(&self) -> MutexGuard<'_, KnownTokens> {
        let mut known = self.known.lock();
        if let Some(in_force) = &self.config
            && known.looked.elapsed() >= self.look_interval
        {
            let config = in_force();
            let files = files(&config.data_dir);
            let is_same = known.config.as_ref().is_some_and(|before| before.serve == config.serve);
            if !is_same || files != known.files {
                let tokens = token::usable(&config).after(&known.tokens);
                (known.tokens, known.files, known.changed) = (Arc::new(tokens), files, true);
                tracing::info!("the tokens of [serve] were read again");
            }
            (known.config, known.looked) = (Some(config), Instant::now());
        }
        known
    }
}

impl fmt::Debug for CurrentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentTokens").finish_non_exhaustive()
    }
}

/// Looks at the files. One that is replaced is another file.
fn files(data_dir: &Path) -> TokenFiles {
    [SecretStore::file(data_dir), token::file(data_dir)].map(|path| FileStamp::at(&path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_that_was_replaced_or_removed_admits_nobody_and_takes_no_other_away() {
        let folder = tempfile::tempdir().unwrap();
        let caller = |secret: &str| json!({ "profile": "default", "token": { "secret": secret } });
        let serve = json!({ "callers": { "ada": caller("of-ada"), "bob": caller("of-bob") } });
        let config = Config::builder(folder.path()).serve(serve).build().unwrap();
        config.store_secret("of-ada", "first-token-of-ada").unwrap();
        let first = Arc::new(config.clone());
        let error = CurrentTokens::of(move || Arc::clone(&first)).unwrap_err().to_string();
        assert!(error.starts_with("`token` under [serve.callers.bob]: ") && error.contains("of-bob"), "{error}");
        config.store_secret("of-bob", "token-of-bob-for-good").unwrap();

        let in_force = Arc::new(Mutex::new(Arc::new(config.clone())));
        let read = Arc::clone(&in_force);
        let current = CurrentTokens::of(move || Arc::clone(&read.lock())).unwrap();
        let current = CurrentTokens { look_interval: Duration::ZERO, ..current };
        let holder = |token: &str| current.now().holder(token.as_bytes()).map(|holder| holder.principal.to_string());
        let bob = Some("token:bob".to_owned());
        assert_eq!(holder("first-token-of-ada"), Some("token:ada".to_owned()));
        config.store_secret("of-ada", "second-token-of-ada").unwrap();
        assert_eq!(holder("first-token-of-ada"), None);
        assert_eq!(
            (holder("second-token-of-ada"), holder("token-of-bob-for-good")),
            (Some("token:ada".into()), bob.clone())
        );
        SecretStore::open(&config.data_dir).unwrap().remove("of-ada").unwrap();
        assert_eq!((holder("second-token-of-ada"), holder("token-of-bob-for-good")), (None, bob));
        let serve = json!({ "callers": { "eve": caller("of-bob") } });
        *in_force.lock() = Arc::new(Config::builder(folder.path()).serve(serve).build().unwrap());
        assert_eq!(holder("token-of-bob-for-good"), Some("token:eve".to_owned()), "the configuration is another");
        let own = std::fs::read_to_string(token::file(&config.data_dir)).unwrap();
        assert_eq!(holder(own.trim()), Some("token".to_owned()));
        // Written in its place, with as many bytes and the time of before.
        let (path, other) = (token::file(&config.data_dir), format!("{}x", &own.trim()[1..]));
        let (state, modified) = (files(&config.data_dir), path.metadata().unwrap().modified().unwrap());
        while files(&config.data_dir) == state {
            std::fs::write(&path, own.replace(own.trim(), &other)).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
        assert_eq!((holder(own.trim()), holder(&other)), (None, Some("token".to_owned())));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(holder(&other), None);
    }

    #[test]
    fn what_is_wrong_with_tokens_is_said_before_a_front_starts() {
        let folder = tempfile::tempdir().unwrap();
        let caller = |token: serde_json::Value| json!({ "profile": "default", "token": token });
        let callers = json!({ "ada": caller(json!({ "secret": "of-ada" })), "bob": caller(json!("short")) });
        let config = Config::builder(folder.path()).serve(json!({ "callers": callers })).build().unwrap();
        let problems: Vec<_> =
            token::problems(&config).into_iter().map(|problem| (problem.fatal, problem.message)).collect();
        assert!(problems[0].0 && problems[0].1.contains("[serve.callers.ada]"), "{problems:?}");
        assert!(!problems[1].0 && problems[1].1.contains("`token:bob` under [serve] has 5 bytes"), "{problems:?}");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(!token::file(&config.data_dir).exists(), "a token was made");
    }
}
