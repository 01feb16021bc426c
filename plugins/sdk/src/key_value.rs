//! Values that outlive the call. The broker keeps one store for each source and profile, which holds up to 64 MiB.
//!
//! A component that calls these functions imports `key-value` and needs `grant = ["key-value"]`. The store is
//! available only while a call runs. Outside a component each thread has a store in memory, so that tests do not see
//! each other's values; of the limits it has only that of keys, in [`write()`].

/// One change of a [`write()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    key: String,
    value: Option<Vec<u8>>,
}

impl Change {
    /// Sets the key to this value.
    #[must_use]
    pub fn set(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: Some(value.into()) }
    }

    /// Removes the key.
    #[must_use]
    pub fn remove(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// Returns the value of `key`, or `None` if it is not set. A key has 1 to 512 bytes.
///
/// # Errors
/// Says why the store cannot be used, in words for the operator or the model.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, String> {
    host::get(key)
}

/// Returns the entries whose key begins with `prefix` and sorts after `after`, in the byte order of the keys: up to
/// `limit` of them, 10,000 or 1 MiB, whichever comes first. An empty list means that there are no more.
///
/// # Errors
/// See [`get`].
pub fn scan(prefix: &str, after: &str, limit: u32) -> Result<Vec<(String, Vec<u8>)>, String> {
    host::scan(prefix, after, limit)
}

/// Makes all of the changes or none: at most 1,000, each value at most 256 KiB long. The changes are durable when the
/// function returns.
///
/// # Errors
/// See [`get`]; also if a change exceeds a limit or the store is full.
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
/// The store in memory that tests outside a component have.
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
