//! National identifiers. Those whose form or check digits prove little are only found near a word that names them.

use std::ops::Range;

use super::super::kind::{Kind, Kinds};
use super::bytes::{DIGIT, UPPER, at, class, from, is_word, run};
use super::checks::{luhn, mod_11_10, month_and_day, remainder_97, verhoeff, weighted};
use super::number::Written;
use super::{Context, Step};

/// Returns the words that name an identifier, in lower case.
fn words(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::BrCnpj => &["cnpj"],
        Kind::BrCpf => &["cpf"],
        Kind::DeTaxId => &["steuer", "idnr", "tax id", "tax_id", "taxid", "tin"],
        Kind::EsDni => &["dni", "nif", "nie"],
        Kind::InAadhaar => &["aadhaar", "aadhar", "uidai", "uid"],
        Kind::NlBsn => &["bsn", "burgerservice", "sofi"],
        Kind::PlPesel => &["pesel"],
        Kind::SePersonnummer => &["personnummer", "personnr", "pnr", "samordningsnummer"],
        Kind::UkNhs => &["nhs"],
        Kind::UkNino => &["nino", "national insurance", "ni number", "ni no", "insurance number"],
        Kind::UsSsn => &["ssn", "social security", "social_security", "socialsecurity", "social-security"],
        _ => &[],
    }
}

/// Returns the kind of identifier that a number is.
pub(super) fn number(written: &Written<'_>, range: &Range<usize>, context: &Context<'_>, kinds: Kinds) -> Option<Kind> {
    let digits = written.digits;
    let named = |kind: Kind| context.names(range, words(kind));
    // Whether an identifier of this kind is right, if the kind is searched for and its form or a word near it proves enough.
    let is = |kind: Kind, enough: bool, right: fn(&[u8]) -> bool| {
        (kinds.has(kind) && right(digits) && (enough || named(kind))).then_some(kind)
    };
    match (written.lengths, written.separators) {
        ([9] | [4, 2, 3] | [3, 3, 3], _) => is(Kind::UsSsn, false, is_ssn).or_else(|| is(Kind::NlBsn, false, is_bsn)),
        ([3, 2, 4], separators) => is(Kind::UsSsn, separators == b"--", is_ssn),
        ([10], _) => is(Kind::UkNhs, false, is_nhs).or_else(|| is(Kind::SePersonnummer, false, is_swedish)),
        ([3, 3, 4], _) => is(Kind::UkNhs, false, is_nhs),
        ([6 | 8, 4], b"-") => is(Kind::SePersonnummer, true, is_swedish).or_else(|| is(Kind::FiHetu, true, is_finnish)),
        ([11], _) => is(Kind::DeTaxId, false, is_german)
            .or_else(|| is(Kind::BrCpf, false, is_cpf))
            .or_else(|| is(Kind::PlPesel, false, is_pesel)),
        ([2, 3, 3, 3], _) => is(Kind::DeTaxId, false, is_german),
        ([3, 3, 3, 2], separators) => is(Kind::BrCpf, separators == b"..-", is_cpf),
        ([12], _) => is(Kind::InAadhaar, false, is_aadhaar).or_else(|| is(Kind::SePersonnummer, false, is_swedish)),
        ([4, 4, 4], _) => is(Kind::InAadhaar, false, is_aadhaar),
        ([13] | [3, 4, 4, 2], _) => is(Kind::ChAhv, true, is_ahv),
        ([14], _) => is(Kind::BrCnpj, false, is_cnpj),
        ([2, 3, 3, 4, 2], separators) => is(Kind::BrCnpj, separators == b"../-", is_cnpj),
        ([15] | [13, 2] | [1, 2, 2, 2, 3, 3, 2], _) => is(Kind::FrNir, true, is_nir),
        ([18], _) => is(Kind::CnId, true, is_chinese),
        _ => None,
    }
}

/// Looks for an identifier with letters that begins with this word.
pub(super) fn lettered(text: &[u8], word: &Range<usize>, kinds: Kinds, context: &Context<'_>) -> Option<Step> {
    let own = text.get(word.clone())?;
    let found = |kind: Kind, range: Range<usize>| kinds.has(kind).then(|| Step::found(kind, range));
    let all = |pattern: &[u8]| pattern.len() == own.len() && own.iter().zip(pattern).all(|(b, class)| fits(*b, *class));
    match own.len() {
        16 if all(b"AAAAAANNANNANNNA") && is_codice_fiscale(own) => found(Kind::ItCodiceFiscale, word.clone()),
        18 if all(b"AAAANNNNNNAAAAAAWN") && is_curp(own) => found(Kind::MxCurp, word.clone()),
        18 if all(b"NNNNNNNNNNNNNNNNNA") && is_chinese(own) => found(Kind::CnId, word.clone()),
        9 if (all(b"NNNNNNNNA") || all(b"ANNNNNNNA")) && is_dni(own) => found(Kind::EsDni, word.clone()),
        9 if all(b"AANNNNNNA") && is_nino(own) => {
            context.names(word, words(Kind::UkNino)).then(|| found(Kind::UkNino, word.clone()))?
        }
        2 if all(b"AA") => spaced_nino(text, word).and_then(|range| found(Kind::UkNino, range)),
        _ => None,
    }
}

/// Looks for an identifier whose first part is a number and whose last has a letter: `12345678-Z`, `131052-308T`.
pub(super) fn number_with_letter(text: &[u8], word: &Range<usize>, kinds: Kinds) -> Option<Step> {
    let separator = at(text, word.end);
    if !matches!((word.len(), separator), (6, b'-' | b'+') | (8, b'-')) {
        return None;
    }
    let range = word.start..word.end + 1 + run(from(text, word.end + 1), 5, is_word);
    let mut whole = [0; 10];
    let written = text.get(range.clone())?.iter().filter(|b| **b != separator);
    let length = whole.iter_mut().zip(written).map(|(slot, b)| *slot = *b).count();
    let whole = whole.get(..length).filter(|_| range.len() == length + 1)?;
    let kind = match (word.len(), length) {
        (6, 10) if is_finnish(whole) => Kind::FiHetu,
        (8, 9) if is_dni(whole) => Kind::EsDni,
        _ => return None,
    };
    kinds.has(kind).then(|| Step::found(kind, range))
}

/// Reports whether a byte is a capital letter (`A`), a digit (`N`) or either (`W`).
fn fits(b: u8, wanted: u8) -> bool {
    match wanted {
        b'A' => class(b) & UPPER != 0,
        b'N' => class(b) & DIGIT != 0,
        _ => class(b) & (UPPER | DIGIT) != 0,
    }
}

/// Returns `QQ 12 34 56 C`, which is written in pairs.
fn spaced_nino(text: &[u8], word: &Range<usize>) -> Option<Range<usize>> {
    let written = text.get(word.start..word.start + 13)?;
    let all = written.iter().zip(b"AA NN NN NN A").all(|(b, wanted)| match wanted {
        b' ' => *b == b' ',
        wanted => fits(*b, *wanted),
    });
    let plain: Vec<u8> = written.iter().copied().filter(|b| *b != b' ').collect();
    let end = word.start + 13;
    (all && !is_word(at(text, end)) && is_nino(&plain)).then_some(word.start..end)
}

fn number_of(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, d| sum * 10 + u64::from(d.wrapping_sub(b'0')))
}

fn digit(digits: &[u8], place: usize) -> u32 {
    u32::from(at(digits, place).wrapping_sub(b'0'))
}

fn is_ssn(digits: &[u8]) -> bool {
    let (area, group, serial) =
        (number_of(from(digits, 0).get(..3).unwrap_or_default()), digits.get(3..5), digits.get(5..9));
    !matches!(area, 0 | 666 | 900..) && group != Some(b"00") && serial != Some(b"0000")
}

fn is_bsn(digits: &[u8]) -> bool {
    let sum = weighted(digits, &[9, 8, 7, 6, 5, 4, 3, 2]);
    sum > 0 && sum % 11 == digit(digits, 8)
}

fn is_nhs(digits: &[u8]) -> bool {
    (11 - weighted(digits, &[10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11) % 11 == digit(digits, 9)
}

/// Checks a Swedish number: the date of birth, possibly without the century, and a check digit.
fn is_swedish(digits: &[u8]) -> bool {
    let short = from(digits, digits.len().saturating_sub(10));
    let century = digits.len() == 10 || digits.starts_with(b"19") || digits.starts_with(b"20");
    // A number of coordination has 60 more days.
    let mut date = [at(short, 2), at(short, 3), at(short, 4), at(short, 5)];
    if let [_, _, tens @ b'6'..=b'9', _] = &mut date {
        *tens -= 6;
    }
    century && month_and_day(&date) && luhn(short)
}

fn is_finnish(written: &[u8]) -> bool {
    const CHECKS: &[u8; 31] = b"0123456789ABCDEFHJKLMNPRSTUVWXY";
    let Some((check, body)) = written.split_last().filter(|(_, body)| body.len() == 9) else { return false };
    let [d1, d2, m1, m2, ..] = *body else { return false };
    let rest = usize::try_from(number_of(body) % 31).unwrap_or_default();
    body.iter().all(u8::is_ascii_digit) && month_and_day(&[m1, m2, d1, d2]) && CHECKS.get(rest) == Some(check)
}

fn is_aadhaar(digits: &[u8]) -> bool {
    at(digits, 0) >= b'2' && verhoeff(digits)
}

/// Checks a German tax number: of the first ten digits, one occurs twice or three times.
fn is_german(digits: &[u8]) -> bool {
    let mut counts = [0_u8; 10];
    for d in digits.iter().take(10) {
        counts.get_mut(usize::from(d.wrapping_sub(b'0'))).into_iter().for_each(|count| *count += 1);
    }
    let repeated = counts.iter().filter(|count| **count > 1).count() == 1 && counts.iter().all(|count| *count <= 3);
    at(digits, 0) != b'0' && repeated && mod_11_10(digits)
}

fn is_cpf(digits: &[u8]) -> bool {
    let check = |length: usize, weights: &[u32]| weighted(digits, weights) * 10 % 11 % 10 == digit(digits, length);
    let same = digits.iter().all(|d| Some(d) == digits.first());
    !same && check(9, &[10, 9, 8, 7, 6, 5, 4, 3, 2]) && check(10, &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2])
}

fn is_cnpj(digits: &[u8]) -> bool {
    let check = |length: usize, weights: &[u32]| match weighted(digits, weights) % 11 {
        0 | 1 => digit(digits, length) == 0,
        rest => digit(digits, length) == 11 - rest,
    };
    let same = digits.iter().all(|d| Some(d) == digits.first());
    !same && check(12, &[5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2]) && check(13, &[6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2])
}

fn is_pesel(digits: &[u8]) -> bool {
    // The century is added to the month.
    let month = digit(digits, 2) % 2 * 10 + digit(digits, 3);
    let day = number_of(digits.get(4..6).unwrap_or_default());
    let sum = weighted(digits, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]);
    (1..=12).contains(&month) && (1..=31).contains(&day) && sum.is_multiple_of(10)
}

fn is_ahv(digits: &[u8]) -> bool {
    digits.starts_with(b"756") && weighted(digits, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1]).is_multiple_of(10)
}

/// Checks a French number: sex, year, month, place of birth, a number, and a key.
fn is_nir(digits: &[u8]) -> bool {
    let Some((body, key)) = digits.split_at_checked(13) else { return false };
    let month = number_of(body.get(3..5).unwrap_or_default());
    let known = matches!(month, 1..=12 | 20 | 30..=42 | 50..=99);
    matches!(at(body, 0), b'1' | b'2') && known && 97 - number_of(body) % 97 == number_of(key)
}

fn is_chinese(written: &[u8]) -> bool {
    const CHECKS: &[u8; 11] = b"10X98765432";
    let sum = weighted(written, &[7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]);
    let year = number_of(written.get(6..10).unwrap_or_default());
    let right = CHECKS.get(usize::try_from(sum % 11).unwrap_or_default()) == written.get(17);
    right && (1900..2100).contains(&year) && month_and_day(from(written, 10)) && (b'1'..b'9').contains(&at(written, 0))
}

fn is_dni(written: &[u8]) -> bool {
    const LETTERS: &[u8; 23] = b"TRWAGMYFPDXBNJZSQVHLCKE";
    let Some((letter, body)) = written.split_last() else { return false };
    let first = match at(body, 0) {
        b'X' => b'0',
        b'Y' => b'1',
        b'Z' => b'2',
        digit @ b'0'..=b'9' => digit,
        _ => return false,
    };
    let number = number_of(&[first]) * 10_000_000 % 23 + number_of(from(body, 1)) % 23;
    // A foreigner's number has a letter and seven digits, where a citizen's has eight digits.
    let number = if body.len() == 8 { number % 23 } else { return false };
    LETTERS.get(usize::try_from(number).unwrap_or_default()) == Some(letter)
}

fn is_nino(written: &[u8]) -> bool {
    let [first, second, .., suffix] = *written else { return false };
    let pair = [first, second];
    !b"DFIQUV".contains(&first)
        && !b"DFIQUVO".contains(&second)
        && ![b"BG", b"GB", b"NK", b"KN", b"TN", b"NT", b"ZZ"].contains(&&pair)
        && (b'A'..=b'D').contains(&suffix)
}

fn is_codice_fiscale(written: &[u8]) -> bool {
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let Some((check, body)) = written.split_last() else { return false };
    let place = |b: u8| if b.is_ascii_digit() { b - b'0' } else { b.wrapping_sub(b'A') };
    let counted = |(i, b): (usize, &u8)| {
        if i % 2 == 0 { ODD.get(usize::from(place(*b))).copied().unwrap_or_default() } else { u32::from(place(*b)) }
    };
    let sum: u32 = body.iter().enumerate().map(counted).sum();
    b"ABCDEHLMPRST".contains(&at(body, 8)) && sum % 26 == u32::from(check.wrapping_sub(b'A'))
}

fn is_curp(written: &[u8]) -> bool {
    // The letter after N is not in ASCII, and takes a place.
    let value = |b: u8| match b {
        b'0'..=b'9' => u32::from(b - b'0'),
        b'A'..=b'N' => u32::from(b - b'A') + 10,
        _ => u32::from(b.wrapping_sub(b'A')) + 11,
    };
    let sum: u32 = written.iter().take(17).zip((2..=18).rev()).map(|(b, weight)| value(*b) * weight).sum();
    let sex = matches!(at(written, 10), b'H' | b'M');
    sex && month_and_day(from(written, 6)) && (10 - sum % 10) % 10 == digit(written, 17)
}

/// Reports whether the key of an IBAN is right. `iban` has its groups joined.
pub(super) fn is_iban(iban: &[u8]) -> bool {
    let (head, tail) = iban.split_at_checked(4).unwrap_or_default();
    remainder_97(tail.iter().chain(head).copied()) == 1
}
