//! The operator `like`. Cedar's own copies the text into a list of characters and checks each of them, which makes up
//! most of a decision about a long argument.

use cedar_policy_core::ast::{Pattern, PatternElem};

/// Reports whether a text is like a pattern, in which a wildcard matches any characters.
pub(crate) fn is_like(text: &str, pattern: &Pattern) -> bool {
    let pieces: Vec<String> = pattern.get_elems().split(|elem| *elem == PatternElem::Wildcard).map(literal).collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return pieces.concat() == text };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece.as_str()) else { return false };
        rest = after;
    }
    rest.ends_with(last.as_str())
}

/// Returns the text between two wildcards.
fn literal(piece: &[PatternElem]) -> String {
    let char = |elem: &PatternElem| match elem {
        PatternElem::Char(char) => Some(*char),
        PatternElem::Wildcard => None,
    };
    piece.iter().filter_map(char).collect()
}

#[cfg(test)]
mod tests {
    use cedar_policy_core::ast::{Pattern, PatternElem};

    use super::is_like;

    /// Returns all lists of up to `longest` items.
    fn lists<T: Copy>(items: &[T], longest: usize) -> Vec<Vec<T>> {
        let Some(shorter) = longest.checked_sub(1) else { return vec![vec![]] };
        let longer = lists(items, shorter)
            .into_iter()
            .flat_map(|list| items.iter().map(move |item| [&list[..], &[*item]].concat()));
        [vec![]].into_iter().chain(longer).collect()
    }

    #[test]
    fn a_text_is_like_a_pattern_if_cedar_says_so() {
        let chars = ['a', 'b', 'é'];
        let elems = [PatternElem::Wildcard, PatternElem::Char('a'), PatternElem::Char('b'), PatternElem::Char('é')];
        let texts: Vec<String> = lists(&chars, 4).into_iter().map(String::from_iter).collect();
        for pattern in lists(&elems, 5).into_iter().map(Pattern::from) {
            for text in &texts {
                assert_eq!(is_like(text, &pattern), pattern.wildcard_match(text), "{text} like {pattern}");
            }
        }
    }
}
