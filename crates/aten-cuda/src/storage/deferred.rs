//! Memory that a traced function has asked for and that is not there yet.
//!
//! While a function is traced, its operations are written down instead of being run, and the memory that they ask a
//! device for is deferred. Whoever needs the address of any memory meanwhile is no operation that could be written down:
//! what is pending is run first, and then the memory is there. So an operation that knows nothing of traces sees what it
//! always sees.
//!
//! What a CUDA graph of a compiled function gives is such memory too, filled in from the beginning: a later call writes over
//! it, and from then on it has no buffer.
//!
//! **Invariants:** a trace belongs to one thread. Deferred memory is filled in once and then stays, unless it is a graph's.
//! Memory that a failed trace has left without contents has no buffer, ever.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use c10_core::{Device, DeviceBuffer, DeviceIndex, EnteredPool, PuttingOff, Runtime, Stream};

/// Memory of a device that is there once what was written down so far has run.
#[derive(Debug)]
pub(crate) struct Deferred {
    bytes: usize,
    device: Device,
    source: Source,
    memory: OnceLock<DeviceBuffer>,
    /// Whether a graph has written something else there since.
    is_overwritten: AtomicBool,
}

/// Where memory was asked for: whose stream-ordered reuse it is part of, and which pool it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    /// The current stream of the device then.
    pub(crate) stream: Stream,
    /// The pool that the traced function had entered, if it had.
    pub(crate) pool: Option<EnteredPool>,
}

impl Source {
    /// The source for memory that this thread asks for now.
    fn now(device: DeviceIndex) -> c10_core::Result<Self> {
        Runtime::with_current(|runtime| {
            let stream = runtime.streams().current(device)?;
            Ok(Self { stream, pool: runtime.mem_pools().entered(device) })
        })
    }

    /// Asks for memory from here.
    pub(crate) fn memory<T, E: From<c10_core::Error>>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _on = self.stream.guard();
        let Some(pool) = &self.pool else { return make() };
        let _from = Runtime::with_current(|runtime| runtime.mem_pools().enter_again(pool, self.stream.device_index()))?;
        make()
    }
}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.stream, self.pool.as_ref().map(EnteredPool::id)).hash(state);
    }
}

thread_local! {
    static FAILURE: Cell<Option<c10_core::Error>> = const { Cell::new(None) };
    static HOST_VALUES: Cell<bool> = const { Cell::new(false) };
    static TRACE: Cell<u64> = const { Cell::new(0) };
}

static TRACES: AtomicU64 = AtomicU64::new(1);

/// Whether operations of this thread are written down.
#[inline]
pub(crate) fn is_tracing() -> bool {
    PuttingOff::is_on()
}

/// Runs what is pending, where something may be.
#[inline]
pub(crate) fn settle(what: &'static str) {
    PuttingOff::settle(what);
}

/// A trace begins.
pub(crate) fn begin_trace() {
    TRACE.set(TRACES.fetch_add(1, Ordering::Relaxed));
}

/// The number of the trace that is under way on this thread, if there is one; else 0.
#[inline]
pub(super) fn trace() -> u64 {
    if is_tracing() { TRACE.get() } else { 0 }
}

/// Notes that values in host memory were looked at, which the trace cannot follow.
#[inline]
pub(crate) fn note_host_values() {
    if is_tracing() {
        HOST_VALUES.set(true);
    }
}

/// Why memory that was asked for in a trace is not there.
pub(crate) fn take_failure() -> Option<c10_core::Error> {
    FAILURE.take()
}

/// Whether values in host memory were looked at since the last question.
pub(crate) fn take_host_values() -> bool {
    HOST_VALUES.replace(false)
}

impl Deferred {
    /// Memory of a device, for work of its current stream.
    pub(crate) fn new(bytes: usize, device: DeviceIndex) -> c10_core::Result<Self> {
        let source = Source::now(device)?;
        let (device, memory) = (Device::cuda(device), OnceLock::new());
        Ok(Self { bytes, device, source, memory, is_overwritten: AtomicBool::new(false) })
    }

    /// Memory that a graph gives.
    pub(crate) fn of(memory: DeviceBuffer) -> c10_core::Result<Self> {
        let own = Self::new(memory.len(), memory.device_index())?;
        own.fill(memory);
        Ok(own)
    }

    /// A graph writes something else there.
    pub(crate) fn overwrite(&self) {
        self.is_overwritten.store(true, Ordering::Release);
    }

    /// A graph has written there anew, for whoever gets it now.
    pub(crate) fn revive(&self) {
        self.is_overwritten.store(false, Ordering::Release);
    }

    pub(crate) fn is_overwritten(&self) -> bool {
        self.is_overwritten.load(Ordering::Acquire)
    }

    /// Where it was asked for.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// The memory, once it is there.
    pub(crate) fn filled(&self) -> Option<&DeviceBuffer> {
        self.memory.get().filter(|_| !self.is_overwritten())
    }

    /// The memory; what is pending is run for it. Where nothing pending writes it, it holds whatever was there before.
    pub(crate) fn memory(&self) -> Option<&DeviceBuffer> {
        if self.memory.get().is_none() && is_tracing() {
            settle("memory is used by an operation that traces do not write down");
            if self.memory.get().is_none() {
                let make = || self.source.memory(|| DeviceBuffer::new(self.bytes, self.device));
                match PuttingOff::paused(|| Runtime::with_current(|runtime| runtime.mem_pools().outside(make)))
                    .flatten()
                {
                    Ok(memory) => self.fill(memory),
                    Err(error) => FAILURE.set(Some(error)),
                }
            }
        }
        self.filled()
    }

    /// Gives it its memory, the first one that comes.
    pub(crate) fn fill(&self, memory: DeviceBuffer) {
        self.memory.get_or_init(|| memory);
    }
}
