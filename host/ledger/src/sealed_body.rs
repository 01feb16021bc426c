//! Sealed bodies: arguments and results that the ledger keeps encrypted, so that only the holder of an identity reads
//! them.
//!
//! Each broker makes a data key a day, and encrypts it for the recipients of its configuration into a separate file
//! next to the records; another configuration's recipients have their own. The broker forgets the keys of a day when it
//! makes the first one of the next. Deleting that file deletes the bodies sealed with it, and no record changes.

mod age_file;
mod data_key;
mod forget;
mod open;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use jiff::civil::Date;
use portcullis_core::age::Recipient;
use portcullis_core::sync::Mutex;

pub use self::age_file::new_identity;
use self::data_key::DataKey;
pub use self::open::BodyOpener;
use super::files::{create, sync_folder};
use super::{Ledger, LedgerError};

/// The folder of the encrypted data keys, in the data folder.
pub(super) const FOLDER: &str = "keys";

/// The member of a recorded payload that holds the sealed body.
const MEMBER: &str = "sealed";

/// Returns the folder of the encrypted data keys of a data folder.
pub(super) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join(FOLDER)
}

/// The name of a data key: the chain that it belongs to, the day (UTC), and its number among the chain's keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct KeyName {
    chain: String,
    day: Date,
    number: u32,
}

/// The data keys of one chain; those of the day are in memory.
pub(super) struct BodySealer {
    data_dir: PathBuf,
    chain: Arc<str>,
    made: AtomicU32,
    /// A key for each set of recipients.
    current: Mutex<Vec<CurrentKey>>,
    /// Locked while a key is made and written, so that concurrent requests make only one. A thread that has a key does
    /// not wait.
    pub(super) making: Mutex<()>,
}

struct CurrentKey {
    key: Arc<DataKey>,
    day: Date,
    number: u32,
    recipients: Arc<[Recipient]>,
}

impl Ledger {
    /// Returns a handle of the same ledger that seals bodies for these recipients.
    #[must_use]
    pub fn sealing_for(&self, recipients: &[Recipient]) -> Self {
        Self { recipients: recipients.into(), ..self.clone() }
    }

    /// Seals the body of a payload for the recipients of this handle. `hash` is the payload's [`Ledger::fingerprint`]:
    /// the result opens for that payload only. The first call of a day (UTC) writes a file, and takes the time of a
    /// disk, unless [`Ledger::prepare_sealing`] came before.
    ///
    /// # Errors
    /// [`LedgerError::NoRecipient`] if there is none; [`LedgerError::File`] if the file of the key cannot be written.
    pub fn seal_body(&self, hash: &str, body: &[u8]) -> Result<String, LedgerError> {
        self.inner.sealer.seal(&self.recipients, today(), hash, body)
    }

    /// Makes the key of the day if there is none yet, and blocks no thread of the runtime for it. An error comes again
    /// from [`Ledger::seal_body`].
    pub async fn prepare_sealing(&self) {
        let (inner, recipients, day) = (Arc::clone(&self.inner), Arc::clone(&self.recipients), today());
        if recipients.is_empty() || inner.sealer.known(&recipients, day).is_some() {
            return;
        }
        let made = tokio::task::spawn_blocking(move || inner.sealer.key_of(&recipients, day).map(drop)).await;
        if let Ok(Err(error)) = made {
            tracing::debug!(%error, "the key for sealed bodies cannot be made");
        }
    }
}

impl BodySealer {
    pub(super) fn new(data_dir: &Path, chain: &Arc<str>) -> Self {
        let chain = Arc::clone(chain);
        Self {
            data_dir: data_dir.to_owned(),
            chain,
            made: AtomicU32::new(0),
            current: Mutex::default(),
            making: Mutex::default(),
        }
    }

    /// Seals a body with the key of a day.
    pub(super) fn seal(
        &self,
        recipients: &Arc<[Recipient]>,
        day: Date,
        hash: &str,
        body: &[u8],
    ) -> Result<String, LedgerError> {
        if recipients.is_empty() {
            return Err(LedgerError::NoRecipient);
        }
        let (key, number) = self.key_of(recipients, day)?;
        Ok(format!("{day}.{number}:{}", key.seal(hash, body)?))
    }

    /// Returns the key of a day for some recipients, if it was made.
    fn known(&self, recipients: &Arc<[Recipient]>, day: Date) -> Option<(Arc<DataKey>, u32)> {
        let current = self.current.lock();
        let known = current.iter().find(|known| known.day == day && known.recipients == *recipients);
        known.map(|known| (Arc::clone(&known.key), known.number))
    }

    /// Returns the key of a day for some recipients, which is made if there is none.
    fn key_of(&self, recipients: &Arc<[Recipient]>, day: Date) -> Result<(Arc<DataKey>, u32), LedgerError> {
        if let Some(known) = self.known(recipients, day) {
            return Ok(known);
        }
        let _making = self.making.lock();
        if let Some(made) = self.known(recipients, day) {
            return Ok(made);
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let (key, bytes) = DataKey::generate()?;
        let name = KeyName { chain: self.chain.to_string(), day, number };
        let path = name.path(&self.data_dir);
        let wrapped = age_file::encrypted(&*bytes, recipients).ok_or_else(|| {
            LedgerError::file("encrypt a key into", &path, "a recipient of `[ledger]` is not a usable key")
        })?;
        if !create(&path, &wrapped)? {
            // Nobody could open bodies sealed with a key that is not stored.
            return Err(LedgerError::file("create", &path, "somebody has put another file there"));
        }
        sync_folder(&folder(&self.data_dir))?;
        let key = Arc::new(key);
        let mut current = self.current.lock();
        current.retain(|known| known.day == day);
        current.push(CurrentKey { key: Arc::clone(&key), day, number, recipients: Arc::clone(recipients) });
        Ok((key, number))
    }
}

impl KeyName {
    fn path(&self, data_dir: &Path) -> PathBuf {
        folder(data_dir).join(self.file())
    }

    fn file(&self) -> String {
        format!("{}-{}.{}.age", self.chain, self.day, self.number)
    }

    /// Reads the name of a file.
    fn of_file(name: &str) -> Option<Self> {
        let (chain, rest) = name.strip_suffix(".age")?.split_once('-')?;
        // There is one spelling of each.
        Self::parse(chain, rest).filter(|key| key.file() == name)
    }

    /// Reads a day and a number, as a sealed body names its key.
    fn parse(chain: &str, key: &str) -> Option<Self> {
        let (day, number) = key.split_once('.')?;
        // A record can contain anything, and the chain becomes part of a path here.
        chain.parse::<ulid::Ulid>().ok()?;
        Some(Self { chain: chain.to_owned(), day: day.parse().ok()?, number: number.parse().ok()? })
    }
}

/// Returns the day in UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}

/// Returns an error about cryptography, which does not fail with keys of the right length.
fn crypto_failed() -> LedgerError {
    LedgerError::Body("a body could not be encrypted".to_owned())
}
