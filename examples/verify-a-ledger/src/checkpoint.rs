//! Checkpoints: signed notes about the Merkle tree over the records of a chain.

use ed25519_compact::{PublicKey, Signature};
use hmac_sha256::Hash as Sha256;

use crate::segment::hex;
use crate::{Fault, Hash};

/// A checkpoint: the records of a chain that it covers, by their number and the root of their tree.
pub(crate) struct Checkpoint<'a> {
    pub(crate) chain: &'a str,
    pub(crate) size: u64,
    pub(crate) root: Hash,
}

/// Reads a file of checkpoints, each of which must be signed with a key in the form of signed notes.
pub(crate) fn read<'a>(text: &'a str, key: &str) -> Result<Vec<Checkpoint<'a>>, Fault> {
    let (name, id, key) = public_key(key.trim()).ok_or("this is no key of checkpoints")?;
    let mut rest = text;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (signed, checkpoint, signatures) = note(&mut rest).ok_or("this is no file of checkpoints")?;
        let mut signatures = signatures.into_iter().filter(|(signer, signature)| {
            let (signed_by, signature) = signature.split_at_checked(4).unwrap_or_default();
            let signature = Signature::from_slice(signature);
            *signer == name
                && hex(signed_by) == id
                && signature.is_ok_and(|signature| key.verify(signed, &signature).is_ok())
        });
        if signatures.next().is_none() {
            return Err(format!("the checkpoint of chain {} is not signed with this key", checkpoint.chain));
        }
        found.push(checkpoint);
    }
    if found.is_empty() { Err("this is no file of checkpoints".to_owned()) } else { Ok(found) }
}

/// The signatures of a note, each with the name of its signer.
type Signatures<'a> = Vec<(&'a str, Vec<u8>)>;

/// Reads the first note of a text: the part that is signed, what it says, and its signatures.
fn note<'a>(rest: &mut &'a str) -> Option<(&'a str, Checkpoint<'a>, Signatures<'a>)> {
    let (body, after) = rest.split_once("\n\n")?;
    let signed = rest.get(..body.len() + 1)?;
    let [origin, size, root] = body.split('\n').collect::<Vec<_>>()[..] else { return None };
    let chain = origin.strip_prefix("portcullis/")?;
    let checkpoint = Checkpoint { chain, size: size.parse().ok()?, root: base64(root)?.try_into().ok()? };
    let mut signatures = Vec::new();
    let mut left = after;
    while let Some(line) = left.strip_prefix("\u{2014} ") {
        let (line, next) = line.split_once('\n')?;
        let (signer, signature) = line.split_once(' ')?;
        signatures.push((signer, base64(signature)?));
        left = next;
    }
    *rest = left.strip_prefix('\n').unwrap_or(left);
    (!signatures.is_empty()).then_some((signed, checkpoint, signatures))
}

fn public_key(text: &str) -> Option<(&str, &str, PublicKey)> {
    let (name, rest) = text.split_once('+')?;
    let (id, key) = rest.split_once('+')?;
    Some((name, id, PublicKey::from_slice(base64(key)?.get(1..)?).ok()?))
}

/// Returns the root of the Merkle tree (RFC 9162) over records that are gone, by its largest whole subtrees, and
/// others.
pub(crate) fn root(hashes: &[Hash], gone: u64, subtrees: &[Hash]) -> Hash {
    let mut roots = subtrees.to_vec();
    for (mut at, record) in (gone..).zip(hashes) {
        let mut root = joined(0, &[record]);
        while at & 1 == 1 {
            let left = roots.pop().unwrap_or_default();
            root = joined(1, &[&left, &root]);
            at >>= 1;
        }
        roots.push(root);
    }
    let Some(mut root) = roots.pop() else { return Sha256::hash(&[]) };
    while let Some(left) = roots.pop() {
        root = joined(1, &[&left, &root]);
    }
    root
}

fn joined(kind: u8, parts: &[&Hash]) -> Hash {
    let mut hash = Sha256::new();
    hash.update([kind]);
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize()
}

/// Decodes base64 with its padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    for byte in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::try_from(DIGITS.iter().position(|digit| *digit == byte)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}
