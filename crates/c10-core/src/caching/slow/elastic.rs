//! The elastic backend: address ranges whose pages move to where they are needed.
//!
//! A request that nothing cached fits gets a *window*: neighbouring unused blocks of its stream, of which the fewest pages
//! are missing. What is missing comes from pages that are behind no address, from whole free pages of the same stream,
//! from those of other streams behind events that the stream waits for, and only then from the driver. Where pages have
//! moved three times for every two that were made, and for this size again and again, the driver is asked first, as long as
//! it has memory: so a loop that repeats comes to rest. A page that moves is mapped a second time; the old mapping is
//! dropped in batches, when the event behind the work of its stream has passed.
//!
//! **Invariants:** all blocks concerned are held while the driver is asked, and a failed call leaves every page where it
//! was. A mapping that cannot be undone counts as left. Private pools give no pages away, and a stream that captures gets
//! only pages that nobody had.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::handles::{EventHandle, PageHandle, StreamHandle, StreamRef};
use crate::caching::block::{ELASTIC_PAGE, Index, SizeClass, State};
use crate::caching::pools::{Left, Pools};
use crate::caching::shard::{Flushed, Shard, signed};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::expandable::{Stretch, whole_pages};
use crate::caching::slow::growth::{Growth, Plan};
use crate::caching::slow::window::{each_page, hold_window, take_apart};
use crate::driver::Driver;
use crate::sync::lock;
use crate::trace::TraceEvent;

/// Bytes that are left before old mappings are dropped.
const BATCH: u64 = 32 * ELASTIC_PAGE;

/// Whole free pages, as a held block.
struct Donor {
    shard: Arc<Shard>,
    block: Index,
    address: u64,
    size: u64,
    class: SizeClass,
}

/// Pages of one stream, and an event behind the work that may use them.
struct Donation {
    stream: StreamRef,
    event: EventHandle,
    donors: Vec<Donor>,
}

/// Where the missing pages come from.
#[derive(Default)]
struct Supply {
    donations: Vec<Donation>,
    /// Pages that are behind no address.
    idle: Vec<PageHandle>,
    /// Pages of the driver.
    new: Vec<PageHandle>,
}

impl Supply {
    fn donors(&self) -> impl Iterator<Item = &Donor> {
        self.donations.iter().flat_map(|donation| &donation.donors)
    }
}

impl DeviceAllocator {
    /// Memory for a request, held; `None` when there is none.
    pub(crate) fn expand_elastic<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        plan: &Plan,
    ) -> Result<Option<Index>> {
        self.drop_left_in_batches(driver, growth)?;
        let window = loop {
            let held = hold_window(&mut plan.shard.lock_flushed(), plan.class, plan.size);
            match held {
                Some(window) => break window,
                None if self.new_range(driver, growth, plan)?.is_some() => {}
                None => return Ok(None),
            }
        };
        let mut remains = Vec::new();
        let backed = self.back(driver, growth, plan, &window.missing, &mut remains);
        let mut state = plan.shard.lock_flushed();
        if let Ok(true) = backed {
            state.join_neighbours(window.block, State::Free);
            return Ok(Some(window.block));
        }
        let left = take_apart(&mut state, &window, &remains);
        drop(state);
        for (address, block) in left {
            growth.stock.leave_unused(Left { address, size: ELASTIC_PAGE, shard: plan.shard.id, block });
        }
        backed.map(|_| None)
    }

    /// Puts pages behind addresses; whether there were enough. After a failure those in `remains` are still mapped.
    fn back<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        plan: &Plan,
        missing: &[u64],
        remains: &mut Vec<u64>,
    ) -> Result<bool> {
        let mut supply = Supply::default();
        let supplied = self.supply(driver, growth, plan, missing.len(), &mut supply);
        let mapped = supplied.and_then(|enough| {
            if enough {
                self.map_supply(driver, growth, missing, &supply, remains)?;
            }
            Ok(enough)
        });
        match mapped {
            Ok(true) => self.enter_supply(growth, plan, missing, supply),
            _ => self.return_supply(driver, growth, supply),
        }
        mapped
    }

    /// Finds so many pages; whether there are enough.
    fn supply<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        plan: &Plan,
        count: usize,
        supply: &mut Supply,
    ) -> Result<bool> {
        while supply.idle.len() < count
            && let Some(page) = growth.stock.take_idle()
        {
            supply.idle.push(page);
        }
        let mut missing = (count - supply.idle.len()) as u64;
        let may_move = missing > 0 && driver.capture_id(plan.stream)?.is_none();
        if may_move {
            let due = growth.stock.moves_due(plan.size).min(missing);
            missing -= self.take_free_pages(driver, growth, plan.stream, due, supply)?;
        }
        missing -= self.make_pages(driver, growth, missing, supply)?;
        if may_move {
            missing -= self.take_free_pages(driver, growth, plan.stream, missing, supply)?;
        }
        Ok(missing == 0)
    }

    /// Makes so many pages, or as many as there is memory for; how many.
    fn make_pages<D: Driver>(&self, driver: &D, growth: &Growth, wanted: u64, supply: &mut Supply) -> Result<u64> {
        let room = growth.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.cache.held()));
        // The idle pages that are in the supply are held already.
        for made in 0..wanted.min(room / ELASTIC_PAGE) {
            match driver.create_page(self.cache.index, ELASTIC_PAGE) {
                Ok(page) => supply.new.push(page),
                Err(error) if error.driver_is_out_of_memory() => return Ok(made),
                Err(error) => return Err(error),
            }
        }
        Ok(wanted.min(room / ELASTIC_PAGE))
    }

    /// Takes up to so many whole free pages of the default pools, first of the stream that wants them, which waits for the
    /// others; how many.
    fn take_free_pages<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        stream: StreamRef,
        wanted: u64,
        supply: &mut Supply,
    ) -> Result<u64> {
        if wanted == 0 {
            return Ok(0);
        }
        // What other threads gave back is free.
        self.cache.all_shards(|_| ());
        let mut streams: Vec<StreamHandle> = growth.pools.get(Pools::DEFAULT).shards.keys().copied().collect();
        streams.sort_by_key(|handle| *handle != stream.handle);
        let mut taken = 0;
        for handle in streams {
            let from = StreamRef { handle, ..stream };
            let donors = self.hold_free_pages(growth, handle, wanted - taken);
            if donors.is_empty() {
                continue;
            }
            match self.order(driver, growth, from, stream) {
                Ok(Some(event)) => {
                    taken += donors.iter().map(|donor| donor.size / ELASTIC_PAGE).sum::<u64>();
                    supply.donations.push(Donation { stream: from, event, donors });
                }
                unordered => {
                    donors.iter().for_each(put_back);
                    unordered?;
                }
            }
        }
        Ok(taken)
    }

    /// An event behind the work of a stream, which another one waits for; `None` when the first captures, or whoever lent
    /// it has destroyed it, so that nobody can tell when its memory is used no more.
    fn order<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        from: StreamRef,
        to: StreamRef,
    ) -> Result<Option<EventHandle>> {
        match driver.capture_id(from) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(None),
            Err(error) if error.is_invalid_handle() => return Ok(None),
            Err(error) => return Err(error),
        }
        let event = growth.stock.event_behind(driver, from)?;
        if from != to
            && let Err(error) = driver.stream_wait(to, event)
        {
            growth.stock.keep_event(from, event);
            return Err(error);
        }
        Ok(Some(event))
    }

    /// Holds up to so many whole free pages of a stream's default pool.
    fn hold_free_pages(&self, growth: &Growth, stream: StreamHandle, wanted: u64) -> Vec<Donor> {
        let Some(shard) = growth.pools.get(Pools::DEFAULT).shards.get(&stream) else { return Vec::new() };
        let mut state = shard.lock_flushed();
        let mut found: Vec<(u64, Index, Stretch)> = state
            .free_blocks()
            .filter_map(|index| {
                let block = state.blocks.get(index);
                let pages = block.in_range.then(|| whole_pages(block, &growth.range_at(block.address))).flatten()?;
                Some((block.size, index, pages))
            })
            .collect();
        found.sort_by_key(|(size, _, pages)| (*size, pages.address));
        let mut wanted = wanted * ELASTIC_PAGE;
        let mut donors = Vec::new();
        for (_, index, pages) in found {
            if wanted == 0 {
                break;
            }
            let size = pages.size.min(wanted);
            wanted -= size;
            // From its end: on recorded workloads that moves fewer pages than taking the end that cannot grow.
            let address = pages.address + pages.size - size;
            let class = state.blocks.get(index).class;
            state.hold(index);
            let block = cut_out(&mut state, index, address, size);
            donors.push(Donor { shard: Arc::clone(shard), block, address, size, class });
        }
        donors
    }

    /// Maps a page behind each address. After a failure none is, but those in `remains`.
    fn map_supply<D: Driver>(
        &self,
        driver: &D,
        growth: &Growth,
        missing: &[u64],
        supply: &Supply,
        remains: &mut Vec<u64>,
    ) -> Result<()> {
        let pages = pages_of(growth, supply);
        let mut mapped = 0;
        let mut result = Ok(());
        for (address, page) in missing.iter().zip(pages) {
            result = driver.map_page(self.cache.index, *address, ELASTIC_PAGE, page);
            if result.is_err() {
                break;
            }
            mapped += 1;
        }
        if result.is_ok() {
            result = runs(missing)
                .into_iter()
                .try_for_each(|run| driver.allow_access(self.cache.index, run.address, run.size));
        }
        if result.is_err() {
            let undo = |address: &&u64| driver.unmap_page(self.cache.index, **address, ELASTIC_PAGE).is_err();
            remains.extend(missing[..mapped].iter().filter(undo));
        }
        result
    }

    /// Enters pages that were mapped into the books.
    fn enter_supply(&self, growth: &mut Growth, plan: &Plan, missing: &[u64], supply: Supply) {
        let pages = pages_of(growth, &supply);
        let (idle, new) = (supply.idle.len() as u64, supply.new.len() as u64);
        let moved = missing.len() as u64 - idle - new;
        growth.stock.count(new, moved, plan.size);
        let mut figures = lock(&self.cache.figures);
        let stats = figures.stats_mut();
        for donor in supply.donors() {
            stats.reserved_bytes.change(donor.class, -signed(donor.size));
        }
        stats.reserved_bytes.change(SizeClass::Large, -signed(idle * ELASTIC_PAGE));
        stats.reserved_bytes.change(plan.class, signed(missing.len() as u64 * ELASTIC_PAGE));
        stats.num_device_alloc += u64::from(new > 0);
        (stats.pages_made, stats.pages_moved) = (stats.pages_made + new, stats.pages_moved + moved);
        drop(figures);
        for donation in supply.donations {
            let left = donation.donors.iter().map(|donor| self.leave(growth, donor)).collect();
            growth.stock.leave(donation.stream, donation.event, left);
        }
        for (address, page) in missing.iter().zip(pages) {
            growth.stock.place(*address, page);
        }
        for run in runs(missing) {
            self.cache.shared.pages.register(run.address, run.size, plan.shard.id, plan.class);
            let owner = growth.pools.get(plan.pool).owner;
            self.report_segment(TraceEvent::SegmentMapped, (run.address, run.size, plan.stream.handle, owner));
        }
    }

    /// The pages of a held block are elsewhere.
    fn leave(&self, growth: &mut Growth, donor: &Donor) -> Left {
        for address in each_page(donor.address, donor.size) {
            growth.stock.displace(address);
        }
        self.cache.shared.pages.unregister(donor.address, donor.size);
        let mut state = donor.shard.lock_flushed();
        state.blocks.get_mut(donor.block).state = State::Left;
        let place = (donor.address, donor.size, state.key.stream, state.key.owner);
        drop(state);
        self.report_segment(TraceEvent::SegmentUnmapped, place);
        Left { address: donor.address, size: donor.size, shard: donor.shard.id, block: donor.block }
    }

    /// Gives everything back to where it came from.
    fn return_supply<D: Driver>(&self, driver: &D, growth: &mut Growth, supply: Supply) {
        for Donation { stream, event, donors } in supply.donations {
            donors.iter().for_each(put_back);
            growth.stock.keep_event(stream, event);
        }
        supply.idle.into_iter().for_each(|page| growth.stock.keep_idle(page));
        for page in supply.new {
            self.release_or_keep(driver, growth, page);
        }
    }

    /// Gives a page back to the driver; one that it does not take is idle, and counts as held.
    fn release_or_keep<D: Driver>(&self, driver: &D, growth: &mut Growth, page: PageHandle) -> bool {
        let released = driver.release_page(self.cache.index, page).is_ok();
        if !released {
            growth.stock.keep_idle(page);
            lock(&self.cache.figures).stats_mut().reserved_bytes.change(SizeClass::Large, signed(ELASTIC_PAGE));
        }
        released
    }

    /// Gives idle pages back to the driver.
    pub(crate) fn release_idle<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        while let Some(page) = growth.stock.take_idle() {
            if let Err(error) = driver.release_page(self.cache.index, page) {
                growth.stock.keep_idle(page);
                return Err(error);
            }
            lock(&self.cache.figures).stats_mut().reserved_bytes.change(SizeClass::Large, -signed(ELASTIC_PAGE));
        }
        Ok(())
    }

    /// Drops old mappings that nothing uses any more, if there are many.
    fn drop_left_in_batches<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        if growth.stock.left_bytes() < BATCH || self.cache.shared.is_capturing() {
            return Ok(());
        }
        growth.stock.poll(driver)?;
        self.drop_passed(driver, growth)
    }

    /// Waits until nothing uses old mappings any more, and drops them.
    pub(crate) fn drop_left<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        growth.stock.synchronize(driver)?;
        self.drop_passed(driver, growth)
    }

    fn drop_passed<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        while let Some(left) = growth.stock.passed() {
            if left.size > 0 {
                driver.unmap_page(self.cache.index, left.address, ELASTIC_PAGE)?;
                growth.stock.shorten_passed(ELASTIC_PAGE);
            } else if let Some(Left { shard, block, .. }) = growth.stock.finish_passed()
                && let Some(shard) = self.cache.shared.shard(shard)
            {
                let mut state = shard.lock_flushed();
                state.join_neighbours(block, State::Unmapped);
                state.put_unmapped(block);
            }
        }
        Ok(())
    }

    /// Unmaps pages of held blocks and gives them back to the driver, from the front; the bytes that are unmapped, and
    /// the error if not all are or one was not taken back.
    pub(crate) fn unmap_elastic<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        pages: Stretch,
    ) -> (u64, Result<()>) {
        for address in each_page(pages.address, pages.size) {
            let done = address - pages.address;
            if let Err(error) = driver.unmap_page(self.cache.index, address, ELASTIC_PAGE) {
                return (done, Err(error));
            }
            if let Some(page) = growth.stock.displace(address) {
                self.release_or_keep(driver, growth, page);
            }
        }
        (pages.size, Ok(()))
    }

    /// Gives every page back, with its mappings. Errors are passed over.
    pub(crate) fn dismantle_stock<D: Driver>(&self, driver: &D, growth: &mut Growth) {
        let index = self.cache.index;
        for event in growth.stock.take_events() {
            let _ = driver.event_destroy(event);
        }
        let left: Vec<Left> = growth.stock.all_left().copied().collect();
        for address in left.iter().flat_map(|left| each_page(left.address, left.size)) {
            let _ = driver.unmap_page(index, address, ELASTIC_PAGE);
        }
        let placed: Vec<(u64, PageHandle)> = growth.stock.places().collect();
        for (address, page) in placed {
            let _ = driver.unmap_page(index, address, ELASTIC_PAGE);
            let _ = driver.release_page(index, page);
        }
        while let Some(page) = growth.stock.take_idle() {
            let _ = driver.release_page(index, page);
        }
    }
}

/// The pages of a supply: what nobody had first.
fn pages_of(growth: &Growth, supply: &Supply) -> Vec<PageHandle> {
    let moved = supply.donors().flat_map(|donor| each_page(donor.address, donor.size));
    let moved = moved.filter_map(|address| growth.stock.page_at(address));
    supply.idle.iter().chain(&supply.new).copied().chain(moved).collect()
}

/// Ascending addresses of pages as stretches.
fn runs(addresses: &[u64]) -> Vec<Stretch> {
    let mut runs: Vec<Stretch> = Vec::new();
    for &address in addresses {
        match runs.last_mut() {
            Some(last) if last.address + last.size == address => last.size += ELASTIC_PAGE,
            _ => runs.push(Stretch { address, size: ELASTIC_PAGE }),
        }
    }
    runs
}

/// A held block is free as it was.
fn put_back(donor: &Donor) {
    let mut state = donor.shard.lock_flushed();
    state.join_neighbours(donor.block, State::Free);
    state.put(donor.block);
}

/// Cuts a part out of a held block; what is before and behind it is free. The part's block.
fn cut_out(state: &mut Flushed<'_>, index: Index, address: u64, size: u64) -> Index {
    let begin = state.blocks.get(index).address;
    if address > begin {
        let front = state.blocks.split_front(index, address - begin);
        state.put(front);
    }
    if state.blocks.get(index).size > size {
        let back = state.blocks.split_back(index, size);
        state.put(back);
    }
    index
}
