//! Splits the text of a condition into tokens.

use super::Fault;

/// A token and the offset in bytes at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: usize,
}

/// The kinds of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A name, or one of the words `true`, `false`, `null` and `in`.
    Name(String),
    String(String),
    /// A number, spelled as in the text, without a sign and without the suffix `u`.
    Number(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// The symbols; a longer one comes before a shorter one that it begins with.
const SYMBOLS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{",
];

/// Returns the tokens of a text, the last of which is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let mut reader = Reader { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_space();
        let at = reader.at;
        let kind = reader.token()?;
        let is_end = kind == Kind::End;
        tokens.push(Token { kind, at });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']).len();
            let comment = if rest.starts_with("//") { rest.find('\n').unwrap_or(rest.len()) } else { 0 };
            if space + comment == 0 {
                return;
            }
            self.at += space.max(comment);
        }
    }

    fn token(&mut self) -> Result<Kind, Fault> {
        let rest = self.rest();
        let Some(first) = self.peek() else { return Ok(Kind::End) };
        let second = rest.chars().nth(1);
        match first {
            '"' | '\'' => self.string(false),
            'r' | 'R' if matches!(second, Some('"' | '\'')) => {
                self.at += 1;
                self.string(true)
            }
            'b' | 'B' if matches!(second, Some('"' | '\'')) => {
                Err(Fault::new(self.at, "bytes are not part of arguments, which are JSON"))
            }
            '0'..='9' => self.number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            'a'..='z' | 'A'..='Z' | '_' => Ok(Kind::Name(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'))),
            _ => {
                let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
                let symbol = symbol.ok_or_else(|| Fault::new(self.at, format!("{first:?} means nothing here")))?;
                if symbol == "{" {
                    return Err(Fault::new(self.at, "maps cannot be written; compare the values one by one"));
                }
                self.at += symbol.len();
                Ok(Kind::Symbol(symbol))
            }
        }
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let taken = rest.split(|c| !belongs(c)).next().unwrap_or_default().to_owned();
        self.at += taken.len();
        taken
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        let start = self.at;
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16)
                .map_err(|_| Fault::new(start, "a hexadecimal number has 1 to 16 digits behind `0x`"))?;
            self.end_of_number(true)?;
            return Ok(Kind::Number(value.to_string()));
        }
        let digit = |c: char| c.is_ascii_digit();
        let mut spelling = self.take_while(digit);
        let mut is_whole = true;
        let mut next = self.rest().chars();
        if next.next() == Some('.') && next.next().is_some_and(digit) {
            self.at += 1;
            spelling = format!("{spelling}.{}", self.take_while(digit));
            is_whole = false;
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            self.at += 1;
            let sign = self.peek().filter(|sign| matches!(sign, '+' | '-'));
            self.at += usize::from(sign.is_some());
            let exponent = self.take_while(digit);
            if exponent.is_empty() {
                return Err(Fault::new(self.at, "the exponent has no digits"));
            }
            spelling = format!("{spelling}e{}{exponent}", sign.map(String::from).unwrap_or_default());
            is_whole = false;
        }
        self.end_of_number(is_whole)?;
        Ok(Kind::Number(if spelling.starts_with('.') { format!("0{spelling}") } else { spelling }))
    }

    /// Takes the suffix `u` of a whole number, and refuses a name right behind a number.
    fn end_of_number(&mut self, is_whole: bool) -> Result<(), Fault> {
        if is_whole && matches!(self.peek(), Some('u' | 'U')) {
            self.at += 1;
        }
        match self.peek() {
            Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                Err(Fault::new(self.at, format!("{c:?} is not part of a number")))
            }
            _ => Ok(()),
        }
    }

    fn string(&mut self, is_raw: bool) -> Result<Kind, Fault> {
        let start = self.at;
        let quote = self.next();
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.next() {
                None | Some('\n' | '\r') => return Err(Fault::new(start, "the string does not end in its line")),
                c if c == quote => return Ok(Kind::String(text)),
                Some('\\') if !is_raw => text.push(self.escape(at)?),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, at: usize) -> Result<char, Fault> {
        let unknown = || Fault::new(at, "this escape means nothing; a backslash is written `\\\\`, or in `r\"…\"`");
        Ok(match self.next().ok_or_else(unknown)? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '"' | '\'' | '`' | '?') => c,
            'x' | 'X' => self.code(2, 16).ok_or_else(unknown)?,
            'u' => self.code(4, 16).ok_or_else(unknown)?,
            'U' => self.code(8, 16).ok_or_else(unknown)?,
            '0'..='3' => {
                self.at -= 1;
                self.code(3, 8).ok_or_else(unknown)?
            }
            _ => return Err(unknown()),
        })
    }

    /// Reads this many digits as the number of a character.
    fn code(&mut self, digits: usize, base: u32) -> Option<char> {
        let text = self.rest().get(..digits)?;
        let code = u32::from_str_radix(text, base).ok().filter(|_| !text.starts_with('+'))?;
        self.at += digits;
        char::from_u32(code)
    }
}
