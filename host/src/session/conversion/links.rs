//! Shows links to hosts that a source did not declare as text. A client draws the Markdown and the HTML that a model
//! repeats from a result, and fetches an image unasked: the author of the result then learns what the model put into
//! the address.
//!
//! Nothing is parsed as a whole. The marks that make a link are taken apart wherever they stand: `](`, `]:`,
//! `<scheme:`, and the attributes and elements of HTML that load something. So brackets that do not match hide nothing,
//! nor does a second text that continues the brackets of the first; an element of HTML is only known within one text.
//! The time is linear in the length of the text. An address that is not a link stays unchanged.

use crate::config::{Endpoint, SourceConfig};

/// The most bytes of an address that are read to find out where it leads.
const HEAD: usize = 256;

/// The longest address that is quoted as code, in bytes. A longer one is only taken apart.
const MAX_QUOTED: usize = 2048;

/// The schemes of addresses in angle brackets that some clients open as links. An element of XML can look like any
/// other.
const SCHEMES: [&str; 10] = ["http", "https", "ftp", "ftps", "ws", "wss", "file", "data", "javascript", "vbscript"];

/// The attributes of HTML whose values are addresses.
const ADDRESSES: [&str; 12] = [
    "src",
    "href",
    "action",
    "formaction",
    "poster",
    "data",
    "background",
    "cite",
    "longdesc",
    "manifest",
    "icon",
    "codebase",
];

/// The attributes that may hold addresses among other things. Any value with a sign of an address counts.
const MIXED: [&str; 7] = ["srcset", "imagesrcset", "attributionsrc", "style", "srcdoc", "content", "ping"];

/// The elements whose content or attributes can load something in more ways than an attribute shows.
const ELEMENTS: [&str; 10] = ["script", "style", "base", "meta", "iframe", "frame", "object", "embed", "link", "svg"];

/// The hosts that the links of a source may lead to.
#[derive(Debug, Default)]
pub(super) struct DeclaredHosts<'a> {
    own: Vec<&'a str>,
    named: &'a [String],
}

impl<'a> DeclaredHosts<'a> {
    /// Returns the hosts that the configuration names for a source: its own, those of its cell, and `link-hosts`.
    pub(super) fn of(config: &'a SourceConfig) -> Self {
        let in_cell = config.cell.network.iter().filter_map(|place| Some(place.rsplit_once(':')?.0));
        let own = match &config.endpoint {
            Endpoint::Url { url, .. } => url.host_str(),
            Endpoint::Command { .. } | Endpoint::Component { .. } | Endpoint::Native { .. } => None,
        };
        Self { own: own.into_iter().chain(in_cell).collect(), named: &config.link_hosts }
    }

    fn include(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_named = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => *pattern == host,
        };
        self.own.contains(&&*host) || self.named.iter().any(is_named)
    }
}

/// Returns a text without links to other hosts, and how many there were; `None` if there is none.
pub(super) fn as_text(text: &str, hosts: &DeclaredHosts<'_>) -> Option<(String, usize)> {
    let mut rewriting = Rewriting { text, hosts, out: String::new(), copied: 0, count: 0 };
    // The text before this one may end with the bracket.
    let mut at = if text.starts_with(['(', ':']) { rewriting.bracket(0, false) } else { 0 };
    let (mut in_tag, mut has_quote) = (false, false);
    while let Some(b) = text.as_bytes().get(at) {
        at = match b {
            b']' => rewriting.bracket(at + 1, in_tag),
            b'<' => {
                let next = rewriting.angle(at, in_tag);
                // A fully quoted address does not begin an element.
                let begins = next == at + 1 && text.as_bytes().get(next).is_some_and(u8::is_ascii_alphabetic);
                // Behind a tag with quotation marks, one of them may be open still.
                (in_tag, has_quote) = (in_tag || begins, has_quote && in_tag);
                next
            }
            // At the beginning of a line, this sign may be that of a quoted block, and end nothing.
            b'\n' | b'\r' => {
                let signs = text.bytes().skip(at + 1).take_while(|b| matches!(b, b' ' | b'\t' | b'>')).count();
                at + 1 + signs
            }
            b'"' | b'\'' => {
                has_quote = true;
                at + 1
            }
            b'>' => {
                in_tag &= has_quote;
                at + 1
            }
            b'=' if in_tag => rewriting.attribute(at),
            _ => at + 1,
        };
    }
    rewriting.finish()
}

/// Returns the address of an icon so that nobody fetches it, unless it leads to a declared host or holds the icon
/// itself.
pub(super) fn icon(address: &str, hosts: &DeclaredHosts<'_>) -> Option<String> {
    let holds_it = address.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("data:image/"));
    (!holds_it && leads_elsewhere(address, Ending::Whole, hosts)).then(|| format!("not-fetched:{address}"))
}

struct Rewriting<'a> {
    text: &'a str,
    hosts: &'a DeclaredHosts<'a>,
    out: String,
    /// The bytes of the text that are in `out` already, or replaced there.
    copied: usize,
    count: usize,
}

impl Rewriting<'_> {
    /// Looks at what is behind a bracket: the address of a link or an image, or of a definition. Returns where to
    /// continue.
    fn bracket(&mut self, at: usize, in_tag: bool) -> usize {
        let sign = self.text.as_bytes().get(at);
        let rest = self.from(at + 1);
        let address = rest.trim_start_matches(is_passed_over);
        let blank = rest.len() - address.len();
        let (new, elsewhere) = match sign {
            Some(b'(') => {
                // An address that does not end may continue in another text.
                let goes_on = address.len() < HEAD && !address.contains([')', ' ', '\n']);
                (" (", goes_on || leads_elsewhere(address, Ending::Bracket, self.hosts))
            }
            Some(b':') => {
                let is_one = address.is_empty() || is_address(address);
                (" :", is_one && leads_elsewhere(address, Ending::Blank, self.hosts))
            }
            _ => return at,
        };
        if !elsewhere {
            return at + 1;
        }
        self.put(at, new, 1);
        // A part of an address may be an attribute within an element.
        if in_tag { at + 1 } else { self.quote(at + 1 + blank) }
    }

    /// Looks at an angle bracket: the beginning of an address or of an element.
    fn angle(&mut self, at: usize, in_tag: bool) -> usize {
        let rest = self.from(at + 1);
        let length = rest.bytes().take(HEAD).take_while(u8::is_ascii_alphabetic).count();
        let (name, behind) = rest.split_at(length);
        let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        if behind.starts_with(':') && is_one_of(&SCHEMES) && leads_elsewhere(rest, Ending::Angle, self.hosts) {
            let length = extent(rest);
            if !in_tag && rest.get(length..).is_some_and(|rest| rest.starts_with('>')) && length <= MAX_QUOTED {
                let quoted = format!("`{}`", rest.get(..length).unwrap_or_default());
                self.put(at, &quoted, length + 2);
                return at + length + 2;
            }
            self.put(at, "&lt;", 1);
        } else if is_one_of(&ELEMENTS) && !behind.starts_with([':', '-', '.', '_']) {
            self.put(at, "&lt;", 1);
        }
        at + 1
    }

    /// Looks at the sign between the name and the value of an attribute, and makes it an attribute of another name.
    fn attribute(&mut self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default().trim_end_matches(is_passed_over);
        let length = before.bytes().rev().take(HEAD).take_while(u8::is_ascii_alphabetic).count();
        let name = before.get(before.len() - length..).unwrap_or_default();
        let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        let rest = self.from(at + 1);
        let value = rest.trim_start_matches(|c| is_passed_over(c) || matches!(c, '"' | '\''));
        let quote = rest.bytes().take(rest.len() - value.len()).find(|b| matches!(b, b'"' | b'\''));
        let ending = quote.map_or(Ending::Unquoted, Ending::Quote);
        let is_script = name.len() > 4 && name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("on"));
        let elsewhere = if is_script || is_one_of(&MIXED) {
            let head = || value.bytes().take(HEAD).take_while(|b| !ending.is_at(*b));
            head().count() == HEAD || head().any(|b| matches!(b, b'(' | b':' | b'/' | b'\\' | b'&'))
        } else {
            is_one_of(&ADDRESSES) && leads_elsewhere(value, ending, self.hosts)
        };
        if elsewhere {
            self.put(at, "-=", 1);
        }
        at + 1
    }

    /// Shows the address that begins here as code, if that does not change what it says. Returns where to continue.
    fn quote(&mut self, at: usize) -> usize {
        let rest = self.from(at);
        let length = extent(rest);
        let (address, behind) = rest.split_at_checked(length).unwrap_or_default();
        if length == 0 || length > MAX_QUOTED || !(behind.is_empty() || behind.starts_with([')', ' ', '\n', '\t'])) {
            return at;
        }
        let quoted = format!("`{address}`");
        self.copy(at);
        self.out.push_str(&quoted);
        self.copied = at + length;
        at + length
    }

    /// Replaces the bytes at this offset with this text, and counts a link.
    fn put(&mut self, at: usize, new: &str, replaced: usize) {
        self.copy(at);
        self.out.push_str(new);
        self.copied = at + replaced;
        self.count += 1;
    }

    fn copy(&mut self, until: usize) {
        self.out.push_str(self.text.get(self.copied..until).unwrap_or_default());
    }

    fn from(&self, at: usize) -> &str {
        self.text.get(at..).unwrap_or_default()
    }

    fn finish(mut self) -> Option<(String, usize)> {
        self.copy(self.text.len());
        (self.count > 0).then_some((self.out, self.count))
    }
}

/// The character that ends an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The bracket of a link, or a blank.
    Bracket,
    /// A blank, or the end of the text.
    Blank,
    /// The angle bracket of an autolink.
    Angle,
    /// The angle bracket of an address in a link or a definition. Not every client takes the first one.
    InnerAngle,
    /// A quotation mark.
    Quote(u8),
    /// The end of an attribute without quotation marks.
    Unquoted,
    /// Only the end of the text.
    Whole,
}

impl Ending {
    fn is_at(self, b: u8) -> bool {
        let is_blank = matches!(b, b' ' | b'\t' | b'\n' | b'\r');
        match self {
            Self::Bracket => is_blank || b == b')',
            Self::Blank => is_blank,
            Self::Angle | Self::InnerAngle => b == b'>',
            Self::Quote(quote) => b == quote,
            Self::Unquoted => is_blank || b == b'>',
            Self::Whole => false,
        }
    }

    /// Reports whether an address may end with the text. Others may continue in another text.
    fn is_at_end(self) -> bool {
        matches!(self, Self::Blank | Self::Whole)
    }
}

/// Reports whether a character before an address is not part of it: a blank in the eyes of any client, or the sign of a
/// quoted block.
fn is_passed_over(c: char) -> bool {
    c == '>' || is_blank(c)
}

fn is_blank(c: char) -> bool {
    let is_invisible =
        matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}');
    c.is_whitespace() || c.is_control() || is_invisible
}

/// Returns the length of the address at the beginning: it ends at a blank, and at what would end code or begin another
/// link.
fn extent(text: &str) -> usize {
    let ends = |b: u8| b <= b' ' || matches!(b, b')' | b'>' | b'<' | b'`' | b']' | b'"');
    text.bytes().take(MAX_QUOTED + 1).take_while(|b| !ends(*b)).count()
}

/// Reports whether a text begins with something that can lead to another host. Other things stand behind a colon, too.
fn is_address(text: &str) -> bool {
    let head = text.as_bytes().get(..HEAD).unwrap_or(text.as_bytes());
    let word = head.split(|b| *b <= b' ').next().unwrap_or_default();
    let scheme = word.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')).count();
    let has_scheme =
        word.first().is_some_and(u8::is_ascii_alphabetic) && word.get(scheme) == Some(&b':') && word.len() > scheme + 1;
    has_scheme
        || word.first() == Some(&b'<')
        || word.len() == HEAD
        || word.iter().any(|b| matches!(b, b'\\' | b'&'))
        || word.windows(2).any(|two| two == b"//")
}

/// Reports whether the address at the beginning of a text leads to a host that is not declared, or may do so: any
/// address that is neither plainly relative nor on a declared host counts.
fn leads_elsewhere(address: &str, ending: Ending, hosts: &DeclaredHosts<'_>) -> bool {
    let address = address.trim_start_matches(is_passed_over);
    // In angle brackets, blanks are a part of it.
    let (address, ending) = match address.strip_prefix('<') {
        Some(inner) => (inner.trim_start_matches(is_passed_over), Ending::InnerAngle),
        None => (address, ending),
    };
    for scheme in ["https://", "http://"] {
        if address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
            let rest = address.get(scheme.len()..).unwrap_or_default();
            let length =
                rest.bytes().take(HEAD).take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-')).count();
            let (host, rest) = rest.split_at_checked(length).unwrap_or_default();
            let port = rest
                .strip_prefix(':')
                .map_or(0, |rest| 1 + rest.bytes().take(5).take_while(u8::is_ascii_digit).count());
            // With any other sign, all this may be the name of a user at another host.
            let is_over = match rest.as_bytes().get(port) {
                Some(b) => b"/?#".contains(b) || ending != Ending::InnerAngle && ending.is_at(*b),
                None => ending.is_at_end(),
            };
            return !(is_over && hosts.include(host));
        }
    }
    let mut in_path = false;
    for (at, c) in address.char_indices().take_while(|(at, _)| *at < HEAD) {
        match c {
            '?' | '#' => return false,
            '/' => {
                // Clients do not agree on what may stand before or between two of these.
                let next = address.as_bytes().get(at + 1);
                if next.is_none_or(|next| matches!(next, b'/' | b'\\' | b'&' | 0..b' ')) {
                    return true;
                }
                in_path = true;
            }
            c if u8::try_from(c).is_ok_and(|b| ending.is_at(b)) => return false,
            ':' | '\\' | '&' | '`' | ']' if !in_path => return true,
            c if c != ' ' && is_blank(c) => return true,
            _ => {}
        }
    }
    !in_path && (address.len() >= HEAD || !ending.is_at_end())
}

#[cfg(test)]
mod tests;
