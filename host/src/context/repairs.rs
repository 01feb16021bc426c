//! The repaired input schemas of one source: each definition is repaired once, however often and for however many
//! sessions it is listed.

use std::collections::HashMap;
use std::sync::Arc;

use super::Upstream;
use crate::config::Naming;
use crate::digest::Digest;
use crate::item::Item;
use crate::protocol::Json;
use crate::schema_repair::Repair;
use crate::sync::Mutex;

/// The bytes of definitions from which on all are forgotten and repaired again: more than a source may list in both
/// eras, so that only one that changes its definitions all the time gets there.
const MAX_KNOWN_BYTES: usize = 128 << 20;

/// The fewest bytes that a definition counts as, with the data kept alongside it.
const LEAST_BYTES: usize = 4 << 10;

/// The repairs of one source's definitions.
#[derive(Debug, Default)]
pub(super) struct RepairCache(Arc<Mutex<KnownRepairs>>);

#[derive(Debug, Default)]
struct KnownRepairs {
    by_definition: HashMap<Digest, Arc<Repair>>,
    bytes: usize,
}

impl KnownRepairs {
    fn contains(&self, item: &Item) -> bool {
        self.by_definition.contains_key(&item.digest)
    }

    fn forget_if_full(&mut self) {
        if self.bytes >= MAX_KNOWN_BYTES {
            *self = Self::default();
        }
    }

    /// Adds the repair of a definition, and reports whether it is new.
    fn add(&mut self, item: &Item, repair: &Arc<Repair>) -> bool {
        let new = self.by_definition.insert(item.digest, Arc::clone(repair)).is_none();
        if new {
            // Restoring arguments needs a part of the source's schema, so that counts too.
            let repaired = repair.schema().map_or(0, |schema| schema.as_str().len());
            self.bytes += LEAST_BYTES.max(item.definition.as_str().len() + repaired);
        }
        new
    }
}

/// A tool whose input schema needed a repair.
#[derive(Debug)]
pub(crate) struct RepairedTool {
    pub(crate) item: Arc<Item>,
    pub(crate) repair: Arc<Repair>,
}

impl Upstream {
    /// Repairs the input schemas of these tools, and returns those that needed it and were not repaired before. A
    /// source with plain names is left unchanged. Cancellation safe: schemas repaired until then are not repaired
    /// again.
    pub(crate) async fn repair_schemas(&self, items: &[Arc<Item>]) -> Vec<RepairedTool> {
        if self.config.names == Naming::Plain {
            return Vec::new();
        }
        let new: Vec<_> = {
            let mut known = self.repairs.0.lock();
            known.forget_if_full();
            items.iter().filter(|item| !known.contains(item)).cloned().collect()
        };
        if new.is_empty() {
            return Vec::new();
        }
        let known = Arc::clone(&self.repairs.0);
        let repaired = tokio::task::spawn_blocking(move || {
            let mut repaired = Vec::new();
            for item in new {
                let schema = item.definition.get("inputSchema").unwrap_or_else(Json::empty_object);
                let repair = Arc::new(Repair::of(&schema));
                let new = known.lock().add(&item, &repair);
                if new && repair.schema().is_some() {
                    repaired.push(RepairedTool { item, repair });
                }
            }
            repaired
        });
        // A task that panicked has repaired nothing more; those tools are shown unchanged.
        repaired.await.unwrap_or_default()
    }

    /// Returns the repair of a tool's input schema, if it was made.
    pub(crate) fn repair_of(&self, item: &Item) -> Option<Arc<Repair>> {
        self.repairs.0.lock().by_definition.get(&item.digest).cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn definitions_that_change_all_the_time_do_not_fill_the_memory() {
        let mut known = KnownRepairs::default();
        let source = "s".parse().unwrap();
        for number in 0..200 {
            known.forget_if_full();
            let item = Item::of_instructions(&source, &[], &format!("{number}{}", "x".repeat(1 << 20)));
            assert!(known.add(&item, &Arc::new(Repair::of(&Json::empty_object()))));
            assert!(known.contains(&item));
        }
        assert!(known.by_definition.len() < 130, "{}", known.by_definition.len());
    }
}
