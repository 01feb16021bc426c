//! Converts the arguments of a call to values of Cedar.
//!
//! The values are built one by one and never parsed from JSON by Cedar, whose own JSON format gives a meaning to keys such
//! as `__entity`: arguments that imitate it stay plain records.

use std::collections::HashSet;

use cedar_policy_core::ast::{Eid, EntityType, EntityUID, Value};
use portcullis_plugin::json;

/// Converts a JSON value. A null, and a number that is not a whole one of 64 bits, become entities of the type `kind`: they
/// are there for `has`, equal to the same value in whatever spelling, and an error in every other comparison.
pub(crate) fn convert(value: &json::Value<'_>, kind: &EntityType) -> Value {
    let opaque = |id: &str| Value::from(EntityUID::from_components(kind.clone(), Eid::new(id), None));
    match value {
        json::Value::Null => opaque("null"),
        json::Value::Bool(value) => Value::from(*value),
        json::Value::Number(spelling) => whole(spelling).map_or_else(|| opaque(&normal(spelling)), Value::from),
        json::Value::String(text) => Value::from(text.as_ref()),
        json::Value::Array(items) => Value::set(items.iter().map(|item| convert(&item.value, kind)), None),
        json::Value::Object(members) => {
            Value::record(members.iter().map(|(key, member)| (key.as_ref(), convert(&member.value, kind))), None)
        }
    }
}

/// Returns a key out of `read`, the folded names that policies read, if an object of the arguments has two keys of that
/// name that differ only in case. A source may ignore case, and read the one that the policies do not read.
pub(crate) fn key_in_two_cases<'a>(value: &json::Value<'_>, read: &'a HashSet<String>) -> Option<&'a str> {
    match value {
        json::Value::Array(items) => items.iter().find_map(|item| key_in_two_cases(&item.value, read)),
        json::Value::Object(members) => {
            let mut names: Vec<_> = members.iter().filter_map(|(key, _)| read.get(&json::fold_key(key))).collect();
            names.sort_unstable();
            let twice = names.windows(2).find_map(|pair| match pair {
                [one, other] if one == other => Some(one.as_str()),
                _ => None,
            });
            twice.or_else(|| members.iter().find_map(|(_, member)| key_in_two_cases(&member.value, read)))
        }
        _ => None,
    }
}

/// Returns a key out of `read`, the folded names that policies read, whose value is, or has in its lists, a number that
/// most programs wrongly read as an integer: they round 1e-400 to 0. To a policy these two are different.
pub(crate) fn key_of_rounded<'a>(value: &json::Value<'_>, read: &'a HashSet<String>) -> Option<&'a str> {
    match value {
        json::Value::Array(items) => items.iter().find_map(|item| key_of_rounded(&item.value, read)),
        json::Value::Object(members) => members.iter().find_map(|(key, member)| {
            let known = read.get(&json::fold_key(key)).filter(|_| has_rounded(&member.value));
            known.map(String::as_str).or_else(|| key_of_rounded(&member.value, read))
        }),
        _ => None,
    }
}

fn has_rounded(value: &json::Value<'_>) -> bool {
    match value {
        json::Value::Array(items) => items.iter().any(|item| has_rounded(&item.value)),
        json::Value::Number(spelling) => whole(spelling).is_none() && rounds_to_whole(spelling),
        _ => false,
    }
}

/// Reports whether a program with numbers of 64 bits reads a number as a whole one that a policy could name.
fn rounds_to_whole(spelling: &str) -> bool {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    spelling.parse::<f64>().is_ok_and(|read| read.fract() == 0.0 && read.abs() < BEYOND)
}

/// Returns the value of a number that is whole and has at most 64 bits, however it is spelled: 5, 5.0 and 50e-1 are equal,
/// because a source may take them for equal.
pub(crate) fn whole(spelling: &str) -> Option<i64> {
    let (digits, exponent) = digits(spelling)?;
    if digits.is_empty() {
        return Some(0);
    }
    // No number with more than 18 zeros at its end has 64 bits.
    let zeros = usize::try_from(exponent).ok().filter(|zeros| *zeros <= 18)?;
    format!("{digits}{}", "0".repeat(zeros)).parse().ok()
}

/// Returns the one spelling of a number that is not whole, or large: `5e-1` for 0.5. A number whose exponent is beyond all
/// measure keeps its own.
pub(crate) fn normal(spelling: &str) -> String {
    digits(spelling).map_or_else(|| spelling.to_owned(), |(digits, exponent)| format!("{digits}e{exponent}"))
}

/// Returns the digits of a number with its sign, without zeros at either end, and the power of ten that they are multiplied
/// with. Zero has no digits. `None` if the power has more than 18 digits.
fn digits(spelling: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = spelling.split_once(['e', 'E']).unwrap_or((spelling, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{before}{after}");
    let significant = all.trim_end_matches('0');
    if significant.trim_start_matches('0').is_empty() {
        return Some((String::new(), 0));
    }
    let dropped = i64::try_from(all.len() - significant.len()).ok()?;
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(after.len()).ok()?)?.checked_add(dropped)?;
    Some((format!("{sign}{}", significant.trim_start_matches('0')), exponent))
}

#[cfg(test)]
mod tests {
    use super::{normal, rounds_to_whole, whole};

    #[test]
    fn a_whole_number_has_its_value_however_it_is_spelled() {
        for spelling in ["5", "5.0", "50e-1", "0.5E+1", "0.05e2", "5e0", "5e-0"] {
            assert_eq!(whole(spelling), Some(5), "{spelling}");
        }
        for spelling in ["0", "-0", "0.000", "0e99999999999999999999"] {
            assert_eq!(whole(spelling), Some(0), "{spelling}");
        }
        assert_eq!(whole("9223372036854775807"), Some(i64::MAX));
        assert_eq!(whole("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(whole("-9.223372036854775808e18"), Some(i64::MIN));
        assert_eq!(whole("1e18"), Some(1_000_000_000_000_000_000));
    }

    #[test]
    fn a_number_that_is_rounded_to_a_whole_one_is_found() {
        for spelling in ["1e-400", "-1e-400", "5.00000000000000000001", "4.9999999999999999999"] {
            assert!(whole(spelling).is_none() && rounds_to_whole(spelling), "{spelling}");
        }
        for spelling in ["0.5", "1.000001", "9223372036854775808", "1e400"] {
            assert!(!rounds_to_whole(spelling), "{spelling}");
        }
    }

    #[test]
    fn every_other_number_has_one_spelling() {
        for spelling in ["0.5", "5e-1", "0.50", "50E-2", "00.5e0"] {
            assert_eq!(normal(spelling), "5e-1", "{spelling}");
        }
        assert_eq!((normal("-1.5").as_str(), normal("1e400").as_str()), ("-15e-1", "1e400"));
        assert_ne!(normal("1.5"), normal("2.5"));
        assert_eq!(normal("1e99999999999999999999"), "1e99999999999999999999");
    }

    #[test]
    fn a_fraction_or_a_larger_number_has_none() {
        for spelling in ["1.5", "5e-1", "1e-400", "9223372036854775808", "1e19", "1e400", "1e99999999999999999999"] {
            assert_eq!(whole(spelling), None, "{spelling}");
        }
    }
}
