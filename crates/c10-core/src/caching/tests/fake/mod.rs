//! The fake driver: the trait [`Driver`] over plain numbers, for all tests of the allocator.
//!
//! It answers as a driver does, remembers what it was asked, and fails the test that uses it wrongly: a segment freed
//! twice, a page mapped twice, an event queried that was never recorded, a range released with pages in it. A test takes
//! [`FakeDriver::new`] and adds what it needs of the `with_...` and `without_...` functions; it reads and changes the
//! parts through [`FakeDriver::memory`], [`FakeDriver::events`], [`FakeDriver::captures`] and [`FakeDriver::calls`].
//!
//! Reading order: `memory` (segments and bytes), `pages` (address ranges and what is mapped in them), `events`,
//! `captures`, `calls` (which calls fail or wait).
//!
//! **Invariants:** any number of threads may call. Each part has its own lock; no call holds two of them, and none is
//! held while a call waits. There is one device.

mod calls;
mod captures;
mod events;
mod memory;
mod pages;

pub(crate) use captures::{Capturing, own_capture};
pub(crate) use memory::Addresses;

use std::sync::{Mutex, MutexGuard, PoisonError};

use calls::{Calls, Pairs};
use captures::Captures;
use cuda_sys::{CUresult, CallError};
use events::Events;
use memory::Memory;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::{
    CaptureMode, CapturePoint, EventHandle, MemInfo, NodeHandle, PageHandle, StreamHandle, StreamRef,
};
use crate::driver::Driver;

/// The driver.
#[derive(Default)]
pub(crate) struct FakeDriver {
    memory: Mutex<Memory>,
    events: Mutex<Events>,
    captures: Mutex<Captures>,
    calls: Mutex<Calls>,
    pairs: Option<Pairs>,
}

impl FakeDriver {
    /// A device with that many bytes, on which no stream captures and events are pending until a test lets them pass.
    pub(crate) fn new(capacity: u64) -> Self {
        let driver = Self::default();
        driver.memory().capacity = capacity;
        driver
    }

    /// The device says that it has `total` bytes, however many can be taken.
    pub(crate) fn with_total(self, total: u64) -> Self {
        self.memory().total = Some(total);
        self
    }

    /// Segments and ranges are put at these addresses.
    pub(crate) fn with_addresses(self, segments: Addresses, ranges: Addresses) -> Self {
        self.memory().place(segments, ranges);
        self
    }

    /// Segments are put only where the test prescribes; a request for one more is a mistake.
    pub(crate) fn with_prescribed_segments_only(self) -> Self {
        self.memory().only_prescribed = true;
        self
    }

    /// A request for a range of addresses is a mistake.
    pub(crate) fn without_ranges(self) -> Self {
        self.memory().pages.refused = true;
        self
    }

    /// Events pass as soon as they are recorded.
    pub(crate) fn without_pending_events(self) -> Self {
        self.events().pass_at_once = true;
        self
    }

    /// Some streams capture from the beginning.
    pub(crate) fn with_captures(self, capturing: Capturing) -> Self {
        self.captures().capturing = capturing;
        self
    }

    /// The first request for memory waits for the second, which another thread has to make.
    pub(crate) fn with_paired_requests(self) -> Self {
        Self { pairs: Some(Pairs::default()), ..self }
    }

    /// Segments, bytes, ranges and pages.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Events and which of them have passed.
    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        lock(&self.events)
    }

    /// Captures, their nodes and the capture modes of threads.
    pub(crate) fn captures(&self) -> MutexGuard<'_, Captures> {
        lock(&self.captures)
    }

    /// How many calls were made, and which fails.
    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        lock(&self.calls)
    }

    /// Lets the events that were recorded on a stream so far pass.
    pub(crate) fn pass(&self, stream: usize) {
        self.events().pass(StreamHandle(stream));
    }

    fn call(&self, name: &'static str) -> Result<()> {
        self.calls().count(name)
    }
}

/// A failed test poisons locks, which says nothing about the numbers behind them.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a driver call.
fn failure(call: &'static str, status: CUresult) -> Error {
    CallError::Failed { call, status }.into()
}

/// Every function counts its call first, which may be the one that fails.
impl Driver for FakeDriver {
    fn mem_alloc(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        self.call("mem_alloc")?;
        self.pairs.as_ref().map_or(Ok(()), Pairs::meet)?;
        self.memory().alloc(bytes)
    }

    fn mem_free(&self, _: DeviceIndex, address: u64) -> Result<()> {
        self.call("mem_free")?;
        self.memory().free(address);
        Ok(())
    }

    fn mem_get_info(&self, _: DeviceIndex) -> Result<MemInfo> {
        self.call("mem_get_info")?;
        Ok(self.memory().info())
    }

    fn total_memory(&self, _: DeviceIndex) -> Result<u64> {
        self.call("total_memory")?;
        Ok(self.memory().info().total)
    }

    fn reserve_range(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        self.call("reserve_range")?;
        Ok(self.memory().reserve(bytes))
    }

    fn release_range(&self, _: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.call("release_range")?;
        self.memory().pages.release(address, bytes);
        Ok(())
    }

    fn map_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.call("map_pages")?;
        self.memory().map(address, bytes, page)
    }

    /// Each page is a call of its own, so that one in the middle can fail.
    fn unmap_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> (u64, Result<()>) {
        for at in pages::each(address, bytes, page) {
            if let Err(error) = self.call("unmap_pages") {
                return (at - address, Err(error));
            }
            self.memory().unmap(at, page);
        }
        self.memory().log.push(format!("segment_unmap {address:#x} {bytes}"));
        (bytes, Ok(()))
    }

    fn create_page(&self, _: DeviceIndex, bytes: u64) -> Result<PageHandle> {
        self.call("create_page")?;
        self.memory().create(bytes)
    }

    fn release_page(&self, _: DeviceIndex, page: PageHandle) -> Result<()> {
        self.call("release_page")?;
        self.memory().release(page);
        Ok(())
    }

    fn map_page(&self, _: DeviceIndex, address: u64, bytes: u64, page: PageHandle) -> Result<()> {
        self.call("map_page")?;
        self.memory().pages.map_made(address, bytes, page);
        Ok(())
    }

    fn allow_access(&self, _: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.call("allow_access")?;
        self.memory().pages.allow(address, bytes);
        Ok(())
    }

    fn unmap_page(&self, _: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.call("unmap_page")?;
        self.memory().unmap_made(address, bytes);
        Ok(())
    }

    fn stream_wait(&self, stream: StreamRef, event: EventHandle) -> Result<()> {
        self.call("stream_wait")?;
        self.events().wait(stream.handle, event);
        Ok(())
    }

    fn stream_synchronize(&self, _: StreamRef) -> Result<()> {
        self.call("stream_synchronize")
    }

    fn event_create(&self, _: DeviceIndex) -> Result<EventHandle> {
        self.call("event_create")?;
        Ok(self.events().create())
    }

    fn event_destroy(&self, event: EventHandle) -> Result<()> {
        self.call("event_destroy")?;
        self.events().destroy(event);
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        self.call("event_record")?;
        self.events().record(event, stream.handle);
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.call("event_query")?;
        Ok(self.events().query(event))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.call("event_synchronize")?;
        self.events().synchronize(event);
        Ok(())
    }

    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        self.call("capture_id")?;
        Ok(self.captures().id_of(stream.handle))
    }

    fn takes_events(&self, stream: StreamRef) -> Result<bool> {
        self.capture_id(stream).map(|id| id.is_none())
    }

    fn capture_point(&self, stream: StreamRef) -> Result<Option<CapturePoint>> {
        self.call("capture_point")?;
        Ok(self.captures().point_of(stream.handle))
    }

    fn node_dependencies(&self, node: NodeHandle) -> Result<Vec<NodeHandle>> {
        self.call("node_dependencies")?;
        Ok(self.captures().dependencies_of(node))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.call("exchange_capture_mode")?;
        Ok(self.captures().exchange_mode(mode))
    }
}
