//! Our side: the allocator on a driver that answers as the peer's runtime, its answers in the peer's words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use crate::caching::stats::FAMILIES;
use crate::caching::tests::differential::script::{Op, Script};
use crate::caching::tests::fake::{Addresses, Capturing, FakeDriver, own_capture};
use crate::caching::tests::scripts::limit;
use crate::caching::{
    BlockInfo, BlockState, CachingAllocator, DeviceStats, Filter, PoolOptions, SegmentInfo, SegmentType,
};
use crate::thread;

const DEVICE: DeviceIndex = DeviceIndex(0);

/// A use of memory that the peer might take for one inside a scope: the operation that gives the memory back, and the
/// stream.
pub(crate) type Use = (usize, u64);

/// A driver that answers as the peer's runtime does: the same addresses, the same capacity.
fn driver_of(script: &Script) -> FakeDriver {
    let segments = Addresses::new(0x7000_0000_0000, 2 << 20, 0);
    let ranges = Addresses::new(0x6000_0000_0000, 1, 1 << 30);
    let driver = FakeDriver::new(script.capacity).with_total(script.total).with_addresses(segments, ranges);
    driver.with_captures(Capturing::Each)
}

/// The allocator and what a script holds of it.
pub(crate) struct Ours {
    pub(crate) driver: FakeDriver,
    allocator: CachingAllocator,
    config: Arc<AllocatorConfig>,
    total: u64,
    held: BTreeMap<u32, Held>,
    scopes: usize,
    /// Blocks given back in a scope that wait for its end.
    deferred: usize,
    /// Streams that some memory was recorded on inside a scope.
    recorded_in_scopes: BTreeSet<u64>,
    /// Uses that the peer may overlook, so far.
    pub(crate) suspects: Vec<Use>,
}

struct Held {
    address: u64,
    stream: u64,
    /// Other streams, and whether the use was recorded inside a scope.
    uses: BTreeMap<u64, bool>,
}

impl Ours {
    pub(crate) fn new(script: &Script) -> Self {
        let config = Arc::new(AllocatorConfig::default().parse(&script.options).unwrap());
        Self {
            driver: driver_of(script),
            allocator: CachingAllocator::new(1, &config),
            config,
            total: script.total,
            held: BTreeMap::new(),
            scopes: 0,
            deferred: 0,
            recorded_in_scopes: BTreeSet::new(),
            suspects: Vec::new(),
        }
    }

    /// Does one thing and says what the peer would print.
    pub(crate) fn step(&mut self, index: usize, op: &Op, overlooked: &BTreeSet<Use>) -> Option<String> {
        match self.act(index, op, overlooked) {
            Ok(address) => address.map(|address| format!("ptr {address}")),
            Err(Error::OutOfMemory(failed)) => Some(format!("ERR {}", failed.torch_text())),
            Err(error) => Some(format!("ERR {error}")),
        }
    }

    fn act(&mut self, index: usize, op: &Op, overlooked: &BTreeSet<Use>) -> Result<Option<u64>> {
        let Self { driver, allocator, .. } = self;
        match op {
            Op::Alloc { id, bytes, stream } => {
                let address = allocator.alloc(driver, on(*stream), *bytes)?;
                self.held.insert(*id, Held { address, stream: *stream, uses: BTreeMap::new() });
                return Ok(Some(address));
            }
            Op::Free { id } => return self.free(index, *id, overlooked).map(|()| None),
            Op::Record { id, stream } => self.record(*id, *stream)?,
            Op::Done { stream } => driver.events().pass(on(*stream).handle),
            Op::Empty => allocator.empty_cache(driver)?,
            Op::Begin { pool, stream } => {
                let one = |stream: u64| Filter::Capture(Arc::new(AtomicU64::new(own_capture(on(stream).handle))));
                let filter = stream.map_or_else(|| Filter::Thread(thread::number()), one);
                allocator.begin_allocate_to_pool(DEVICE, *pool, filter)?;
                self.scopes += 1;
            }
            Op::BeginAgain { pool } => {
                allocator.begin_allocate_to_pool(DEVICE, *pool, Filter::Thread(thread::number()))?;
            }
            Op::End { pool } => {
                allocator.end_allocate_to_pool(DEVICE, *pool)?;
                self.scopes -= 1;
            }
            Op::Release { pool } => allocator.release_pool(DEVICE, *pool)?,
            Op::Make { pool, use_on_oom, no_split } => {
                allocator.use_pool(
                    DEVICE,
                    *pool,
                    PoolOptions { use_on_oom: *use_on_oom, no_split: *no_split, ..PoolOptions::default() },
                )?;
            }
            Op::Close { pool } => allocator.close_pool(driver, DEVICE, *pool)?,
            Op::Options(text) => {
                self.config = Arc::new(self.config.parse(text).unwrap());
                allocator.set_config(&self.config);
            }
            Op::Capacity(bytes) => driver.memory().capacity = *bytes,
            Op::Fraction(part) => allocator.set_limit(DEVICE, limit(self.total, *part))?,
            Op::ResetPeak => allocator.reset_peak_stats(DEVICE)?,
            Op::ResetAccumulated => allocator.reset_accumulated_stats(DEVICE)?,
        }
        Ok(None)
    }

    fn record(&mut self, id: u32, stream: u64) -> Result<()> {
        let Some(held) = self.held.get_mut(&id) else { return Ok(()) };
        let in_scope = self.scopes > 0;
        if stream != held.stream && held.address != 0 {
            *held.uses.entry(stream).or_default() |= in_scope;
            if in_scope {
                self.recorded_in_scopes.insert(stream);
            }
        }
        self.allocator.record_stream(held.address, on(stream))
    }

    fn free(&mut self, index: usize, id: u32, overlooked: &BTreeSet<Use>) -> Result<()> {
        let Some(held) = self.held.remove(&id) else { return Ok(()) };
        self.deferred += usize::from(self.scopes > 0 && !held.uses.is_empty());
        let outside =
            held.uses.iter().filter(|(_, in_scope)| !**in_scope && self.scopes > 0).map(|(stream, _)| *stream);
        for stream in outside.filter(|stream| self.recorded_in_scopes.contains(stream)) {
            self.suspects.push((index, stream));
            // Recorded once more in the scope, which is then taken to order the use.
            if overlooked.contains(&(index, stream)) {
                self.allocator.record_stream(held.address, on(stream))?;
            }
        }
        self.allocator.free(&self.driver, held.address)
    }

    /// How many blocks given back in a scope an operation, which was done, has dealt with.
    pub(crate) fn take_deferred(&mut self, op: &Op) -> usize {
        if self.scopes > 0 {
            return 0;
        }
        // It does if nobody uses the pool any more; the next operation settles what this one did not.
        if matches!(op, Op::Close { .. }) {
            return self.deferred;
        }
        let settles = matches!(op, Op::Empty | Op::Alloc { bytes: 1.., .. });
        if settles { std::mem::take(&mut self.deferred) } else { 0 }
    }

    pub(crate) fn figures(&self) -> Vec<i64> {
        figures(&self.allocator.stats(DEVICE).unwrap())
    }

    /// What is wrong with our books.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        self.allocator.inconsistency()
    }

    /// Whether memory of expandable segments is in a pool that this many uses are left of.
    pub(crate) fn expanded_in_pool(&self, uses: u32, only: Option<PoolId>) -> bool {
        self.allocator.snapshot(only).iter().any(|segment| {
            let private = segment.pool != PoolId(0, 0);
            private && segment.is_expandable && self.allocator.pool_use_count(DEVICE, segment.pool) == Ok(uses)
        })
    }

    /// Segments, and how often the pools are used.
    pub(crate) fn layout(&self, pools: impl Iterator<Item = PoolId>) -> Vec<String> {
        let mut lines: Vec<String> = self.allocator.snapshot(None).iter().map(line).collect();
        let uses = |pool| self.allocator.pool_use_count(DEVICE, pool).unwrap();
        lines.extend(pools.map(|pool| format!("uc {}", uses(pool))));
        lines
    }
}

fn on(stream: u64) -> StreamRef {
    StreamRef { device: DEVICE, handle: StreamHandle(usize::try_from(stream).unwrap()) }
}

fn line(segment: &SegmentInfo) -> String {
    let SegmentInfo { address, total_size, allocated_size, active_size, requested_size, stream, pool, .. } = segment;
    let large = u8::from(segment.segment_type == SegmentType::Large);
    let expandable = u8::from(segment.is_expandable);
    let block = |block: &BlockInfo| {
        let state = match block.state {
            BlockState::ActiveAllocated => 'A',
            BlockState::ActivePendingFree => 'P',
            BlockState::Inactive => 'I',
        };
        format!(" [{},{},{state}]", block.size, block.requested_size)
    };
    let blocks: String = segment.blocks.iter().map(block).collect();
    format!(
        "seg {address} total={total_size} alloc={allocated_size} active={active_size} req={requested_size} \
         stream={stream} large={large} exp={expandable} pool={},{} blocks:{blocks}",
        pool.0, pool.1
    )
}

/// All figures in the peer's order.
fn figures(stats: &DeviceStats) -> Vec<i64> {
    let families = [
        &stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes,
    ];
    let by_pool = families.into_iter().flat_map(|family| [family.all, family.small_pool, family.large_pool]);
    let leaves = |stat: Stat| [stat.current, stat.peak, stat.allocated, stat.freed];
    let mut figures: Vec<i64> =
        by_pool.chain([stats.oversize_allocations, stats.oversize_segments]).flat_map(leaves).collect();
    let counts = [
        stats.num_alloc_retries,
        stats.num_ooms,
        stats.num_sync_all_streams,
        stats.num_device_alloc,
        stats.num_device_free,
    ];
    figures.extend(counts.map(|count| i64::try_from(count).unwrap()));
    figures.push(stats.max_split_size);
    figures
}

/// What the figure at a place is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaf {
    Current,
    Peak,
    Allocated,
    Freed,
    Count,
}

/// The name of the figure at a place, and what it is.
pub(crate) fn figure_at(place: usize) -> (String, Leaf) {
    const LEAVES: [(&str, Leaf); 4] =
        [("current", Leaf::Current), ("peak", Leaf::Peak), ("allocated", Leaf::Allocated), ("freed", Leaf::Freed)];
    const COUNTS: [&str; 6] = [
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ];
    let (stat, (leaf, kind)) = (place / 4, LEAVES[place % 4]);
    let pooled = FAMILIES.len() * 3;
    if let Some(family) = FAMILIES.get(stat / 3) {
        (format!("{family}.{}.{leaf}", ["all", "small_pool", "large_pool"][stat % 3]), kind)
    } else if stat < pooled + 2 {
        (format!("{}.{leaf}", ["oversize_allocations", "oversize_segments"][stat - pooled]), kind)
    } else {
        (COUNTS[place - (pooled + 2) * 4].to_owned(), Leaf::Count)
    }
}
