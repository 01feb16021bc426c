//! Reads JSON as editors write it, with comments and trailing commas.

/// Returns the text as plain JSON: comments and trailing commas become spaces, and line breaks are kept, so that line
/// numbers in messages stay right.
pub(super) fn to_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.trim_start_matches('\u{feff}').chars().peekable();
    // The position of a comma that only white space has followed.
    let mut comma: Option<usize> = None;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                comma = None;
                out.push(c);
                string(&mut chars, &mut out);
            }
            ('/', Some('/')) => {
                while chars.next_if(|c| *c != '\n').is_some() {}
                out.push(' ');
            }
            ('/', Some('*')) => {
                let mut last = ' ';
                chars.next();
                for c in chars.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    if c == '\n' {
                        out.push('\n');
                    }
                    last = c;
                }
                out.push(' ');
            }
            (']' | '}', _) => {
                if let Some(at) = comma.take() {
                    out.replace_range(at..=at, " ");
                }
                out.push(c);
            }
            (',', _) => {
                comma = Some(out.len());
                out.push(c);
            }
            _ => {
                if !c.is_whitespace() {
                    comma = None;
                }
                out.push(c);
            }
        }
    }
    out
}

/// Copies the rest of a string, up to its closing quote.
fn string(chars: &mut impl Iterator<Item = char>, out: &mut String) {
    while let Some(c) = chars.next() {
        out.push(c);
        match c {
            '\\' => out.extend(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}
