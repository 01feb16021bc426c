//! Matchers over arguments.
//!
//! A key is a dotted path (`edits.path`). Its value is a glob that a string must match, a number or boolean that the
//! argument must equal, or `{ not = "glob" }`.
//!
//! The caller chooses how its arguments are spelled, and a source may accept several spellings of the same
//! argument. Therefore:
//!
//! - A path finds *all* values that a lenient source could take for the argument: keys are compared without regard to case,
//!   and where a part of the path meets an array, it is looked up in each item (a number selects one item).
//! - In `deny` and `ask` one matching value is enough; in `allow` every value must match.
//! - A value of another type than the matcher's counts against the call: it matches in `deny` and `ask`, never in `allow`.
//!   (`"yes"` may be read as true, `["/etc"]` as a path.) So does a string that may be read as JSON where the path leads on:
//!   servers parse `"[{\"path\":\"/etc\"}]"` if they want a list. Where the path ends, a string that is a list in JSON counts as
//!   itself and as each text in that list. So does one that only a lenient reader takes for a list; in `allow` it never matches.
//! - Numbers are compared by value: 5, 5.0 and 50e-1 are equal. In `deny` and `ask` those are equal too that most programs
//!   read as the same one: they round 1e-400 to 0, and 5.00000000000000000001 to 5.
//! - A missing or null argument and an empty list match nothing, except `{ not = … }` in `deny` and `ask`: an absent value is
//!   not the wanted one either. Null and an empty list also count as `0` and as `false` there, as which some programs read
//!   them.
//!
//! A glob compares text and knows nothing about files: `/srv/../etc` matches `/srv/*`. The access of a source is
//! enforced by its cell.

use std::borrow::Cow;
use std::fmt;
use std::str::Chars;

use portcullis_plugin::Glob;
use portcullis_plugin::json::{Json, Value, fold_key};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::rule::Reading;

/// A path to a value in the arguments.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(String);

impl Path {
    /// Returns every value that could be meant. Arrays at the end of the path are replaced by their items, and an empty one
    /// by null; a string that may be read as a list has the texts of that list beside it.
    pub(crate) fn find<'j>(&self, arguments: &'j Json<'j>, reading: Reading) -> Vec<Cow<'j, Value<'j>>> {
        let mut found = vec![arguments];
        let mut unread = false;
        for part in self.0.split('.') {
            unread |= found.iter().any(|json| may_be_read_further(json));
            found = found.into_iter().flat_map(|json| step(json, part)).collect();
        }
        found
            .into_iter()
            .flat_map(|json| items(json, reading))
            .chain(unread.then_some(Cow::Borrowed(&UNREAD)))
            .collect()
    }
}

/// The stand-in for values in a text that may be read as JSON: nothing can be compared with it.
static UNREAD: Value<'static> = Value::Object(Vec::new());

/// Reports whether a value is, or holds in its arrays, a text that may be read as an object or an array.
fn may_be_read_further(json: &Json<'_>) -> bool {
    match &json.value {
        Value::String(text) => text.trim_start().starts_with(['{', '[']),
        Value::Array(list) => list.iter().any(may_be_read_further),
        _ => false,
    }
}

fn step<'j>(json: &'j Json<'j>, part: &str) -> Vec<&'j Json<'j>> {
    match &json.value {
        Value::Object(members) => {
            members.iter().filter(|(key, _)| fold_key(key) == fold_key(part)).map(|(_, value)| value).collect()
        }
        Value::Array(list) => match part.parse::<usize>() {
            Ok(index) => list.get(index).into_iter().collect(),
            Err(_) => list.iter().flat_map(|item| step(item, part)).collect(),
        },
        _ => vec![],
    }
}

/// Returns the scalars and objects in nested arrays, and the texts of a list that a string has in it.
fn items<'j>(json: &'j Json<'j>, reading: Reading) -> Vec<Cow<'j, Value<'j>>> {
    match &json.value {
        Value::Array(list) if list.is_empty() => vec![Cow::Borrowed(&Value::Null)],
        Value::Array(list) => list.iter().flat_map(|item| items(item, reading)).collect(),
        value @ Value::String(text) if text.trim_start().starts_with('[') => {
            let read = Json::parse(text).map(|list| texts(list.value)).unwrap_or_else(|_| {
                let quoted = quoted(text);
                // A lenient reader may find other texts.
                let unread = (reading == Reading::For && !quoted.is_empty()).then(|| UNREAD.clone());
                quoted.into_iter().chain(unread).collect()
            });
            std::iter::once(Cow::Borrowed(value)).chain(read.into_iter().map(Cow::Owned)).collect()
        }
        value => vec![Cow::Borrowed(value)],
    }
}

/// Returns the texts in nested arrays. Everything else in them cannot be compared with a glob, and a number or a boolean
/// cannot be compared with the string.
fn texts(value: Value<'_>) -> Vec<Value<'_>> {
    match value {
        Value::Array(list) => list.into_iter().flat_map(|item| texts(item.value)).collect(),
        Value::String(_) => vec![value],
        _ => Vec::new(),
    }
}

/// Returns what stands between quotation marks in a text that is no strict JSON, as a lenient reader takes it. What is
/// escaped and no character, such as half of a surrogate pair, becomes `U+FFFD`.
fn quoted(text: &str) -> Vec<Value<'static>> {
    let (mut found, mut chars) = (Vec::new(), text.chars());
    while chars.by_ref().any(|c| c == '"') {
        let mut string = String::new();
        while let Some(c) = chars.next().filter(|c| *c != '"') {
            string.push(if c == '\\' { unescaped(&mut chars) } else { c });
        }
        found.push(Value::String(string.into()));
    }
    found
}

/// Reads the rest of an escape.
fn unescaped(chars: &mut Chars<'_>) -> char {
    match chars.next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('u') => {
            let first = code_unit(chars);
            let mut rest = chars.clone();
            let pair = ((rest.next(), rest.next()) == (Some('\\'), Some('u'))).then(|| [first, code_unit(&mut rest)]);
            let paired = pair.and_then(|pair| char::decode_utf16(pair).next()?.ok().filter(|c| c.len_utf16() == 2));
            if paired.is_some() {
                *chars = rest;
            }
            paired.or_else(|| char::from_u32(first.into())).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        Some(other) => other,
        None => char::REPLACEMENT_CHARACTER,
    }
}

/// Reads four hexadecimal digits. If there are fewer, none are read, and the unit is half of a pair.
fn code_unit(chars: &mut Chars<'_>) -> u16 {
    const HALF: u16 = 0xd800;
    let digits = chars.as_str().get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let Some(unit) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) else { return HALF };
    *chars = chars.as_str().get(4..).unwrap_or_default().chars();
    unit
}

/// The condition on an argument.
pub(crate) enum Matcher {
    Like(Glob),
    Unlike(Glob),
    Bool(bool),
    Number(String, Decimal),
}

impl Matcher {
    pub(crate) fn matches(&self, found: &[Cow<'_, Value<'_>>], reading: Reading) -> bool {
        match reading {
            Reading::Against if found.is_empty() => matches!(self, Self::Unlike(_)),
            Reading::Against => found.iter().any(|value| self.compare(value).unwrap_or(true) || self.rounds_to(value)),
            Reading::For => !found.is_empty() && found.iter().all(|value| self.compare(value).unwrap_or(false)),
        }
    }

    /// Reports whether a program with numbers of 64 bits may read a value as the wanted number.
    fn rounds_to(&self, value: &Value<'_>) -> bool {
        let read = |spelling: &str| spelling.parse::<f64>().ok();
        match (self, value) {
            (Self::Number(wanted, _), Value::Number(given)) => {
                read(wanted).is_some_and(|wanted| read(given) == Some(wanted))
            }
            _ => false,
        }
    }

    /// Compares the matcher with a value; `None` if the two cannot be compared.
    fn compare(&self, value: &Value<'_>) -> Option<bool> {
        match (self, value) {
            (Self::Like(_) | Self::Bool(true), Value::Null) => Some(false),
            (Self::Number(_, wanted), Value::Null) if !wanted.digits.is_empty() => Some(false),
            (Self::Like(glob), Value::String(text)) => Some(glob.matches(text)),
            (Self::Unlike(glob), Value::String(text)) => Some(!glob.matches(text)),
            (Self::Bool(wanted), Value::Bool(given)) => Some(wanted == given),
            (Self::Number(_, wanted), Value::Number(spelling)) => Some(Decimal::read(spelling)? == *wanted),
            _ => None,
        }
    }
}

/// A number by its value, of any size and spelling: `0.digits × 10^exponent`, where the digits neither
/// begin nor end with zero.
#[derive(PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) negative: bool,
    pub(crate) digits: String,
    pub(crate) exponent: i64,
}

impl Decimal {
    /// Reads a number, or returns `None` if its exponent has more than 18 digits.
    pub(crate) fn read(spelling: &str) -> Option<Self> {
        let (mantissa, exponent) = spelling.split_once(['e', 'E']).unwrap_or((spelling, "0"));
        let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading = i64::try_from(all.len() - significant.len()).ok()?;
        let digits = significant.trim_end_matches('0').to_string();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let exponent = exponent.checked_add(i64::try_from(whole.len()).ok()?)?.checked_sub(leading)?;
        Some(Self { negative, digits, exponent })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Like(glob) => write!(f, "\"{glob}\""),
            Self::Unlike(glob) => write!(f, "{{ not = \"{glob}\" }}"),
            Self::Bool(value) => value.fmt(f),
            Self::Number(spelling, _) => f.write_str(spelling),
        }
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = String::deserialize(deserializer)?;
        if path.contains('*') {
            return Err(D::Error::custom(format!(
                "`{path}` is not a path: a name stands for every item of a list, so leave `.*` out"
            )));
        }
        if path.split('.').any(str::is_empty) {
            return Err(D::Error::custom(format!("`{path}` is not a path; write names with single dots between them")));
        }
        Ok(Self(path))
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Negated {
            not: Glob,
        }

        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Matcher;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a glob, a number, a boolean, or { not = \"glob\" }")
            }

            fn visit_str<E: Error>(self, glob: &str) -> Result<Matcher, E> {
                Ok(Matcher::Like(Glob::new(glob)))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Matcher, E> {
                Ok(Matcher::Bool(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Matcher, E> {
                number(value.to_string())
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Matcher, E> {
                number(value.to_string())
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Matcher, E> {
                number(format!("{value:?}"))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Matcher, A::Error> {
                let Negated { not } = Negated::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Matcher::Unlike(not))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn number<E: Error>(spelling: String) -> Result<Matcher, E> {
    let value = Decimal::read(&spelling)
        .ok_or_else(|| E::custom(format!("{spelling} is not a number that can be compared")))?;
    Ok(Matcher::Number(spelling, value))
}
