//! A driver that answers as the peer's simulated runtime does: the same addresses, the same capacity, and events that
//! pass in the order in which a stream reached them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::{CUresult, CallError};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::{CaptureMode, CapturePoint, EventHandle, MemInfo, NodeHandle, StreamHandle, StreamRef};
use crate::driver::Driver;

const FIRST_SEGMENT: u64 = 0x7000_0000_0000;
const SEGMENT_STEP: u64 = 2 << 20;
const FIRST_RANGE: u64 = 0x6000_0000_0000;
const GAP_BETWEEN_RANGES: u64 = 1 << 30;

/// Addresses are never used again.
pub(crate) struct Simulated {
    pub(crate) capacity: Cell<u64>,
    total: u64,
    used: Cell<u64>,
    next_segment: Cell<u64>,
    next_range: Cell<u64>,
    segments: RefCell<BTreeMap<u64, u64>>,
    pages: RefCell<BTreeMap<u64, u64>>,
    next_event: Cell<usize>,
    /// Events that are or were recorded.
    events: RefCell<BTreeMap<EventHandle, Recorded>>,
    /// How many events were recorded on each stream.
    recorded: RefCell<BTreeMap<StreamHandle, u64>>,
    /// How many of them have passed.
    passed: RefCell<BTreeMap<StreamHandle, u64>>,
    /// Events recorded since the last call of [`Simulated::take_noted`].
    fresh: RefCell<Vec<EventHandle>>,
    /// Those that somebody learned have passed.
    seen: RefCell<BTreeSet<EventHandle>>,
}

/// What an event stands for.
#[derive(Clone, Copy)]
struct Recorded {
    stream: StreamHandle,
    /// Its number on the stream.
    number: u64,
    /// Whether the peer may have recorded it before or after others of the same moment.
    shuffled: bool,
}

/// What happened to events in one operation.
pub(crate) struct Noted {
    /// Streams of which an event was found to have passed.
    pub(crate) streams: usize,
    /// Shuffled events that were found to have passed.
    pub(crate) shuffled: usize,
}

impl Simulated {
    pub(crate) fn new(capacity: u64, total: u64) -> Self {
        Self {
            capacity: Cell::new(capacity),
            total,
            used: Cell::new(0),
            next_segment: Cell::new(FIRST_SEGMENT),
            next_range: Cell::new(FIRST_RANGE),
            segments: RefCell::default(),
            pages: RefCell::default(),
            next_event: Cell::new(1),
            events: RefCell::default(),
            recorded: RefCell::default(),
            passed: RefCell::default(),
            fresh: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    /// Bytes that are lent.
    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }

    /// Lets the events recorded on a stream so far pass.
    pub(crate) fn pass(&self, stream: StreamHandle) {
        let recorded = self.recorded.borrow().get(&stream).copied().unwrap_or(0);
        self.passed.borrow_mut().insert(stream, recorded);
    }

    /// What happened to events since the last call. The events recorded since then may be in any order if they are
    /// to be shuffled.
    pub(crate) fn take_noted(&self, shuffle: bool) -> Noted {
        let mut events = self.events.borrow_mut();
        for event in self.fresh.take() {
            events.entry(event).and_modify(|recorded| recorded.shuffled = shuffle);
        }
        let seen: Vec<Recorded> = self.seen.take().iter().map(|event| events[event]).collect();
        let streams: BTreeSet<StreamHandle> = seen.iter().map(|recorded| recorded.stream).collect();
        let shuffled = seen.iter().filter(|recorded| recorded.shuffled).count();
        Noted { streams: streams.len(), shuffled }
    }

    /// Whether shuffled events have not passed.
    pub(crate) fn awaits_shuffled(&self) -> bool {
        self.events.borrow().values().any(|recorded| recorded.shuffled && !self.has_passed(recorded))
    }

    fn has_passed(&self, recorded: &Recorded) -> bool {
        self.passed.borrow().get(&recorded.stream).is_some_and(|passed| *passed >= recorded.number)
    }

    fn lend(&self, bytes: u64) -> Result<()> {
        let status = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let used = self.used.get() + bytes;
        if used > self.capacity.get() {
            return Err(Error::from(CallError::Failed { call: "simulated", status }));
        }
        self.used.set(used);
        Ok(())
    }
}

impl Driver for Simulated {
    fn mem_alloc(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        self.lend(bytes)?;
        let address = self.next_segment.get();
        self.next_segment.set(address + bytes.next_multiple_of(SEGMENT_STEP));
        self.segments.borrow_mut().insert(address, bytes);
        Ok(address)
    }

    fn mem_free(&self, _: DeviceIndex, address: u64) -> Result<()> {
        let bytes = self.segments.borrow_mut().remove(&address).expect("only segments are given back");
        self.used.set(self.used.get() - bytes);
        Ok(())
    }

    fn mem_get_info(&self, _: DeviceIndex) -> Result<MemInfo> {
        // The peer's runtime subtracts without looking, and its allocator prints what comes out.
        Ok(MemInfo { free: self.capacity.get().wrapping_sub(self.used.get()), total: self.total })
    }

    fn total_memory(&self, _: DeviceIndex) -> Result<u64> {
        Ok(self.total)
    }

    fn reserve_range(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        let address = self.next_range.get();
        self.next_range.set(address + bytes + GAP_BETWEEN_RANGES);
        Ok(address)
    }

    fn release_range(&self, _: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        let left = self.pages.borrow().range(address..address + bytes).count();
        assert_eq!(left, 0, "a range with pages is released");
        Ok(())
    }

    fn map_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.lend(bytes)?;
        for at in (address..address + bytes).step_by(usize::try_from(page).unwrap()) {
            assert_eq!(self.pages.borrow_mut().insert(at, page), None, "mapped twice");
        }
        Ok(())
    }

    fn unmap_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> (u64, Result<()>) {
        for at in (address..address + bytes).step_by(usize::try_from(page).unwrap()) {
            assert_eq!(self.pages.borrow_mut().remove(&at), Some(page), "only mapped pages are unmapped");
        }
        self.used.set(self.used.get() - bytes);
        (bytes, Ok(()))
    }

    fn stream_synchronize(&self, _: StreamRef) -> Result<()> {
        Ok(())
    }

    fn event_create(&self, _: DeviceIndex) -> Result<EventHandle> {
        let event = self.next_event.get();
        self.next_event.set(event + 1);
        Ok(EventHandle(event))
    }

    fn event_destroy(&self, event: EventHandle) -> Result<()> {
        self.events.borrow_mut().remove(&event);
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        let mut recorded = self.recorded.borrow_mut();
        let number = recorded.entry(stream.handle).or_default();
        *number += 1;
        let recorded = Recorded { stream: stream.handle, number: *number, shuffled: false };
        self.events.borrow_mut().insert(event, recorded);
        self.fresh.borrow_mut().push(event);
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        let passed = self.has_passed(&self.events.borrow()[&event]);
        if passed {
            self.seen.borrow_mut().insert(event);
        }
        Ok(passed)
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        let Recorded { stream, number, .. } = self.events.borrow()[&event];
        let mut passed = self.passed.borrow_mut();
        let passed = passed.entry(stream).or_default();
        *passed = number.max(*passed);
        self.seen.borrow_mut().insert(event);
        Ok(())
    }

    /// Each stream takes part in a capture of its own, so that a scope can take the allocations of one stream.
    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        Ok(Some(capture_of(stream.handle)))
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

/// The number of a stream's capture; 0 would be none.
pub(crate) fn capture_of(stream: StreamHandle) -> u64 {
    stream.0 as u64 + 1
}
