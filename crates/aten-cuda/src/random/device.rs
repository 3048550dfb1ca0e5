//! Generators of CUDA devices: a seed, and how much of its sequence was drawn.
//!
//! **Invariants:** the offset is a multiple of 4 outside captures, and within a graph. Nothing here holds a runtime, so
//! that a runtime can keep its default generators; the memory that captured work reads belongs to the graph.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError, Weak};

use c10_core::locks::{Mutex, MutexGuard};
use c10_core::{DeviceArg, DeviceIndex, GeneratorState, Runtime};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::random_error::RandomError;
use crate::launch::library::random::Drawn;
use crate::random::captured::Registered;
use crate::storage::deferred;
use crate::tensor::Tensor;

/// The seed of generators that nobody has seeded (`default_rng_seed_val`).
pub(super) const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// Bytes of a state: the seed, then the offset.
const STATE_BYTES: usize = 16;

/// A generator of a CUDA device. Clones are the same generator.
#[derive(Clone, Debug)]
pub(super) struct DeviceGenerator {
    device: DeviceIndex,
    /// Whether captures that draw from it register it by themselves.
    is_default: bool,
    /// Which state it has; several generators may share one.
    state: Arc<Mutex<Arc<State>>>,
}

/// The state of one or several generators (`CUDAGeneratorState`).
#[derive(Debug)]
pub(super) struct State {
    pub(super) device: DeviceIndex,
    numbers: Mutex<Numbers>,
}

#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) seed: u64,
    pub(super) offset: u64,
    /// Captures under way that draw from it.
    pub(super) captures: Vec<Arc<Registered>>,
    /// What graphs know the state by, as long as one of them does.
    registered: Weak<Registered>,
}

impl State {
    pub(super) fn new(device: DeviceIndex, seed: u64, offset: u64) -> Arc<Self> {
        let numbers = Numbers { seed, offset, captures: Vec::new(), registered: Weak::new() };
        Arc::new(Self { device, numbers: Mutex::new(numbers) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What graphs register.
    fn registered(self: &Arc<Self>) -> Result<Arc<Registered>> {
        if let Some(known) = self.lock().registered.upgrade() {
            return Ok(known);
        }
        let made = Registered::new(Arc::clone(self), false)?;
        self.lock().registered = Arc::downgrade(&made);
        Ok(made)
    }
}

impl DeviceGenerator {
    /// A generator of a device, the current one for `None`, with torch's default seed and offset 0.
    pub(super) fn new(device: impl DeviceArg) -> Result<Self> {
        Runtime::with_current(|runtime| {
            runtime.init()?;
            let device = checked(runtime, device)?;
            Ok(Self::with_state(State::new(device, DEFAULT_SEED, 0)))
        })
    }

    pub(super) fn with_state(state: Arc<State>) -> Self {
        Self { device: state.device, is_default: false, state: Arc::new(Mutex::new(state)) }
    }

    /// The default generator of a device.
    pub(super) fn default_with_state(state: Arc<State>) -> Self {
        Self { is_default: true, ..Self::with_state(state) }
    }

    /// Tells generators apart that live at the same time: those of one number share their state.
    pub(super) fn identity(&self) -> u64 {
        if self.is_default { 0 } else { Arc::as_ptr(&self.state) as usize as u64 }
    }

    pub(super) fn state(&self) -> Arc<State> {
        deferred::settle("the state of a generator is used");
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The device whose numbers it draws (`device`).
    pub(super) fn device(&self) -> c10_core::Device {
        c10_core::Device::cuda(self.device)
    }

    /// Seeds it and goes back to the begin of the sequence (`manual_seed`). Negative seeds count from 2^64 down.
    pub(super) fn manual_seed(&self, seed: impl Into<i128>) -> Result<&Self> {
        let seed = seed_bits(seed.into())?;
        let state = self.state();
        if self.is_capturing()? {
            return if state.lock().seed == seed { Ok(self) } else { Err(RandomError::SeedWhileCapturing.into()) };
        }
        state.set(seed, 0);
        Ok(self)
    }

    /// Seeds it with a number that nobody can foresee, of up to 53 bits, and returns that (`seed`).
    pub(super) fn seed(&self) -> Result<u64> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::seed")?;
        let seed = unforeseeable();
        self.state().set(seed, 0);
        Ok(seed)
    }

    /// The seed (`initial_seed`).
    pub(super) fn initial_seed(&self) -> Result<u64> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::current_seed")?;
        Ok(self.state().lock().seed)
    }

    /// How many words of each thread's sequence were drawn (`get_offset`).
    pub(super) fn get_offset(&self) -> Result<u64> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::get_offset")?;
        Ok(self.state().lock().offset)
    }

    /// Goes to another place of the sequence (`set_offset`).
    pub(super) fn set_offset(&self, offset: u64) -> Result<()> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::set_offset")?;
        check_offset(offset)?;
        self.state().lock().offset = offset;
        Ok(())
    }

    /// The state: a host tensor of 16 bytes, the seed and then the offset, both little-endian (`get_state`).
    pub(super) fn get_state(&self) -> Result<Tensor> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::current_seed")?;
        let state = self.state();
        let numbers = state.lock();
        let bytes = [numbers.seed.to_le_bytes(), numbers.offset.to_le_bytes()].concat();
        Tensor::from_slice(&bytes, &[16])
    }

    /// Goes back to a state that [`Self::get_state`] gave; one of 8 bytes is a seed with offset 0 (`set_state`).
    pub(super) fn set_state(&self, state: &Tensor) -> Result<()> {
        let call = "Please ensure to utilize the CUDAGeneratorImpl::set_state_index method during capturing.";
        self.refuse_capture(call)?;
        let (seed, offset) = parse(state)?;
        self.state().set(seed, offset);
        Ok(())
    }

    /// Another generator that starts from the present state (`clone_state`).
    pub(super) fn clone_state(&self) -> Result<Self> {
        self.refuse_capture("Cannot call CUDAGeneratorImpl::current_seed")?;
        let state = self.state();
        let (seed, offset) = {
            let numbers = state.lock();
            (numbers.seed, numbers.offset)
        };
        Ok(Self::with_state(State::new(self.device, seed, offset)))
    }

    /// Another generator that shares this one's state (`graphsafe_get_state`).
    pub(super) fn graphsafe_get_state(&self) -> Self {
        Self::with_state(self.state())
    }

    /// Takes another generator's state, which both share from then on (`graphsafe_set_state`).
    pub(super) fn graphsafe_set_state(&self, other: &Self) {
        let state = other.state();
        deferred::settle("the state of a generator is used");
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// What [`CUDAGraph::register_generator_state`](c10_core::CUDAGraph::register_generator_state) takes, so that the
    /// graph's work can draw from this generator. The default generators need it not: a capture that draws from one
    /// registers it. Graphs that share a generator are replayed one after another.
    pub(super) fn graph_state(&self) -> Result<Arc<dyn GeneratorState>> {
        self.refuse_capture("Cannot register the state during capturing stage.")?;
        let registered: Arc<dyn GeneratorState> = self.state().registered()?;
        Ok(registered)
    }

    /// Takes as many words of each thread's sequence for a launch on the current stream, rounded up to a multiple of 4.
    pub(super) fn draw(&self, increment: u64) -> Result<Drawn> {
        let increment = increment.next_multiple_of(4);
        let state = self.state();
        let stream = Runtime::with_current(|runtime| runtime.streams().current(self.device))?;
        let Some(capture) = stream.capture_id()? else { return state.draw(increment) };
        let mut registered = state.capture(capture);
        if registered.is_none() && self.is_default {
            stream.join_capture(Registered::new(Arc::clone(&state), true)?)?;
            registered = state.capture(capture);
        }
        registered.ok_or(RandomError::NotRegistered)?.draw(increment)
    }

    pub(super) fn is_capturing(&self) -> Result<bool> {
        Runtime::with_current(|runtime| {
            // A runtime that has not started captures nothing.
            let started = runtime.is_initialized();
            Ok(started && runtime.streams().current(self.device)?.capture_id()?.is_some())
        })
    }

    fn refuse_capture(&self, call: &'static str) -> Result<()> {
        if self.is_capturing()? { Err(RandomError::Capturing { call }.into()) } else { Ok(()) }
    }
}

impl State {
    pub(super) fn set(&self, seed: u64, offset: u64) {
        let mut numbers = self.lock();
        (numbers.seed, numbers.offset) = (seed, offset);
    }

    fn draw(&self, increment: u64) -> Result<Drawn> {
        let mut numbers = self.lock();
        if numbers.captures.iter().any(|registered| !registered.has_joined()) {
            return Err(RandomError::OutsideCapture.into());
        }
        let (seed, offset) = (numbers.seed, numbers.offset);
        numbers.offset = offset.wrapping_add(increment);
        Ok(Drawn { seed, offset, place: None })
    }

    /// What stands for the state in a capture. One that was registered before its capture had a number takes the number
    /// of the first capture that draws.
    fn capture(&self, capture: u64) -> Option<Arc<Registered>> {
        let numbers = self.lock();
        let known = numbers.captures.iter().find(|registered| registered.is_known_of(capture));
        known.or_else(|| numbers.captures.iter().find(|registered| registered.is_of(capture))).cloned()
    }
}

/// The number of a device that exists.
pub(super) fn checked(runtime: &Runtime, device: impl DeviceArg) -> Result<DeviceIndex> {
    let index = device.resolve(runtime)?;
    let exists = usize::try_from(index).is_ok_and(|index| index < runtime.device_count());
    if exists { Ok(index) } else { Err(RandomError::DeviceIndex { index }.into()) }
}

/// The seed and the offset of a state.
pub(super) fn parse(state: &Tensor) -> Result<(u64, u64)> {
    if state.is_cuda() || state.dtype() != DType::U8 {
        return Err(RandomError::StateKind { dtype: state.dtype() }.into());
    }
    if !state.is_contiguous() {
        return Err(RandomError::StateStrided.into());
    }
    let bytes = state.to_bytes()?;
    let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let (seed, offset) = match (bytes.len(), word(0), word(8)) {
        (8, Some(seed), None) => (seed, 0),
        (STATE_BYTES, Some(seed), Some(offset)) => (seed, offset),
        (bytes, ..) => return Err(RandomError::StateSize { bytes }.into()),
    };
    check_offset(offset)?;
    Ok((seed, offset))
}

fn check_offset(offset: u64) -> Result<()> {
    if offset.is_multiple_of(4) { Ok(()) } else { Err(RandomError::Offset { offset }.into()) }
}

/// The 64 bits of a seed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "negative seeds count from 2^64 down")]
pub(super) fn seed_bits(seed: i128) -> Result<u64> {
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    if range.contains(&seed) { Ok(seed as u64) } else { Err(RandomError::Seed { seed }.into()) }
}

/// A number of 53 bits that differs at each call; the system seeds the hash behind it.
pub(super) fn unforeseeable() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now()) >> 11
}
