//! Deleting data keys, and with them the bodies that were sealed with them.

use std::fs;
use std::path::Path;

use jiff::civil::Date;

use super::{KeyName, folder, today};
use crate::body::EventBody;
use crate::files::{names_in, sync_folder};
use crate::record::{Event, EventKind};
use crate::{Ledger, LedgerError, blocking};

impl Ledger {
    /// Deletes the data keys of the days (UTC) before `day`, of all brokers of the data folder, and returns how many
    /// there were. Records `keys.removed` before it deletes anything. The bodies that were sealed with them cannot be
    /// opened any more, and no record changes. A later day than today counts as today, whose keys are in use.
    ///
    /// Cancellation safe: keys that were not deleted are deleted by the next call.
    ///
    /// # Errors
    /// [`LedgerError`]: keys may be left.
    pub async fn forget_bodies_before(&self, day: Date) -> Result<usize, LedgerError> {
        self.remove_keys(day, |_| true).await
    }

    /// Deletes the data keys of the days before `day` of some chains, as [`Ledger::forget_bodies_before`] does.
    pub(crate) async fn remove_keys(&self, day: Date, may_go: impl Fn(&str) -> bool) -> Result<usize, LedgerError> {
        let (data_dir, day) = (self.inner.data_dir.clone(), day.min(today()));
        let folder = data_dir.clone();
        let mut keys = blocking(move || keys_before(&folder, day)).await?;
        keys.retain(|key| may_go(&key.chain));
        if keys.is_empty() {
            return Ok(0);
        }
        let count = keys.len();
        let body = EventBody::new().with("before", day.to_string()).with("keys", count);
        self.append(Event::new(EventKind::KeysRemoved, body)).await?;
        blocking(move || remove(&data_dir, &keys)).await?;
        Ok(count)
    }
}

/// Returns the data keys of the days before one, in the order of their names.
fn keys_before(data_dir: &Path, day: Date) -> Result<Vec<KeyName>, LedgerError> {
    let names = names_in(&folder(data_dir))?;
    let mut keys: Vec<_> = names.iter().filter_map(|name| KeyName::of_file(name)).collect();
    keys.retain(|key| key.day < day);
    keys.sort_unstable();
    Ok(keys)
}

/// Deletes data keys.
fn remove(data_dir: &Path, keys: &[KeyName]) -> Result<(), LedgerError> {
    for key in keys {
        let path = key.path(data_dir);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LedgerError::file("remove", &path, error));
            }
            _ => {}
        }
    }
    sync_folder(&folder(data_dir))
}
