//! Values that outlive the call: one store for each source and profile.
//!
//! A component that calls this imports `key-value` and needs `grant = ["key-value"]`. Outside a component each thread has a store
//! in memory, so that tests see none but their own.

/// One change of a [`write()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    key: String,
    value: Option<Vec<u8>>,
}

impl Change {
    /// The key is to have this value.
    #[must_use]
    pub fn set(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: Some(value.into()) }
    }

    /// The key is to be gone.
    #[must_use]
    pub fn remove(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// The value of a key, of 1 to 512 bytes.
///
/// # Errors
/// Why not, in words for the operator or the model.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, String> {
    host::get(key)
}

/// Keys with their values: those that begin with `prefix` and stand after `after`, in the order of their bytes, up to `limit` or
/// 1 MiB. None says that there are no more.
///
/// # Errors
/// As [`get`].
pub fn scan(prefix: &str, after: &str, limit: u32) -> Result<Vec<(String, Vec<u8>)>, String> {
    host::scan(prefix, after, limit)
}

/// Makes all changes or none, up to 1,000 with values up to 256 KiB. They are on disk when it returns.
///
/// # Errors
/// As [`get`]; a store holds 64 MiB.
pub fn write(changes: &[Change]) -> Result<(), String> {
    host::write(changes)
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::Change;
    use crate::bindings::portcullis::plugin::key_value;

    pub(super) use key_value::{get, scan};

    pub(super) fn write(changes: &[Change]) -> Result<(), String> {
        let changes: Vec<_> = changes.iter().map(|Change { key, value }| (key.clone(), value.clone())).collect();
        key_value::write(&changes)
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::Change;

    thread_local!(static STORE: RefCell<BTreeMap<String, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) });

    pub(super) fn get(key: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(STORE.with_borrow(|store| store.get(key).cloned()))
    }

    pub(super) fn scan(prefix: &str, after: &str, limit: u32) -> Result<Vec<(String, Vec<u8>)>, String> {
        STORE.with_borrow(|store| {
            let found = store.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
            Ok(found.take(limit as usize).map(|(key, value)| (key.clone(), value.clone())).collect())
        })
    }

    pub(super) fn write(changes: &[Change]) -> Result<(), String> {
        if let Some(Change { key, .. }) = changes.iter().find(|change| !(1..=512).contains(&change.key.len())) {
            return Err(format!("a key of {} bytes; a key has 1 to 512", key.len()));
        }
        STORE.with_borrow_mut(|store| {
            for Change { key, value } in changes {
                match value {
                    Some(value) => drop(store.insert(key.clone(), value.clone())),
                    None => drop(store.remove(key)),
                }
            }
        });
        Ok(())
    }
}
