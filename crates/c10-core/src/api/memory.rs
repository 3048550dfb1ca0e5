//! The caching allocator as users see it: memory by address, its figures, limits and options.
//!
//! **Invariants:** options can be set at any time, and either all of a text are applied or none. Functions that only
//! read or reset do nothing before the runtime has started.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::buffers::DeviceBuffer;
use crate::api::out_of_memory;
use crate::api::stream::Stream;
use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, RefusedFraction, Result};
use crate::base::handles::{MemInfo, StreamRef};
use crate::base::ids::PoolId;
use crate::base::stat::NestedStat;
use crate::base::warning::warning;
use crate::caching::{DeviceStats, Owner, PlanStats, SegmentInfo};
use crate::driver::Driver;
use crate::runtime::{Runtime, Started};
use crate::state::observers::ObserverId;
use crate::thread;
use crate::thread::pending::PuttingOff;

/// The device memory of a runtime; made by [`Runtime::memory`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let address = runtime.memory().alloc(1000, &stream)?;
/// assert_eq!(runtime.memory().stats(0)?.allocated_bytes.all.current, 1024);
/// runtime.memory().free(address)?;
/// runtime.memory().empty_cache()?;
/// assert_eq!(runtime.memory().snapshot(None), []);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a>(&'a Runtime);

impl Runtime {
    /// Device memory: buffers, raw addresses, figures, limits and options.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> Memory<'_> {
        Memory(self)
    }
}

impl<'a> Memory<'a> {
    pub(crate) fn runtime(self) -> &'a Runtime {
        self.0
    }
}

impl Memory<'_> {
    /// Changes the allocator's options by a text such as `max_split_size_mb:128,expandable_segments:True`; torch's
    /// `torch.cuda.memory._set_allocator_settings`. Can be called before the runtime starts and after. The options
    /// apply to later requests; memory that is held already stays as it is. As in torch, `per_process_memory_fraction`
    /// is only read when the runtime starts: a text that names it afterwards is accepted with a warning, and
    /// [`Self::set_fraction`] changes it.
    ///
    /// # Errors
    /// The first setting that is refused; nothing is changed then.
    pub fn set_settings(self, settings: &str) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        self.0.change_config(|config, started| {
            Ok(if started { config.parse(settings) } else { config.parse_at_start(settings) }?)
        })?;
        if self.0.is_initialized() && AllocatorConfig::names(settings, "per_process_memory_fraction") {
            warning!(
                "the setting per_process_memory_fraction has no effect once the runtime has started; call \
                 set_per_process_memory_fraction instead"
            );
        }
        Ok(())
    }

    /// The allocator's options: those of the environment (`PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_ALLOC_CONF`) and what was
    /// set since.
    #[must_use]
    pub fn config(self) -> Arc<AllocatorConfig> {
        self.0.config()
    }

    /// Name of the allocator's backend; torch's `get_allocator_backend`.
    #[must_use]
    pub fn backend(self) -> &'static str {
        let other = self.0.started().and_then(|ready| ready.allocator.other_name());
        other.unwrap_or_else(|| self.current_allocator().name())
    }

    /// Switches caching on or off for memory asked for from now on; torch's `caching_allocator_enable`. While caching
    /// is off, every request goes to the driver and appears in no figure, and freeing such memory waits for the device.
    /// Caching is off from the start when `PYTORCH_NO_CUDA_MEMORY_CACHING` is `1`.
    pub fn enable_caching(self, value: bool) {
        PuttingOff::settle("the state of memory is changed");
        self.0.set_caching(value);
    }

    /// Limits what this runtime holds of a device to a fraction of its memory, from 0 to 1; torch's
    /// `set_per_process_memory_fraction`. If more is held already, it stays. Starts the runtime.
    ///
    /// # Errors
    /// [`crate::MemoryError::InvalidFraction`]; the device does not exist; the driver's error.
    pub fn set_fraction(self, fraction: f64, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        let ready = self.0.check_device_id(device)?;
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::Memory(MemoryError::InvalidFraction { fraction: RefusedFraction(fraction) }));
        }
        ready.limit_memory(device, fraction)
    }

    /// The fraction of a device's memory that this runtime may hold, 1 for all; torch's
    /// `get_per_process_memory_fraction`. Starts the runtime.
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn fraction(self, device: DeviceIndex) -> Result<f64> {
        PuttingOff::settle("the state of memory is asked for");
        let ready = self.0.check_device_id(device)?;
        let total = ready.api.total_memory_of(device)?;
        Ok(ready.allocator.limit(device)?.map_or(1.0, |limit| limit as f64 / total as f64))
    }

    /// Sets the sums of increases and decreases of a device's figures, and its counts, to zero; does nothing before the
    /// runtime has started. Under the backend `cudaMallocAsync` it warns as torch does, which has no sums there.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn reset_accumulated_stats(self, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        self.0.started().map_or(Ok(()), |ready| ready.allocator.reset_accumulated_stats(device))
    }

    /// All memory held from the driver, by device and address, or only that of one private pool; torch's
    /// `memory_snapshot`. Empty before the runtime has started, and where the backend does not know blocks, for which
    /// [`Self::try_snapshot`] has an error.
    #[must_use]
    pub fn snapshot(self, mempool_id: Option<PoolId>) -> Vec<SegmentInfo> {
        PuttingOff::settle("the state of memory is asked for");
        self.0.started().map_or_else(Vec::new, |ready| ready.allocator.snapshot(mempool_id))
    }

    /// The same, and an error where the backend does not know blocks.
    ///
    /// # Errors
    /// [`crate::BackendError::NoSnapshot`].
    pub fn try_snapshot(self, mempool_id: Option<PoolId>) -> Result<Vec<SegmentInfo>> {
        PuttingOff::settle("the state of memory is asked for");
        self.0.started().map_or(Ok(()), |ready| ready.allocator.check_snapshot())?;
        Ok(self.snapshot(mempool_id))
    }

    /// What the allocator of a device has done; all zero before the runtime has started.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn stats(self, device: DeviceIndex) -> Result<DeviceStats> {
        PuttingOff::settle("the state of memory is asked for");
        match self.0.started() {
            Some(ready) => ready.allocator.stats(&ready.api, device),
            None => Ok(DeviceStats::default()),
        }
    }

    /// Sets the peaks of a device's figures to their present values; does nothing before the runtime has started.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn reset_peak_stats(self, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        self.0.started().map_or(Ok(()), |ready| ready.allocator.reset_peak_stats(&ready.api, device))
    }

    /// Begins a step of a device, such as one of training. With the option `learn_plans:True`, streams whose last two steps
    /// asked for the same get addresses that were computed from those two; without a mark ever, steps are looked for in
    /// the sequence of sizes. Any thread may mark steps; a stream learns of the mark with its next request. Does nothing
    /// before the runtime has started, and with the option off.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Runtime, Stream};
    ///
    /// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
    /// let memory = runtime.memory();
    /// memory.set_settings("learn_plans:True")?;
    /// while memory.plan_stats(0)?.planned_requests == 0 {
    ///     memory.mark_step(0)?;
    ///     let (a, b) = (memory.alloc(3 << 20, &stream)?, memory.alloc(5 << 20, &stream)?);
    ///     memory.free(a)?;
    ///     memory.free(b)?;
    /// }
    /// assert_eq!(memory.stats(0)?.reserved_bytes.all.current, 8 << 20);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device does not exist.
    pub fn mark_step(self, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        self.0.started().map_or(Ok(()), |ready| ready.allocator.mark_step(device))
    }

    /// What the plans of a device's streams have done; all zero before the runtime has started, and while the option
    /// `learn_plans` was off all the time.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn plan_stats(self, device: DeviceIndex) -> Result<PlanStats> {
        self.0.started().map_or(Ok(PlanStats::default()), |ready| ready.allocator.plan_stats(device))
    }

    /// Gives unused cached segments back to the driver, on every device. Waits for work that still uses them, also for
    /// replays of graphs that were dropped meanwhile. Does nothing before the runtime has started.
    ///
    /// # Errors
    /// The first driver error; the caches of the other devices are emptied all the same.
    pub fn empty_cache(self) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        if !self.0.is_initialized() {
            return Ok(());
        }
        let ready = self.0.ready()?;
        let waited = ready.wait_for_held();
        ready.allocator.empty_cache(&ready.api).and(waited.map(drop))
    }

    /// Allocates device memory for use on `stream` and returns its address; 0 for no bytes. [`Self::free`] frees it.
    ///
    /// # Errors
    /// Not enough memory, or the driver's error.
    #[inline]
    pub fn alloc(self, bytes: u64, stream: &Stream) -> Result<u64> {
        PuttingOff::settle("the state of memory is changed");
        match self.0.usable() {
            Some(ready) if stream.runtime() == self.0 => self.allocate_for_program(ready, stream.reference(), bytes),
            _ => self.allocate_first(bytes, stream, Owner::Program),
        }
    }

    /// As [`Self::alloc`], for a buffer, which alone may free it ([`Self::free_of_buffer`]).
    pub(crate) fn alloc_for_buffer(self, bytes: u64, stream: &Stream) -> Result<u64> {
        let allocated = self.allocate_first(bytes, stream, Owner::Buffer);
        allocated.map_err(|error| self.explain(stream, error))
    }

    /// As [`Self::alloc_for_buffer`], for a memory resource.
    pub(crate) fn alloc_for_resource(self, ready: &Started, stream: StreamRef, bytes: u64) -> Result<u64> {
        self.allocate_for_buffer(ready, stream, bytes)
    }

    #[cold]
    fn explain(self, stream: &Stream, error: Error) -> Error {
        match self.0.started() {
            Some(ready) => ready.launches.explain(stream.device_index(), error),
            None => error,
        }
    }

    /// As [`Self::allocate`], where the runtime has to be started first or the stream belongs to another runtime.
    fn allocate_first(self, bytes: u64, stream: &Stream, owner: Owner) -> Result<u64> {
        self.0.check_same(stream.runtime(), "stream")?;
        self.allocate(self.0.ready()?, stream.reference(), bytes, owner)
    }

    /// Allocates device memory for use on this thread's current stream of a device; see [`Self::alloc`].
    ///
    /// # Errors
    /// The device does not exist, not enough memory, or the driver's error.
    pub fn alloc_on_current_stream(self, bytes: u64, device: DeviceIndex) -> Result<u64> {
        PuttingOff::settle("the state of memory is changed");
        let ready = self.0.check_device(device)?;
        self.allocate(ready, thread::stream(self.0.id(), device).on(device), bytes, Owner::Program)
    }

    /// A function of its own, so that the kind of owner is a constant in it.
    #[inline(never)]
    fn allocate_for_program(self, ready: &Started, stream: StreamRef, bytes: u64) -> Result<u64> {
        self.allocate(ready, stream, bytes, Owner::Program)
    }

    /// As [`Self::allocate_for_program`].
    #[inline(never)]
    fn allocate_for_buffer(self, ready: &Started, stream: StreamRef, bytes: u64) -> Result<u64> {
        self.allocate(ready, stream, bytes, Owner::Buffer)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the kind of owner is known where it is called, and a hit is short")]
    fn allocate(self, ready: &Started, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        match ready.allocator.alloc_for(&ready.api, stream, bytes, owner) {
            Ok(address) => Ok(address),
            Err(error) => self.allocate_again(ready, stream, (bytes, owner), error),
        }
    }

    /// Handles an error of [`Self::allocate`]. Where memory ran out, frees memory that is only held until others are
    /// done with it, and tries again.
    #[cold]
    fn allocate_again(
        self,
        ready: &Started,
        stream: StreamRef,
        (bytes, owner): (u64, Owner),
        error: Error,
    ) -> Result<u64> {
        let mut allocated = Err(error);
        if let Err(Error::OutOfMemory(_)) = allocated
            && Self::let_go_of_held(ready)
        {
            allocated = ready.allocator.alloc_for(&ready.api, stream, bytes, owner);
        }
        allocated.map_err(|error| out_of_memory::complete(self.0, &ready.api, error))
    }

    /// Frees memory that was discarded or sent and is held until others are done with it, as torch's allocator waits
    /// for events before it fails. Returns whether there was any. Errors are dropped here: the caller reports that
    /// memory ran out.
    #[cold]
    fn let_go_of_held(ready: &Started) -> bool {
        let held = ready.wait_for_held().unwrap_or(false);
        ready.ipc.sendings.collect(&ready.api, &ready.deferred) || held
    }

    /// Frees memory by its address; 0 is ignored.
    ///
    /// # Errors
    /// [`crate::MemoryError::InvalidPointer`] for an address that is not handed out;
    /// [`crate::MemoryError::OwnedByBuffer`] for the address of a buffer; the driver's error, after which the memory
    /// counts as freed all the same.
    pub fn free(self, address: u64) -> Result<()> {
        PuttingOff::settle("the state of memory is changed");
        match self.0.usable() {
            Some(ready) => ready.allocator.free_by(&ready.api, address, Owner::Program),
            None => self.free_first(address, Owner::Program),
        }
    }

    /// Frees the memory of a buffer.
    pub(crate) fn free_of_buffer(self, address: u64) -> Result<()> {
        self.free_first(address, Owner::Buffer)
    }

    /// As [`Self::free`], where the runtime has not started or may not be used.
    fn free_first(self, address: u64, owner: Owner) -> Result<()> {
        if address != 0 && self.0.started().is_none() {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
        }
        let ready = self.0.ready()?;
        ready.allocator.free_by(&ready.api, address, owner)
    }

    /// Notes that memory is used on a stream other than the one it was allocated for, so that it is not reused before
    /// that stream is done with it. Makes no driver call.
    ///
    /// # Errors
    /// [`crate::MemoryError::InvalidPointer`] for an address that is not handed out.
    pub fn record_stream(self, address: u64, stream: &Stream) -> Result<()> {
        self.0.check_same(stream.runtime(), "stream")?;
        self.0.ready()?.allocator.record_stream(address, stream.reference())
    }

    /// Allocates a buffer of `len` bytes of device memory for use on `stream`.
    ///
    /// # Errors
    /// Not enough memory, or the driver's error.
    pub fn buffer(self, len: usize, stream: &Stream) -> Result<DeviceBuffer> {
        let address = self.alloc_for_buffer(len as u64, stream)?;
        Ok(DeviceBuffer::of(self.0, address, len, stream.reference(), None))
    }

    /// As [`Self::buffer`], for use on this thread's current stream of a device.
    pub(crate) fn buffer_on_current_stream(self, len: usize, device: DeviceIndex) -> Result<DeviceBuffer> {
        let ready = self.0.check_device(device)?;
        let stream = thread::stream(self.0.id(), device).on(device);
        let allocated = self.allocate_for_buffer(ready, stream, len as u64);
        let address = allocated.map_err(|error| ready.launches.explain(device, error))?;
        Ok(DeviceBuffer::of(self.0, address, len, stream, None))
    }

    /// What the caching allocator of a device has done, in torch's structure; empty before the runtime has started.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn stats_as_nested_dict(self, device: DeviceIndex) -> Result<BTreeMap<String, NestedStat>> {
        PuttingOff::settle("the state of memory is asked for");
        self.0.started().map_or_else(
            || Ok(BTreeMap::new()),
            |ready| Ok(ready.allocator.stats(&ready.api, device)?.as_nested_dict()),
        )
    }

    /// Free and total memory of a device, in bytes.
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    pub fn info(self, device: DeviceIndex) -> Result<MemInfo> {
        PuttingOff::settle("the state of memory is asked for");
        self.0.check_device(device)?.api.mem_get_info(device)
    }

    /// Calls `observer` whenever device memory runs out, before the error is returned, with no lock held; torch's
    /// `_cuda_attach_out_of_memory_observer`. Its arguments are the device, the bytes asked of the driver, the bytes of
    /// the device (or the limit that was set for this process), and the free bytes of the device. Observers are called
    /// in the order they were attached; one that panics does not keep the others from being called nor the error from
    /// being returned. An observer may ask for memory: if that fails too, it gets the error, and no observer is called
    /// for it.
    ///
    /// An observer that holds a [`Runtime`] keeps it alive until it is detached; [`Runtime::current`] can be asked
    /// instead.
    pub fn attach_out_of_memory_observer(
        self,
        observer: impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static,
    ) -> ObserverId {
        self.0.observers().attach(Arc::new(observer))
    }

    /// Detaches an observer, so that it is not called any more. Returns `false` if it was detached already. Calls under
    /// way go on.
    pub fn detach_out_of_memory_observer(self, observer: ObserverId) -> bool {
        self.0.observers().detach(observer)
    }
}
