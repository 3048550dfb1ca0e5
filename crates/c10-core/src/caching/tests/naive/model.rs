//! The naive allocator: a flat list of blocks, linear searches and plain counters.
//!
//! **Invariants:** `blocks` is sorted by address and covers each segment without gaps; `held` are the segments.
//! Expandable segments are not modelled. Where torch asserts (a pool begun that is released), this does as the crate
//! documents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{CAPTURED, DEVICE, MIB};
use crate::base::config::AllocatorConfig;
use crate::base::error::MemoryError;
use crate::base::error::PoolError;
use crate::base::error::{Error, OutOfMemory, Result};
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use crate::caching::block::SizeClass;
use crate::caching::{DeviceStats, PoolOptions, StatByPool};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Doing {
    Serving,
    Waiting,
    Nothing,
}

/// The pool a block belongs to.
type Pool = (SizeClass, Option<PoolId>);

#[derive(Clone, Debug)]
struct Piece {
    address: u64,
    size: u64,
    requested: u64,
    segment: u64,
    stream: usize,
    pool: Pool,
    doing: Doing,
    /// Other streams, and whether each was recorded while a scope was open.
    uses: Vec<(usize, bool)>,
    events: u32,
    /// Searches its pool had seen when it became free.
    base: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Private {
    pub(crate) uses: u32,
    no_split: bool,
}

/// Who is routed to a pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Takes {
    Captured,
    Hand(u64),
}

/// The allocator.
#[derive(Default)]
pub(crate) struct Naive {
    pub(crate) config: Arc<AllocatorConfig>,
    pub(crate) capacity: u64,
    pub(crate) limit: Option<u64>,
    blocks: Vec<Piece>,
    /// Sizes of segments by address.
    pub(crate) held: BTreeMap<u64, u64>,
    searches: BTreeMap<Pool, u64>,
    pub(crate) private: BTreeMap<PoolId, Private>,
    lenders: Vec<PoolId>,
    pub(crate) scopes: Vec<(PoolId, Takes)>,
    /// Blocks, by address, that have no events yet.
    deferred: Vec<u64>,
    /// Events by stream, oldest first: number and address of the block.
    queues: BTreeMap<usize, VecDeque<(u64, u64)>>,
    pub(crate) recorded: BTreeMap<StreamHandle, u64>,
    pub(crate) passed: BTreeMap<usize, u64>,
    pub(crate) stats: DeviceStats,
    /// What has happened at least once.
    pub(crate) reached: BTreeSet<&'static str>,
}

/// A request and what follows from the options.
struct Wish {
    stream: usize,
    requested: u64,
    size: u64,
    segment: u64,
    pool: Pool,
}

fn count(stat: &mut Stat, by: i64) {
    stat.current += by;
    stat.peak = stat.peak.max(stat.current);
    if by > 0 { stat.allocated += by } else { stat.freed -= by }
}

fn count_in(stat: &mut StatByPool, class: SizeClass, by: i64) {
    count(&mut stat.all, by);
    count(if class == SizeClass::Small { &mut stat.small_pool } else { &mut stat.large_pool }, by);
}

fn bytes_of(size: u64) -> i64 {
    i64::try_from(size).unwrap()
}

/// The request rounded up.
fn rounded(config: &AllocatorConfig, bytes: u64) -> u64 {
    if bytes < 512 {
        return 512;
    }
    let mut log = 0;
    while bytes >> (log + 1) != 0 {
        log += 1;
    }
    let entry = if log < 20 { 0 } else { (log - 20).min(15) };
    let parts = u64::from(config.roundup_power2_divisions[entry]);
    if parts > 1 && bytes > 512 * parts {
        let power = 1_u64 << log;
        let part = power / parts;
        return match (bytes == power, part) {
            (true, _) => bytes,
            (false, 0) => 2 * power,
            _ => bytes.div_ceil(part) * part,
        };
    }
    bytes.div_ceil(512) * 512
}

impl Naive {
    pub(crate) fn new(capacity: u64, config: &Arc<AllocatorConfig>) -> Self {
        let stats =
            DeviceStats { max_split_size: config.max_split_size.map_or(-1, bytes_of), ..DeviceStats::default() };
        Self { config: Arc::clone(config), capacity, stats, ..Self::default() }
    }

    fn max_split(&self) -> u64 {
        self.config.max_split_size.unwrap_or(u64::MAX)
    }

    fn total(&self) -> u64 {
        self.held.values().sum()
    }

    fn collects(&self) -> bool {
        self.limit.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    fn at(&self, address: u64) -> usize {
        self.blocks.iter().position(|block| block.address == address).expect("a block begins here")
    }

    pub(crate) fn live(&self) -> Vec<u64> {
        let live = self.blocks.iter().filter(|block| block.doing == Doing::Serving);
        live.map(|block| block.address).collect()
    }

    fn is_split(&self, at: usize) -> bool {
        let block = &self.blocks[at];
        block.size != self.held[&block.segment]
    }

    /// Positions of a pool's free blocks by stream, size and address.
    fn free_of(&self, pool: Pool) -> Vec<usize> {
        let free = (0..self.blocks.len()).filter(|at| self.blocks[*at].pool == pool);
        let mut free: Vec<usize> = free.filter(|at| self.blocks[*at].doing == Doing::Nothing).collect();
        free.sort_by_key(|at| (self.blocks[*at].stream, self.blocks[*at].size, self.blocks[*at].address));
        free
    }

    pub(crate) fn alloc(&mut self, hand: u64, stream: usize, bytes: u64, place: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if bytes >= 1 << 60 {
            return Err(Error::Memory(MemoryError::RequestTooLarge { requested: bytes }));
        }
        if self.scopes.is_empty() {
            self.process_events();
        }
        let wish = self.wish(hand, stream, bytes);
        if let Some(found) = self.search(wish.pool, &wish) {
            return Ok(self.take(found, &wish));
        }
        if self.collects() {
            self.collect_garbage();
        }
        let served = self.new_segment(&wish, place, false);
        let served = served.or_else(|| self.lend(&wish));
        let served =
            served.or_else(|| if self.release_oversize(&wish) { self.new_segment(&wish, place, false) } else { None });
        let served = served.or_else(|| self.retry(&wish, place));
        match served {
            Some(at) => Ok(self.take(at, &wish)),
            None => Err(self.out_of_memory(&wish)),
        }
    }

    /// Waits for all events, releases all cached memory, and retries the allocation and the search. Not for a stream
    /// that is capturing.
    fn retry(&mut self, wish: &Wish, place: u64) -> Option<usize> {
        if self.scopes.is_empty() {
            self.empty_cache();
        } else if wish.stream < CAPTURED {
            self.reached.insert("all released in a scope");
            self.synchronize_in_scope();
            self.release_default();
            self.release_unused();
        } else {
            return None;
        }
        let served = self.new_segment(wish, place, true);
        served.or_else(|| {
            let found = self.search_uncounted(wish.pool, wish).or_else(|| self.lend(wish))?;
            self.reached.insert("found after events were waited for");
            Some(found)
        })
    }

    fn wish(&self, hand: u64, stream: usize, bytes: u64) -> Wish {
        let size = rounded(&self.config, bytes);
        let takes = |takes: Takes| match takes {
            Takes::Captured => stream >= CAPTURED,
            Takes::Hand(of) => of == hand,
        };
        let owner = self.scopes.iter().rev().find(|scope| takes(scope.1)).map(|scope| scope.0);
        let class = if size <= MIB { SizeClass::Small } else { SizeClass::Large };
        let segment = match size {
            0..=0x10_0000 => 2 * MIB,
            0x10_0001..0xa0_0000 => self.config.large_segment_size,
            _ => size.div_ceil(2 * MIB) * 2 * MIB,
        };
        Wish { stream, requested: bytes, size, segment, pool: (class, owner) }
    }

    /// The free block that serves, if the smallest that is large enough may.
    fn search(&mut self, pool: Pool, wish: &Wish) -> Option<usize> {
        if self.collects() {
            *self.searches.entry(pool).or_default() += 1;
        }
        self.search_uncounted(pool, wish)
    }

    fn search_uncounted(&mut self, pool: Pool, wish: &Wish) -> Option<usize> {
        let (size, max) = (wish.size, self.max_split());
        let fits = |at: &usize| self.blocks[*at].stream == wish.stream && self.blocks[*at].size >= size;
        let found = self.free_of(pool).into_iter().find(fits)?;
        let block = self.blocks[found].size;
        let too_large = size < max && block >= max;
        let wasteful = size >= max && block >= size + self.config.max_non_split_rounding;
        if too_large || wasteful {
            self.reached.insert(if wasteful { "a wasteful fit" } else { "a fit too large to be split" });
            return None;
        }
        Some(found)
    }

    fn new_segment(&mut self, wish: &Wish, place: u64, retry: bool) -> Option<usize> {
        if retry {
            self.reached.insert("asked again after all was released");
            self.stats.num_alloc_retries += 1;
        }
        let total = self.total() + wish.segment;
        if self.limit.is_some_and(|limit| total > limit) || total > self.capacity {
            return None;
        }
        self.held.insert(place, wish.segment);
        self.count_segment(wish.pool.0, wish.segment, 1);
        self.stats.num_device_alloc += 1;
        let piece = Piece {
            address: place,
            size: wish.segment,
            requested: 0,
            segment: place,
            stream: wish.stream,
            pool: wish.pool,
            doing: Doing::Nothing,
            uses: Vec::new(),
            events: 0,
            base: 0,
        };
        let at = self.blocks.iter().position(|block| block.address > place).unwrap_or(self.blocks.len());
        self.blocks.insert(at, piece);
        Some(at)
    }

    fn count_segment(&mut self, class: SizeClass, size: u64, by: i64) {
        count_in(&mut self.stats.segment, class, by);
        count_in(&mut self.stats.reserved_bytes, class, by * bytes_of(size));
        if size >= self.max_split() {
            count(&mut self.stats.oversize_segments, by);
        }
    }

    fn lend(&mut self, wish: &Wish) -> Option<usize> {
        if wish.pool.1.is_some() {
            return None;
        }
        let lenders = self.lenders.clone().into_iter().filter(|id| self.private.contains_key(id)).collect::<Vec<_>>();
        let found = lenders.into_iter().find_map(|id| self.search((wish.pool.0, Some(id)), wish))?;
        self.reached.insert("lent by a pool");
        Some(found)
    }

    /// Hands a free block out, or its low addresses.
    fn take(&mut self, at: usize, wish: &Wish) -> u64 {
        let (class, owner) = self.blocks[at].pool;
        let (size, was_split) = (self.blocks[at].size, self.is_split(at));
        let rest = size - wish.size;
        let no_split = owner.is_some_and(|id| self.private[&id].no_split);
        let splits = match class {
            _ if no_split => false,
            SizeClass::Small => rest >= 512,
            SizeClass::Large => wish.size < self.max_split() && rest > MIB,
        };
        let (pieces, bytes) = match (splits, was_split) {
            (true, true) => (0, -bytes_of(wish.size)),
            (true, false) => (1, bytes_of(rest)),
            (false, true) => (-1, -bytes_of(size)),
            (false, false) => (0, 0),
        };
        if splits {
            self.reached.insert(if was_split { "a part split" } else { "a segment split" });
            let front = Piece { size: wish.size, ..self.blocks[at].clone() };
            let base = self.searches.get(&(class, owner)).copied().unwrap_or(0);
            let back = &mut self.blocks[at];
            (back.address, back.size, back.base) = (back.address + wish.size, rest, base);
            self.blocks.insert(at, front);
        }
        let block = &mut self.blocks[at];
        (block.doing, block.requested) = (Doing::Serving, wish.requested);
        let (address, size, stats) = (block.address, block.size, &mut self.stats);
        count_in(&mut stats.inactive_split, class, pieces);
        count_in(&mut stats.inactive_split_bytes, class, bytes);
        count_in(&mut stats.allocation, class, 1);
        count_in(&mut stats.allocated_bytes, class, bytes_of(size));
        count_in(&mut stats.active, class, 1);
        count_in(&mut stats.active_bytes, class, bytes_of(size));
        count_in(&mut stats.requested_bytes, class, bytes_of(wish.requested));
        if size >= self.max_split() {
            count(&mut self.stats.oversize_allocations, 1);
        }
        address
    }

    fn out_of_memory(&mut self, wish: &Wish) -> Error {
        self.reached.insert("out of memory");
        self.stats.num_ooms += 1;
        let free = || self.blocks.iter().filter(|block| block.doing == Doing::Nothing);
        OutOfMemory {
            device: DEVICE,
            requested: wish.requested,
            segment: wish.segment,
            total: self.capacity,
            free: self.capacity - self.total(),
            allowed: self.limit,
            allocated: u64::try_from(self.stats.allocated_bytes.all.current).unwrap(),
            reserved: self.total(),
            cached_in_private_pools: free().filter(|block| block.pool.1.is_some()).map(|block| block.size).sum(),
            largest_free_block: free().map(|block| block.size).max().unwrap_or(0),
        }
        .into()
    }

    // -------------------------------------------------------------------------------------------- giving back

    pub(crate) fn free(&mut self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        if !self.live().contains(&address) {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
        }
        let (at, max) = (self.at(address), self.max_split());
        let block = &mut self.blocks[at];
        let (class, size) = (block.pool.0, block.size);
        block.doing = Doing::Waiting;
        let used = !block.uses.is_empty();
        count_in(&mut self.stats.allocation, class, -1);
        count_in(&mut self.stats.allocated_bytes, class, -bytes_of(size));
        if size >= max {
            count(&mut self.stats.oversize_allocations, -1);
        }
        if !used {
            self.make_free(address);
        } else if self.scopes.is_empty() {
            self.record_events(address);
        } else {
            self.deferred.push(address);
            self.reached.insert("given back in a scope");
        }
        Ok(())
    }

    fn record_events(&mut self, address: u64) {
        let at = self.at(address);
        for (stream, _) in std::mem::take(&mut self.blocks[at].uses) {
            let number = self.recorded.entry(StreamHandle(stream)).or_default();
            *number += 1;
            self.queues.entry(stream).or_default().push_back((*number, address));
            self.blocks[at].events += 1;
        }
    }

    /// Nobody uses a block any more: it joins its free neighbours.
    fn make_free(&mut self, address: u64) {
        let mut at = self.at(address);
        let (pool, segment) = (self.blocks[at].pool, self.blocks[at].segment);
        let (size, requested) = (self.blocks[at].size, self.blocks[at].requested);
        let (mut pieces, mut bytes) = (0, 0);
        let joins = |blocks: &[Piece], other: usize| {
            blocks.get(other).is_some_and(|block| block.segment == segment && block.doing == Doing::Nothing)
        };
        if at > 0 && joins(&self.blocks, at - 1) {
            let before = self.blocks.remove(at - 1);
            at -= 1;
            self.blocks[at].address = before.address;
            self.blocks[at].size += before.size;
            (pieces, bytes) = (pieces - 1, bytes - bytes_of(before.size));
        }
        if joins(&self.blocks, at + 1) {
            let after = self.blocks.remove(at + 1);
            self.blocks[at].size += after.size;
            (pieces, bytes) = (pieces - 1, bytes - bytes_of(after.size));
        }
        if self.is_split(at) {
            (pieces, bytes) = (pieces + 1, bytes + bytes_of(self.blocks[at].size));
        }
        self.blocks[at].doing = Doing::Nothing;
        self.blocks[at].base = self.searches.get(&pool).copied().unwrap_or(0);
        count_in(&mut self.stats.inactive_split, pool.0, pieces);
        count_in(&mut self.stats.inactive_split_bytes, pool.0, bytes);
        count_in(&mut self.stats.active, pool.0, -1);
        count_in(&mut self.stats.active_bytes, pool.0, -bytes_of(size));
        count_in(&mut self.stats.requested_bytes, pool.0, -bytes_of(requested));
    }

    pub(crate) fn record_stream(&mut self, address: u64, stream: usize) -> Result<()> {
        if !self.live().contains(&address) {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
        }
        let (at, scoped) = (self.at(address), !self.scopes.is_empty());
        let block = &mut self.blocks[at];
        if block.stream == stream {
            return Ok(());
        }
        match block.uses.iter_mut().find(|used| used.0 == stream) {
            Some(used) => used.1 |= scoped,
            None => block.uses.push((stream, scoped)),
        }
        Ok(())
    }

    /// What was given back in a scope: uses inside it need no event.
    fn settle_deferred(&mut self) {
        for address in std::mem::take(&mut self.deferred) {
            let at = self.at(address);
            self.blocks[at].uses.retain(|used| !used.1);
            if self.blocks[at].uses.is_empty() { self.make_free(address) } else { self.record_events(address) }
        }
    }

    fn process_events(&mut self) {
        self.settle_deferred();
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            let passed = self.passed.get(&stream).copied().unwrap_or(0);
            while let Some((number, address)) = self.queues[&stream].front().copied() {
                if number > passed {
                    break;
                }
                self.queues.get_mut(&stream).unwrap().pop_front();
                self.event_passed(address);
            }
        }
    }

    fn event_passed(&mut self, address: u64) {
        self.reached.insert("an event passed");
        let at = self.at(address);
        self.blocks[at].events -= 1;
        if self.blocks[at].events == 0 {
            self.make_free(address);
        }
    }

    fn synchronize(&mut self, only: Option<PoolId>) {
        self.stats.num_sync_all_streams += 1;
        self.settle_deferred();
        self.wait_for_events(only);
    }

    /// While scopes are open, every use of a deferred block needs its own event, which a capturing stream cannot
    /// record.
    fn synchronize_in_scope(&mut self) {
        self.stats.num_sync_all_streams += 1;
        for address in std::mem::take(&mut self.deferred) {
            let at = self.at(address);
            if self.blocks[at].uses.iter().any(|used| used.0 >= CAPTURED) {
                self.deferred.push(address);
            } else {
                self.record_events(address);
            }
        }
        self.wait_for_events(None);
    }

    fn wait_for_events(&mut self, only: Option<PoolId>) {
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            for (number, address) in std::mem::take(self.queues.get_mut(&stream).unwrap()) {
                if only.is_some() && self.blocks[self.at(address)].pool.1 != only {
                    self.queues.get_mut(&stream).unwrap().push_back((number, address));
                    self.reached.insert("another pool's event not waited for");
                    continue;
                }
                let passed = self.passed.entry(stream).or_default();
                *passed = number.max(*passed);
                self.event_passed(address);
            }
        }
    }

    fn release(&mut self, address: u64) -> u64 {
        let block = self.blocks.remove(self.at(address));
        self.held.remove(&block.segment);
        if block.pool.1.is_some() {
            self.reached.insert("a private pool's segment released");
        }
        self.count_segment(block.pool.0, block.size, -1);
        self.stats.num_device_free += 1;
        block.size
    }

    fn release_pool_memory(&mut self, pool: Pool) {
        let whole = self.free_of(pool).into_iter().filter(|at| !self.is_split(*at));
        for address in whole.map(|at| self.blocks[at].address).collect::<Vec<_>>() {
            self.release(address);
        }
    }

    fn release_private(&mut self, id: PoolId) {
        self.release_pool_memory((SizeClass::Small, Some(id)));
        self.release_pool_memory((SizeClass::Large, Some(id)));
        self.forget_if_unused(id);
    }

    pub(crate) fn forget_if_unused(&mut self, id: PoolId) {
        let empty = !self.blocks.iter().any(|block| block.pool.1 == Some(id));
        if empty && self.private.get(&id).is_some_and(|pool| pool.uses == 0) {
            self.private.remove(&id);
            self.searches.retain(|pool, _| pool.1 != Some(id));
        }
    }

    pub(crate) fn empty_cache(&mut self) {
        if self.scopes.is_empty() {
            self.synchronize(None);
            self.release_default();
        }
        self.release_unused();
    }

    fn release_default(&mut self) {
        self.release_pool_memory((SizeClass::Large, None));
        self.release_pool_memory((SizeClass::Small, None));
    }

    fn release_unused(&mut self) {
        let unused = self.private.iter().filter(|(_, pool)| pool.uses == 0).map(|(id, _)| *id);
        unused.collect::<Vec<_>>().into_iter().for_each(|id| self.release_private(id));
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of the limit is a number of bytes again"
    )]
    fn collect_garbage(&mut self) {
        let limit = self.limit.unwrap();
        let threshold = (self.config.garbage_collection_threshold * limit as f64) as u64;
        if self.total() <= threshold {
            return;
        }
        let (target, pool) = (self.total() - threshold, (SizeClass::Large, None));
        let now = self.searches.get(&pool).copied().unwrap_or(0);
        let whole = |naive: &Self| {
            let free = naive.free_of(pool).into_iter().filter(|at| !naive.is_split(*at));
            let aged = free.map(|at| (naive.blocks[at].address, now - naive.blocks[at].base));
            aged.collect::<Vec<_>>()
        };
        let (mut reclaimed, mut freed) = (0, true);
        while reclaimed < target && freed {
            let blocks = whole(self);
            if blocks.is_empty() {
                break;
            }
            let average = blocks.iter().map(|(_, age)| *age).sum::<u64>() as f64 / blocks.len() as f64;
            let old = blocks.into_iter().filter(|(_, age)| *age as f64 >= average);
            let before = reclaimed;
            reclaimed += old.map(|(address, _)| self.release(address)).sum::<u64>();
            freed = reclaimed > before;
            self.reached.insert("garbage collected");
        }
    }

    fn release_oversize(&mut self, wish: &Wish) -> bool {
        let max = self.max_split();
        if self.config.max_split_size.is_none() {
            return false;
        }
        let key = wish.size.max(max);
        let free = self.free_of(wish.pool).into_iter().filter(|at| self.blocks[*at].stream == wish.stream);
        let free: Vec<(u64, u64, bool)> =
            free.map(|at| (self.blocks[at].address, self.blocks[at].size, self.is_split(at))).collect();
        // A part of a segment, which is there when the option was lowered, cannot be released.
        if let Some((address, _, false)) = free.iter().find(|(_, size, _)| *size >= key) {
            self.release(*address);
            self.reached.insert("one oversize segment released");
            return true;
        }
        let mut released = 0;
        for (address, size, split) in free.into_iter().rev().filter(|(_, size, _)| *size < key) {
            if released >= key || size < max {
                break;
            }
            if !split {
                released += self.release(address);
                self.reached.insert("several oversize segments released");
            }
        }
        released >= key
    }

    pub(crate) fn use_pool(&mut self, id: PoolId, options: &PoolOptions) -> Result<()> {
        if let Some(pool) = self.private.get_mut(&id) {
            if pool.uses == 0 {
                return Err(Error::Pool(PoolError::Released));
            }
            pool.uses += 1;
            return Ok(());
        }
        self.private.insert(id, Private { uses: 1, no_split: options.no_split });
        if options.use_on_oom {
            self.lenders.push(id);
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self, id: PoolId, takes: Takes) -> Result<()> {
        if self.scopes.iter().any(|scope| scope.0 == id) {
            return Err(Error::Pool(PoolError::AlreadyRecording));
        }
        self.use_pool(id, &PoolOptions::default())?;
        self.scopes.push((id, takes));
        Ok(())
    }

    pub(crate) fn end(&mut self, id: PoolId) -> Result<()> {
        let at = self.scopes.iter().position(|scope| scope.0 == id).ok_or(Error::Pool(PoolError::NotRecording))?;
        self.scopes.remove(at);
        Ok(())
    }

    pub(crate) fn give_up(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.uses = pool.uses.saturating_sub(1);
        }
    }

    pub(crate) fn close(&mut self, id: PoolId) {
        self.lenders.retain(|lender| *lender != id);
        self.give_up(id);
        if self.private.get(&id).is_some_and(|pool| pool.uses == 0) {
            if self.scopes.is_empty() {
                self.synchronize(Some(id));
            }
            self.release_private(id);
        }
    }

    /// Addresses, sizes, sizes asked for and what they do, as the snapshot tells them.
    pub(crate) fn shown(&self) -> Vec<(u64, u64, u64, &'static str)> {
        let name = |doing| match doing {
            Doing::Serving => "active_allocated",
            Doing::Waiting => "active_pending_free",
            Doing::Nothing => "inactive",
        };
        self.blocks.iter().map(|block| (block.address, block.size, block.requested, name(block.doing))).collect()
    }
}
