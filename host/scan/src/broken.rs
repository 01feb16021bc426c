//! Well-known orders whose words are broken by spaces or hyphens, so that a plain search does not find them.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Reports whether a normalised text gives such an order once its spaces are taken away.
pub(crate) fn has_order(text: &str) -> bool {
    // Few texts have several fragments of two letters in a row, so few are squeezed.
    let mut short = 0_usize;
    let broken = text.split(is_break).filter(|word| {
        short = if (1..=3).contains(&word.len()) { short + 1 } else { 0 };
        word.len() <= 2 && short >= 1 && !COMMON.contains(word)
    });
    if broken.take(2).count() < 2 {
        return false;
    }
    let (mut squeezed, mut origins) = (String::with_capacity(text.len()), Vec::with_capacity(text.len()));
    for (at, c) in text.char_indices().filter(|(_, c)| c.is_alphanumeric()) {
        squeezed.push(c);
        origins.resize(squeezed.len(), at);
    }
    let Some(orders) = SQUEEZED.as_ref() else { return false };
    orders.find_iter(&squeezed).any(|found| {
        let origin = |at: usize| origins.get(at).copied().unwrap_or(text.len());
        let (start, last) = (origin(found.start()), origin(found.end() - 1));
        let words = PHRASES.get(found.pattern().as_usize()).map_or(0, |phrase| phrase.split(' ').count());
        is_broken(text, start..last + 1, words)
    })
}

/// Reports whether a part of a text is whole words, and more of them than the phrase has.
fn is_broken(text: &str, part: Range<usize>, words: usize) -> bool {
    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let before = text.get(..part.start).and_then(|text| text.chars().next_back());
    let rest = text.get(part.end..).and_then(|text| text.chars().next());
    let pieces = text.get(part).unwrap_or_default().split(is_break).filter(|piece| !piece.is_empty()).count();
    outside(before) && outside(rest) && pieces > words
}

fn is_break(c: char) -> bool {
    matches!(c, ' ' | '\n' | '-')
}

const COMMON: &[&str] = &[
    "a", "i", "an", "as", "at", "be", "by", "do", "go", "if", "in", "is", "it", "me", "my", "no", "of", "on", "or",
    "so", "to", "up", "us", "we", "id", "ip", "ai", "-", "ok", "e", "g", "=", "|", "ui", "vs", "am", "pm", "s", "t",
    ":", "",
];

const PHRASES: &[&str] = &[
    "tell the user",
    "ignore previous",
    "ignore all",
    "disregard previous",
    "user conversation",
    "conversation history",
    "chat history",
    "system prompt",
    "private key",
    "user data",
    "without asking",
    "before using any",
    "safety check",
    "safety instructions",
    "id_rsa",
    "api keys",
    "credentials to",
    "inform the user",
    "mention this",
    "all passwords",
    "before using",
    "using any other",
    "always add",
    "never mention",
    "send email",
    "all previous",
    "read the file",
    "ssh key",
    "to bcc",
    "full conversation",
    "user message",
    "environment variables",
    "from the user",
];

static SQUEEZED: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(PHRASES.iter().map(|phrase| phrase.replace([' ', '_'], ""))).ok());
