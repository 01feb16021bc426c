//! Opening sealed bodies, with identities that no broker needs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::age::Identity;
use portcullis_core::private::regular_file::{self, Symlinks};
use portcullis_core::protocol::Json;
use serde_json::{Map, Value};

use super::data_key::DataKey;
use super::{KeyName, MEMBER, age_file};

/// The member of a recorded payload that holds the body where it is not sealed.
const BODY: &str = "body";

/// The largest part of a key's file that is read, in bytes: enough for hundreds of recipients.
const MAX_FILE: u64 = 64 * 1024;

/// Opens the sealed bodies of one data folder.
pub struct BodyOpener {
    data_dir: PathBuf,
    identities: Vec<Identity>,
    /// The data keys that were looked for.
    keys: RefCell<HashMap<KeyName, Option<Arc<DataKey>>>>,
}

impl BodyOpener {
    /// Opens bodies that were sealed for one of these identities.
    #[must_use]
    pub fn new(data_dir: &Path, identities: Vec<Identity>) -> Self {
        Self { data_dir: data_dir.to_owned(), identities, keys: RefCell::default() }
    }

    /// Opens the payloads in the facts of a record: each then has its `body`, as with `record = "full"`. One that
    /// cannot be opened stays unchanged: its key was deleted, or is for others.
    pub(crate) fn open(&self, chain: &str, facts: &mut Value) {
        match facts {
            Value::Array(items) => items.iter_mut().for_each(|item| self.open(chain, item)),
            Value::Object(members) => match self.body(chain, members) {
                Some(body) => {
                    members.retain(|name, _| name != MEMBER && name != "shape");
                    members.insert(BODY.to_owned(), body);
                }
                // A body that was recorded unsealed is an agent's or a source's text, which may look like a sealed
                // body.
                None => members
                    .iter_mut()
                    .filter(|(name, _)| *name != BODY)
                    .for_each(|(_, member)| self.open(chain, member)),
            },
            _ => {}
        }
    }

    fn body(&self, chain: &str, payload: &Map<String, Value>) -> Option<Value> {
        let (key, sealed) = payload.get(MEMBER)?.as_str()?.split_once(':')?;
        let hash = payload.get("hash")?.as_str()?;
        let body = self.key(KeyName::parse(chain, key)?)?.open(hash, sealed)?;
        // As it would have been recorded without a seal.
        Some(Json::parse(String::from_utf8(body).ok()?).ok()?.to_value())
    }

    fn key(&self, name: KeyName) -> Option<Arc<DataKey>> {
        let find = |name: &KeyName| {
            let mut file = Vec::new();
            let found = regular_file::open(&name.path(&self.data_dir), Symlinks::Refuse).ok()??;
            found.take(MAX_FILE).read_to_end(&mut file).ok()?;
            let bytes = self.identities.iter().find_map(|identity| age_file::decrypted(&file, identity))?;
            DataKey::of(&bytes).map(Arc::new)
        };
        let mut keys = self.keys.borrow_mut();
        keys.entry(name).or_insert_with_key(find).clone()
    }
}
