//! The default generators, one for each device, and the functions of `torch.cuda.random` that seed, save and restore
//! them.
//!
//! Before the runtime has started, what sets a generator is kept and done when the runtime starts, as torch does: first
//! states in their order, then the latest [`manual_seed`] or [`seed`] and the latest [`manual_seed_all`] or [`seed_all`],
//! in the order of these two.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use c10_core::locks::Mutex;
use c10_core::{DeviceArg, DeviceIndex, Runtime};

use crate::base::error::Result;
use crate::random::device::{DeviceGenerator, State, checked, parse, seed_bits, unforeseeable};
use crate::random::generator::{Generator, Kind as Of};
use crate::random::host::HostGenerator;
use crate::tensor::Tensor;

/// What a runtime keeps.
#[derive(Debug, Default)]
struct Defaults {
    states: Mutex<BTreeMap<DeviceIndex, DeviceGenerator>>,
    host: Mutex<Option<HostGenerator>>,
    waiting: Mutex<Waiting>,
}

/// What is done when the runtime starts.
#[derive(Debug, Default)]
struct Waiting {
    is_queued: bool,
    states: Vec<Change>,
    /// At most one for the current device and one for all.
    seeds: Vec<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    device: Which,
    seed: Seed,
    offset: u64,
}

/// Whether all changes are made, or only the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    State,
    Seed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// The device that is current when it is done.
    Current,
    All,
    One(DeviceIndex),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seed {
    Given(u64),
    /// A number that nobody can foresee, the same for all devices.
    Any,
}

/// The default generator of a device, the current one for `None`; an element of `torch.cuda.default_generators`. It is
/// seeded with a number that nobody can foresee.
///
/// # Errors
/// The runtime cannot start, or there is no such device.
pub fn default_generator(device: impl DeviceArg) -> Result<Generator> {
    Runtime::with_current(|runtime| {
        runtime.init()?;
        let device = checked(runtime, device)?;
        Ok(Generator(Of::Device(default_of(runtime, device))))
    })
}

/// The default generators of all devices (`torch.cuda.default_generators`).
///
/// # Errors
/// The runtime cannot start.
pub fn default_generators() -> Result<Vec<Generator>> {
    devices()?.map(default_generator).collect()
}

/// The default generator of the host (`torch.default_generator`). It is seeded with a number that nobody can foresee.
/// Starts nothing.
#[must_use]
pub fn default_host_generator() -> Generator {
    Runtime::with_current(|runtime| {
        let defaults = runtime.extension::<Defaults>();
        let mut host = defaults.host.lock().unwrap_or_else(PoisonError::into_inner);
        Generator(Of::Host(host.get_or_insert_with(HostGenerator::unforeseeable).clone()))
    })
}

fn default_of(runtime: &Runtime, device: DeviceIndex) -> DeviceGenerator {
    let defaults = runtime.extension::<Defaults>();
    let mut states = defaults.states.lock().unwrap_or_else(PoisonError::into_inner);
    states
        .entry(device)
        .or_insert_with(|| DeviceGenerator::default_with_state(State::new(device, unforeseeable(), 0)))
        .clone()
}

fn devices() -> Result<std::ops::Range<DeviceIndex>> {
    Runtime::with_current(|runtime| {
        runtime.init()?;
        Ok(0..DeviceIndex::try_from(runtime.device_count()).unwrap_or(DeviceIndex::MAX))
    })
}

/// Seeds the default generator of the current device (`torch.cuda.manual_seed`). Starts nothing: before the runtime has
/// started, the seed is kept for the device that is current then.
///
/// # Errors
/// The seed has more than 64 bits, or the current stream captures and the seed is another one.
pub fn manual_seed(seed: impl Into<i128>) -> Result<()> {
    let seed = seed_bits(seed.into())?;
    later(Kind::Seed, Change { device: Which::Current, seed: Seed::Given(seed), offset: 0 }, || {
        default_generator(None)?.manual_seed(seed).map(|_| ())
    })
}

/// Seeds the default generators of all devices (`torch.cuda.manual_seed_all`). Starts nothing.
///
/// # Errors
/// The seed has more than 64 bits, or a device's current stream captures and the seed is another one.
pub fn manual_seed_all(seed: impl Into<i128>) -> Result<()> {
    let seed = seed_bits(seed.into())?;
    later(Kind::Seed, Change { device: Which::All, seed: Seed::Given(seed), offset: 0 }, || {
        default_generators()?.iter().try_for_each(|generator| generator.manual_seed(seed).map(|_| ()))
    })
}

/// Seeds the default generator of the current device with a number that nobody can foresee (`torch.cuda.seed`). Starts
/// nothing.
///
/// # Errors
/// The current stream captures.
pub fn seed() -> Result<()> {
    later(Kind::Seed, Change { device: Which::Current, seed: Seed::Any, offset: 0 }, || {
        default_generator(None)?.seed().map(|_| ())
    })
}

/// Seeds the default generators of all devices with one number that nobody can foresee (`torch.cuda.seed_all`). Starts
/// nothing.
///
/// # Errors
/// A device's current stream captures.
pub fn seed_all() -> Result<()> {
    later(Kind::Seed, Change { device: Which::All, seed: Seed::Any, offset: 0 }, || {
        let generators = default_generators()?;
        let Some((first, others)) = generators.split_first() else { return Ok(()) };
        let seed = first.seed()?;
        others.iter().try_for_each(|generator| generator.manual_seed(seed).map(|_| ()))
    })
}

/// The seed of the current device's default generator (`torch.cuda.initial_seed`).
///
/// # Errors
/// The runtime cannot start, or the current stream captures.
pub fn initial_seed() -> Result<u64> {
    default_generator(None)?.initial_seed()
}

/// The state of a device's default generator, a host tensor of 16 bytes (`torch.cuda.get_rng_state`).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, random};
///
/// let state = random::get_rng_state(None)?;
/// let first = Tensor::randn(&[4], DType::F32, "cuda", None)?.to_vec::<f32>()?;
/// random::set_rng_state(&state, None)?;
/// assert_eq!(Tensor::randn(&[4], DType::F32, "cuda", None)?.to_vec::<f32>()?, first);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The runtime cannot start, there is no such device, or its current stream captures.
pub fn get_rng_state(device: impl DeviceArg) -> Result<Tensor> {
    default_generator(device)?.get_state()
}

/// The states of all devices' default generators (`torch.cuda.get_rng_state_all`).
///
/// # Errors
/// The runtime cannot start, or a device's current stream captures.
pub fn get_rng_state_all() -> Result<Vec<Tensor>> {
    default_generators()?.iter().map(Generator::get_state).collect()
}

/// Sets the state of a device's default generator (`torch.cuda.set_rng_state`). Starts nothing: before the runtime has
/// started, a copy of the state is kept.
///
/// # Errors
/// The state is no contiguous host tensor of 16 or 8 bytes, its offset is no multiple of 4, there is no such device, or
/// its current stream captures.
pub fn set_rng_state(state: &Tensor, device: impl DeviceArg) -> Result<()> {
    let (seed, offset) = parse(state)?;
    let index = device.index()?;
    let which = index.map_or(Which::Current, Which::One);
    later(Kind::State, Change { device: which, seed: Seed::Given(seed), offset }, || {
        default_generator(index)?.set_state(state)
    })
}

/// Sets the states of the devices' default generators, the first state that of device 0
/// (`torch.cuda.set_rng_state_all`).
///
/// # Errors
/// As for [`set_rng_state`].
pub fn set_rng_state_all(states: &[Tensor]) -> Result<()> {
    (0_i32..).zip(states).try_for_each(|(device, state)| set_rng_state(state, device))
}

/// The offset of a device's default generator (`torch.cuda._get_rng_state_offset`).
///
/// # Errors
/// As for [`get_rng_state`].
#[doc(alias = "_get_rng_state_offset")]
pub fn get_rng_state_offset(device: impl DeviceArg) -> Result<u64> {
    default_generator(device)?.get_offset()
}

/// Sets the offset of a device's default generator (`torch.cuda._set_rng_state_offset`).
///
/// # Errors
/// The offset is no multiple of 4, or as for [`get_rng_state`].
#[doc(alias = "_set_rng_state_offset")]
pub fn set_rng_state_offset(offset: u64, device: impl DeviceArg) -> Result<()> {
    default_generator(device)?.set_offset(offset)
}

/// Makes a change now if the runtime has started, and otherwise when it starts.
fn later(kind: Kind, change: Change, now: impl FnOnce() -> Result<()>) -> Result<()> {
    let runtime = Runtime::current();
    if runtime.is_initialized() {
        return now();
    }
    let defaults = runtime.extension::<Defaults>();
    let is_first = {
        let mut waiting = defaults.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.add(kind, change);
        !std::mem::replace(&mut waiting.is_queued, true)
    };
    if is_first {
        let defaults = Arc::downgrade(&defaults);
        runtime.lazy_call(move |runtime| defaults.upgrade().map_or(Ok(()), |defaults| defaults.catch_up(runtime)))?;
    }
    Ok(())
}

impl Waiting {
    /// Of seeds only the latest for the current device and the latest for all devices count.
    fn add(&mut self, kind: Kind, change: Change) {
        if kind == Kind::State {
            return self.states.push(change);
        }
        self.seeds.retain(|known| known.device != change.device);
        self.seeds.push(change);
    }
}

impl Defaults {
    /// Does what has waited for the runtime.
    fn catch_up(&self, runtime: &Runtime) -> c10_core::Result<()> {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // Asked before anything is forgotten, so that a start that fails for it fails again.
            for change in &waiting.states {
                if let Which::One(device) = change.device {
                    runtime.devices().capability(device)?;
                }
            }
            std::mem::take(&mut *waiting)
        };
        let current = runtime.current_device()?;
        let count = DeviceIndex::try_from(runtime.device_count()).unwrap_or(DeviceIndex::MAX);
        for change in waiting.states.into_iter().chain(waiting.seeds) {
            let seed = match change.seed {
                Seed::Given(seed) => seed,
                Seed::Any => unforeseeable(),
            };
            let devices = match change.device {
                Which::Current => current..current + 1,
                Which::All => 0..count,
                Which::One(device) => device..device + 1,
            };
            for device in devices {
                default_of(runtime, device).state().set(seed, change.offset);
            }
        }
        Ok(())
    }
}
