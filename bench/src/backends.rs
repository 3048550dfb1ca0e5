//! What the allocator's other ways cost: the driver's own pools (`backend:cudaMallocAsync`) beside the same raw calls, and
//! plans that learn (`learn_plans:True`) beside the cache.
//!
//! Each has a runtime of its own on the driver that the raw side uses too.
//!
//! **Invariants:** both sides of a row make the same requests in the same order; a planned row begins when a plan serves
//! every request of a step.

use std::collections::VecDeque;
use std::hint::black_box;

use c10_core::{DeviceIndex, Runtime, Stream};
use cuda_sys::Driver;

use crate::measure::{Row, beside};
use crate::raw::{Failure, Raw};

/// Bytes of a request to the driver's pools.
const BYTES: usize = 4096;
/// Blocks that are held beside the pair.
const LIVE: usize = 64;
/// Requests of a step.
const STEP: usize = 100;
/// Every so many requests of the warm-up one lasts: the weights of what a step trains.
const LASTING: usize = 5;
const DEVICE: DeviceIndex = DeviceIndex(0);

/// The rows, and what a planned loop reserves over what it has live.
///
/// # Errors
/// The runtimes' and the driver's.
pub(crate) fn rows(raw: &Raw) -> Result<(Vec<Row>, f64), Failure> {
    let settle = || Ok::<(), Failure>(raw.synchronize()?);
    let pools = Side::new("backend:cudaMallocAsync")?;
    let names = ("cudaMallocAsync pair", "cuMemAllocAsync+FreeAsync");
    let raw_pair = || Ok(raw.mem_alloc_and_free_async(BYTES)?);
    let mut rows = vec![beside(names, settle, || pools.pair(), raw_pair)?];
    let (mut held, mut raw_held) = (VecDeque::new(), VecDeque::new());
    for _ in 0..LIVE {
        held.push_back(pools.alloc(BYTES as u64)?);
        raw_held.push_back(raw.mem_alloc_async(BYTES)?);
    }
    let names = ("the same, 64 live", "cuMemAllocAsync+FreeAsync");
    let replace = || pools.replace(&mut held);
    let raw_replace = || Ok(raw.mem_replace_async(BYTES, &mut raw_held)?);
    rows.push(beside(names, settle, replace, raw_replace)?);
    held.into_iter().try_for_each(|address| pools.free(address))?;
    raw_held.into_iter().try_for_each(|address| raw.mem_free_async(address))?;
    let (planned, cached) = (Step::new("learn_plans:True")?, Step::new("")?);
    planned.warm_up(true)?;
    cached.warm_up(false)?;
    planned.side.runtime.memory().reset_peak_stats(DEVICE)?;
    let (mut planned_held, mut cached_held) = ([0; STEP], [0; STEP]);
    let names = ("planned step of 100", "the same by the cache");
    rows.push(beside(names, settle, || planned.run(&mut planned_held), || cached.run(&mut cached_held))?);
    Ok((rows, planned.reserved_over_live()?))
}

/// A runtime and a stream of it.
#[derive(Debug)]
struct Side {
    runtime: Runtime,
    stream: Stream,
}

impl Side {
    fn new(settings: &str) -> Result<Self, Failure> {
        let runtime = Runtime::new(Driver::load()?);
        runtime.memory().set_settings(settings)?;
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        Ok(Self { runtime, stream })
    }

    #[inline]
    fn alloc(&self, bytes: u64) -> Result<u64, Failure> {
        Ok(self.runtime.memory().alloc(bytes, &self.stream)?)
    }

    #[inline]
    fn free(&self, address: u64) -> Result<(), Failure> {
        Ok(self.runtime.memory().free(address)?)
    }

    fn pair(&self) -> Result<(), Failure> {
        self.free(black_box(self.alloc(BYTES as u64)?))
    }

    /// Takes a block, and gives the oldest one back.
    fn replace(&self, held: &mut VecDeque<u64>) -> Result<(), Failure> {
        held.push_back(self.alloc(BYTES as u64)?);
        held.pop_front().map_or(Ok(()), |oldest| self.free(black_box(oldest)))
    }
}

/// What a training step does in small: requests that live for different times, beside memory that lasts.
#[derive(Debug)]
struct Step {
    side: Side,
}

impl Step {
    fn new(settings: &str) -> Result<Self, Failure> {
        Ok(Self { side: Side::new(settings)? })
    }

    fn size(number: usize) -> u64 {
        (512 * (1 + number as u64 * 7 % 61)) << (number % 4 * 4)
    }

    /// A step whose requests stay until its end, with what lasts between them, then steps as they are measured: until a plan
    /// serves them all, if there is to be one.
    fn warm_up(&self, planned: bool) -> Result<(), Failure> {
        let mut held = [0; STEP];
        for (number, address) in held.iter_mut().enumerate() {
            *address = self.side.alloc(Self::size(number))?;
            if number % LASTING == 0 {
                self.side.alloc(Self::size(number + 2))?;
            }
        }
        held.iter().try_for_each(|address| self.side.free(*address))?;
        let served = || Ok::<_, Failure>(self.side.runtime.memory().plan_stats(DEVICE)?.planned_requests);
        (0..5).try_for_each(|_| self.run(&mut held))?;
        while planned && served()? < 10 * STEP as u64 {
            self.run(&mut held)?;
        }
        Ok(())
    }

    fn run(&self, held: &mut [u64; STEP]) -> Result<(), Failure> {
        self.side.runtime.memory().mark_step(DEVICE)?;
        for (number, address) in held.iter_mut().enumerate() {
            *address = self.side.alloc(Self::size(number))?;
            // Every second one is short-lived.
            if number % 2 == 1 {
                self.side.free(black_box(*address))?;
            }
        }
        held.iter().step_by(2).rev().try_for_each(|address| self.side.free(black_box(*address)))
    }

    /// Bytes held from the driver over the most that were allocated, since the peaks were reset.
    fn reserved_over_live(&self) -> Result<f64, Failure> {
        let stats = self.side.runtime.memory().stats(DEVICE)?;
        let (reserved, live) = (stats.reserved_bytes.all.peak, stats.allocated_bytes.all.peak);
        Ok(reserved as f64 / live as f64)
    }
}
