//! Identifiers of calls as the index stores them.

use ulid::{ULID_LEN, Ulid};

/// The length of an identifier's bytes.
const ULID_BYTES: usize = 16;

/// Returns the bytes of a call's identifier. Their order is that of identifiers, which begin with the time.
pub(crate) fn key_of(call: &str) -> Vec<u8> {
    match call.parse::<Ulid>() {
        Ok(id) if id.to_string() == call => id.to_bytes().to_vec(),
        // No broker writes another identifier; it is stored so that no record is hidden.
        _ => [call.as_bytes(), &[0; ULID_BYTES + 1]].concat(),
    }
}

/// Returns the identifier that has these bytes.
pub(crate) fn call_of(key: &[u8]) -> String {
    match <[u8; ULID_BYTES]>::try_from(key) {
        Ok(bytes) => Ulid::from_bytes(bytes).to_string(),
        Err(_) => {
            let text = key.get(..key.len().saturating_sub(ULID_BYTES + 1)).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        }
    }
}

/// Returns the first and the last key of the identifiers that begin with these characters, in either case; `None` if none
/// does.
pub(crate) fn keys_beginning(beginning: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let padded = |digit: char| {
        let missing = ULID_LEN.checked_sub(beginning.len())?;
        let text =
            beginning.chars().chain(std::iter::repeat_n(digit, missing)).collect::<String>().to_ascii_uppercase();
        let id: Ulid = text.parse().ok()?;
        (id.to_string() == text).then(|| id.to_bytes().to_vec())
    };
    Some((padded('0')?, padded('Z')?))
}

/// Returns the smallest key of a call that began at this moment, in milliseconds since the Unix epoch.
pub(crate) fn first_key_at(millis: u64) -> Vec<u8> {
    /// The last moment that an identifier can name, in milliseconds since the Unix epoch.
    const LAST: u64 = (1 << 48) - 1;
    Ulid::from_parts(millis.min(LAST), 0).to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_reads_back_and_keeps_its_order() {
        let calls = ["01M7WN5Q1GEFB10ZKY19G6B2W7", "01M7WN5Q1GEFB10ZKY19G6B2W8", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"];
        assert!(calls.map(key_of).is_sorted());
        for call in calls.iter().chain(&["", "another", "01m7wn5q1gefb10zky19g6b2w7", "sixteen letters!"]) {
            assert_eq!(call_of(&key_of(call)), *call);
        }
    }
}
