//! International bank account numbers.

use std::ops::Range;

use super::super::kind::Kind;
use super::Step;
use super::bytes::{DIGIT, UPPER, at, class, from, is_word};
use super::national::is_iban;

/// The most characters of an IBAN.
const MAX: usize = 34;

/// The countries that have IBANs, each with its length.
const COUNTRIES: &[u8] =
    b"AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24\
FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27\
MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28\
TL23TN24TR26UA29VA22VG24XK20YE30";

/// Looks for an IBAN that begins with this word, possibly in groups.
pub(super) fn iban(text: &[u8], word: &Range<usize>) -> Option<Step> {
    let [c1, c2, k1, k2, ..] = *from(text, word.start) else { return None };
    if class(c1) & class(c2) & UPPER == 0 || class(k1) & class(k2) & DIGIT == 0 {
        return None;
    }
    let length = length_in([c1, c2])?;
    let (mut joined, mut count) = ([0; MAX], 0);
    for (place, b) in from(text, word.start).iter().enumerate() {
        if class(*b) & (UPPER | DIGIT) != 0 {
            *joined.get_mut(count)? = *b;
            count += 1;
            if count == length {
                let end = word.start + place + 1;
                let whole = !is_word(at(text, end)) && is_iban(joined.get(..length)?);
                return whole.then(|| Step::found(Kind::Iban, word.start..end));
            }
        } else if !matches!(b, b' ' | b'-') || !is_word(at(text, word.start + place + 1)) {
            return None;
        }
    }
    None
}

fn length_in(country: [u8; 2]) -> Option<usize> {
    let (entries, _) = COUNTRIES.as_chunks::<4>();
    let [.., tens, ones] = entries.iter().find(|entry| entry.starts_with(&country))?;
    Some(usize::from(tens - b'0') * 10 + usize::from(ones - b'0'))
}
