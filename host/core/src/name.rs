//! Names of sources and profiles. They are checked once, so a value of these types is always valid.

use std::fmt;
use std::sync::Arc;

/// The longest source or profile name, in bytes: a tool name of 64 characters must have space left for the tool.
pub const MAX_NAME_BYTES: usize = 32;

/// The separator between source and tool in an exposed name, which therefore no source name may contain.
pub const SEPARATOR: &str = "__";

/// An error that says why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The name is longer than 32 bytes.
    #[error("name {0:?} is longer than {MAX_NAME_BYTES} characters")]
    TooLong(String),
    /// The name has other characters than ASCII letters, digits, `-` and `_`, or does not start with a letter or digit.
    #[error("name {0:?} may hold only ASCII letters, digits, `-` and `_`, and must start with a letter or digit")]
    Characters(String),
    /// The name contains `__`, or ends with `_`, which would make the separator ambiguous.
    #[error("name {0:?} must not contain `__` or end with `_`: `__` separates source and tool in what the agent sees")]
    Separator(String),
}

fn check(name: &str) -> Result<(), NameError> {
    let named = || name.chars().take(2 * MAX_NAME_BYTES).collect::<String>();
    match name.as_bytes() {
        [] => Err(NameError::Empty),
        bytes if bytes.len() > MAX_NAME_BYTES => Err(NameError::TooLong(named())),
        [first, ..] if !first.is_ascii_alphanumeric() => Err(NameError::Characters(named())),
        bytes if !bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) => {
            Err(NameError::Characters(named()))
        }
        bytes if name.contains(SEPARATOR) || bytes.last() == Some(&b'_') => Err(NameError::Separator(named())),
        _ => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                check(name).map(|()| Self(name.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// The name of a configured source.
    SourceName
}
name! {
    /// The name of a profile.
    ProfileName
}

impl Default for ProfileName {
    /// Returns `default`, the profile of a configuration that names no other.
    fn default() -> Self {
        Self("default".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refuse_what_would_not_parse_back() {
        for bad in ["", "a__b", "a_", "_a", "-a", "rе", "a b", "a.b", &"x".repeat(33)] {
            assert!(bad.parse::<SourceName>().is_err(), "{bad:?}");
        }
        for good in ["a", "files", "my-files_2", "7zip"] {
            assert_eq!(good.parse::<SourceName>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
    }
}
