//! The numbers of conditions and of arguments.

use std::cmp::Ordering;

use super::tree::Arithmetic;
use crate::arguments::Decimal;

/// The digits with which every double is written apart from its neighbours. A fraction with more of them is not a double.
const DOUBLE_DIGITS: usize = 17;

/// The whole numbers from which on a double leaves some out.
const EXACT: i128 = 1 << 53;

/// A number: whole with 64 bits, signed or not, or else a double. `5`, `5.0` and `50e-1` are the same whole number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i128),
    Double(f64),
}

impl Number {
    /// Returns the number with this spelling, or `None` if it is neither a whole number of 64 bits nor a double.
    pub(super) fn of(spelling: &str) -> Option<Self> {
        let Decimal { negative, digits, exponent } = Decimal::read(spelling)?;
        let zeros = usize::try_from(exponent).ok().and_then(|places| places.checked_sub(digits.len()));
        // No number of 64 bits has more than 20 digits.
        if let Some(zeros) = zeros.filter(|zeros| digits.is_empty() || digits.len() + zeros <= 20) {
            let zeros = if digits.is_empty() { 1 } else { zeros };
            let value: i128 = format!("{digits}{}", "0".repeat(zeros)).parse().ok()?;
            if let Some(whole) = Self::whole(if negative { -value } else { value }) {
                return Some(whole);
            }
        }
        let double: f64 = spelling.parse().ok()?;
        // A fraction whose double is whole would be rounded.
        let is_rounded = zeros.is_none() && double.fract() == 0.0;
        (digits.len() <= DOUBLE_DIGITS && double.is_normal() && !is_rounded).then_some(Self::Double(double))
    }

    /// Returns a whole number, if it has 64 bits.
    pub(super) fn whole(value: i128) -> Option<Self> {
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(Self::Whole(value))
    }

    /// Compares two numbers by their values. Doubles are never infinite or undefined here.
    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => left.cmp(&right),
            (Self::Double(left), Self::Double(right)) => left.total_cmp(&right),
            (Self::Whole(left), Self::Double(right)) => compare_mixed(left, right),
            (Self::Double(left), Self::Whole(right)) => compare_mixed(right, left).reverse(),
        }
    }

    /// Calculates, or returns `None` if the result is not such a number.
    pub(super) fn calculate(self, operation: Arithmetic, other: Self) -> Option<Self> {
        if let (Self::Whole(left), Self::Whole(right)) = (self, other) {
            return Self::whole(match operation {
                Arithmetic::Add => left.checked_add(right)?,
                Arithmetic::Subtract => left.checked_sub(right)?,
                Arithmetic::Multiply => left.checked_mul(right)?,
                // CEL cuts whole numbers off and divides doubles, and which of them a caller sends is its choice.
                Arithmetic::Divide => left.checked_div(right).filter(|quotient| quotient * right == left)?,
                Arithmetic::Remainder => left.checked_rem(right)?,
            });
        }
        let (left, right) = (self.double()?, other.double()?);
        let result = match operation {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            Arithmetic::Divide => left / right,
            Arithmetic::Remainder => return None,
        };
        result.is_finite().then(|| Self::from_double(result))
    }

    pub(super) fn negate(self) -> Option<Self> {
        match self {
            Self::Whole(value) => Self::whole(-value),
            Self::Double(value) => Some(Self::Double(-value)),
        }
    }

    /// Returns the position in a list that the number names.
    pub(super) fn index(self) -> Option<usize> {
        match self {
            Self::Whole(value) => usize::try_from(value).ok(),
            Self::Double(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the number is small enough to be exact")]
    fn double(self) -> Option<f64> {
        match self {
            Self::Whole(value) => (-EXACT..=EXACT).contains(&value).then_some(value as f64),
            Self::Double(value) => Some(value),
        }
    }

    /// Returns a calculated double, as a whole number if it is one.
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and small enough")]
    #[expect(clippy::cast_precision_loss, reason = "2^53 is a double")]
    fn from_double(value: f64) -> Self {
        if value.fract() == 0.0 && value.abs() <= EXACT as f64 {
            Self::Whole(value as i128)
        } else {
            Self::Double(value)
        }
    }
}

/// Compares a whole number with a double, without rounding either.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a double beyond the range becomes its end, beyond every whole number"
)]
fn compare_mixed(whole: i128, double: f64) -> Ordering {
    let floor = double.floor();
    match whole.cmp(&(floor as i128)) {
        Ordering::Equal if double > floor => Ordering::Less,
        ordering => ordering,
    }
}
