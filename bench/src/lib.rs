//! What the programs of this package share: how a burst is timed, which figure of several counts, how a program ends.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use cuda_api::{Event, EventOptions};

/// Whatever ends a measurement.
pub type Failure = Box<dyn std::error::Error>;

/// Cycles that the device waits before a burst, so that the host is ahead of it: then what the host needs for a call does not
/// count.
const SLEEP_CYCLES: i64 = 2_000_000;

/// The middle of some figures; no number if there are none.
#[must_use]
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How a program ends whose `outcome` says whether all was right; an error is written where errors go.
pub fn ended(outcome: Result<bool, impl Display>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Seconds that the current device needs for a call, in a burst of so many on the current stream.
///
/// # Errors
/// The first error of a call, or one of the runtime.
pub fn device_seconds<E>(calls: u32, mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E>
where
    E: From<cuda_api::Error>,
{
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    cuda_api::current_stream(None)?.sleep(SLEEP_CYCLES)?;
    start.record(None)?;
    for _ in 0..calls {
        call()?;
    }
    end.record(None)?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_time(&end)?) * 1e-3 / f64::from(calls))
}

/// Seconds that the host needs for a call, in a burst of so many for which the current device has no other work.
///
/// # Errors
/// As [`device_seconds`].
pub fn host_seconds<E>(calls: u32, mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E>
where
    E: From<cuda_api::Error>,
{
    cuda_api::synchronize(None)?;
    let begin = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    let elapsed = begin.elapsed();
    cuda_api::synchronize(None)?;
    Ok(elapsed.as_secs_f64() / f64::from(calls))
}

/// Seconds of a call until all of these devices are done: the median of `bursts` bursts of `calls` calls, after some to warm up.
///
/// # Errors
/// As [`device_seconds`].
pub fn seconds_until_done<E>(
    devices: &[i32],
    (bursts, calls): (usize, u32),
    mut call: impl FnMut() -> Result<(), E>,
) -> Result<f64, E>
where
    E: From<cuda_api::Error>,
{
    for _ in 0..3 {
        call()?;
    }
    let wait = || devices.iter().try_for_each(|&device| cuda_api::synchronize(device));
    let mut figures = Vec::with_capacity(bursts);
    for _ in 0..bursts {
        wait()?;
        let begin = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        wait()?;
        figures.push(begin.elapsed().as_secs_f64() / f64::from(calls));
    }
    Ok(median(&mut figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn a_program_ends_as_its_outcome_says() {
        let code = |outcome| format!("{:?}", ended(outcome));
        let [success, failure] = [ExitCode::SUCCESS, ExitCode::FAILURE].map(|code| format!("{code:?}"));
        let outcomes: [Result<bool, &str>; 3] = [Ok(true), Ok(false), Err("this test wants it")];
        assert_eq!(outcomes.map(code), [success, failure.clone(), failure]);
    }
}
