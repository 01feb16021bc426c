//! Names of files, as file systems compare them.

/// Returns a name as file systems compare it that know no case: in small letters, and without what some of them leave
/// out. More names become equal than on any one file system.
#[must_use]
pub fn folded_name(name: &[u8]) -> Vec<u8> {
    // The long s is the only other character that folds to a letter of an ASCII name (besides the sign for kelvin).
    let text = String::from_utf8_lossy(name).replace('\u{17f}', "s").replace('\u{212a}', "k");
    let kept = text.chars().filter(char::is_ascii).map(|letter| letter.to_ascii_lowercase()).collect::<String>();
    kept.trim_end_matches(['.', ' ']).as_bytes().to_vec()
}
