//! Measuring two things beside each other.
//!
//! Absolute figures drift with the machine's clocks and its load; ratios of what ran alternately do not. So a row is two
//! bodies, run in bursts in turn, and the medians of their bursts.

use std::time::Instant;

use bench::median;

/// Calls of a burst: enough for the clock, too few to fill a stream's queue.
pub(crate) const BURST_CALLS: usize = 200;

/// The same as a divisor.
const CALLS: f64 = 200.0;

/// Bursts of each body.
pub(crate) const BURSTS: usize = 41;

/// The medians of two bodies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: &'static str,
    /// Nanoseconds of a call through the runtime.
    pub(crate) ours_ns: f64,
    /// What stands beside it.
    pub(crate) raw_name: &'static str,
    /// Nanoseconds of a call to the raw driver.
    pub(crate) raw_ns: f64,
}

impl Row {
    /// How many times the raw call's time ours takes.
    #[must_use]
    pub(crate) fn ratio(&self) -> f64 {
        self.ours_ns / self.raw_ns
    }
}

/// Measures two bodies alternately. `settle` runs before each burst and is not measured: it waits until no work is
/// queued.
///
/// # Errors
/// The first error of a body or of `settle`.
pub(crate) fn beside<E>(
    names: (&'static str, &'static str),
    mut settle: impl FnMut() -> Result<(), E>,
    mut ours: impl FnMut() -> Result<(), E>,
    mut raw: impl FnMut() -> Result<(), E>,
) -> Result<Row, E> {
    let (mut ours_ns, mut raw_ns) = (Vec::new(), Vec::new());
    for _ in 0..BURSTS {
        settle()?;
        ours_ns.push(burst(&mut ours)?);
        settle()?;
        raw_ns.push(burst(&mut raw)?);
    }
    Ok(Row { name: names.0, ours_ns: median(&mut ours_ns), raw_name: names.1, raw_ns: median(&mut raw_ns) })
}

/// The median of a body's bursts, with nothing beside it. `settle` as for [`beside`].
///
/// # Errors
/// The first error of the body or of `settle`.
pub(crate) fn alone<E>(
    bursts: usize,
    mut settle: impl FnMut() -> Result<(), E>,
    mut body: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let mut figures = Vec::with_capacity(bursts);
    for _ in 0..bursts {
        settle()?;
        figures.push(burst(&mut body)?);
    }
    Ok(median(&mut figures))
}

/// Nanoseconds a call, over one burst.
fn burst<E>(body: &mut impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let begin = Instant::now();
    for _ in 0..BURST_CALLS {
        body()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e9 / CALLS)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_body_alone_settles_before_each_burst() {
        let (settled, calls) = (Cell::new(0), Cell::new(0));
        let add = |counter: &Cell<usize>| -> Result<(), ()> {
            counter.set(counter.get() + 1);
            Ok(())
        };
        alone(3, || add(&settled), || add(&calls)).unwrap();
        assert_eq!((settled.get(), calls.get()), (3, 3 * BURST_CALLS));
        assert_eq!(alone(1, || Ok(()), || Err("full")), Err("full"));
    }

    #[test]
    fn both_bodies_run_equally_often_and_settle_before_each_burst() {
        let (settled, ours, raw) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let add = |counter: &Cell<usize>| -> Result<(), ()> {
            counter.set(counter.get() + 1);
            Ok(())
        };
        let row = beside(("a", "b"), || add(&settled), || add(&ours), || add(&raw)).unwrap();
        assert_eq!((settled.get(), ours.get(), raw.get()), (2 * BURSTS, BURSTS * BURST_CALLS, BURSTS * BURST_CALLS));
        assert!(row.ratio() > 0.0);
    }
}
