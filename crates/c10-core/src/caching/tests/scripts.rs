//! The allocator against a driver made of numbers: torch's golden figures, failures of every call, random scripts.
//!
//! Scripts are lists of steps: `a k n` allocates n bytes as k on stream 0 (`a k@16 n` on stream 16), `f k` frees,
//! `r k s` records k on stream s, `done s` lets all events of stream s pass, `e` empties the cache, `begin` and `end`
//! route allocations of capture 7 (streams from 100 on) to private pool (1, 0), `release` gives up one use of it;
//! `at s n…` says which nodes of the capture a stream has come to, `edge n m…` which nodes one follows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, MemoryError, PoolError};
use crate::base::handles::StreamRef;
use crate::base::handles::{CaptureMode, CapturePoint, EventHandle, MemInfo, NodeHandle, StreamHandle};
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use crate::driver::Driver;
use cuda_sys::{CUresult, CallError};

const PAGE: u64 = 2 << 20;
const POOL: PoolId = PoolId(1, 0);

/// Hands out numbers and remembers them.
pub(crate) struct Model {
    pub(crate) capacity: Cell<u64>,
    next_address: Cell<u64>,
    /// Addresses to hand out before any other.
    pub(crate) prescribed: RefCell<VecDeque<u64>>,
    /// Addresses that are mapped first in a range to come.
    pub(crate) prescribed_maps: RefCell<VecDeque<u64>>,
    /// Address ranges by their first address.
    pub(crate) ranges: RefCell<BTreeMap<u64, u64>>,
    /// Pages that are mapped, and their size.
    pages: RefCell<BTreeMap<u64, u64>>,
    /// Segments taken and given back, as a script of golden data writes them.
    pub(crate) log: RefCell<Vec<String>>,
    /// Streams that take part in a capture, and its number.
    pub(crate) capturing: Cell<Option<(usize, u64)>>,
    /// The nodes that streams have come to in that capture.
    points: RefCell<BTreeMap<usize, Vec<usize>>>,
    /// What nodes follow directly.
    edges: RefCell<BTreeMap<usize, Vec<usize>>>,
    held: RefCell<BTreeMap<u64, u64>>,
    next_event: Cell<usize>,
    /// Events and the stream each was last recorded on.
    events: RefCell<HashMap<usize, Option<StreamHandle>>>,
    pub(crate) pending: RefCell<BTreeSet<usize>>,
    /// Streams on which new events pass at once.
    pub(crate) idle: RefCell<BTreeSet<StreamHandle>>,
    pub(crate) calls: Cell<u64>,
    /// Call that fails, counted from 1.
    pub(crate) fails: Cell<u64>,
    /// Functions that have failed so.
    failed: RefCell<BTreeSet<&'static str>>,
}

impl Model {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity: Cell::new(capacity),
            next_address: Cell::new(PAGE),
            prescribed: RefCell::default(),
            prescribed_maps: RefCell::default(),
            ranges: RefCell::default(),
            pages: RefCell::default(),
            log: RefCell::default(),
            capturing: Cell::new(Some((100, 7))),
            points: RefCell::default(),
            edges: RefCell::default(),
            held: RefCell::default(),
            next_event: Cell::new(1),
            events: RefCell::default(),
            pending: RefCell::default(),
            idle: RefCell::default(),
            calls: Cell::new(0),
            fails: Cell::new(0),
            failed: RefCell::default(),
        }
    }

    /// Lets the next call fail.
    pub(crate) fn fail_next(&self) {
        self.fail_call(1);
    }

    /// Lets a call to come fail: 1 is the next.
    pub(crate) fn fail_call(&self, number: u64) {
        self.fails.set(self.calls.get() + number);
    }

    fn call(&self, name: &'static str) -> Result<()> {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() != self.fails.get() {
            return Ok(());
        }
        self.failed.borrow_mut().insert(name);
        Err(failure(CUresult::CUDA_ERROR_LAUNCH_FAILED))
    }

    fn used(&self) -> u64 {
        self.held.borrow().values().sum::<u64>() + self.pages.borrow().values().sum::<u64>()
    }

    fn fresh(&self, bytes: u64) -> u64 {
        self.next_address.replace(self.next_address.get() + bytes.next_multiple_of(PAGE))
    }

    /// Whether an address lies in a range.
    fn is_reserved(&self, address: u64) -> bool {
        let ranges = self.ranges.borrow();
        ranges.range(..=address).next_back().is_some_and(|(begin, bytes)| address < begin + bytes)
    }

    pub(crate) fn pass(&self, stream: usize) {
        let events = self.events.borrow();
        self.pending.borrow_mut().retain(|event| events[event] != Some(StreamHandle(stream)));
    }
}

fn failure(status: CUresult) -> Error {
    CallError::Failed { call: "model", status }.into()
}

impl Driver for Model {
    fn mem_alloc(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        self.call("mem_alloc")?;
        if self.used() + bytes > self.capacity.get() {
            return Err(failure(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        let address = self.prescribed.borrow_mut().pop_front().unwrap_or_else(|| self.fresh(bytes));
        self.log.borrow_mut().push(format!("segment_alloc {address:#x} {bytes}"));
        self.held.borrow_mut().insert(address, bytes);
        Ok(address)
    }

    fn mem_free(&self, _: DeviceIndex, address: u64) -> Result<()> {
        self.call("mem_free")?;
        let bytes = self.held.borrow_mut().remove(&address).expect("only held segments are freed");
        self.log.borrow_mut().push(format!("segment_free {address:#x} {bytes}"));
        Ok(())
    }

    fn mem_get_info(&self, _: DeviceIndex) -> Result<MemInfo> {
        self.call("mem_get_info")?;
        Ok(MemInfo { free: self.capacity.get().saturating_sub(self.used()), total: self.capacity.get() })
    }

    fn total_memory(&self, _: DeviceIndex) -> Result<u64> {
        self.call("total_memory")?;
        Ok(self.capacity.get())
    }

    fn reserve_range(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        self.call("reserve_range")?;
        let mut maps = self.prescribed_maps.borrow_mut();
        let position = maps.iter().position(|address| !self.is_reserved(*address));
        let address = position.and_then(|position| maps.remove(position)).unwrap_or_else(|| self.fresh(bytes));
        self.ranges.borrow_mut().insert(address, bytes);
        Ok(address)
    }

    fn release_range(&self, _: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.call("release_range")?;
        assert_eq!(self.pages.borrow().range(address..address + bytes).next(), None, "a range with pages is released");
        let held = self.ranges.borrow_mut().remove(&address);
        assert_eq!(held, Some(bytes), "only whole ranges are released");
        Ok(())
    }

    fn map_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.call("map_pages")?;
        if self.used() + bytes > self.capacity.get() {
            return Err(failure(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        assert!(self.is_reserved(address) && self.is_reserved(address + bytes - 1), "mapped outside of a range");
        self.log.borrow_mut().push(format!("segment_map {address:#x} {bytes}"));
        for at in (address..address + bytes).step_by(usize::try_from(page).unwrap()) {
            assert_eq!(self.pages.borrow_mut().insert(at, page), None, "mapped twice");
        }
        Ok(())
    }

    fn unmap_pages(&self, _: DeviceIndex, address: u64, bytes: u64, page: u64) -> (u64, Result<()>) {
        for at in (address..address + bytes).step_by(usize::try_from(page).unwrap()) {
            if let Err(error) = self.call("unmap_pages") {
                return (at - address, Err(error));
            }
            assert_eq!(self.pages.borrow_mut().remove(&at), Some(page), "only mapped pages are unmapped");
        }
        self.log.borrow_mut().push(format!("segment_unmap {address:#x} {bytes}"));
        (bytes, Ok(()))
    }

    fn stream_synchronize(&self, _: StreamRef) -> Result<()> {
        self.call("stream_synchronize")
    }

    fn event_create(&self, _: DeviceIndex) -> Result<EventHandle> {
        self.call("event_create")?;
        let event = self.next_event.get();
        self.next_event.set(event + 1);
        self.events.borrow_mut().insert(event, None);
        Ok(EventHandle(event))
    }

    fn event_destroy(&self, event: EventHandle) -> Result<()> {
        self.call("event_destroy")?;
        self.events.borrow_mut().remove(&event.0).expect("only live events are destroyed");
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        self.call("event_record")?;
        self.events.borrow_mut().insert(event.0, Some(stream.handle));
        if !self.idle.borrow().contains(&stream.handle) {
            self.pending.borrow_mut().insert(event.0);
        }
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.call("event_query")?;
        Ok(!self.pending.borrow().contains(&event.0))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.call("event_synchronize")?;
        self.pending.borrow_mut().remove(&event.0);
        Ok(())
    }

    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        self.call("capture_id")?;
        Ok(self.capturing.get().filter(|(first, _)| stream.handle.0 >= *first).map(|(_, id)| id))
    }

    fn capture_point(&self, stream: StreamRef) -> Result<Option<CapturePoint>> {
        self.call("capture_point")?;
        let capture = self.capturing.get().filter(|(first, _)| stream.handle.0 >= *first).map(|(_, id)| id);
        let points = self.points.borrow();
        let nodes = points.get(&stream.handle.0).into_iter().flatten().map(|node| NodeHandle(*node));
        Ok(capture.map(|capture| CapturePoint { capture, nodes: nodes.collect() }))
    }

    fn node_dependencies(&self, node: NodeHandle) -> Result<Vec<NodeHandle>> {
        self.call("node_dependencies")?;
        Ok(self.edges.borrow().get(&node.0).into_iter().flatten().map(|node| NodeHandle(*node)).collect())
    }

    fn exchange_capture_mode(&self, _: CaptureMode) -> Result<CaptureMode> {
        self.call("exchange_capture_mode")?;
        Ok(CaptureMode::Global)
    }
}

pub(crate) fn on(stream: usize) -> StreamRef {
    StreamRef { device: DeviceIndex(0), handle: StreamHandle(stream) }
}

/// A model, an allocator on it, and what a script holds.
pub(crate) struct Bench {
    pub(crate) model: Model,
    pub(crate) allocator: CachingAllocator,
    pub(crate) held: BTreeMap<String, u64>,
    /// Bytes asked for at each address, the last time it was handed out.
    sizes: BTreeMap<u64, u64>,
}

impl Bench {
    fn new(capacity: u64) -> Self {
        Self::with(capacity, "")
    }

    /// With options.
    pub(crate) fn with(capacity: u64, options: &str) -> Self {
        Self {
            model: Model::new(capacity),
            allocator: CachingAllocator::new(1, &Arc::new(AllocatorConfig::default().parse(options).unwrap())),
            held: BTreeMap::new(),
            sizes: BTreeMap::new(),
        }
    }

    /// Runs a script of steps that must all succeed.
    pub(crate) fn run(&mut self, script: &str) -> DeviceStats {
        for step in script.split(',') {
            self.step(step).unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        self.stats()
    }

    pub(crate) fn stats(&self) -> DeviceStats {
        self.allocator.stats(DeviceIndex(0)).unwrap()
    }

    /// Does one step and checks the books, whatever it answered.
    pub(crate) fn step(&mut self, step: &str) -> Result<()> {
        let words: Vec<&str> = step.split_whitespace().collect();
        let result = self.act(&words);
        assert_eq!(self.allocator.inconsistency(), None, "after {step}");
        let reserved = u64::try_from(self.stats().reserved_bytes.all.current).unwrap();
        assert_eq!(reserved, self.model.used(), "after {step}");
        result
    }

    pub(crate) fn act(&mut self, words: &[&str]) -> Result<()> {
        let Self { model, allocator, held, sizes } = self;
        let number = |text: &str| {
            let (digits, zeros) = text.split_once('e').unwrap_or((text, "0"));
            digits.parse::<usize>().unwrap() * 10_usize.pow(zeros.parse().unwrap())
        };
        match words {
            ["a", name, bytes] => {
                let (name, stream) = name.split_once('@').map_or((*name, 0), |(name, on)| (name, number(on)));
                let address = allocator.alloc(model, on(stream), number(bytes) as u64)?;
                assert_eq!(held.insert(name.to_owned(), address), None);
                sizes.insert(address, number(bytes) as u64);
            }
            ["f", name] => held.remove(*name).map_or(Ok(()), |address| allocator.free(model, address))?,
            ["r", name, stream] => {
                held.get(*name).map_or(Ok(()), |address| allocator.record_stream(*address, on(number(stream))))?;
            }
            ["done", stream] => model.pass(number(stream)),
            ["e"] => allocator.empty_cache(model)?,
            ["at", stream, nodes @ ..] => {
                model.points.borrow_mut().insert(number(stream), nodes.iter().map(|node| number(node)).collect());
            }
            ["edge", node, before @ ..] => {
                model.edges.borrow_mut().insert(number(node), before.iter().map(|node| number(node)).collect());
            }
            ["begin"] => {
                let filter = Filter::Capture(Arc::new(AtomicU64::new(7)));
                allocator.begin_allocate_to_pool(DeviceIndex(0), POOL, filter)?;
            }
            ["end"] => allocator.end_allocate_to_pool(DeviceIndex(0), POOL)?,
            ["release"] => allocator.release_pool(DeviceIndex(0), POOL)?,
            other => panic!("no step {other:?}"),
        }
        Ok(())
    }
}

/// The most bytes to hold when a part of the device's memory may be held.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of the device's memory"
)]
pub(crate) fn limit(total: u64, part: f64) -> Option<u64> {
    (part < 1.0).then_some((total as f64 * part) as u64)
}

pub(crate) fn figures(stat: &StatByPool) -> [i64; 4] {
    let Stat { current, peak, allocated, freed } = stat.all;
    [current, peak, allocated, freed]
}

#[test]
fn golden_small_pool() {
    let stats = Bench::new(64 << 30).run("a 1 1, a 2 600, a 3 1048576, f 2, f 1");
    assert_eq!(figures(&stats.allocation), [1, 3, 3, 2]);
    assert_eq!(figures(&stats.segment), [1, 1, 1, 0]);
    assert_eq!(figures(&stats.active), [1, 3, 3, 2]);
    assert_eq!(figures(&stats.inactive_split), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [1048576, 1050112, 1050112, 1536]);
    assert_eq!(figures(&stats.active_bytes), [1048576, 1050112, 1050112, 1536]);
    assert_eq!(figures(&stats.reserved_bytes), [2097152, 2097152, 2097152, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [1048576, 2096640, 2098176, 1049600]);
    assert_eq!(figures(&stats.requested_bytes), [1048576, 1049177, 1049177, 601]);
    assert_eq!(stats.num_device_alloc, 1);
    assert_eq!(stats.allocation.small_pool, stats.allocation.all);
}

#[test]
fn golden_large_pool() {
    let stats = Bench::new(64 << 30).run("a 1 3000000, a 2 9000000, a 3 10485760, a 4 12000000, f 1, a 5 2000000");
    assert_eq!(figures(&stats.allocation), [4, 4, 5, 1]);
    assert_eq!(figures(&stats.segment), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.inactive_split), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [35069440, 35069440, 38069760, 3000320]);
    assert_eq!(figures(&stats.reserved_bytes), [44040192, 44040192, 44040192, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [8970752, 17971200, 20971520, 12000768]);
    assert_eq!(figures(&stats.requested_bytes), [33485760, 34485760, 36485760, 3000000]);
    assert_eq!(stats.num_device_alloc, 3);
    assert_eq!(stats.allocation.large_pool, stats.allocation.all);
}

#[test]
fn golden_streams_do_not_share() {
    let stats = Bench::new(64 << 30).run("a 1 5000000, f 1, a 2@16 5000000, e");
    assert_eq!(figures(&stats.allocation), [1, 1, 2, 1]);
    assert_eq!(figures(&stats.segment), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.inactive_split), [1, 1, 2, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [5000192, 5000192, 10000384, 5000192]);
    assert_eq!(figures(&stats.reserved_bytes), [20971520, 41943040, 41943040, 20971520]);
    assert_eq!(figures(&stats.inactive_split_bytes), [15971328, 15971328, 31942656, 15971328]);
    assert_eq!(figures(&stats.requested_bytes), [5000000, 5000000, 10000000, 5000000]);
    assert_eq!((stats.num_sync_all_streams, stats.num_device_alloc, stats.num_device_free), (1, 2, 1));
}

#[test]
fn golden_recorded_blocks_wait_for_their_stream() {
    let stats = Bench::new(64 << 30).run("a 1 5000000, r 1 16, f 1, a 2 5000000, done 16, a 3 100");
    assert_eq!(figures(&stats.allocation), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.segment), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.active), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.inactive_split), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [5000704, 5000704, 10000896, 5000192]);
    assert_eq!(figures(&stats.active_bytes), [5000704, 10000384, 10000896, 5000192]);
    assert_eq!(figures(&stats.reserved_bytes), [23068672, 23068672, 23068672, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [18067968, 18067968, 23068160, 5000192]);
    assert_eq!(figures(&stats.requested_bytes), [5000100, 10000000, 10000100, 5000000]);
}

#[test]
fn golden_out_of_memory() {
    let mut bench = Bench::new(100_000_000);
    bench.run("a 1 50e6, a 2 30e6, f 2");
    let error = bench.step("a 3 60e6").unwrap_err();
    assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 58.00 MiB. GPU 0 has a total"));
    assert!(error.is_out_of_memory());
    let stats = bench.stats();
    assert_eq!(figures(&stats.allocation), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.segment), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.inactive_split), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [50331648, 80331776, 80331776, 30000128]);
    assert_eq!(figures(&stats.reserved_bytes), [50331648, 81788928, 81788928, 31457280]);
    assert_eq!(figures(&stats.inactive_split_bytes), [0, 1457152, 1457152, 1457152]);
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams), (1, 1, 1));
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (2, 1));
    bench.run("a 4 1e6, f 4, f 1");
}

#[test]
fn golden_private_pool_is_freed_after_its_release() {
    let mut bench = Bench::new(64 << 30);
    let stats = bench.run("begin, a 1@100 3e6, end, f 1, e, release, e");
    assert_eq!(figures(&stats.segment), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.inactive_split), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [0, 3000320, 3000320, 3000320]);
    assert_eq!(figures(&stats.reserved_bytes), [0, 20971520, 20971520, 20971520]);
    assert_eq!(figures(&stats.inactive_split_bytes), [0, 17971200, 17971200, 17971200]);
    assert_eq!((stats.num_sync_all_streams, stats.num_device_alloc, stats.num_device_free), (2, 1, 1));
}

#[test]
fn golden_blocks_recorded_before_a_scope_get_their_event_after_it() {
    let stats = Bench::new(64 << 30).run("a 1 5e6, r 1 16, begin, f 1, e, a 2 100, end, done 16, a 3 100");
    assert_eq!(figures(&stats.active), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.allocation), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.active_bytes), [5001216, 5001216, 5001216, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [1024, 5000192, 5001216, 5000192]);
    assert_eq!(figures(&stats.inactive_split), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [18067456, 18067968, 18067968, 512]);
    assert_eq!(figures(&stats.requested_bytes), [5000200, 5000200, 5000200, 0]);
    assert_eq!(stats.num_sync_all_streams, 0);
}

#[test]
fn blocks_recorded_inside_a_scope_are_free_after_it_without_an_event() {
    let mut bench = Bench::new(64 << 30);
    bench.run("begin, a 1@100 5e6, r 1 101, f 1, end");
    assert_eq!(bench.stats().active.all.current, 1);
    let stats = bench.run("a 2 100");
    assert_eq!(stats.active.all.current, 1, "the recorded block is free, the new one is not");
    assert!(bench.model.events.borrow().is_empty());
}

#[test]
fn a_scope_takes_only_its_own_streams() {
    let mut bench = Bench::new(64 << 30);
    bench.run("begin, a 1@100 100, a 2 100, end");
    assert_eq!(bench.allocator.owner(bench.held["1"]), Some(POOL));
    assert_eq!(bench.allocator.owner(bench.held["2"]), None);
    bench.run("f 1, f 2, a 3@100 100");
    assert_eq!(bench.allocator.owner(bench.held["3"]), None, "without a scope the default pool serves");
}

#[test]
fn a_pool_is_recorded_to_once() {
    let mut bench = Bench::new(64 << 30);
    bench.run("begin");
    assert_eq!(bench.step("begin"), Err(Error::Pool(PoolError::AlreadyRecording)));
    bench.run("end");
    assert_eq!(bench.step("end"), Err(Error::Pool(PoolError::NotRecording)));
    bench.run("begin, end, release, release");
    assert_eq!(bench.step("a 1 100"), Ok(()));
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let bench = Bench::new(64 << 30);
    let Bench { model, allocator, .. } = &bench;
    assert_eq!(allocator.alloc(model, on(0), 0), Ok(0));
    assert_eq!(allocator.free(model, 0), Ok(()));
    assert_eq!(allocator.record_stream(0, on(0)), Ok(()));
    let unknown = Error::Memory(MemoryError::InvalidPointer { address: 12345 });
    assert_eq!(unknown.to_string(), "invalid device pointer: 0x3039");
    assert_eq!(allocator.free(model, 12345), Err(unknown.clone()));
    assert_eq!(allocator.record_stream(12345, on(0)), Err(unknown));
    let error = allocator.alloc(model, on(0), 1 << 60).unwrap_err();
    assert_eq!(error.to_string(), "CUDA out of memory. Tried to allocate more than 1EB memory.");
    let address = allocator.alloc(model, on(0), 100).unwrap();
    assert_eq!(allocator.free(model, address), Ok(()));
    assert_eq!(allocator.free(model, address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
    let other = StreamRef { device: DeviceIndex(5), ..on(0) };
    assert_eq!(allocator.alloc(model, other, 100), Err(Error::Device(DeviceError::InvalidId)));
}

const TOUR: &str = "a 1 5e6, a 2 1000, a 3@16 3e6, r 1 16, r 1 32, r 2 16, f 1, a 4 2e6, done 16, f 2, a 5 5e6, \
     begin, a 6@100 4e6, r 6 101, r 4 16, at 100 1, at 101 2, f 6, f 4, edge 3 1 2, at 100 3, a 7@100 100, end, a 8 100, done 32, done 16, e, f 3, a 9 30e6, \
     a 10 80e6, f 5, f 7, f 8, f 9, release, e, done 16, done 32, e";

/// Every call fails once, at each place where the tour makes it: the books balance after each step, and when the
/// driver works again everything can be given back.
#[test]
fn any_driver_call_may_fail() {
    let (mut points, mut failed) = (0, BTreeSet::new());
    for options in OPTIONS {
        points += fail_each_call(options, &mut failed);
    }
    println!("failed {points} calls of {failed:?}");
    // Events are destroyed only at the end, when failures are passed over.
    assert_eq!(failed.len(), 17, "not every function of the driver has failed: {failed:?}");
    assert!(points > 150, "only {points} calls failed");
}

/// Option mixes that change what the allocator decides.
const OPTIONS: [&str; 5] = [
    "",
    "graph_capture_record_stream_reuse:True",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.3",
    "expandable_segments:True,roundup_power2_divisions:4,max_split_size_mb:32,garbage_collection_threshold:0.5",
];

fn fail_each_call(options: &str, failed: &mut BTreeSet<&'static str>) -> u64 {
    let new = || {
        let bench = Bench::with(100_000_000, options);
        bench.allocator.set_limit(DeviceIndex(0), Some(99_000_000)).unwrap();
        bench
    };
    let mut probe = new();
    TOUR.split(',').for_each(|step| drop(probe.step(step)));
    let calls = probe.model.calls.get();
    assert!(calls > 30, "the tour makes only {calls} calls");
    for failing in 1..=calls {
        let mut bench = new();
        bench.model.fails.set(failing);
        let mut errors = 0;
        for step in TOUR.split(',') {
            errors += usize::from(bench.step(step).is_err());
        }
        bench.model.fails.set(0);
        failed.extend(bench.model.failed.take());
        for name in bench.held.keys().cloned().collect::<Vec<_>>() {
            bench.run(&format!("f {name}"));
        }
        let _ = bench.step("release");
        [16, 32, 101].into_iter().for_each(|stream| bench.model.pass(stream));
        bench.run("e, e");
        assert_eq!(bench.model.used(), 0, "call {failing} failed, {errors} errors: memory is left");
        bench.allocator.dismantle(&bench.model);
        assert!(bench.model.events.borrow().is_empty(), "call {failing} failed: events are left");
        assert!(bench.model.ranges.borrow().is_empty(), "call {failing} failed: ranges are left");
    }
    calls
}

/// A generator of numbers that needs no package.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Random scripts with failing calls: the books balance after each step, no two live blocks overlap, and nothing is
/// handed out again before the streams it was recorded on have passed.
#[test]
fn random_scripts_keep_the_books() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let mut bench = Bench::with(200_000_000, OPTIONS[usize::try_from(seed % 5).unwrap()]);
        bench.allocator.set_limit(DeviceIndex(0), (seed % 3 == 0).then_some(150_000_000)).unwrap();
        let mut scoped = false;
        for step in 0..150 {
            bench.model.fails.set(if numbers.below(10) == 0 {
                bench.model.calls.get() + 1 + numbers.below(4)
            } else {
                0
            });
            let name = numbers.below(30);
            let stream = [0, 0, 0, 16, 32, 100, 101][usize::try_from(numbers.below(7)).unwrap()];
            let bytes = [1, 600, 5000, 900_000, 1_500_000, 5_000_000, 12_000_000, 40_000_000]
                [usize::try_from(numbers.below(8)).unwrap()]
                + numbers.below(512);
            let line = match numbers.below(12) {
                0..=4 if !bench.held.contains_key(&step.to_string()) => format!("a {step}@{stream} {bytes}"),
                5..=7 => {
                    format!(
                        "f {}",
                        bench.held.keys().nth(usize::try_from(name).unwrap()).cloned().unwrap_or("none".to_owned())
                    )
                }
                8 => format!("r {} {stream}", bench.held.keys().next().cloned().unwrap_or("none".to_owned())),
                9 => format!("done {stream}"),
                10 if numbers.below(4) == 0 => "e".to_owned(),
                11 if scoped => "end".to_owned(),
                11 => "begin".to_owned(),
                _ => continue,
            };
            let worked = bench.step(&line).is_ok();
            match line.as_str() {
                "begin" if worked => scoped = true,
                "end" if worked => {
                    scoped = false;
                    bench.run("release");
                }
                _ => {}
            }
            let mut end = 0;
            for address in bench.held.values().collect::<BTreeSet<_>>() {
                assert!(*address >= end, "seed {seed}: live blocks overlap after {line}");
                end = address + bench.sizes[address];
            }
        }
    }
}

/// A driver for several threads that has memory without end.
pub(crate) struct Plain {
    next: AtomicU64,
    /// Requests for memory are answered by twos.
    meets: bool,
    waiting: Mutex<usize>,
    met: Condvar,
}

impl Plain {
    pub(crate) fn new(meets: bool) -> Self {
        Self { next: AtomicU64::new(PAGE), meets, waiting: Mutex::default(), met: Condvar::new() }
    }

    /// Waits for another thread to be here too; an error if none comes.
    fn meet(&self) -> Result<()> {
        let mut waiting = self.waiting.lock().unwrap();
        *waiting += 1;
        self.met.notify_all();
        let alone = |waiting: &mut usize| *waiting < 2;
        let (_waiting, timeout) = self.met.wait_timeout_while(waiting, Duration::from_secs(60), alone).unwrap();
        if timeout.timed_out() { Err(failure(CUresult::CUDA_ERROR_LAUNCH_TIMEOUT)) } else { Ok(()) }
    }
}

impl Driver for Plain {
    fn mem_alloc(&self, _: DeviceIndex, bytes: u64) -> Result<u64> {
        if self.meets {
            self.meet()?;
        }
        Ok(self.next.fetch_add(bytes.next_multiple_of(PAGE), Ordering::Relaxed))
    }
    fn mem_free(&self, _: DeviceIndex, _: u64) -> Result<()> {
        Ok(())
    }
    fn mem_get_info(&self, _: DeviceIndex) -> Result<MemInfo> {
        Ok(MemInfo { free: 1, total: 1 })
    }
    fn total_memory(&self, _: DeviceIndex) -> Result<u64> {
        Ok(1 << 40)
    }
    fn reserve_range(&self, device: DeviceIndex, bytes: u64) -> Result<u64> {
        self.mem_alloc(device, bytes)
    }
    fn release_range(&self, _: DeviceIndex, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn map_pages(&self, _: DeviceIndex, _: u64, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn unmap_pages(&self, _: DeviceIndex, _: u64, bytes: u64, _: u64) -> (u64, Result<()>) {
        (bytes, Ok(()))
    }
    fn stream_synchronize(&self, _: StreamRef) -> Result<()> {
        Ok(())
    }
    fn event_create(&self, _: DeviceIndex) -> Result<EventHandle> {
        Ok(EventHandle(1))
    }
    fn event_destroy(&self, _: EventHandle) -> Result<()> {
        Ok(())
    }
    fn event_record(&self, _: EventHandle, _: StreamRef) -> Result<()> {
        Ok(())
    }
    fn event_query(&self, _: EventHandle) -> Result<bool> {
        Ok(true)
    }
    fn event_synchronize(&self, _: EventHandle) -> Result<()> {
        Ok(())
    }
    fn capture_id(&self, _: StreamRef) -> Result<Option<u64>> {
        Ok(None)
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

#[test]
fn threads_may_ask_the_driver_at_the_same_time() {
    let driver = Plain::new(true);
    let config = AllocatorConfig::default().parse("release_lock_on_cudamalloc:True").unwrap();
    let allocator = CachingAllocator::new(1, &Arc::new(config));
    allocator.set_limit(DeviceIndex(0), Some(64 << 20)).unwrap();
    std::thread::scope(|scope| {
        let ask = |stream| (&driver, &allocator, stream);
        let threads = [ask(0), ask(16)].map(|(driver, allocator, stream)| {
            scope.spawn(move || allocator.alloc(driver, on(stream), 24 << 20).unwrap())
        });
        let addresses = threads.map(|thread| thread.join().unwrap());
        assert_ne!(addresses[0], addresses[1]);
    });
    assert_eq!(allocator.inconsistency(), None);
    let stats = allocator.stats(DeviceIndex(0)).unwrap();
    assert_eq!((stats.reserved_bytes.all.current, stats.num_device_alloc), (48 << 20, 2));
    assert!(allocator.alloc(&driver, on(0), 24 << 20).is_err_and(|error| error.is_out_of_memory()));
}

/// A thread that waits for a shard's lock is served by its holder, if it asks for what the dormant block is.
#[test]
fn a_waiting_request_may_be_served_by_others() {
    for (asked, served) in [(5000, true), (5001, false)] {
        let driver = Plain::new(false);
        let allocator = CachingAllocator::new(1, &Arc::default());
        let address = allocator.alloc(&driver, on(0), 5000).unwrap();
        for _ in 0..2 {
            allocator.free(&driver, address).unwrap();
            assert_eq!(allocator.alloc(&driver, on(0), 5000), Ok(address));
        }
        allocator.free(&driver, address).unwrap();
        let shard = allocator.shared.shard(allocator.shared.pages.slot_at(address).unwrap().0).unwrap();
        let again = std::thread::scope(|scope| {
            let mut locked = shard.lock();
            let waiting = scope.spawn(|| allocator.alloc(&driver, on(0), asked).unwrap());
            while !shard.is_awaited() {
                std::thread::yield_now();
            }
            locked.grant();
            assert_eq!(locked.has_granted(), served);
            drop(locked.flush());
            waiting.join().unwrap()
        });
        assert_eq!((again, allocator.inconsistency()), (address, None));
        let count = allocator.stats(DeviceIndex(0)).unwrap().allocation.all;
        assert_eq!((count.current, count.peak, count.allocated, count.freed), (1, 1, 4, 3));
        allocator.free(&driver, again).unwrap();
    }
}

#[test]
fn threads_allocate_and_free_each_others_memory() {
    let driver = Plain::new(false);
    let allocator = CachingAllocator::new(1, &Arc::default());
    let (give, take) = std::sync::mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (driver, allocator, give) = (&driver, &allocator, give.clone());
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                for _ in 0..2000 {
                    let address = allocator.alloc(driver, on(usize::from(thread % 2 == 0)), 1 + numbers.below(1 << 22));
                    let address = address.unwrap();
                    allocator.record_stream(address, on(64)).unwrap();
                    give.send(address).unwrap();
                }
            });
        }
        drop(give);
        take.iter().for_each(|address| allocator.free(&driver, address).unwrap());
    });
    assert_eq!(allocator.inconsistency(), None);
    allocator.empty_cache(&driver).unwrap();
    assert_eq!(allocator.stats(DeviceIndex(0)).unwrap().reserved_bytes.all.current, 0);
}
