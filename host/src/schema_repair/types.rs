//! The types of JSON values, as a set.

use std::ops::BitOr;

use serde_json::Value;

use super::Members;
use crate::protocol::Json;

/// A set of the types of JSON Schema. Every integer is a number too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(1 << 1);
    pub(super) const INTEGER: Self = Self(1 << 2);
    /// The numbers that are not integers.
    pub(super) const FRACTION: Self = Self(1 << 3);
    pub(super) const NUMBER: Self = Self(Self::INTEGER.0 | Self::FRACTION.0);
    pub(super) const STRING: Self = Self(1 << 4);
    pub(super) const ARRAY: Self = Self(1 << 5);
    pub(super) const OBJECT: Self = Self(1 << 6);
    pub(super) const ALL: Self = Self((1 << 7) - 1);

    /// The types by name, in the order in which they are written.
    const NAMED: [(&'static str, Self); 6] = [
        ("string", Self::STRING),
        ("number", Self::NUMBER),
        ("boolean", Self::BOOLEAN),
        ("array", Self::ARRAY),
        ("object", Self::OBJECT),
        ("null", Self::NULL),
    ];

    /// Returns the type of this name, or `None` if there is none.
    pub(super) fn named(name: &str) -> Option<Self> {
        if name == "integer" {
            return Some(Self::INTEGER);
        }
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, types)| *types)
    }

    /// Returns the types that the keyword `type` names, or `None` if it is missing or names none.
    pub(super) fn declared(schema: &Members) -> Option<Self> {
        let named = |value: &Value| value.as_str().and_then(Self::named);
        let types = match schema.get("type")? {
            Value::Array(list) => list.iter().filter_map(named).fold(Self::NONE, BitOr::bitor),
            one => named(one)?,
        };
        (types != Self::NONE).then_some(types)
    }

    /// Returns the type of a value.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_f64() && number.as_f64().is_none_or(|n| n.fract() != 0.0) => {
                Self::FRACTION
            }
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// Returns the type of a value that is kept as text.
    pub(super) fn of_text(json: &Json) -> Self {
        match json.as_bytes().first() {
            Some(b'n') => Self::NULL,
            Some(b't' | b'f') => Self::BOOLEAN,
            Some(b'"') => Self::STRING,
            Some(b'[') => Self::ARRAY,
            Some(b'{') => Self::OBJECT,
            _ if is_plain_integer(json.as_str()) => Self::INTEGER,
            _ => json.read::<Value>().map_or(Self::FRACTION, |number| Self::of(&number)),
        }
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the names of the types.
    pub(super) fn names(self) -> Vec<&'static str> {
        let named = Self::NAMED.iter().filter(|(_, types)| self.and(*types) != Self::NONE);
        let integer = !self.contains(Self::FRACTION);
        named.map(|(name, _)| if *name == "number" && integer { "integer" } else { *name }).collect()
    }
}

impl BitOr for Types {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Reports whether a text is an integer in JSON's spelling, without a fraction or an exponent.
pub(super) fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits == "0" || !digits.starts_with('0');
    canonical && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
