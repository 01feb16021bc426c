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

/// The number of definitions from which on all are forgotten and repaired again: more than a source may list in both
/// eras, so that only one that changes its definitions all the time gets there.
const MAX_KNOWN: usize = 16_384;

/// The repairs of one source's definitions, by digest.
#[derive(Debug, Default)]
pub(super) struct RepairCache(Arc<Mutex<HashMap<Digest, Arc<Repair>>>>);

/// A tool whose input schema needed a repair.
#[derive(Debug)]
pub(crate) struct RepairedTool {
    pub(crate) item: Arc<Item>,
    pub(crate) repair: Arc<Repair>,
}

impl Upstream {
    /// Repairs the input schemas of these tools, and returns those that needed it and were not repaired before. A source
    /// with plain names is left as it is. Cancellation safe: what was repaired until then is not repaired again.
    pub(crate) async fn repair_schemas(&self, items: &[Arc<Item>]) -> Vec<RepairedTool> {
        if self.config.names == Naming::Plain {
            return Vec::new();
        }
        let new: Vec<_> = {
            let mut known = self.repairs.0.lock();
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            items.iter().filter(|item| !known.contains_key(&item.digest)).cloned().collect()
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
                let before = known.lock().insert(item.digest, Arc::clone(&repair));
                if before.is_none() && repair.schema().is_some() {
                    repaired.push(RepairedTool { item, repair });
                }
            }
            repaired
        });
        // A task that panicked has repaired nothing more; those tools are shown as they are.
        repaired.await.unwrap_or_default()
    }

    /// Returns the repair of a tool's input schema, if it was made.
    pub(crate) fn repair_of(&self, item: &Item) -> Option<Arc<Repair>> {
        self.repairs.0.lock().get(&item.digest).cloned()
    }
}
