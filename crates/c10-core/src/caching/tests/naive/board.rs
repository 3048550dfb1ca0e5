//! A driver for several threads. Segments are put where a script says, and as many events of a stream pass as the
//! script lets pass, in the order in which they were recorded.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{CaptureMode, CapturePoint, EventHandle, MemInfo, NodeHandle, StreamRef};
use crate::caching::tests::naive::CAPTURED;
use crate::driver::Driver;
use cuda_sys::{CUresult, CallError};

/// The driver.
#[derive(Default)]
pub(crate) struct Board(Mutex<Table>);

/// What it knows.
#[derive(Default)]
pub(crate) struct Table {
    /// Bytes of the device.
    pub(crate) capacity: u64,
    /// Where the next segment is put.
    pub(crate) place: u64,
    /// Sizes by address.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// The stream and number of each event that was recorded.
    events: BTreeMap<usize, (usize, u64)>,
    /// Events made so far.
    made: usize,
    /// Events recorded on each stream.
    pub(crate) recorded: BTreeMap<usize, u64>,
    /// How many of them have passed.
    pub(crate) passed: BTreeMap<usize, u64>,
}

impl Board {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn used(&self) -> u64 {
        self.segments.values().sum()
    }

    fn has_passed(&self, event: usize) -> bool {
        let (stream, number) = self.events[&event];
        number <= self.passed.get(&stream).copied().unwrap_or(0)
    }
}

impl Driver for Board {
    fn mem_alloc(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        let mut table = self.table();
        if table.used() + bytes > table.capacity {
            return Err(CallError::Failed { call: "mem_alloc", status: CUresult::CUDA_ERROR_OUT_OF_MEMORY }.into());
        }
        let address = table.place;
        assert_eq!(table.segments.insert(address, bytes), None, "two segments for one request");
        Ok(address)
    }

    fn mem_free(&self, _: DeviceIndex, address: u64) -> Result<()> {
        self.table().segments.remove(&address).expect("only segments are given back");
        Ok(())
    }

    fn mem_get_info(&self, _: DeviceIndex) -> Result<MemInfo> {
        let table = self.table();
        Ok(MemInfo { free: table.capacity - table.used(), total: table.capacity })
    }

    fn total_memory(&self, _: DeviceIndex) -> Result<u64> {
        Ok(self.table().capacity)
    }

    fn reserve_range(&self, _: DeviceIndex, _: u64) -> Result<u64> {
        unreachable!("no expandable segments")
    }

    fn release_range(&self, _: DeviceIndex, _: u64, _: u64) -> Result<()> {
        unreachable!("no expandable segments")
    }

    fn map_pages(&self, _: DeviceIndex, _: u64, _: u64, _: u64) -> Result<()> {
        unreachable!("no expandable segments")
    }

    fn unmap_pages(&self, _: DeviceIndex, _: u64, _: u64, _: u64) -> (u64, Result<()>) {
        unreachable!("no expandable segments")
    }

    fn stream_synchronize(&self, _: StreamRef) -> Result<()> {
        Ok(())
    }

    fn event_create(&self, _: DeviceIndex) -> Result<EventHandle> {
        let mut table = self.table();
        table.made += 1;
        Ok(EventHandle(table.made))
    }

    fn event_destroy(&self, _: EventHandle) -> Result<()> {
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        let mut table = self.table();
        let number = table.recorded.entry(stream.handle.0).or_default();
        *number += 1;
        let number = *number;
        table.events.insert(event.0, (stream.handle.0, number));
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        Ok(self.table().has_passed(event.0))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        let mut table = self.table();
        let (stream, number) = table.events[&event.0];
        let passed = table.passed.entry(stream).or_default();
        *passed = number.max(*passed);
        Ok(())
    }

    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        Ok((stream.handle.0 >= CAPTURED).then_some(7))
    }

    fn capture_point(&self, _: StreamRef) -> Result<Option<CapturePoint>> {
        Ok(None)
    }

    fn node_dependencies(&self, _: NodeHandle) -> Result<Vec<NodeHandle>> {
        unreachable!("no stream is at a node")
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        Ok(mode)
    }
}
