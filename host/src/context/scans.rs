//! The scans of what one source lists: each definition is scanned once, however often and for however many sessions it
//! is listed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::digest::Digest;
use crate::item::Item;
use crate::scan::{Finding, Scanner, Severity};

/// How many digests are remembered at least: what a source may list of all kinds, in both eras. Beyond that all are
/// forgotten and scanned again, as only a source that changes its definitions all the time gets there.
const MAX_KNOWN: usize = 65_536;

/// How many findings of one definition are kept, the gravest first: a person reads no more before deciding.
const MAX_KEPT: usize = 8;

/// The most characters of a pointer that are kept. A hostile key can be as long as the definition.
const MAX_POINTER: usize = 256;

static SCANNER: LazyLock<Scanner> = LazyLock::new(Scanner::new);

/// The findings in what a source listed, by the digest of the definition: warnings and grave ones.
pub(crate) type Flags = Arc<HashMap<Digest, Arc<[Finding]>>>;

/// The definitions of one source that were scanned. `None` stands for those without a finding.
#[derive(Debug, Default)]
pub(super) struct Scans {
    known: tokio::sync::Mutex<HashMap<Digest, Option<Arc<[Finding]>>>>,
}

impl Scans {
    /// Returns the findings in these items, and scans those that were not scanned before. Sessions that list the same
    /// at once wait for one scan.
    ///
    /// # Errors
    /// A text, if the scanner failed: what was not scanned must not be taken for clean.
    pub(super) async fn of(&self, items: impl Iterator<Item = &Arc<Item>> + Clone) -> Result<Flags, String> {
        let mut known = self.known.lock().await;
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let new: Vec<_> = items.clone().filter(|item| !known.contains_key(&item.digest)).cloned().collect();
        if !new.is_empty() {
            let scanned = tokio::task::spawn_blocking(move || {
                new.iter().map(|item| (item.digest, findings(item))).collect::<Vec<_>>()
            });
            known.extend(scanned.await.map_err(|error| format!("its definitions could not be scanned: {error}"))?);
        }
        let flagged = items.filter_map(|item| Some((item.digest, known.get(&item.digest)?.clone()?)));
        Ok(Arc::new(flagged.collect()))
    }
}

fn findings(item: &Item) -> Option<Arc<[Finding]>> {
    let found = SCANNER.scan(&item.definition.to_value());
    let found = found.into_iter().filter(|finding| finding.severity >= Severity::Warning).take(MAX_KEPT);
    let found =
        found.map(|finding| Finding { pointer: finding.pointer.chars().take(MAX_POINTER).collect(), ..finding });
    let found: Arc<[_]> = found.collect();
    (!found.is_empty()).then_some(found)
}
