//! The driver, as the rest of the crate sees it: typed functions over plain handles.
//!
//! Reading order: this file (handles and the narrow trait the caching allocator is written against), `cuda.rs`
//! (loading, contexts, devices), `memory.rs`, `host.rs`, `stream.rs`, `green.rs`, `graph.rs`, `conditional.rs`, `module.rs`,
//! `tensor_map.rs`, `ipc.rs`, `shared_pages.rs`, `blocks.rs` (one function for each call), `cudart.rs` (what `cudart()` adds), `nvml.rs` (the library that observes
//! devices).
//!
//! **Invariant:** nobody outside this folder names `cuda_sys` functions or holds raw pointers. Handles are numbers;
//! they are made and used only inside the crate, so that a safe caller cannot present a made-up one.

mod blocks;
mod captures;
mod conditional;
mod cuda;
mod cudart;
mod file_locks;
mod graph;
mod green;
mod host;
mod host_function;
mod ipc;
mod link;
mod memory;
mod module;
mod nvml;
pub(crate) mod nvtx;
mod passing;
mod pinned;
mod pointer;
mod pools;
mod shared_pages;
mod source;
mod stream;
mod tensor_map;
mod vmm;

pub(crate) use blocks::is_simulated;
pub(crate) use conditional::{ConditionHandle, ConditionalKind};
pub(crate) use cuda::{Api, count_devices};
pub(crate) use file_locks::ByteLock;
pub(crate) use graph::{GraphExecHandle, GraphHandle, UpdateRefusal};
pub(crate) use host::HostMemory;
pub(crate) use host_function::Repeated;
pub(crate) use ipc::IpcHandle;
pub(crate) use memory::{check_part, check_range};
pub(crate) use module::{FunctionHandle, ModuleHandle, Shape, Value, with_array};
pub(crate) use nvml::Nvml;
pub(crate) use passing::{own_user, peer_user, receive_descriptors, send_descriptors};
pub(crate) use pinned::{EventQuery, HostDriver};
pub(crate) use pools::PoolNumber;
pub(crate) use shared_pages::{ProcessName, take_descriptors};
pub(crate) use source::Source;
pub(crate) use stream::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_EXTERNAL, EVENT_INTERPROCESS};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
pub(crate) use crate::base::handles::{CaptureMode, MemInfo};
pub(crate) use crate::base::handles::{CapturePoint, EventHandle, NodeHandle, PageHandle, StreamRef};

/// What the caching allocator needs of a driver.
///
/// Each function makes the device's context current first, and returns the driver's own error. The allocator is
/// written against this trait alone, so that it can be run without any driver.
pub(crate) trait Driver {
    /// Allocates `bytes` of device memory; the address is never 0.
    ///
    /// # Errors
    /// The driver's error.
    fn mem_alloc(&self, device: DeviceIndex, bytes: u64) -> Result<u64>;

    /// Gives memory back to the driver.
    ///
    /// # Errors
    /// The driver's error; the memory then still counts as allocated.
    fn mem_free(&self, device: DeviceIndex, address: u64) -> Result<()>;

    /// Free and total memory.
    ///
    /// # Errors
    /// The driver's error.
    fn mem_get_info(&self, device: DeviceIndex) -> Result<MemInfo>;

    /// Memory of the device in bytes.
    ///
    /// # Errors
    /// The driver's error.
    fn total_memory(&self, device: DeviceIndex) -> Result<u64>;

    /// Reserves a range of addresses without memory behind them; it never begins at 0.
    ///
    /// # Errors
    /// The driver's error.
    fn reserve_range(&self, device: DeviceIndex, bytes: u64) -> Result<u64>;

    /// Gives a range of addresses back, in which nothing is mapped.
    ///
    /// # Errors
    /// The driver's error; the range then still counts as reserved.
    fn release_range(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()>;

    /// Puts memory behind a part of a range, in pages of `page` bytes.
    ///
    /// # Errors
    /// The driver's error; none of the pages is mapped then.
    fn map_pages(&self, device: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()>;

    /// Unmaps and frees the memory behind a part of a range, page by page. Returns the bytes that are no longer mapped,
    /// counted from the front, and the driver's error if those are not all.
    fn unmap_pages(&self, device: DeviceIndex, address: u64, bytes: u64, page: u64) -> (u64, Result<()>);

    /// Makes a page of `bytes` bytes, which is behind no address yet.
    ///
    /// # Errors
    /// The driver's error.
    fn create_page(&self, device: DeviceIndex, bytes: u64) -> Result<PageHandle>;

    /// Gives a page back. Where it is still mapped its memory goes with the last mapping.
    ///
    /// # Errors
    /// The driver's error; the page then still counts as made.
    fn release_page(&self, device: DeviceIndex, page: PageHandle) -> Result<()>;

    /// Puts a page of `bytes` bytes behind a part of a range that has none; it may be behind another part too. Nothing can
    /// be read or written there before [`Self::allow_access`].
    ///
    /// # Errors
    /// The driver's error.
    fn map_page(&self, device: DeviceIndex, address: u64, bytes: u64, page: PageHandle) -> Result<()>;

    /// Lets the device read and write pages that are behind a part of a range.
    ///
    /// # Errors
    /// The driver's error.
    fn allow_access(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()>;

    /// Takes the page of `bytes` bytes away from behind an address.
    ///
    /// # Errors
    /// The driver's error; the page is still there then.
    fn unmap_page(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()>;

    /// Makes later work of a stream wait for an event, on the device.
    ///
    /// # Errors
    /// The driver's error.
    fn stream_wait(&self, stream: StreamRef, event: EventHandle) -> Result<()>;

    /// Blocks until the work queued on a stream is done.
    ///
    /// # Errors
    /// The driver's error.
    fn stream_synchronize(&self, stream: StreamRef) -> Result<()>;

    /// Makes an event without timing.
    ///
    /// # Errors
    /// The driver's error.
    fn event_create(&self, device: DeviceIndex) -> Result<EventHandle>;

    /// Destroys an event.
    ///
    /// # Errors
    /// The driver's error.
    fn event_destroy(&self, event: EventHandle) -> Result<()>;

    /// Records an event after the work queued on a stream so far.
    ///
    /// # Errors
    /// The driver's error; the event then marks the same work as before.
    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()>;

    /// Whether the work before the event is done.
    ///
    /// # Errors
    /// The driver's error; not being ready is not one.
    fn event_query(&self, event: EventHandle) -> Result<bool>;

    /// Blocks until the work before the event is done.
    ///
    /// # Errors
    /// The driver's error.
    fn event_synchronize(&self, event: EventHandle) -> Result<()>;

    /// Number of the capture that the stream takes part in; `None` when it captures nothing.
    ///
    /// # Errors
    /// The driver's error.
    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>>;

    /// Whether events can order the work of a stream now: it takes no part in a capture, and does not order itself with
    /// a stream that does, as the default stream may. An event recorded there would end the capture.
    ///
    /// # Errors
    /// The driver's error.
    fn takes_events(&self, stream: StreamRef) -> Result<bool>;

    /// The point that a stream has reached in the capture that it takes part in; `None` when it captures nothing.
    ///
    /// # Errors
    /// The driver's error.
    fn capture_point(&self, stream: StreamRef) -> Result<Option<CapturePoint>>;

    /// The nodes that a node of a capture follows directly.
    ///
    /// # Errors
    /// The driver's error.
    fn node_dependencies(&self, node: NodeHandle) -> Result<Vec<NodeHandle>>;

    /// Sets this thread's capture mode and returns the mode before.
    ///
    /// # Errors
    /// The driver's error.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;

    /// Tells the driver that a block was handed out for use on a stream, of which so many bytes were asked for. Only a
    /// driver that asks is told.
    fn tell_handed_out(&self, _address: u64, _bytes: u64, _stream: StreamRef) {}

    /// Tells the driver that the block at an address was given back.
    fn tell_given_back(&self, _address: u64) {}

    /// Whether another runtime of this process captures with this driver.
    fn others_capture(&self) -> bool {
        false
    }
}

/// Lets this thread make calls that a capture would forbid, or that would spoil it, until dropped.
pub(crate) struct Relaxed<'a, D: Driver> {
    driver: &'a D,
    before: Option<CaptureMode>,
}

impl<'a, D: Driver> Relaxed<'a, D> {
    /// Relaxes the mode if `needed`, and where another runtime captures.
    #[inline]
    pub(crate) fn new(driver: &'a D, needed: bool) -> Result<Self> {
        let before = if needed || driver.others_capture() {
            Some(driver.exchange_capture_mode(CaptureMode::Relaxed)?)
        } else {
            None
        };
        Ok(Self { driver, before })
    }
}

impl<D: Driver> Drop for Relaxed<'_, D> {
    fn drop(&mut self) {
        // A failure cannot be returned here. It leaves the thread relaxed, which forbids less than before.
        let _ = self.before.map(|mode| self.driver.exchange_capture_mode(mode));
    }
}
