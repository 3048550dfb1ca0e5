//! Results that are compared with what was expected, and failures that say both.

use std::fmt::{Debug, Display};

/// Why a program stops: people read it.
pub type Failure = Box<dyn std::error::Error>;

/// Compares a result.
///
/// # Errors
/// They differ; the text says what was looked at, expected and got.
pub fn equal<T: PartialEq + Debug>(what: impl Display, expected: T, got: T) -> Result<(), Failure> {
    if expected == got { Ok(()) } else { Err(format!("{what}: expected {expected:?}, got {got:?}").into()) }
}

/// Compares a condition.
///
/// # Errors
/// It does not hold; the text says what should have.
pub fn holds(what: impl Display, condition: bool) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(format!("{what}: this should hold and does not").into()) }
}

/// A number of bytes as people read it.
#[must_use]
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, size)) = units.into_iter().find(|(_, size)| count >= *size) else {
        return format!("{count} bytes");
    };
    let hundredths = u128::from(count) * 100 / u128::from(size);
    format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_fits() {
        for (count, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.50 KiB"), (150_109_880_320, "139.80 GiB")]
        {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_difference_is_told_with_both_sides() {
        assert!(equal("sum", 1, 1).is_ok());
        assert_eq!(equal("sum", 1, 2).unwrap_err().to_string(), "sum: expected 1, got 2");
        assert!(holds("order", false).is_err());
    }
}
