//! Secrets that are recognised by their place: values behind a name such as `password`, and passwords in URLs.

use std::ops::Range;

use super::super::kind::Kind;
use super::Step;
use super::bytes::{HEX, LOWER, UPPER, at, before, class, from, is_varied, is_word, run, run_back};

/// The most bytes of a name that are read, from its end on.
const NAME: usize = 48;

/// The most bytes of a value, and of one without quotes.
const VALUE: usize = 512;
const BARE: usize = 256;

/// The most spaces between a scheme and credentials.
const SPACES: usize = 16;

/// The most bytes of the kind of a placeholder, and of the text behind its colon.
const KIND: usize = 32;
const NONCE: usize = 16;

/// The ends of names that stand before a password, in lower case and without what joins their words.
const PASSWORDS: [&str; 21] = [
    "password",
    "passwd",
    "passwort",
    "kennwort",
    "passphrase",
    "pwd",
    "dbpass",
    "sqlpass",
    "userpass",
    "smtppass",
    "mailpass",
    "adminpass",
    "motdepasse",
    "contraseña",
    "contrasena",
    "senha",
    "wachtwoord",
    "пароль",
    "Пароль",
    "密码",
    "hasło",
];

/// The ends of names that stand before a key that a program made.
const TOKENS: [&str; 26] = [
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "accountkey",
    "sharedkey",
    "masterkey",
    "sessionkey",
    "appkey",
    "licensekey",
    "licencekey",
    "storagekey",
    "servicekey",
    "integrationkey",
    "webhookkey",
    "authorization",
    "credential",
    "sessionid",
    "secretid",
    "bearer",
    "ddkey",
];

/// The beginnings of names that end like a token's and stand before the place in a list.
const PLACES: [&str; 6] = ["page", "next", "cursor", "continuation", "sync", "resume"];

/// Texts that no real secret contains.
const PLACEHOLDERS: [&str; 14] = [
    "changeme",
    "change-me",
    "change_me",
    "your",
    "example",
    "placeholder",
    "redacted",
    "dummy",
    "xxxx",
    "****",
    "insert",
    "1234567890abcdef",
    "todo",
    "replace",
];

/// The meaning of a name for the value behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// A person may have made it up.
    Password,
    /// A program made it.
    Token,
    /// The key of a storage account, whose values have one form.
    AccountKey,
}

/// Looks at the value of a JSON member.
pub(super) fn member(text: &str, name: &str) -> Option<(Kind, Range<usize>)> {
    let named = named(name.as_bytes())?;
    let (bytes, start) = (text.as_bytes(), scheme(text.as_bytes()));
    (bytes.len() <= VALUE).then(|| secret(bytes, start..bytes.len(), named)).flatten()
}

/// Looks at `name = value` or `name: value` around this sign.
pub(super) fn assignment(text: &str, sign: Range<usize>) -> Option<Step> {
    let bytes = text.as_bytes();
    // `PASS: name` is how tests report.
    let is_report = at(bytes, sign.start) == b':' && before(bytes, sign.start).ends_with(b"PASS");
    let named = assigned(before(bytes, sign.start)).filter(|_| !is_report)?;
    let start = sign.end + run(from(bytes, sign.end), 2, |b| b == b'=' || b == b'>');
    let start = start + run(from(bytes, start), 4, |b| b == b' ' || b == b'\t');
    let (kind, range) = secret(bytes, value(bytes, start), named)?;
    // The value is searched too: a value with a known form has a better name than `secret`.
    Some(Step { found: Some((kind, range)), past: sign.end })
}

/// The verbs of sentences that state a password, as in `the password is …`.
const VERBS: [&[u8]; 6] = [b"is", b"ist", b"lautet", b"est", b"es", b"was"];

/// Looks at a value that follows this word after a space if the word is a verb: `the password is value`.
pub(super) fn in_sentence(text: &str, word: &Range<usize>) -> Option<Step> {
    behind_space(text.as_bytes(), word, sentence(before(text.as_bytes(), word.end))?)
}

/// Looks at a value that follows this word after a space: `--name value`, `some_name value`.
pub(super) fn spaced(text: &str, word: &Range<usize>) -> Option<Step> {
    let bytes = text.as_bytes();
    let name = run_back(before(bytes, word.end), NAME, |b| is_word(b) || b == b'-');
    let name = bytes.get(word.end - name..word.end)?;
    let own = bytes.get(word.clone())?;
    let named = named(if name.starts_with(b"--") { name } else { own })?;
    let is_name = name.starts_with(b"--") || own.contains(&b'_');
    is_name.then(|| behind_space(bytes, word, named)).flatten()
}

fn behind_space(bytes: &[u8], word: &Range<usize>, named: Named) -> Option<Step> {
    let (kind, range) = secret(bytes, value(bytes, word.end + 1), named)?;
    Some(Step { found: Some((kind, range)), past: word.end })
}

/// Looks for the password in the URL around this `://`.
pub(super) fn url(text: &str, place: usize) -> Option<Step> {
    let bytes = text.as_bytes();
    let start = place + 3;
    let ends = |b: u8| {
        b <= b' ' || matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'\\' | b'`' | b'(' | b')' | b',')
    };
    let authority = before(from(bytes, start), run(from(bytes, start), VALUE, |b| !ends(b)));
    let (user, host) = match authority.iter().rposition(|b| *b == b'@') {
        Some(host) => (before(authority, host).iter().position(|b| *b == b':')?, host),
        None => with_slash(from(bytes, start), authority)?,
    };
    let password = start + user + 1..start + host;
    let behind = start + host + 1;
    let written = bytes.get(password.clone())?;
    if written.is_empty() || is_placeholder(written) || written == b"password" || written == b"pass" {
        return Some(Step::past(behind));
    }
    Some(Step { found: Some((Kind::UrlPassword, password)), past: behind })
}

/// Returns the places of the `:` and the `@` around a password with a `/` that is not escaped. The apparent authority
/// ends there, and has a `:` that no port follows, since a port is a number.
fn with_slash(url: &[u8], authority: &[u8]) -> Option<(usize, usize)> {
    if at(url, authority.len()) != b'/' {
        return None;
    }
    let user = run(authority, authority.len(), |b| is_word(b) || matches!(b, b'.' | b'-' | b'+' | b'%'));
    let head = authority.get(user..)?.strip_prefix(b":")?;
    if head.iter().all(u8::is_ascii_digit) || is_placeholder(head) {
        return None;
    }
    let ends = |b: u8| b <= b' ' || matches!(b, b'"' | b'\'' | b'<' | b'>' | b'\\' | b'`' | b'@' | b':');
    let rest = run(from(url, authority.len()), VALUE, |b| !ends(b));
    let host = authority.len() + rest;
    (at(url, host) == b'@' && is_word(at(url, host + 1))).then_some((user, host))
}

/// Returns what the words before an assignment tell about the value behind it; of a sentence such as `the password is:`
/// the last word but one.
fn assigned(text: &[u8]) -> Option<Named> {
    let text = before(text, text.len() - run_back(text, 2, |b| b == b' ' || b == b'\t'));
    let text = text.strip_suffix(b"\"").or_else(|| text.strip_suffix(b"'")).unwrap_or(text);
    let text = text.strip_suffix(b"\\").unwrap_or(text);
    named_by_end(text).or_else(|| sentence(text))
}

/// Returns what the word before a verb tells, if the text ends with a verb and is about a password.
fn sentence(text: &[u8]) -> Option<Named> {
    if !matches!(text.last()?, b's' | b't') {
        return None;
    }
    let verb = run_back(text, 7, |b| class(b) & LOWER != 0);
    let (before_verb, verb) = text.split_at_checked(text.len() - verb)?;
    let name = before_verb.trim_ascii_end();
    let said = VERBS.contains(&verb).then(|| named_by_end(name)).flatten();
    said.filter(|named| *named == Named::Password && !is_pass(name))
}

/// Returns what the name at the end of a text tells.
fn named_by_end(text: &[u8]) -> Option<Named> {
    if !may_be_named(text) {
        return None;
    }
    let name = run_back(text, NAME, |b| is_word(b) || !b.is_ascii() || matches!(b, b'-' | b'.' | b' '));
    named(from(text, text.len() - name))
}

/// Reports whether a name with these last letters is worth looking at, which most are not.
fn may_be_named(name: &[u8]) -> bool {
    let singular = name.strip_suffix(b"s").or_else(|| name.strip_suffix(b"S")).unwrap_or(name);
    let [.., c, b, a] = *singular else { return false };
    match [c, b, a].map(|b| b | 0x20) {
        // password, passwd; secret; passwort; passphrase.
        [_, b'r' | b'w', b'd'] | [b'r', b'e', b't'] | [b'o', b'r', b't'] | [b'a', b's', b'e'] => true,
        // token, key, authorization, credential, bearer, sessionid.
        [b'k', b'e', b'n' | b'y'] | [b'i', b'o', b'n'] | [b'i', b'a', b'l'] | [b'r', b'e', b'r'] => true,
        [b'n' | b't', b'i', b'd'] => true,
        // senha, contrasena, motdepasse, dbpass.
        [b'n', b'h', b'a'] | [b'e', b'n', b'a'] | [b's', b's', b'e'] | [b'p', b'a', b's'] => true,
        _ => !a.is_ascii() || !b.is_ascii(),
    }
}

/// Returns what a name tells about the value behind it, if anything.
fn named(name: &[u8]) -> Option<Named> {
    if !may_be_named(name) {
        return None;
    }
    let mut joined = [0; NAME];
    let tail = from(name, name.len().saturating_sub(NAME));
    let letters = tail.iter().filter(|b| b.is_ascii_alphanumeric() || !b.is_ascii());
    let length = joined.iter_mut().zip(letters).map(|(slot, b)| *slot = b.to_ascii_lowercase()).count();
    let joined = before(&joined, length);
    let singular = joined.strip_suffix(b"s").unwrap_or(joined);
    let ends = |words: &[&str]| {
        words.iter().any(|word| joined.ends_with(word.as_bytes()) || singular.ends_with(word.as_bytes()))
    };
    match () {
        () if joined.ends_with(b"accountkey") || joined.ends_with(b"sharedaccesskey") => Some(Named::AccountKey),
        () if ends(&PASSWORDS) || is_pass(name) => Some(Named::Password),
        () if ends(&TOKENS) => {
            let last = name.rsplit(|b| *b == b' ').next().unwrap_or_default();
            let place = PLACES.iter().any(|word| contains(last, word.as_bytes()));
            (!place).then_some(Named::Token)
        }
        () => None,
    }
}

/// Reports whether a name ends with the word `pass`, as `compass` and `bypass` do not.
fn is_pass(name: &[u8]) -> bool {
    let (rest, pass) = name.split_at(name.len().saturating_sub(4));
    let begins = match rest.last() {
        Some(b) => b.is_ascii() && !b.is_ascii_alphanumeric() || b.is_ascii_lowercase() && pass.starts_with(b"P"),
        None => true,
    };
    begins && pass.eq_ignore_ascii_case(b"pass")
}

/// Returns the range of the value that begins at `start`: within its quotes, or up to what ends it.
fn value(bytes: &[u8], start: usize) -> Range<usize> {
    let escaped = usize::from(at(bytes, start) == b'\\');
    let quote = at(bytes, start + escaped);
    if !matches!(quote, b'"' | b'\'' | b'`') {
        let start = start + scheme(from(bytes, start));
        let start = start + placeholders(from(bytes, start));
        let ends = |b: u8| {
            let closes = matches!(b, b'"' | b'\'' | b'`' | b')' | b']' | b'}' | b'>' | b'\\');
            closes || b <= b' ' || matches!(b, b',' | b';' | b'&' | b'|' | b'<' | b'(' | b'[' | b'{')
        };
        let length = run(from(bytes, start), BARE, |b| !ends(b));
        let written = before(from(bytes, start), length);
        return start..start + length - run_back(written, length, |b| matches!(b, b'.' | b':'));
    }
    let start = start + escaped + 1;
    let start = start + scheme(from(bytes, start));
    let mut last = 0;
    let length = run(from(bytes, start), VALUE, |b| {
        let closes = b == quote && (escaped == 1 || last != b'\\') || b == b'\n';
        last = b;
        !closes
    });
    let end = start + length;
    start..end - usize::from(escaped == 1 && at(bytes, end.saturating_sub(1)) == b'\\')
}

/// Returns the length of the scheme before credentials, with the spaces behind it: `Bearer `.
fn scheme(value: &[u8]) -> usize {
    let schemes: [&[u8]; 4] = [b"bearer", b"basic", b"token", b"apikey"];
    let begins = |scheme: &&[u8]| value.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
    let length = schemes.iter().find(|scheme| begins(scheme)).map_or(0, |scheme| scheme.len());
    match run(from(value, length), SPACES, |b| b == b' ' || b == b'\t') {
        0 => 0,
        spaces => {
            if length > 0 {
                length + spaces
            } else {
                0
            }
        }
    }
}

/// Returns the length of the placeholders with which a value begins: text directly behind them is a separate value.
fn placeholders(value: &[u8]) -> usize {
    let mut length = 0;
    while let Some(rest) = from(value, length).strip_prefix(b"[[") {
        let kind = run(rest, KIND, |b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let Some(nonce) = from(rest, kind).strip_prefix(b":").filter(|_| kind > 0) else { break };
        let nonce = run(nonce, NONCE, |b| b.is_ascii_alphanumeric());
        if nonce == 0 || !from(rest, kind + 1 + nonce).starts_with(b"]]") {
            break;
        }
        length += 2 + kind + 1 + nonce + 2;
    }
    length
}

fn secret(bytes: &[u8], range: Range<usize>, named: Named) -> Option<(Kind, Range<usize>)> {
    let range = range.start + placeholders(bytes.get(range.clone())?)..range.end;
    let value = bytes.get(range.clone())?;
    if named == Named::AccountKey && matches!(value.len(), 44 | 88) && value.ends_with(b"=") {
        return Some((Kind::AzureKey, range));
    }
    let random = match named {
        Named::Password => is_password(value),
        Named::Token | Named::AccountKey => is_random(value),
    };
    (random && !is_placeholder(value)).then_some((Kind::Secret, range))
}

/// Reports whether a value is a placeholder for another one: a variable, or a word that asks for a value.
fn is_placeholder(value: &[u8]) -> bool {
    let is_variable = match value {
        [b'$' | b'%', rest @ ..] => rest.iter().all(|b| is_word(*b) || b"{}()%".contains(b)),
        [b'<' | b'{', ..] | [b'[', b'[', .., b']', b']'] => true,
        _ => value.windows(2).any(|two| two == b"${" || two == b"{{" || two == b"$("),
    };
    is_variable || PLACEHOLDERS.iter().any(|word| contains(value, word.as_bytes()))
}

/// Reports whether a value contains a word that is in lower case, in any case.
fn contains(value: &[u8], word: &[u8]) -> bool {
    let first = at(word, 0);
    let mut places = value.iter().enumerate().filter(|(_, b)| b.to_ascii_lowercase() == first).map(|(place, _)| place);
    places.any(|place| value.get(place..place + word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word)))
}

/// The least bytes of a password, and of a key that a program made.
const PASSWORD: usize = 8;
const TOKEN: usize = 16;

fn is_password(value: &[u8]) -> bool {
    let letters = || value.iter().any(|b| b.is_ascii_alphabetic());
    let fits = (PASSWORD..=VALUE).contains(&value.len()) && changes(value) >= 4;
    fits && letters() && is_printed(value) && is_varied(value)
}

/// Reports whether a value is as irregular as what a program makes: at least one change in eight characters.
fn is_random(value: &[u8]) -> bool {
    let long_enough = (TOKEN..=VALUE).contains(&value.len());
    let hex = value.len() >= 32 && value.iter().all(|b| class(*b) & HEX != 0 || *b == b'-');
    let distinct = value.iter().fold(0_u128, |seen, b| seen | 1 << (b & 0x7f)).count_ones();
    let changes = changes(value);
    let irregular = changes >= 4 && changes * 4 >= u32::try_from(value.len()).unwrap_or(u32::MAX);
    long_enough && is_printed(value) && distinct >= 8 && (irregular || hex && value.iter().any(u8::is_ascii_digit))
}

/// Reports whether there are no spaces and control characters: text with them is a sentence.
fn is_printed(value: &[u8]) -> bool {
    value.iter().all(|b| b.is_ascii_graphic() || !b.is_ascii())
}

/// Counts how often the kind of character changes, in halves: between a letter and a digit, and at a symbol that joins no words, by
/// two; from a small letter to a capital, as it happens in names too, by one.
fn changes(value: &[u8]) -> u32 {
    let change = |two: &[u8]| match *two {
        [a, b] if a.is_ascii_alphabetic() && b.is_ascii_digit() || a.is_ascii_digit() && b.is_ascii_alphabetic() => 2,
        [a, b] if class(a) & LOWER != 0 && class(b) & UPPER != 0 => 1,
        [_, b] if b.is_ascii_punctuation() && !matches!(b, b'_' | b'-' | b'.' | b'/' | b':') => 2,
        _ => 0,
    };
    value.windows(2).map(change).sum()
}
