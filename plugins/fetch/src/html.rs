//! Converts HTML to plain text as a person would read it, block by block. It tolerates errors as browsers do, and never
//! fails.

/// The elements whose contents are not read by people.
const HIDDEN: [&str; 7] = ["script", "style", "noscript", "template", "svg", "iframe", "select"];

/// The elements that start on a new line.
const BLOCKS: [&str; 33] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "title",
    "tr",
    "ul",
];

#[derive(Default)]
struct Text {
    out: String,
    /// Inside `pre`, where white space is kept.
    pre: bool,
    /// White space was found that is not written yet.
    space: bool,
}

/// Returns the text of a page.
pub(crate) fn text(html: &str) -> String {
    let mut text = Text::default();
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        text.push(before);
        rest = after;
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')) {
            text.push("<");
            continue;
        }
        let (tag, after) = rest.split_at(tag_end(rest));
        rest = after.strip_prefix('>').unwrap_or(after);
        let closes = tag.starts_with('/');
        let name = tag.trim_start_matches('/').split(|c: char| c.is_ascii_whitespace() || c == '/').next();
        let name = name.unwrap_or_default().to_ascii_lowercase();
        if !closes && HIDDEN.contains(&name.as_str()) && !tag.ends_with('/') {
            rest = after_close(rest, &name);
        }
        text.tag(&name, closes);
    }
    text.push(rest);
    text.out.trim().to_owned()
}

impl Text {
    fn tag(&mut self, name: &str, closes: bool) {
        if BLOCKS.contains(&name) {
            self.line();
        }
        match (name, closes) {
            ("pre", false) => self.pre = true,
            ("pre", true) => {
                self.pre = false;
                self.out.push('\n');
            }
            ("li", false) => self.out.push_str("- "),
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                self.out.push_str(match name {
                    "h1" => "\n# ",
                    "h2" => "\n## ",
                    _ => "\n### ",
                });
            }
            ("p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "table" | "ul" | "ol", true) => self.out.push('\n'),
            ("td" | "th", true) => self.space = true,
            _ => {}
        }
    }

    /// Ends the line. At most one empty line is left.
    fn line(&mut self) {
        self.space = false;
        let kept = self.out.trim_end_matches(' ').len();
        self.out.truncate(kept);
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        while self.out.ends_with("\n\n\n") {
            self.out.pop();
        }
    }

    fn push(&mut self, raw: &str) {
        self.characters(&html_escape::decode_html_entities(raw));
    }

    fn characters(&mut self, characters: &str) {
        if self.pre {
            self.out.push_str(characters);
            return;
        }
        for c in characters.chars() {
            if c.is_whitespace() {
                self.space = true;
                continue;
            }
            if std::mem::take(&mut self.space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
                self.out.push(' ');
            }
            self.out.push(c);
        }
    }
}

/// Returns where a tag ends: at the first `>` outside quotes.
fn tag_end(tag: &str) -> usize {
    let mut quote = None;
    for (at, c) in tag.char_indices() {
        match (quote, c) {
            (None, '>') => return at,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    // A quote that is never closed must not swallow the page.
    tag.find('>').unwrap_or(tag.len())
}

/// Returns what follows the end of an element that is skipped.
fn after_close<'a>(html: &'a str, name: &str) -> &'a str {
    let mut rest = html;
    while let Some((_, after)) = rest.split_once("</") {
        rest = after;
        let end = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if end {
            return rest.split_once('>').map_or("", |(_, after)| after);
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_what_a_person_reads() {
        let page = "<!DOCTYPE html><html><head><title>A page</title><style>p { color: red }</style></head><body>\
             <script>if (a < b) alert('</p>')</script><h1>Title &amp; more</h1><p>One\n  <b>bold</b>word&nbsp;&#8212; &#x41;.</p>\
             <ul><li>first<li>second</ul><pre>  keep\n   this</pre><!-- <p>hidden</p> --><a title=\"a > b\" href=x>link</a>\
             <table><tr><td>1</td><td>2</td></tr></table>3 < 4 &unknown; &</body></html>";
        let expected = "A page\n\n# Title & more\n\nOne boldword — A.\n\n- first\n- second\n\n  keep\n   this\n\nlink\n1 2\n\n3 < 4 &unknown; &";
        assert_eq!(text(page), expected);
    }

    #[test]
    fn malformed_html_is_converted_without_hanging() {
        for page in
            ["<", "<p", "<a href=\"", "<script>", "<!--", "&#xffffffff;", "<p title='x>text", "</", "&", "<svg/>x"]
        {
            assert!(text(page).len() <= page.len(), "{page}");
        }
        assert_eq!(text("<svg/>x"), "x");
        // Each `&` is examined once, without the rest of the page.
        let references = "&".repeat(1 << 20);
        assert_eq!(text(&references).len(), references.len());
        assert_eq!(text("caf&eacute; &amp; &unknown;"), "café & &unknown;");
        let deep = "<div>".repeat(100_000);
        assert_eq!(text(&deep), "");
    }
}
