//! Check digits.

/// Returns the value of a digit that is written as a byte.
fn value(digit: u8) -> u32 {
    u32::from(digit.wrapping_sub(b'0'))
}

/// Returns the sum of the digits, each times its weight.
pub(super) fn weighted(digits: &[u8], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| value(*digit) * weight).sum()
}

/// Checks by Luhn: from the end, every second digit is doubled.
pub(super) fn luhn(digits: &[u8]) -> bool {
    let counted = |(i, digit): (usize, &u8)| match value(*digit) {
        d if i % 2 == 0 => d,
        d if d > 4 => d * 2 - 9,
        d => d * 2,
    };
    digits.iter().rev().enumerate().map(counted).sum::<u32>().is_multiple_of(10)
}

/// Returns the remainder by 97 of what ISO 7064 makes of letters and digits: a letter counts as a number from 10 to 35.
pub(super) fn remainder_97(text: impl Iterator<Item = u8>) -> u32 {
    text.fold(0, |sum, b| {
        let value = char::from(b).to_digit(36).unwrap_or_default();
        (sum * if value > 9 { 100 } else { 10 } + value) % 97
    })
}

/// Checks by ISO 7064, modulo 11 and 10, as for the German tax number.
pub(super) fn mod_11_10(digits: &[u8]) -> bool {
    let Some((check, body)) = digits.split_last() else { return false };
    let product = body.iter().fold(10, |product, digit| {
        let sum = (value(*digit) + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == value(*check)
}

/// Checks by Verhoeff: the digits are elements of the symmetry group of a pentagon.
pub(super) fn verhoeff(digits: &[u8]) -> bool {
    const STEPS: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let multiply = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b) % 5,
        (false, true) => 5 + (a + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let permuted = |(i, digit): (usize, &u8)| {
        (0..i % 8).fold(value(*digit), |d, _| STEPS.get(d as usize).copied().unwrap_or_default())
    };
    digits.iter().rev().enumerate().map(permuted).fold(0, multiply) == 0
}

/// Reports whether the digits can be a month and a day: `MMDD`.
pub(super) fn month_and_day(digits: &[u8]) -> bool {
    let [m1, m2, d1, d2, ..] = *digits else { return false };
    (1..=12).contains(&(value(m1) * 10 + value(m2))) && (1..=31).contains(&(value(d1) * 10 + value(d2)))
}
