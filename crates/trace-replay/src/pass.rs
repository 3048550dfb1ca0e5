//! Replaying a trace on a runtime, and what that comes to.
//!
//! **Invariant:** a pass leaves nothing allocated, whether it ends well or not.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use c10_core::{DeviceArg, DeviceIndex, Error, Runtime, Stream};

use crate::step::Step;

/// After how many steps the caller is told how far a pass is.
const TELL_EVERY: usize = 4096;

/// Why a trace could not be replayed to its end.
///
/// ```
/// use trace_replay::{Replay, ReplayError, parse};
///
/// let simulated = testkit::simulated_runtime();
/// let steps = parse("f 1\n".as_bytes())?;
/// let refused = Replay::new(simulated.runtime(), 0, &steps)?.pass(|_| ()).unwrap_err();
/// assert!(matches!(refused, ReplayError::NotAllocated { step: 1, id: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A step frees what is not allocated.
    #[error("step {step} of the trace frees {id}, which is not allocated")]
    NotAllocated {
        /// Which step, from 1.
        step: usize,
        /// What it names.
        id: u64,
    },
    /// A step allocates under a name that is in use.
    #[error("step {step} of the trace allocates {id}, which is allocated already")]
    InUse {
        /// Which step, from 1.
        step: usize,
        /// What it names.
        id: u64,
    },
    /// The runtime refused a step; memory ran out, for example.
    #[error("step {step} of the trace: {error}")]
    Refused {
        /// Which step, from 1.
        step: usize,
        /// Why.
        #[source]
        error: Error,
    },
    /// The runtime cannot start, or there is no such device.
    #[error(transparent)]
    Runtime(#[from] Error),
}

/// What one pass over a trace came to.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use trace_replay::{Replay, parse};
///
/// let steps = parse("a 1 1000 0\n".as_bytes())?;
/// let pass = Replay::new(simulated.runtime(), 0, &steps)?.pass(|_| ())?;
/// assert_eq!((pass.peak_requested_bytes, pass.peak_reserved_bytes, pass.segments_taken), (1000, 2 << 20, 1));
/// assert!(pass.utilisation() > 0.0 && pass.ns_per_step > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Most bytes that were asked for at one time.
    pub peak_requested_bytes: i64,
    /// Most bytes in blocks that were handed out.
    pub peak_allocated_bytes: i64,
    /// Most bytes held from the driver.
    pub peak_reserved_bytes: i64,
    /// How often memory was taken from the driver.
    pub segments_taken: i64,
    /// How often memory was given back to the driver.
    pub segments_given_back: i64,
    /// Time of a step on the host, on average.
    pub ns_per_step: f64,
}

impl Pass {
    /// Peak of the allocated over peak of the reserved bytes; 0 where nothing was reserved.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.peak_reserved_bytes == 0 {
            0.0
        } else {
            real(self.peak_allocated_bytes) / real(self.peak_reserved_bytes)
        }
    }
}

/// A trace on a device of a runtime, with the streams that it needs.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use trace_replay::{Replay, parse};
///
/// let steps = parse("a 1 1000 0\nf 1\n".as_bytes())?;
/// let replay = Replay::new(simulated.runtime(), 0, &steps)?;
/// let (first, again) = (replay.pass(|_| ())?, replay.pass(|_| ())?);
/// assert_eq!((first.segments_taken, again.segments_taken), (1, 0), "the second time it is in the cache");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replay<'a> {
    runtime: &'a Runtime,
    device: DeviceIndex,
    steps: &'a [Step],
    streams: BTreeMap<u32, Stream>,
}

impl<'a> Replay<'a> {
    /// Starts the runtime and makes the streams: stream 0 of a trace is the default stream.
    ///
    /// # Errors
    /// The runtime cannot start, or there is no such device.
    pub fn new(runtime: &'a Runtime, device: impl DeviceArg, steps: &'a [Step]) -> Result<Self, ReplayError> {
        let device = device.resolve(runtime)?;
        let mut streams = BTreeMap::from([(0, runtime.streams().default(device)?)]);
        for step in steps {
            if let Step::Alloc { stream, .. } = step
                && !streams.contains_key(stream)
            {
                streams.insert(*stream, runtime.streams().pooled(device, 0)?);
            }
        }
        // The context comes with the first use; it is no part of the trace.
        runtime.memory().info(device)?;
        Ok(Self { runtime, device, steps, streams })
    }

    /// Replays all steps, with what the cache holds. `tell` is called now and then with the number of steps that are done.
    ///
    /// # Errors
    /// The trace makes no sense, or the runtime refuses a step.
    pub fn pass(&self, mut tell: impl FnMut(usize)) -> Result<Pass, ReplayError> {
        let memory = self.runtime.memory();
        memory.reset_peak_stats(self.device)?;
        let before = memory.stats(self.device)?.flatten();
        let mut live = HashMap::new();
        let begin = Instant::now();
        let done = self.steps.iter().enumerate().try_for_each(|(index, step)| {
            if index % TELL_EVERY == 0 {
                tell(index);
            }
            self.step(index + 1, step, &mut live)
        });
        let elapsed = begin.elapsed();
        let after = memory.stats(self.device)?.flatten();
        live.into_values().try_for_each(|address| memory.free(address))?;
        done?;
        tell(self.steps.len());
        let of = |figures: &[(&str, i64)], name| {
            figures.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
        };
        let steps = i64::try_from(self.steps.len().max(1)).map_or(1.0, real);
        Ok(Pass {
            peak_requested_bytes: of(&after, "requested_bytes.all.peak"),
            peak_allocated_bytes: of(&after, "allocated_bytes.all.peak"),
            peak_reserved_bytes: of(&after, "reserved_bytes.all.peak"),
            segments_taken: of(&after, "num_device_alloc") - of(&before, "num_device_alloc"),
            segments_given_back: of(&after, "num_device_free") - of(&before, "num_device_free"),
            ns_per_step: elapsed.as_secs_f64() * 1e9 / steps,
        })
    }

    fn step(&self, number: usize, step: &Step, live: &mut HashMap<u64, u64>) -> Result<(), ReplayError> {
        let refused = |error| ReplayError::Refused { step: number, error };
        match *step {
            Step::Alloc { id, .. } if live.contains_key(&id) => Err(ReplayError::InUse { step: number, id }),
            Step::Alloc { id, bytes, stream } => {
                let stream = &self.streams[&stream];
                live.insert(id, self.runtime.memory().alloc(bytes, stream).map_err(refused)?);
                Ok(())
            }
            Step::Free { id } => {
                let address = live.remove(&id).ok_or(ReplayError::NotAllocated { step: number, id })?;
                self.runtime.memory().free(address).map_err(refused)
            }
        }
    }
}

/// Bytes as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "a device has fewer than 2^53 bytes")]
fn real(bytes: i64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use testkit::{Config, SimulatedRuntime};

    use super::*;

    #[test]
    fn both_passes_are_measured_and_leave_nothing() {
        let sim = SimulatedRuntime::new(Config::default());
        let steps = [
            Step::Alloc { id: 1, bytes: 1000, stream: 0 },
            Step::Alloc { id: 2, bytes: 3 << 20, stream: 1 },
            Step::Free { id: 1 },
        ];
        let replay = Replay::new(sim.runtime(), 0, &steps).unwrap();
        let mut told = Vec::new();
        let first = replay.pass(|done| told.push(done)).unwrap();
        assert_eq!(told, [0, 3]);
        assert_eq!(first.peak_requested_bytes, 1000 + (3 << 20));
        assert_eq!(first.peak_allocated_bytes, 1024 + (3 << 20));
        assert_eq!((first.peak_reserved_bytes, first.segments_taken), (22 << 20, 2));
        let second = replay.pass(|_| ()).unwrap();
        assert_eq!((second.segments_taken, second.peak_allocated_bytes), (0, first.peak_allocated_bytes));
        assert_eq!(sim.runtime().memory().stats(0).unwrap()["allocated_bytes.all.current"], 0);
    }

    #[test]
    fn traces_that_make_no_sense_end_with_the_step() {
        let sim = SimulatedRuntime::new(Config::default().capacity(64 << 20));
        let end = |steps: &[Step]| Replay::new(sim.runtime(), 0, steps).unwrap().pass(|_| ()).unwrap_err();
        let alloc = Step::Alloc { id: 1, bytes: 512, stream: 0 };
        assert!(matches!(end(&[alloc, alloc]), ReplayError::InUse { step: 2, id: 1 }));
        assert!(matches!(end(&[Step::Free { id: 1 }]), ReplayError::NotAllocated { step: 1, id: 1 }));
        let huge = Step::Alloc { id: 2, bytes: 1 << 30, stream: 0 };
        let refused = end(&[alloc, huge]);
        assert!(matches!(&refused, ReplayError::Refused { step: 2, error } if error.is_out_of_memory()), "{refused}");
        assert_eq!(sim.runtime().memory().stats(0).unwrap()["allocated_bytes.all.current"], 0);
        assert!(Replay::new(sim.runtime(), 7, &[]).is_err());
    }
}
