//! The last list of each kind that a source gave. A list that has not changed is named and digested once, and the
//! sessions that get it share its items.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::{self, CatalogError, CollectedItems, Remark};
use crate::config::SourceConfig;
use crate::item::{Item, ItemKind};
use crate::protocol::Json;
use crate::sync::Mutex;

/// The last list of each kind that a source gave.
#[derive(Debug, Default)]
pub(super) struct LastLists(Mutex<HashMap<ItemKind, LastList>>);

#[derive(Debug)]
struct LastList {
    definitions: Vec<Json>,
    items: Arc<[Arc<Item>]>,
    remarks: Arc<[Remark]>,
}

/// The items of a list under the names that agents see.
pub(super) struct NamedList {
    pub(super) items: Arc<[Arc<Item>]>,
    /// The items that are offered under another name than the source gives, or left out.
    pub(super) remarks: Arc<[Remark]>,
    /// True if the list differs from the one before.
    pub(super) is_new: bool,
    /// True if the remarks differ from those on the list before.
    pub(super) has_new_remarks: bool,
}

impl LastLists {
    /// Names and digests the items of a list, unless it is the last one of its kind.
    ///
    /// # Errors
    /// The errors of [`catalog::items_of`].
    pub(super) fn named(
        &self,
        kind: ItemKind,
        config: &SourceConfig,
        definitions: Vec<Json>,
    ) -> Result<NamedList, CatalogError> {
        if let Some(last) = self.0.lock().get(&kind).filter(|last| last.definitions == definitions) {
            let (items, remarks) = (Arc::clone(&last.items), Arc::clone(&last.remarks));
            return Ok(NamedList { items, remarks, is_new: false, has_new_remarks: false });
        }
        let CollectedItems { items, remarks } = catalog::items_of(kind, config, &definitions)?;
        let (items, remarks): (Arc<[_]>, Arc<[_]>) = (items.into(), remarks.into());
        let list = LastList { definitions, items: Arc::clone(&items), remarks: Arc::clone(&remarks) };
        let before = self.0.lock().insert(kind, list);
        let has_new_remarks = before.map_or(!remarks.is_empty(), |before| before.remarks != remarks);
        Ok(NamedList { items, remarks, is_new: true, has_new_remarks })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::catalog::testing::source;
    use crate::config::Naming;

    #[test]
    fn sessions_share_the_items_of_a_list_that_has_not_changed() {
        let (lists, config) = (LastLists::default(), source("s", Naming::Source));
        let named = |kind, names: &[&str]| {
            let definitions = names.iter().map(|name| Json::of(&serde_json::json!({ "name": name }))).collect();
            lists.named(kind, &config, definitions).unwrap()
        };
        let first = named(ItemKind::Prompt, &["a", "b"]);
        let second = named(ItemKind::Prompt, &["a", "b"]);
        assert!(first.is_new && !second.is_new);
        assert!(Arc::ptr_eq(&first.items, &second.items));
        let shown = |list: &NamedList| list.items.first().unwrap().exposed_definition().as_bytes().as_ptr();
        assert_eq!(shown(&first), shown(&second), "and what agents see of it");
        assert!(named(ItemKind::Tool, &["a", "b"]).is_new, "another kind");
        assert!(named(ItemKind::Prompt, &["a"]).is_new, "another list");
        assert!(named(ItemKind::Prompt, &["a", "b"]).is_new, "only the last is kept");
    }
}
