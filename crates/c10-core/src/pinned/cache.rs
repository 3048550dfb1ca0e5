//! The caching allocator of pinned host memory.
//!
//! A request is rounded up to a power of two and served by the block of that size that was given back last. A block that
//! streams used is free when they have done the work that was queued until it was given back. Blocks are neither split nor
//! merged. They go back to the driver when the cache is emptied, or when the driver has no memory left for a request.
//!
//! A request that finds a free block, and giving back a block that no stream used, take at most one short lock, no heap
//! memory and no driver call.
//!
//! **Invariants:** a block that has memory is handed out, waits for streams, or is in a list of its class; in the first two
//! cases it is active. The driver is called with no lock of a class or of the books held. A driver call that fails changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::MemoryError;
use crate::base::error::{AcceleratorError, Error, HostOutOfMemoryError, Result};
use crate::base::handles::StreamRef;
use crate::driver::HostMemory;
use crate::driver::{EventQuery, HostDriver};
use crate::pinned::background::Background;
use crate::pinned::blocks::{Block, BlockId, Blocks, Memory, Origin};
use crate::pinned::books::Books;
use crate::pinned::class::{Classes, SizeClass};
use crate::pinned::relaxed::Relaxed;
use crate::pinned::reserve::Reserve;
use crate::pinned::source::{HostMemorySource, Own};
use crate::pinned::stats::HostStats;
use crate::pinned::waiting::{Patience, Waiting};
use crate::sync::{Mutex, MutexGuard};

/// The options of pinned memory.
#[derive(Clone, Copy, Debug)]
struct Options {
    register: bool,
    register_threads: u32,
    reserve_bytes: u64,
}

impl Options {
    fn of(config: &AllocatorConfig) -> Self {
        Self {
            register: config.pinned_use_cuda_host_register,
            register_threads: config.pinned_num_register_threads,
            reserve_bytes: config.pinned_reserve_segment_size,
        }
    }
}

/// What became of a block that was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a block that has to wait is not given back yet"]
pub(crate) enum Released {
    /// Result of the retries of a request that found no memory.
    Shared,
    /// It can serve again.
    Cached,
    /// It has to wait for streams.
    Waits,
}

/// All pinned memory of a runtime.
#[derive(Debug)]
pub(crate) struct PinnedCache {
    classes: Classes,
    blocks: Blocks,
    waiting: Waiting,
    background: Background,
    books: Mutex<Books>,
    options: Mutex<Options>,
    /// The segment, once made. Its lock is held while it is made.
    reserve: Mutex<Option<Reserve>>,
    /// Memory that the program brings.
    own: Own,
}

/// Answer to a request that found nothing cached.
enum Taken {
    /// A cached block that became free in the meantime.
    Block(BlockId),
    /// New memory.
    Memory(Memory),
}

impl PinnedCache {
    pub(crate) fn new(config: &AllocatorConfig) -> Self {
        let cache = Self {
            classes: Classes::new(),
            blocks: Blocks::new(),
            waiting: Waiting::default(),
            background: Background::default(),
            books: Mutex::default(),
            options: Mutex::new(Options::of(config)),
            reserve: Mutex::default(),
            own: Own::default(),
        };
        cache.background.set(config.pinned_use_background_threads);
        cache
    }

    /// Decides by these options from now on; memory that is held already stays as it is.
    pub(crate) fn set_config(&self, config: &AllocatorConfig) {
        *lock(&self.options) = Options::of(config);
        self.background.set(config.pinned_use_background_threads);
    }

    /// Takes memory from a source of the program from now on, or, for `None`, from the driver again.
    pub(crate) fn set_source(&self, source: Option<Arc<dyn HostMemorySource>>) {
        self.own.set(source);
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// A block of at least `bytes` bytes, of which the caller is the only owner. `device` is called where the driver has to
    /// be.
    #[inline]
    pub(crate) fn alloc<D: HostDriver>(
        &self,
        driver: &D,
        device: impl FnOnce() -> DeviceIndex,
        bytes: usize,
    ) -> Result<(BlockId, &Block)> {
        let class = SizeClass::of(bytes).ok_or_else(|| self.out_of_memory(bytes, None, None))?;
        if self.waiting.any() {
            self.look(driver);
        }
        let id = match self.classes.take(class, &self.blocks) {
            Some(id) => id,
            None => self.take_new(driver, device(), class).map_err(|error| self.explain(error, bytes, class))?,
        };
        let block = self.blocks.get(id);
        block.hand_out();
        Ok((id, block))
    }

    /// Asks for events before a request, unless the background thread does.
    #[cold]
    fn look<D: HostDriver>(&self, driver: &D) {
        if !self.background.works() || self.waiting.any_unrecorded() {
            self.waiting.record_late(driver, &self.blocks, |block| self.cache(block));
            self.poll(driver);
        }
    }

    /// Whether any block waits for streams.
    pub(crate) fn any_waiting(&self) -> bool {
        self.waiting.any()
    }

    /// Takes blocks back whose streams are done, unless another thread does so at the moment. Does not block.
    pub(crate) fn poll<E: EventQuery>(&self, driver: &E) {
        self.waiting.poll(driver, &self.blocks, Patience::None, |block| self.cache(block));
    }

    /// Takes blocks back whose streams are done, also those whose events could not be recorded before.
    pub(crate) fn sweep<D: HostDriver>(&self, driver: &D) {
        if self.waiting.any() {
            self.waiting.record_late(driver, &self.blocks, |block| self.cache(block));
            self.waiting.poll(driver, &self.blocks, Patience::Waits, |block| self.cache(block));
        }
    }

    #[inline]
    fn cache(&self, block: BlockId) {
        self.classes.give(self.blocks.get(block).class(), &self.blocks, block);
    }

    /// Allocates a new block from the driver or from the reserved segment. If there is no memory, releases cached
    /// blocks and retries, then waits for blocks in use by streams and retries.
    #[cold]
    fn take_new<D: HostDriver>(&self, driver: &D, device: DeviceIndex, class: SizeClass) -> Result<BlockId> {
        let _relaxed = Relaxed::new(driver)?;
        let taken = match self.new_memory(driver, device, class) {
            Err(error) if error.host_is_out_of_memory() => self.take_again(driver, device, class, error)?,
            taken => Taken::Memory(taken?),
        };
        let memory = match taken {
            Taken::Block(block) => return Ok(block),
            Taken::Memory(memory) => memory,
        };
        let block = self.lock_books().enter(&self.blocks, memory);
        self.classes.add(class, &self.blocks);
        Ok(block)
    }

    /// Retries a request that found no memory: releases cached blocks and asks again, then does so once more after
    /// waiting for the streams that use blocks.
    #[cold]
    fn take_again<D: HostDriver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        class: SizeClass,
        mut failed: Error,
    ) -> Result<Taken> {
        for waits in [false, true] {
            if waits {
                if !self.waiting.any() {
                    break;
                }
                self.waiting.wait(driver);
                self.sweep(driver);
                if let Some(block) = self.classes.take(class, &self.blocks) {
                    return Ok(Taken::Block(block));
                }
            }
            if self.release_cached(driver).is_ok_and(|count| count > 0) {
                match self.new_memory(driver, device, class) {
                    Err(error) if error.host_is_out_of_memory() => failed = error,
                    taken => return taken.map(Taken::Memory),
                }
            }
        }
        Err(failed)
    }

    /// The error of a request, with the sizes that neither the driver nor the system knows.
    #[cold]
    fn explain(&self, error: Error, requested: usize, class: SizeClass) -> Error {
        if !error.host_is_out_of_memory() {
            return error;
        }
        let known =
            if let Error::Memory(MemoryError::HostOutOfMemory(failed)) = &error { failed.allocation } else { None };
        self.out_of_memory(requested, known.or(Some(class.bytes() as u64)), error.accelerator().copied())
    }

    #[cold]
    fn out_of_memory(&self, requested: usize, allocation: Option<u64>, driver: Option<AcceleratorError>) -> Error {
        let held = u64::try_from(self.stats().allocated_bytes.current).unwrap_or(0);
        Error::Memory(MemoryError::HostOutOfMemory(Box::new(HostOutOfMemoryError {
            requested: requested as u64,
            allocation,
            held,
            driver,
        })))
    }

    fn new_memory<D: HostDriver>(&self, driver: &D, device: DeviceIndex, class: SizeClass) -> Result<Memory> {
        let options = *lock(&self.options);
        if options.reserve_bytes > 0
            && let Some(memory) = self.cut_reserve(driver, device, class, options)?
        {
            return Ok(memory);
        }
        let (address, origin) = self.take_from_driver(driver, device, class.bytes(), options)?;
        Ok(Memory { class, address, device, origin })
    }

    /// A part of the reserved segment, which is made if need be; `None` when no part of it is large enough.
    fn cut_reserve<D: HostDriver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        class: SizeClass,
        options: Options,
    ) -> Result<Option<Memory>> {
        let mut reserve = lock(&self.reserve);
        let segment = match &mut *reserve {
            Some(segment) => segment,
            none => {
                let requested = options.reserve_bytes;
                let too_large = |_| self.out_of_memory(class.bytes(), Some(requested), None);
                let bytes = usize::try_from(requested).map_err(too_large)?;
                let (address, origin) = self.take_from_driver(driver, device, bytes, options)?;
                none.insert(Reserve::new(address, bytes, device, origin))
            }
        };
        let device = segment.device;
        let memory = |address| Memory { class, address, device, origin: Origin::Reserve };
        Ok(segment.cut(class).map(memory))
    }

    fn take_from_driver<D: HostDriver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        bytes: usize,
        options: Options,
    ) -> Result<(usize, Origin)> {
        let begin = Instant::now();
        let own = self.own.take(bytes, |address, bytes| driver.host_pin(device, address, bytes))?;
        let taken = if let Some(address) = own {
            (address, Origin::Own)
        } else if options.register {
            (driver.host_register(device, bytes, options.register_threads)?, Origin::Registered)
        } else {
            (driver.host_alloc(device, bytes)?, Origin::Driver)
        };
        self.lock_books().count_alloc(begin.elapsed());
        Ok(taken)
    }

    fn give_to_driver<D: HostDriver>(
        &self,
        driver: &D,
        (device, address, bytes, origin): (DeviceIndex, usize, usize, Origin),
    ) -> Result<()> {
        let begin = Instant::now();
        match origin {
            Origin::Driver => driver.host_free(device, address)?,
            Origin::Registered => driver.host_unregister(device, address, bytes)?,
            Origin::Own => {
                driver.host_unpin(device, address)?;
                self.own.give(address);
            }
            Origin::Reserve => return Ok(()),
        }
        self.lock_books().count_free(begin.elapsed());
        Ok(())
    }

    /// A block by its number.
    #[cfg(test)]
    pub(crate) fn block(&self, id: BlockId) -> &Block {
        self.blocks.get(id)
    }

    /// Adds an owner to a block that the caller owns.
    pub(crate) fn share(&self, block: BlockId) {
        self.blocks.get(block).add_owner();
    }

    /// Gives up the caller's share of a block. If the caller is the last owner and streams used the block, it stays the
    /// owner and calls [`Self::wait_for_streams`] next.
    #[inline]
    pub(crate) fn release_if_unused(&self, (id, block): (BlockId, &Block)) -> Released {
        if !block.leave() {
            return Released::Shared;
        }
        if block.is_used() {
            return Released::Waits;
        }
        block.disown();
        self.classes.give(block.class(), &self.blocks, id);
        Released::Cached
    }

    /// Gives back a block, of which the caller is the last owner, to wait for the streams that used it. Without a driver
    /// the events are recorded later.
    pub(crate) fn wait_for_streams<D: HostDriver>(&self, driver: Option<&D>, block: BlockId) {
        self.waiting.add(driver, &self.blocks, block, |block| self.cache(block));
    }

    /// Notes that work of a stream uses a block, which the caller owns. Calls nothing.
    pub(crate) fn record_stream(&self, block: BlockId, stream: StreamRef) {
        self.blocks.get(block).record(stream);
    }

    /// Notes that work of a stream uses the block that an address lies in. `false` if there is none that is handed out.
    pub(crate) fn record_address(&self, address: usize, stream: StreamRef) -> bool {
        let books = self.lock_books();
        let found = books.find(&self.blocks, address);
        let block = found.map(|block| self.blocks.get(block)).filter(|block| block.owners() > 0);
        block.map(|block| block.record(stream)).is_some()
    }

    /// Adds an owner to the block that contains an address; `None` if no block in use contains it.
    pub(crate) fn share_address(&self, address: usize) -> Option<(BlockId, &Block)> {
        let books = self.lock_books();
        let id = books.find(&self.blocks, address)?;
        let block = self.blocks.get(id);
        block.join().then_some((id, block))
    }

    /// The memory of a block, which the caller owns, up to `len` bytes of it.
    pub(crate) fn memory(&self, block: BlockId, len: usize) -> HostMemory<'_> {
        let block = self.blocks.get(block);
        let memory = block.memory();
        HostMemory::new(memory.address, len.min(memory.class.bytes()), block.access())
    }

    /// Gives all cached blocks back to the driver; may wait for the devices. Goes on after a failure and returns the
    /// first. Blocks of the reserved segment stay.
    pub(crate) fn empty<D: HostDriver>(&self, driver: &D) -> Result<()> {
        self.sweep(driver);
        let _relaxed = Relaxed::new(driver)?;
        self.release_cached(driver).map(|_| ())
    }

    /// Gives all cached blocks back; how many went, or the first failure.
    fn release_cached<D: HostDriver>(&self, driver: &D) -> Result<usize> {
        let (mut released, mut result) = (0, Ok(()));
        for class in self.classes.known() {
            let mut kept = Vec::new();
            while let Some(block) = self.classes.withdraw(class, &self.blocks) {
                let memory = self.blocks.get(block).memory();
                let gone = self.give_to_driver(driver, (memory.device, memory.address, class.bytes(), memory.origin));
                if gone.is_ok() && memory.origin != Origin::Reserve {
                    self.lock_books().remove(block, memory);
                    released += 1;
                } else {
                    kept.push(block);
                    result = result.and(gone);
                }
            }
            kept.into_iter().rev().for_each(|block| self.classes.put_back(class, &self.blocks, block));
        }
        result.map(|()| released)
    }

    /// Gives everything back to the driver, at the end of the runtime, when the devices are idle.
    pub(crate) fn dismantle<D: HostDriver>(&self, driver: &D) {
        self.background.stop();
        self.waiting.dismantle(driver);
        let blocks: Vec<BlockId> = self.lock_books().all().collect();
        for id in blocks {
            let block = self.blocks.get(id);
            let memory = block.memory();
            if block.owners() == 0 {
                let bytes = memory.class.bytes();
                let _ = self.give_to_driver(driver, (memory.device, memory.address, bytes, memory.origin));
            }
        }
        let reserve = lock(&self.reserve).take();
        let reserve = reserve.map(|reserve| (reserve.device, reserve.address, reserve.bytes, reserve.origin));
        reserve.into_iter().for_each(|reserve| drop(self.give_to_driver(driver, reserve)));
    }

    /// All figures.
    pub(crate) fn stats(&self) -> HostStats {
        let active = self.classes.stats(&self.blocks);
        let books = self.lock_books();
        HostStats {
            num_host_alloc: books.num_host_alloc,
            num_host_free: books.num_host_free,
            allocations: books.allocations,
            allocated_bytes: books.allocated_bytes,
            active_requests: active.requests,
            active_bytes: active.bytes,
            host_alloc_time: books.host_alloc_time,
            host_free_time: books.host_free_time,
        }
    }

    /// Sets the peaks, and the longest and shortest times, to what they are now or to nothing.
    pub(crate) fn reset_peak_stats(&self) {
        self.classes.reset_peak(&self.blocks);
        self.lock_books().reset_peak();
    }

    /// Sets the sums and counts to zero.
    pub(crate) fn reset_accumulated_stats(&self) {
        self.classes.reset_accumulated(&self.blocks);
        self.lock_books().reset_accumulated();
    }

    /// Whether anybody owns a block. Sees what any thread has given back before.
    pub(crate) fn is_owned(&self) -> bool {
        // A thread that gives a block up takes one of these locks afterwards, or parks the block.
        self.classes.stats(&self.blocks);
        self.waiting.entries();
        self.lock_books().all().any(|block| self.blocks.get(block).owners() > 0)
    }

    /// Begins anew with these options, after [`Self::dismantle`].
    pub(crate) fn restart(&self, config: &AllocatorConfig) {
        self.classes.clear(&self.blocks);
        self.blocks.clear();
        self.lock_books().restart(&self.blocks);
        self.own.set(None);
        self.set_config(config);
    }

    /// What is wrong with the books, if anything; call it while nothing changes.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        self.check().err()
    }

    fn check(&self) -> Result<(), String> {
        let classes = self.classes.check(&self.blocks)?;
        let waiting = self.waiting.entries();
        let held: BTreeSet<BlockId> = self.lock_books().all().collect();
        let mut active: BTreeMap<SizeClass, i64> = BTreeMap::new();
        let mut cached = BTreeSet::new();
        for (class, (_, list)) in &classes {
            for id in list {
                let block = self.blocks.get(*id);
                let fits = held.contains(id) && block.class() == *class && block.owners() == 0;
                if !fits || waiting.contains_key(id) || !cached.insert(*id) {
                    return Err(format!("pinned block {id:?} stands in the list of {class:?} and elsewhere"));
                }
            }
        }
        for id in held.difference(&cached) {
            let block = self.blocks.get(*id);
            *active.entry(block.class()).or_default() += 1;
            if (block.owners() == 0) != waiting.contains_key(id) {
                return Err(format!("pinned block {id:?} is neither owned nor waits, or both"));
            }
        }
        let counted = classes.into_iter().map(|(class, (count, _))| (class, count)).filter(|(_, count)| *count != 0);
        let counted: BTreeMap<SizeClass, i64> = counted.collect();
        if counted == active { Ok(()) } else { Err(format!("pinned blocks: {counted:?} counted, {active:?} active")) }
    }

    fn lock_books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }
}

/// Locks, also after a panic of another thread: the books are consistent after each step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
