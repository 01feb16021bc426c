//! The parts of a client's file that a change inserts or removes. No other part of the file is shown to the person who
//! is asked, because the entries of other servers hold their keys, and all of them may be on one line.

/// The side of a change that a part is on: in the new text only, or in the old one only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffSide {
    Inserted,
    Removed,
}

/// Returns the parts in which two texts differ, in their order.
pub(crate) fn parts<'a>(before: &'a str, after: &'a str) -> Vec<(DiffSide, &'a str)> {
    let start = common_beginning(before, after);
    let (old, new) = (before.get(start..).unwrap_or_default(), after.get(start..).unwrap_or_default());
    let end = common_end(old, new);
    let (old, new) = (start..before.len() - end, start..after.len() - end);
    let (old_text, new_text) = (part(before, &old), part(after, &new));
    if let Some(runs) = additions(old_text, new_text) {
        return found(DiffSide::Inserted, after, start, &runs);
    }
    if let Some(runs) = additions(new_text, old_text) {
        return found(DiffSide::Removed, before, start, &runs);
    }
    // An entry of ours replaces another one: whole words are easier to read than the letters that differ.
    vec![
        (DiffSide::Removed, part(before, &whole_words(before, &old))),
        (DiffSide::Inserted, part(after, &whole_words(after, &new))),
    ]
}

type Range = std::ops::Range<usize>;

fn part<'a>(text: &'a str, range: &Range) -> &'a str {
    text.get(range.clone()).unwrap_or_default()
}

/// Returns the length in bytes of what both texts begin with.
fn common_beginning(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).map(|(c, _)| c.len_utf8()).sum()
}

/// Returns the length in bytes of what both texts end with.
fn common_end(one: &str, other: &str) -> usize {
    one.chars().rev().zip(other.chars().rev()).take_while(|(one, other)| one == other).map(|(c, _)| c.len_utf8()).sum()
}

/// Returns where `longer` has more than `shorter`, if the latter is all there in its order.
fn additions(shorter: &str, longer: &str) -> Option<Vec<Range>> {
    let mut expected = shorter.chars().peekable();
    let mut runs: Vec<Range> = Vec::new();
    for (at, c) in longer.char_indices() {
        if expected.next_if_eq(&c).is_some() {
            continue;
        }
        let end = at + c.len_utf8();
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = end,
            _ => runs.push(at..end),
        }
    }
    expected.peek().is_none().then_some(runs)
}

/// Returns the parts of a text at these ranges, which count from `start`.
fn found<'a>(sign: DiffSide, text: &'a str, start: usize, runs: &[Range]) -> Vec<(DiffSide, &'a str)> {
    let place = |run: &Range| start + run.start..start + run.end;
    let places: Vec<_> = match runs {
        [only] => vec![from_its_beginning(text, place(only))],
        runs => runs.iter().map(place).collect(),
    };
    places.into_iter().map(|place| (sign, part(text, &place))).collect()
}

/// Returns the range that has the same effect and begins where a reader expects it. In `{ "a": 1, "b": 2 }`, both
/// `"a": 1, ` and `a": 1, "` can be removed with the same result.
fn from_its_beginning(text: &str, range: Range) -> Range {
    let mut shifted = vec![range];
    while let Some(last) = shifted.last() {
        let before = text.get(..last.start).and_then(|before| before.chars().next_back());
        match before.filter(|before| part(text, last).ends_with(*before)).map(char::len_utf8) {
            Some(width) => shifted.push(last.start - width..last.end - width),
            None => break,
        }
    }
    let begins = |with: &[char]| shifted.iter().find(|range| part(text, range).starts_with(with)).cloned();
    begins(&[',', '\n']).or_else(|| begins(&['"', '['])).or_else(|| shifted.first().cloned()).unwrap_or_default()
}

/// Returns the range with the words that it begins and ends in. Marks of JSON and TOML end a word, so that the range
/// stays within the entry.
fn whole_words(text: &str, range: &Range) -> Range {
    let inside = |c: &char| !c.is_whitespace() && !"\"'{}[],:=".contains(*c);
    let (before, after) = (text.get(..range.start).unwrap_or_default(), text.get(range.end..).unwrap_or_default());
    let left: usize = before.chars().rev().take_while(inside).map(char::len_utf8).sum();
    let right: usize = after.chars().take_while(inside).map(char::len_utf8).sum();
    range.start - left..range.end + right
}

#[cfg(test)]
mod tests {
    use super::{DiffSide, parts};

    #[test]
    fn only_what_is_inserted_or_removed_is_shown() {
        let others = r#""a": {"env": {"KEY": "sk-a"}}"#;
        let ours = r#""portcullis": {"command": "/bin/portcullis"}"#;
        let without = format!("{{\"mcpServers\": {{{others}}}}}");
        for (with, shown) in [
            (format!("{{\"mcpServers\": {{{others}, {ours}}}}}"), format!(", {ours}")),
            (format!("{{\"mcpServers\": {{{ours}, {others}}}}}"), format!("{ours}, ")),
        ] {
            assert_eq!(parts(&without, &with), [(DiffSide::Inserted, shown.as_str())]);
            assert_eq!(parts(&with, &without), [(DiffSide::Removed, shown.as_str())]);
        }
        let three = format!("{{{others}, {ours}, \"z\": 1}}");
        let two = format!("{{{others}, \"z\": 1}}");
        assert_eq!(parts(&three, &two), [(DiffSide::Removed, format!(", {ours}").as_str())]);
    }

    #[test]
    fn a_comment_between_a_comma_and_the_entry_is_not_shown() {
        let (before, after) = ("{ \"a\": 1 // sk-a\n}", "{ \"a\": 1, // sk-a\n  \"b\": 2\n}");
        assert_eq!(parts(before, after), [(DiffSide::Inserted, ","), (DiffSide::Inserted, "\n  \"b\": 2")]);
        assert_eq!(parts(after, before), [(DiffSide::Removed, ","), (DiffSide::Removed, "\n  \"b\": 2")]);
    }

    #[test]
    fn words_that_are_replaced_are_shown_whole() {
        let text = |path: &str| format!("{{\"key\": \"sk-a\", \"command\": \"{path}/portcullis\"}}");
        let (old, new) = (text("/usr/bin"), text("/opt/sbin"));
        assert_eq!(
            parts(&old, &new),
            [(DiffSide::Removed, "/usr/bin/portcullis"), (DiffSide::Inserted, "/opt/sbin/portcullis")]
        );
        assert_eq!(parts(&old, &old), []);
        assert_eq!(parts("", "é"), [(DiffSide::Inserted, "é")]);
    }
}
