//! The values that conditions calculate with, most of them borrowed from the arguments.

use std::borrow::Cow;
use std::rc::Rc;

use portcullis_plugin::json::{Json, Value as JsonValue, fold_key};

use super::Failure;
use super::number::Number;

/// A value of a condition.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Number(Number),
    String(Cow<'a, str>),
    List(Rc<[Value<'a>]>),
    /// A list in the arguments.
    Array(&'a [Json<'a>]),
    /// A map in the arguments.
    Map(&'a [(Cow<'a, str>, Json<'a>)]),
}

impl<'a> Value<'a> {
    pub(super) fn of(json: &'a Json<'a>) -> Result<Self, Failure> {
        Ok(match &json.value {
            JsonValue::Null => Self::Null,
            JsonValue::Bool(value) => Self::Bool(*value),
            JsonValue::Number(spelling) => {
                Self::Number(Number::of(spelling).ok_or(Failure::Fixed("a number is too large or too exact"))?)
            }
            JsonValue::String(text) => Self::String(Cow::Borrowed(text)),
            JsonValue::Array(items) => Self::Array(items),
            JsonValue::Object(members) => Self::Map(members),
        })
    }

    /// Returns the number of items of a list or a map; `None` for another value.
    pub(super) fn items(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::Array(items) => Some(items.len()),
            Self::Map(members) => Some(members.len()),
            _ => None,
        }
    }

    /// Returns an item of a list, or a key of a map.
    pub(super) fn item(&self, index: usize) -> Result<Self, Failure> {
        let missing = Failure::Fixed("a list has fewer items");
        match self {
            Self::List(items) => items.get(index).cloned().ok_or(missing),
            Self::Array(items) => Self::of(items.get(index).ok_or(missing)?),
            Self::Map(members) => members.get(index).map(|(key, _)| Self::String(Cow::Borrowed(key))).ok_or(missing),
            _ => Err(missing),
        }
    }

    /// Returns an item as [`item`](Self::item) does, without copying a text.
    pub(super) fn borrowed_item(&self, index: usize) -> Result<Value<'_>, Failure> {
        match self {
            Self::List(items) => match items.get(index) {
                Some(Self::String(text)) => Ok(Value::String(Cow::Borrowed(text))),
                _ => self.item(index),
            },
            _ => self.item(index),
        }
    }

    /// Compares two values that are not lists. Values of different types cannot be compared, except with null, which
    /// nothing else equals.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, Failure> {
        match (self, other) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::Null, _) | (_, Self::Null) => Ok(false),
            (Self::Bool(left), Self::Bool(right)) => Ok(left == right),
            (Self::Number(left), Self::Number(right)) => Ok(left.compare(*right).is_eq()),
            (Self::String(left), Self::String(right)) => Ok(left == right),
            (Self::Map(_), Self::Map(_)) => Err(Failure::Fixed("maps are compared")),
            _ => Err(Failure::Fixed("values of different types are compared")),
        }
    }
}

/// Looks up a key. A source may take a key in another case for this one, so that nobody knows which value counts.
///
/// # Errors
/// [`Failure::Ambiguous`] if the map has the key in another case, with or without this one.
pub(super) fn look_up<'a>(members: &'a [(Cow<'a, str>, Json<'a>)], key: &str) -> Result<Option<&'a Json<'a>>, Failure> {
    let is_other = |other: &str| {
        if other.is_ascii() && key.is_ascii() {
            other.eq_ignore_ascii_case(key)
        } else {
            fold_key(other) == fold_key(key)
        }
    };
    let mut found = None;
    for (other, value) in members {
        if other == key {
            found = Some(value);
        } else if is_other(other) {
            return Err(Failure::Ambiguous(key.to_owned()));
        }
    }
    Ok(found)
}

/// Joins by "and": one that does not hold counts more than one that cannot be evaluated.
pub(super) fn all(results: impl Iterator<Item = Result<bool, Failure>>) -> Result<bool, Failure> {
    let mut failure = None;
    for result in results {
        match result {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(true), Err)
}
