//! Globs: `*` matches any run of characters (also `_` and `/`, and the empty run), `?` matches one character, and
//! everything else matches itself.

use serde::de::{Deserialize, Deserializer, Error};

/// A glob over any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<char>);

impl Glob {
    /// Creates a glob. Every text is a valid one.
    #[must_use]
    pub fn new(glob: &str) -> Self {
        Self(glob.chars().collect())
    }

    /// Reports whether the glob matches the whole of `text`. It backtracks to the last `*` only, so the time is at most
    /// proportional to the length of the text times the length of the glob.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut glob = 0;
        let mut rest = text.chars();
        // After a star: the position at which the glob continues, and the text that the star has not consumed yet.
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            let next = rest.next();
            match (self.0.get(glob), next) {
                (None, None) => return true,
                (Some('*'), _) => {
                    glob += 1;
                    rest = before.clone();
                    star = Some((glob, before));
                }
                (Some(&g), Some(c)) if g == '?' || g == c => glob += 1,
                _ => {
                    let Some((after, swallowed)) = &mut star else { return false };
                    if swallowed.next().is_none() {
                        return false;
                    }
                    glob = *after;
                    rest = swallowed.clone();
                }
            }
        }
    }
}

impl std::fmt::Display for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|c| write!(f, "{c}"))
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&String::deserialize(deserializer)?))
    }
}

/// A glob over names of tools, sources, methods or events. A glob that can only be a mistake is refused: a rule that
/// never matches is a rule that does not protect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameGlob(Glob);

impl NameGlob {
    /// Parses a glob over names.
    ///
    /// # Errors
    /// The glob is empty, or contains a character that no name contains or that has a meaning in other glob dialects.
    pub fn new(glob: &str) -> Result<Self, String> {
        let odd = |c: &char| c.is_whitespace() || c.is_control() || "[]{}()|!^\\,\"'".contains(*c);
        if glob.is_empty() {
            return Err("an empty glob matches nothing; `*` matches everything".into());
        }
        match glob.chars().find(odd) {
            Some(c) => Err(format!("{c:?} is not allowed in the glob `{glob}`: only `*` and `?` are special")),
            None => Ok(Self(Glob::new(glob))),
        }
    }

    /// Reports whether the glob matches the whole name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

impl std::fmt::Display for NameGlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for NameGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let yes = [
            ("*", ""),
            ("*", "a/b_c"),
            ("a*", "a"),
            ("*__delete_*", "files__delete_all"),
            ("a?c", "aéc"),
            ("", ""),
            ("*a*b*c", "xxaxxbxbxc"),
            ("a*a", "aa"),
            ("**", "x"),
            ("*.rs", "a.rs.rs"),
            ("a*bc", "abcbc"),
            ("[a]", "[a]"),
        ];
        let no = [
            ("", "a"),
            ("a", "A"),
            ("a*a", "a"),
            ("?", ""),
            ("?", "ab"),
            ("*__delete_*", "files_delete_x"),
            ("[a]", "a"),
            ("*a*b*c", "xxaxxcxb"),
            ("a*", "ba"),
            ("a", "a\n"),
        ];
        for (glob, text) in yes {
            assert!(Glob::new(glob).matches(text), "{glob:?} fits {text:?}");
        }
        for (glob, text) in no {
            assert!(!Glob::new(glob).matches(text), "{glob:?} does not fit {text:?}");
        }
    }

    #[test]
    fn a_glob_over_names_refuses_what_could_never_match() {
        for odd in ["", "files__[ab]", "{a,b}", "a b", "a|b", "!a", "a\\*"] {
            assert!(NameGlob::new(odd).is_err(), "{odd:?}");
        }
        assert!(NameGlob::new("tools/*").unwrap().matches("tools/call"));
        assert_eq!(NameGlob::new("a?*").unwrap().to_string(), "a?*");
    }
}
