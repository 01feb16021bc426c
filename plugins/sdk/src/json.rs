//! Strict JSON with spans. A plugin must judge what the source will read, so anything that two parsers could read
//! differently is an error: a duplicate key, half of a surrogate pair, text after the value.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// The deepest nesting that is accepted, which is the broker's own limit. It bounds the parser's recursion, so that a
/// small stack (64 KiB) is enough.
pub const MAX_NESTING: usize = 128;

/// A JSON value and its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json<'a> {
    /// The value.
    pub value: Value<'a>,
    /// The range of bytes that the value takes in the parsed text.
    pub span: Range<usize>,
}

/// The kinds of JSON values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, spelled as in the text.
    Number(&'a str),
    /// A string, decoded.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object: its members in the order of the text, without duplicate keys.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// An error that tells where and why a text is not strict JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// The offset in bytes at which the error was found.
    pub at: usize,
    /// The fault at that place.
    pub what: &'static str,
}

impl<'a> Json<'a> {
    /// Parses a text that consists of exactly one value.
    ///
    /// # Errors
    /// Names the first place that is not strict JSON, or that is nested deeper than [`MAX_NESTING`].
    pub fn parse(text: &'a str) -> Result<Self, JsonError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let json = parser.value()?;
        parser.space();
        if parser.at < text.len() { Err(parser.error("text after the value")) } else { Ok(json) }
    }

    /// Returns the member of an object with exactly this key, or `None`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        match &self.value {
            Value::Object(members) => members.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of a string, or `None` for any other value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns a key as parsers that ignore case see it: in lower case, in upper case and in lower case again, so that `ſ`, the
/// Kelvin sign and `ẞ` become `s`, `k` and `ss`. A source may read the last of two keys that are equal then.
#[must_use]
pub fn fold_key(key: &str) -> String {
    if key.is_ascii() { key.to_ascii_lowercase() } else { key.to_lowercase().to_uppercase().to_lowercase() }
}

/// Returns `text` as a JSON string, with its quotes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                out.push_str("\\u00");
                for shift in [4, 0] {
                    out.extend(char::from_digit((u32::from(c) >> shift) & 0xF, 16));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not strict JSON at byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for JsonError {}

impl From<JsonError> for String {
    fn from(error: JsonError) -> Self {
        error.to_string()
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self) -> Result<Json<'a>, JsonError> {
        self.space();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(_) => return Err(self.error("not the start of a value")),
            None => return Err(self.error("the text ends early")),
        };
        Ok(Json { value, span: start..self.at })
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Value<'a>, JsonError>) -> Result<Value<'a>, JsonError> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.error("nested too deep"));
        }
        self.at += 1;
        self.space();
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        let mut members = Vec::new();
        if !self.take(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(self.error("a key must be a string"));
                }
                let key = self.string()?;
                self.space();
                if !self.take(b':') {
                    return Err(self.error("a colon is missing"));
                }
                members.push((key, self.value()?));
                if self.last(b'}')? {
                    break;
                }
            }
        }
        if !are_distinct(&members) {
            return Err(JsonError { at: start, what: "an object with the same key twice" });
        }
        Ok(Value::Object(members))
    }

    fn array(&mut self) -> Result<Value<'a>, JsonError> {
        let mut items = Vec::new();
        if !self.take(b']') {
            loop {
                items.push(self.value()?);
                if self.last(b']')? {
                    break;
                }
            }
        }
        Ok(Value::Array(items))
    }

    /// Reads what follows an item: returns true at the closing bracket, false at a comma.
    fn last(&mut self, close: u8) -> Result<bool, JsonError> {
        self.space();
        if self.take(close) {
            Ok(true)
        } else if self.take(b',') {
            Ok(false)
        } else {
            Err(self.error("a comma or the closing bracket is missing"))
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut decoded: Option<String> = None;
        loop {
            let plain = self.at;
            self.at += plain_run(self.text.as_bytes().get(plain..).unwrap_or_default());
            let run = self.slice(plain)?;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(match decoded {
                        None => Cow::Borrowed(run),
                        Some(decoded) => Cow::Owned(decoded + run),
                    });
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    let out = decoded.get_or_insert_default();
                    out.push_str(run);
                    out.push(c);
                }
                Some(_) => return Err(self.error("a control character in a string")),
                None => return Err(self.error("the text ends early")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.error("an unknown escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let high = self.hex4()?;
        let code = if (0xD800..0xDC00).contains(&high) && self.take(b'\\') && self.peek() == Some(b'u') {
            let low = self.hex4()?;
            if !(0xDC00..0xE000).contains(&low) {
                return Err(self.error("half a surrogate pair"));
            }
            0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        } else {
            high
        };
        char::from_u32(code).ok_or_else(|| self.error("half a surrogate pair"))
    }

    /// Reads `u` and four hexadecimal digits.
    fn hex4(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.error("four hexadecimal digits must follow"))?;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        self.slice(start).map(Value::Number)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("a digit is missing")) } else { Ok(()) }
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, JsonError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.error("not the start of a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn slice(&self, start: usize) -> Result<&'a str, JsonError> {
        self.text.get(start..self.at).ok_or_else(|| self.error("not UTF-8"))
    }

    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }
}

/// The most members whose keys are compared each with each; a set of them costs more.
const FEW: usize = 8;

/// Reports whether no two members have the same key.
fn are_distinct(members: &[(Cow<'_, str>, Json<'_>)]) -> bool {
    if members.len() > FEW {
        let distinct: BTreeSet<&str> = members.iter().map(|(key, _)| key.as_ref()).collect();
        return distinct.len() == members.len();
    }
    let others = |at: usize| members.get(at + 1..).unwrap_or_default();
    members.iter().enumerate().all(|(at, (key, _))| others(at).iter().all(|(other, _)| key != other))
}

/// Returns how many leading bytes need no escape in a string. It works in blocks, which become vector
/// instructions.
fn plain_run(bytes: &[u8]) -> usize {
    let ends = |b: u8| (b < b' ') | (b == b'"') | (b == b'\\');
    let (blocks, _) = bytes.as_chunks::<16>();
    let is_plain = |block: &&[u8; 16]| u128::from_ne_bytes(block.map(|b| u8::from(ends(b)))) == 0;
    let blocks = blocks.iter().take_while(is_plain).count();
    let rest = bytes.get(blocks * 16..).unwrap_or_default();
    blocks * 16 + rest.iter().take_while(|b| !ends(**b)).count()
}

#[cfg(test)]
mod tests;
