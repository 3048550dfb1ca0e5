//! Memory resources on a runtime: its driver, and its caching allocator.
//!
//! **Invariant:** a resource takes back only what it gave, and holds its runtime.

use std::collections::BTreeMap;

use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, MemoryError, Result};
use crate::driver::Driver;
use crate::resource::{Allocation, MemoryResource, NotDeallocated, StreamView};
use crate::runtime::{Runtime, Started};
use crate::sync::Mutex;
use crate::sync::lock;

impl Stream {
    /// The stream as memory resources are given it.
    #[must_use]
    pub fn view(&self) -> StreamView {
        // Resources can see the raw handle, as who calls this.
        let _ = self.cuda_stream();
        StreamView(self.reference())
    }
}

/// What a source has given: bytes and device, by address.
#[derive(Debug, Default)]
struct Given(Mutex<BTreeMap<u64, (u64, DeviceIndex)>>);

impl Given {
    fn note(&self, address: u64, bytes: u64, device: DeviceIndex) -> Allocation {
        lock(&self.0).insert(address, (bytes, device));
        Allocation::new(address, bytes, device)
    }

    /// Takes memory back with `free`; it is still given where that fails.
    fn take(&self, memory: Allocation, free: impl FnOnce() -> Result<()>) -> Result<(), NotDeallocated> {
        let (address, known) = (memory.address(), (memory.bytes(), memory.device()));
        if address == 0 {
            return Ok(());
        }
        let mut given = lock(&self.0);
        if given.get(&address) != Some(&known) {
            return Err(NotDeallocated { memory, error: MemoryError::InvalidPointer { address }.into() });
        }
        given.remove(&address);
        // The driver may wait for the device; others must not.
        drop(given);
        free().map_err(|error| {
            lock(&self.0).insert(address, known);
            NotDeallocated { memory, error }
        })
    }
}

/// Memory of the driver: each allocation is one `cuMemAlloc`, each deallocation one `cuMemFree`.
///
/// The source at the bottom of a stack of resources. Memory can be used on any stream at once; giving it back waits for the
/// device. It counts in no figure of the runtime, which it keeps alive: as the allocator of a pool of that runtime it does so
/// until the pool's memory has gone back.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, MemoryResource, Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let memory = DriverResource::new(&runtime);
/// let before = runtime.memory().info(0)?.free;
/// let taken = memory.allocate(1 << 20, stream.view())?;
/// assert!(runtime.memory().info(0)?.free < before);
/// memory.deallocate(taken, stream.view())?;
/// assert_eq!(runtime.memory().info(0)?.free, before);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct DriverResource {
    runtime: Runtime,
    given: Given,
}

impl DriverResource {
    /// Memory of the driver of a runtime, which it keeps alive. Makes no driver call.
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), given: Given::default() }
    }
}

/// The started runtime, for a stream of one of its devices.
fn ready_for(runtime: &Runtime, stream: StreamView) -> Result<&Started> {
    runtime.check_device_id(stream.device())
}

impl MemoryResource for DriverResource {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let (ready, device) = (ready_for(&self.runtime, stream)?, stream.device());
        if bytes == 0 {
            return Ok(Allocation::empty(device));
        }
        let _relaxed = ready.relaxed()?;
        match ready.api.mem_alloc(device, bytes) {
            Ok(address) => Ok(self.given.note(address, bytes, device)),
            Err(error) if error.driver_is_out_of_memory() => {
                Err(AllocatorError::NoMemory { device, requested: bytes }.into())
            }
            Err(error) => Err(error),
        }
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let (address, device) = (memory.address(), memory.device());
        self.given.take(memory, || {
            let ready = ready_for(&self.runtime, stream)?;
            let _relaxed = ready.relaxed()?;
            ready.api.mem_free(device, address)
        })
    }
}

/// Memory of a runtime's caching allocator.
///
/// The source for parts of a program that share the cache with everything else, and count in its figures. Memory that is
/// given back on another stream than the one it was allocated for waits for that stream. It cannot serve its own runtime
/// ([`crate::AllocatorError::Reentered`]).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CachingResource, MemoryResource, Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let memory = CachingResource::new(&runtime);
/// let taken = memory.allocate(1000, stream.view())?;
/// assert_eq!(runtime.memory().stats(0)?.allocated_bytes.all.current, 1024);
/// memory.deallocate(taken, stream.view())?;
/// assert_eq!(runtime.memory().stats(0)?.allocated_bytes.all.current, 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct CachingResource {
    runtime: Runtime,
    given: Given,
    streams: Mutex<BTreeMap<u64, StreamView>>,
}

impl CachingResource {
    /// Memory of the caching allocator of a runtime, which it keeps alive. Makes no driver call.
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), given: Given::default(), streams: Mutex::default() }
    }
}

impl MemoryResource for CachingResource {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let ready = ready_for(&self.runtime, stream)?;
        // Of an owner of its own, so that no program frees it by its address.
        let allocated = self.runtime.memory().alloc_for_resource(ready, stream.0, bytes)?;
        if allocated == 0 {
            return Ok(Allocation::empty(stream.device()));
        }
        lock(&self.streams).insert(allocated, stream);
        Ok(self.given.note(allocated, bytes, stream.device()))
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let address = memory.address();
        self.given.take(memory, || {
            let ready = self.runtime.ready()?;
            let allocated_for = lock(&self.streams).get(&address).copied();
            if allocated_for.is_some_and(|other| other != stream) {
                ready.allocator.record_stream(address, stream.0)?;
            }
            lock(&self.streams).remove(&address);
            self.runtime.memory().free_of_buffer(address).or_else(forgive_late_failure)
        })
    }
}

/// After an error of the driver the memory counts as given back all the same; only an address that is not handed out is not.
fn forgive_late_failure(error: Error) -> Result<()> {
    if matches!(error, Error::Memory(_)) { Err(error) } else { Ok(()) }
}
