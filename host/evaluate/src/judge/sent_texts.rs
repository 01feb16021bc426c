//! The texts in which a secret could leave: each single message, and the joined pieces of many messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use portcullis_core::digest::Digest;
use portcullis_net::egress::{MessageProtocol, SentMessage};
use serde_json::Value;
use url::Url;

use crate::encoding::decoded;

/// The largest length, in bytes, of a piece whose last word is also taken and decoded separately. A longer piece is
/// found as it is.
const PIECE: usize = 256;

/// The largest length, in bytes, of a key in a place, and of the place that another key is added to. Every string has
/// its own place, so without a limit one long key is kept as often as there are strings below it.
const MAX_KEY: usize = 64;
const MAX_PLACE: usize = 128;

/// The number of hexadecimal digits of the digest that replaces the part left out of a place.
const DIGEST_DIGITS: usize = 16;

/// One place where text leaves, with everything that left there, in order.
#[derive(Debug, Default)]
pub(super) struct SentTexts {
    /// The sent texts, by host and by place in the message.
    places: BTreeMap<(String, String), Vec<u8>>,
}

impl SentTexts {
    /// Collects the pieces of all messages.
    pub(super) fn of<'a>(messages: impl IntoIterator<Item = &'a SentMessage>) -> Self {
        let mut texts = Self::default();
        for message in messages {
            let host = match message.channel {
                MessageProtocol::Dns => parent(&message.host),
                _ => message.host.clone(),
            };
            for (name, part) in &message.parts {
                texts.add(&host, message.channel, name, part);
            }
        }
        texts
    }

    /// Returns each place as a host, a place and what left there.
    pub(super) fn each(&self) -> impl Iterator<Item = (&str, &str, &[u8])> {
        self.places.iter().map(|((host, place), text)| (host.as_str(), place.as_str(), text.as_slice()))
    }

    fn add(&mut self, host: &str, channel: MessageProtocol, name: &str, part: &[u8]) {
        let mut put = |place: &str, piece: &[u8]| self.put(host, &format!("{} {place}", channel.as_str()), piece);
        put(name, part);
        let text = String::from_utf8_lossy(part);
        match name {
            "name" | "server name" | "header host" => {
                let labels: Vec<&str> = text.split('.').collect();
                let inner = labels.get(..labels.len().saturating_sub(2)).unwrap_or_default();
                put("labels", inner.concat().as_bytes());
                put("first label", inner.first().copied().unwrap_or_default().as_bytes());
                put("last label", inner.last().copied().unwrap_or_default().as_bytes());
            }
            "path" => {
                let target = text.split_once(' ').map_or(&*text, |(_, target)| target);
                let Ok(url) = Url::parse("http://host/").and_then(|base| base.join(target)) else { return };
                for (key, value) in url.query_pairs() {
                    put(&format!("query {key}"), value.as_bytes());
                }
                for (at, segment) in url.path_segments().into_iter().flatten().enumerate() {
                    put(&format!("path segment {at}"), segment.as_bytes());
                }
            }
            "body" => match serde_json::from_slice::<Value>(part) {
                Ok(body) => leaves("", &body, &mut |place, text| put(&format!("body {place}"), text.as_bytes())),
                Err(_) => {
                    for (key, value) in url::form_urlencoded::parse(part).take(64) {
                        put(&format!("form {key}"), value.as_bytes());
                    }
                }
            },
            _ => {}
        }
    }

    fn put(&mut self, host: &str, place: &str, piece: &[u8]) {
        each_piece(&String::from_utf8_lossy(piece), &mut |how, bytes| {
            self.places.entry((host.to_owned(), format!("{place}{how}"))).or_default().extend_from_slice(bytes);
        });
    }
}

/// Calls `each` with a text, and with the parts that a reader may take from a short one: its last word, and its
/// decoding. Each is put together with the same of other texts.
pub(super) fn each_piece(text: &str, each: &mut impl FnMut(&'static str, &[u8])) {
    each("", text.as_bytes());
    if text.len() > PIECE {
        return;
    }
    let last =
        text.trim_end().rsplit(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '"')).next().unwrap_or_default();
    if last.len() < text.len() {
        each(", last words", last.as_bytes());
    }
    if let Some(decoded) = decoded(last.as_bytes()) {
        each(", decoded piece by piece", &decoded);
    }
}

/// Returns the part of a name that belongs to its owner: the last two labels.
pub(super) fn parent(name: &str) -> String {
    let labels: Vec<&str> = name.split('.').collect();
    labels.get(labels.len().saturating_sub(2)..).unwrap_or_default().join(".")
}

/// Calls `each` for every string in JSON, with its place, in which the elements of a list share one. A place stays
/// short, however long the keys are that lead to it, and differs from every other one.
pub(super) fn leaves(place: &str, value: &Value, each: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => each(place, text),
        Value::Array(items) => items.iter().for_each(|item| leaves(place, item, each)),
        Value::Object(members) => {
            let place = short(place, MAX_PLACE);
            members.iter().for_each(|(key, member)| leaves(&format!("{place}/{}", short(key, MAX_KEY)), member, each));
        }
        Value::Number(number) => each(place, &format!("{number},")),
        Value::Bool(_) | Value::Null => {}
    }
}

/// Returns a text, or the beginning of one of more than `max` bytes with a part of its digest.
fn short(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let digest = Digest::of(text.as_bytes()).to_string();
    let digest = digest.trim_start_matches("sha256:").get(..DIGEST_DIGITS).unwrap_or_default().to_owned();
    let kept = text.floor_char_boundary(max.saturating_sub(digest.len()));
    Cow::Owned(format!("{}…{digest}", text.get(..kept).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn places(value: &Value) -> Vec<String> {
        let mut places = Vec::new();
        leaves("", value, &mut |place, _| places.push(place.to_owned()));
        places
    }

    #[test]
    fn the_places_of_many_strings_below_a_long_key_are_short() {
        let members: serde_json::Map<_, _> = (0..90_000).map(|n| (format!("a{n}"), json!("x"))).collect();
        let places = places(&json!({ "k".repeat(1 << 20): members }));
        let bytes: usize = places.iter().map(String::len).sum();
        assert!(places.len() == 90_000 && bytes < 90_000 * (MAX_PLACE + MAX_KEY), "{bytes} bytes");
    }

    #[test]
    fn what_is_left_out_of_a_place_still_tells_it_from_others() {
        let long = |end: &str| format!("{}{end}", "é".repeat(1000));
        let nested = |key: &str| (0..100).fold(json!("x"), |inner, _| json!({ key: inner, "same": 1 }));
        let value = json!({ long("a"): "x", long("b"): "x", "deep": nested("a"), "deeper": nested(&long("c")), "a": ["x", "y"] });
        let all = places(&value);
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (206, 205), "the elements of a list share a place");
        assert!(all.iter().all(|place| place.len() <= MAX_PLACE + MAX_KEY + 10), "{all:?}");
        assert!(all.contains(&"/a".to_owned()) && all.contains(&"/deep/a/same".to_owned()), "{all:?}");
    }
}
