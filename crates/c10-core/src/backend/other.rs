//! What a backend of device memory is that is not the caching allocator.
//!
//! **Invariants:** a backend is chosen before the runtime starts and stays. What it does not do it refuses by torch's
//! words, which is what the functions with a body here do. Its functions may be called by several threads at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::device::DeviceIndex;
use crate::base::error::{BackendError, Error, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::caching::{DeviceStats, Filter, Owner, SegmentInfo};
use crate::driver::Api;

/// A backend of device memory.
pub(crate) trait OtherBackend: fmt::Debug + Send + Sync {
    /// Its name, as torch's `get_allocator_backend` gives it.
    fn name(&self) -> &'static str;

    /// Its name in the texts of refusals.
    fn title(&self) -> &'static str {
        self.name()
    }

    /// The error of what it does not do, by torch's name of that.
    fn refusal(&self, call: &'static str) -> Error {
        Error::Backend(BackendError::Unsupported { backend: self.title(), call })
    }

    /// Memory of `bytes` bytes, at least 1, for use on `stream`, whose device exists.
    fn alloc(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64>;

    /// Takes memory back from the kind of owner that it was given to. The address is not 0. The memory may still be used
    /// by what was queued on its stream and on those it was recorded on.
    fn free(&self, api: &Api, address: u64, owner: Owner) -> Result<()>;

    /// Notes that memory is used on another stream. Makes no driver call.
    fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()>;

    /// The kind of owner that memory at an address is handed out to.
    fn owner(&self, address: u64) -> Option<Owner>;

    /// The pool of the capture under way in which memory was allocated, if that capture's graph holds it.
    fn pool_of(&self, _address: u64) -> Option<PoolId> {
        None
    }

    /// Where the whole allocation begins that an address lies in, to share it with other processes; `None` for what the
    /// driver says.
    fn base_of(&self, _address: u64) -> Result<Option<u64>> {
        Err(self.refusal("shareIpcHandle"))
    }

    /// What is handed out, by device and address, if that is known.
    fn snapshot(&self) -> Option<Vec<SegmentInfo>> {
        None
    }

    /// Gives memory that nobody uses back to the driver.
    fn empty_cache(&self, api: &Api) -> Result<()>;

    /// Figures of a device.
    fn stats(&self, api: &Api, device: DeviceIndex) -> Result<DeviceStats>;

    /// Sets a device's peaks to the present values.
    fn reset_peak_stats(&self, api: &Api, device: DeviceIndex) -> Result<()>;

    /// Sets a device's sums and counts to zero.
    fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()>;

    /// Limits a device to a fraction of its memory, which is that many bytes; `None` is no limit.
    fn set_fraction(&self, device: DeviceIndex, fraction: f64, limit: Option<u64>) -> Result<()>;

    /// The most bytes of a device to hand out.
    fn limit(&self, device: DeviceIndex) -> Result<Option<u64>>;

    /// A program makes a pool, and uses it until [`Self::release_pool`].
    fn use_pool(&self, _device: DeviceIndex, _pool: PoolId) -> Result<()> {
        Err(self.refusal("createOrIncrefPool"))
    }

    /// Routes matching allocations of a device to a pool.
    fn begin_allocate_to_pool(&self, _device: DeviceIndex, _pool: PoolId, _filter: Filter) -> Result<()> {
        Err(self.refusal("beginAllocateToPool"))
    }

    /// Ends that.
    fn end_allocate_to_pool(&self, _device: DeviceIndex, _pool: PoolId) -> Result<()> {
        Err(self.refusal("endAllocateToPool"))
    }

    /// A graph, or the program, uses a pool no more.
    fn release_pool(&self, _device: DeviceIndex, _pool: PoolId) -> Result<()> {
        Ok(())
    }

    /// A capture is about to begin, whose number will be stored once it is known.
    fn begin_capture(&self, device: DeviceIndex, pool: PoolId, number: &Arc<AtomicU64>) -> Result<()> {
        self.begin_allocate_to_pool(device, pool, Filter::Capture(Arc::clone(number)))
    }

    /// The capture that began on a stream is about to end.
    fn finish_capture(&self, _api: &Api, _stream: StreamRef) -> Result<()> {
        Ok(())
    }

    /// The capture is over, or has not begun.
    fn end_capture(&self, _api: &Api, device: DeviceIndex, pool: PoolId) {
        // Nobody could be told.
        let _ = self.end_allocate_to_pool(device, pool);
    }

    /// Work of `device` shall reach memory of `peer`.
    fn let_reach(&self, _api: &Api, _device: DeviceIndex, _peer: DeviceIndex) -> Result<()> {
        Ok(())
    }

    /// What is wrong with the books, if anything; called while no other thread allocates.
    fn inconsistency(&self) -> Option<String> {
        None
    }

    /// Gives everything back; nothing is allocated or freed afterwards. The devices have finished their work.
    fn dismantle(&self, _api: &Api) {}
}
