//! Records that were removed because of their age: the data left of them, and the records of their removal.

use serde::Deserialize;

use crate::Hash;
use crate::segment::{hex, unhex};

/// The rest of the first records of a chain, which were removed.
pub(crate) struct Removed {
    chain: String,
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
    pub(crate) segment: u32,
    pub(crate) is_stopped: bool,
    pub(crate) tree: Vec<Hash>,
    digest: String,
}

/// A record that says that records were removed.
#[derive(Deserialize)]
pub(crate) struct Removal {
    pub(crate) chain: String,
    seq: u64,
    hash: String,
    digest: String,
}

#[derive(Deserialize)]
struct Line {
    chain: String,
    seq: u64,
    hash: String,
    segment: u32,
    stopped: bool,
    tree: Vec<String>,
    kept: Vec<Kept>,
}

#[derive(Deserialize)]
struct Kept {
    text: String,
}

#[derive(Deserialize)]
struct KeptRecord<'a> {
    kind: &'a str,
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
}

impl Removed {
    /// Reads a file, and returns the removals that the removed records told of too.
    pub(crate) fn read(file: &[u8]) -> Option<(Self, Vec<Removal>)> {
        let Line { chain, seq, hash, segment, stopped, tree, kept } = serde_json::from_slice(file).ok()?;
        let tree = tree.iter().map(|root| unhex(root)).collect::<Option<_>>()?;
        let digest = format!("sha256:{}", hex(&hmac_sha256::Hash::hash(file)));
        let mut removals = Vec::new();
        for record in &kept {
            let KeptRecord { kind, body } = serde_json::from_str(&record.text).ok()?;
            if kind == "records.removed" {
                removals.push(serde_json::from_str(body.get()).ok()?);
            }
        }
        Some((Self { chain, seq, hash: unhex(&hash)?, segment, is_stopped: stopped, tree, digest }, removals))
    }
}

impl Removal {
    /// Reports whether this record is about what is left of a chain.
    pub(crate) fn is_of(&self, removed: &Removed) -> bool {
        (&*self.chain, self.seq, &*self.hash, &*self.digest)
            == (&*removed.chain, removed.seq, &*hex(&removed.hash), &*removed.digest)
    }
}
