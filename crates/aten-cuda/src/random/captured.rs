//! A generator's state in graphs: captured work reads seed and offset from the device, where each replay writes them
//! first.
//!
//! **Invariants:** a prologue adds the capture to those of the state, and the epilogue removes it. The memory lives as
//! long as a graph knows the state by this object.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use c10_core::{DeviceBuffer, GeneratorState, Stream};

use crate::base::error::Result;
use crate::base::random_error::RandomError;
use crate::launch::library::random::{self as kernels, Drawn};
use crate::random::device::State;

/// The number of no capture.
const UNKNOWN: u64 = u64::MAX;

/// What graphs know the state of a generator by.
#[derive(Debug)]
pub(crate) struct Registered {
    /// Itself, for the list of the state's captures.
    this: Weak<Self>,
    state: Arc<State>,
    /// The seed and the offset, of 8 bytes each.
    place: DeviceBuffer,
    /// Whether it was registered by a draw from a default generator, and not by the program.
    joined: bool,
    capturing: AtomicBool,
    /// The capture under way, once it is known.
    capture: AtomicU64,
    /// How much the capture has drawn.
    within: AtomicU64,
}

impl Registered {
    pub(super) fn new(state: Arc<State>, joined: bool) -> Result<Arc<Self>> {
        let place = DeviceBuffer::new(16, state.device)?;
        let (capturing, capture, within) = (AtomicBool::new(false), AtomicU64::new(UNKNOWN), AtomicU64::new(0));
        Ok(Arc::new_cyclic(|this| Self { this: Weak::clone(this), state, place, joined, capturing, capture, within }))
    }

    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    /// Whether it is known to stand for the state in this capture.
    pub(super) fn is_known_of(&self, capture: u64) -> bool {
        self.capture.load(Ordering::Acquire) == capture
    }

    /// Whether it stands for the state in this capture. The first one that asks is the one.
    pub(super) fn is_of(&self, capture: u64) -> bool {
        let known = self.capture.compare_exchange(UNKNOWN, capture, Ordering::AcqRel, Ordering::Acquire);
        known.is_ok() || known == Err(capture)
    }

    pub(super) fn draw(&self, increment: u64) -> Result<Drawn> {
        let add = |within: u64| within.checked_add(increment).filter(|within| *within <= u64::from(u32::MAX));
        let offset = self.within.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let offset = offset.map_err(|_| RandomError::GraphOffset)?;
        Ok(Drawn { seed: 0, offset, place: Some(self.place.clone()) })
    }
}

impl GeneratorState for Registered {
    fn capture_prologue(&self, stream: &Stream) -> c10_core::Result<()> {
        self.within.store(0, Ordering::Release);
        self.capture.store(stream.capture_id()?.unwrap_or(UNKNOWN), Ordering::Release);
        if !self.capturing.swap(true, Ordering::AcqRel) {
            self.state.lock().captures.extend(self.this.upgrade());
        }
        Ok(())
    }

    fn capture_epilogue(&self) -> u64 {
        self.capturing.store(false, Ordering::Release);
        let is_other = |known: &Arc<Self>| !std::ptr::eq(Arc::as_ptr(known), self);
        let mut numbers = self.state.lock();
        let (stay, gone) = std::mem::take(&mut numbers.captures).into_iter().partition(is_other);
        numbers.captures = stay;
        drop(numbers);
        // Dropped outside the lock, since that may give memory back.
        let gone: Vec<Arc<Self>> = gone;
        drop(gone);
        self.within.load(Ordering::Acquire)
    }

    fn replay_prologue(&self, whole_graph_increment: u64, stream: &Stream) -> c10_core::Result<()> {
        if whole_graph_increment == 0 {
            return Ok(());
        }
        let (seed, offset) = {
            let mut numbers = self.state.lock();
            let offset = numbers.offset;
            numbers.offset = offset.wrapping_add(whole_graph_increment);
            (numbers.seed, offset)
        };
        let _current = stream.guard();
        kernels::stand_at(&self.place, seed, offset).inspect_err(|_| {
            let mut numbers = self.state.lock();
            if numbers.offset == offset.wrapping_add(whole_graph_increment) {
                numbers.offset = offset;
            }
        })
    }
}
