//! Environment variables that a source's messages name.

/// Words in capitals that are no variables: errors of the system, and what runtimes print about themselves.
const OTHERS: [&str; 8] =
    ["ERR_", "UND_ERR", "SIG", "NODE_OPTIONS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "MODULE_NOT_FOUND"];

/// The fewest letters of a name. Shorter words in capitals are abbreviations.
const MIN_LETTERS: usize = 6;

/// Returns the names in a text that look like environment variables: capitals, digits and at least one underscore. Each
/// is returned once, in the order of the text.
#[must_use]
pub fn variables_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let word = word.trim_matches('_');
        let capitals = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        let shaped =
            word.len() >= MIN_LETTERS && word.contains('_') && word.starts_with(|c: char| c.is_ascii_uppercase());
        if capitals && shaped && !OTHERS.iter().any(|other| word.starts_with(other)) && !names.iter().any(|n| n == word)
        {
            names.push(word.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_from_other_words_in_capitals() {
        let text = "Error: BRAVE_API_KEY environment variable is required (code ERR_MODULE_NOT_FOUND, ENOENT, HTTP)\n\
                    set BRAVE_API_KEY or TAVILY_API_KEY=…, not SIGTERM_X";
        assert_eq!(variables_in(text), ["BRAVE_API_KEY", "TAVILY_API_KEY"]);
    }
}
