//! A counter that costs little to read, and what it says as time of day.
//!
//! **Invariants:** a reading is only compared with others of the same process. It becomes time of day when somebody looks,
//! by the two moments at which both clocks were read together: when the program first recorded, and now.
//!
//! # Safety
//! The processor's counter is read by one instruction, which every x86-64 processor has; elsewhere the system's clock is
//! asked.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instruction that reads the counter"))]

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// A reading of the counter, in ticks of unknown length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Ticks(u64);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    /// Microseconds since 1970.
    micros: u64,
}

impl Moment {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { ticks: now().0, micros: u64::try_from(since.as_micros()).unwrap_or(u64::MAX) }
    }
}

/// The first moment.
fn first() -> Moment {
    static FIRST: OnceLock<Moment> = OnceLock::new();
    *FIRST.get_or_init(Moment::now)
}

/// Reads both clocks for the first time, if nobody has.
pub(super) fn begin() {
    let _ = first();
}

/// What the counter says.
#[inline]
pub(super) fn now() -> Ticks {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, which touches no memory.
        Ticks(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let elapsed = START.get_or_init(std::time::Instant::now).elapsed();
        Ticks(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// What turns readings into time of day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Converter {
    first: Moment,
    last: Moment,
}

impl Converter {
    /// By what the clocks say now.
    pub(super) fn new() -> Self {
        Self { first: first(), last: Moment::now() }
    }

    /// Microseconds since 1970.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "differences of time, of which microseconds matter"
    )]
    pub(super) fn micros(&self, Ticks(ticks): Ticks) -> u64 {
        let passed = self.last.ticks.saturating_sub(self.first.ticks);
        let ticks = ticks.saturating_sub(self.first.ticks);
        if passed == 0 {
            return self.last.micros;
        }
        let micros = self.last.micros.saturating_sub(self.first.micros) as f64;
        self.first.micros + (ticks as f64 * (micros / passed as f64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn readings_become_time_of_day() {
        begin();
        let before = Moment::now();
        let ticks = now();
        std::thread::sleep(Duration::from_millis(20));
        let (then, last) = (Converter::new().micros(ticks), Moment::now().micros);
        assert!(then.abs_diff(before.micros) < 5_000, "{then} is not about {}", before.micros);
        assert!(last - then >= 15_000, "{last} is not 20 ms after {then}");
    }
}
