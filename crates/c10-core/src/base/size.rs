//! Numbers of bytes as people read them.

use std::fmt;

/// Bytes as torch's messages write them: the largest unit that is exceeded, two decimals.
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// A figure of bytes, which is never negative.
    pub(crate) fn of(figure: i64) -> Self {
        Self(u64::try_from(figure).unwrap_or(0))
    }
}

impl fmt::Display for Size {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are printed")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(unit, _)| self.0 > *unit) {
            Some((unit, name)) => write!(f, "{:.2} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_unit_above_the_power() {
        let cases = [
            (0, "0 bytes"),
            (1024, "1024 bytes"),
            (1025, "1.00 KiB"),
            (1 << 20, "1024.00 KiB"),
            ((1 << 30) + 1, "1.00 GiB"),
            (58 << 20, "58.00 MiB"),
            (4096 << 30, "4096.00 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
