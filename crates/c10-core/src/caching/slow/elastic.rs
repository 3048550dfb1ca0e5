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
//! was. A mapping that cannot be undone counts as left. A private pool that is in use gives no pages to other pools, unless
//! it helps out; and none of a graph's pages moves while the graph is there. A stream that captures gets only pages that
//! nobody uses any more: idle ones, new ones, and free ones whose event has passed.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::handles::{EventHandle, PageHandle, StreamRef};
use crate::caching::block::{ELASTIC_PAGE, Index, SizeClass, State};
use crate::caching::pools::{Left, PoolIndex, Pools};
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

/// How a page comes to be used no more where it was, before it is used elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// The stream that gets it waits for an event, on the device.
    Wait,
    /// The event has passed already. A graph may be replayed on any stream, so that no wait of the one that captures it
    /// would be enough.
    Passed,
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

    /// Puts pages behind addresses; whether there were enough, and memory to map them. After a failure those in `remains`
    /// are still mapped.
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
        let mapped =
            supplied.and_then(|enough| Ok(enough && self.map_supply(driver, growth, missing, &supply, remains)?));
        match mapped {
            Ok(true) => self.enter_supply(growth, plan, missing, supply),
            // A page that is still mapped is not the driver's again when it is given back.
            _ => self.return_supply(driver, growth, supply, remains.is_empty()),
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
        if missing == 0 {
            return Ok(true);
        }
        let order = if driver.takes_events(plan.stream)? { Order::Wait } else { Order::Passed };
        let due = growth.stock.moves_due(plan.size).min(missing);
        missing -= self.take_free_pages(driver, growth, (plan, order), &givers(growth, plan), due, supply)?;
        missing -= self.make_pages(driver, growth, missing, supply)?;
        missing -= self.take_free_pages(driver, growth, (plan, order), &givers(growth, plan), missing, supply)?;
        missing -= self.take_free_pages(driver, growth, (plan, order), &lenders(growth, plan), missing, supply)?;
        Ok(missing == 0)
    }

    /// Makes so many pages, or as many as there is memory for; how many.
    fn make_pages<D: Driver>(&self, driver: &D, growth: &Growth, wanted: u64, supply: &mut Supply) -> Result<u64> {
        let room = growth.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.cache.held()));
        // The idle pages that are in the supply are held already.
        for made in 0..wanted.min(room / ELASTIC_PAGE) {
            match self.called(driver.create_page(self.cache.index, ELASTIC_PAGE)) {
                Ok(page) => supply.new.push(page),
                Err(error) if error.driver_is_out_of_memory() => return Ok(made),
                Err(error) => return Err(error),
            }
        }
        Ok(wanted.min(room / ELASTIC_PAGE))
    }

    /// Takes up to so many whole free pages of pools, first of the stream that wants them; how many.
    fn take_free_pages<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        (plan, order): (&Plan, Order),
        givers: &[PoolIndex],
        wanted: u64,
        supply: &mut Supply,
    ) -> Result<u64> {
        if wanted == 0 || givers.is_empty() {
            return Ok(0);
        }
        // What other threads gave back is free.
        self.cache.all_shards(|_| ());
        let pools = givers.iter().map(|pool| growth.pools.get(*pool));
        let shards = pools.flat_map(|pool| pool.shards.iter().map(|(stream, shard)| (*stream, pool.owner, shard)));
        let mut shards: Vec<_> = shards.map(|(stream, owner, shard)| (stream, owner, Arc::clone(shard))).collect();
        shards.sort_by_key(|(stream, ..)| *stream != plan.stream.handle);
        let mut taken = 0;
        for (handle, owner, shard) in shards {
            let donors = self.hold_free_pages(growth, &shard, wanted - taken);
            if donors.is_empty() {
                continue;
            }
            let from = growth.users_of(owner, StreamRef { handle, ..plan.stream });
            match self.order(driver, growth, &from, plan.stream, order) {
                Ok(Some((stream, event))) => {
                    taken += donors.iter().map(|donor| donor.size / ELASTIC_PAGE).sum::<u64>();
                    supply.donations.push(Donation { stream, event, donors });
                }
                unordered => {
                    donors.iter().for_each(put_back);
                    unordered?;
                }
            }
        }
        Ok(taken)
    }

    /// An event behind the work of streams, the last of which is named, before the work of another one; `None` when there
    /// is no such event: one of them captures, or work on it would spoil a capture, or whoever lent it has destroyed it, so
    /// that nobody can tell when its memory is used no more.
    fn order<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        from: &[StreamRef],
        to: StreamRef,
        order: Order,
    ) -> Result<Option<(StreamRef, EventHandle)>> {
        for stream in from {
            match driver.takes_events(*stream) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if error.is_invalid_handle() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut events = Vec::new();
        let ordered = from.iter().try_fold(true, |ordered, stream| {
            let event = growth.stock.event_behind(driver, *stream)?;
            events.push((*stream, event));
            match order {
                Order::Wait if *stream == to => Ok(ordered),
                Order::Wait => driver.stream_wait(to, event).map(|()| ordered),
                Order::Passed => Ok(ordered && driver.event_query(event)?),
            }
        });
        let one = from.len() == 1;
        let last = if matches!(ordered, Ok(true)) && one { events.pop() } else { None };
        events.into_iter().for_each(|(stream, event)| growth.stock.keep_event(stream, event));
        match (ordered?, order) {
            (false, _) => Ok(None),
            (true, _) if one => Ok(last),
            // What waits for all of them stands for all of them.
            (true, Order::Wait) => Ok(Some((to, growth.stock.event_behind(driver, to)?))),
            // The first has passed as the others have.
            (true, Order::Passed) => Ok(Some((from[0], growth.stock.event_behind(driver, from[0])?))),
        }
    }

    /// Holds up to so many whole free pages of a shard.
    fn hold_free_pages(&self, growth: &Growth, shard: &Arc<Shard>, wanted: u64) -> Vec<Donor> {
        let mut state = shard.lock_flushed();
        let mut found: Vec<(u64, Index, Stretch)> = state
            .free_blocks()
            .filter_map(|index| {
                let block = state.blocks.get(index);
                let range = block.in_range.then(|| growth.range_at(block.address)).filter(|range| range.elastic)?;
                let pages = whole_pages(block, &range)?;
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

    /// Maps a page behind each address; whether the driver had memory for that. If not, none is, but those in `remains`.
    fn map_supply<D: Driver>(
        &self,
        driver: &D,
        growth: &Growth,
        missing: &[u64],
        supply: &Supply,
        remains: &mut Vec<u64>,
    ) -> Result<bool> {
        let pages = pages_of(growth, supply);
        let mut mapped = 0;
        let mut result = Ok(());
        for (address, page) in missing.iter().zip(pages) {
            result = self.called(driver.map_page(self.cache.index, *address, ELASTIC_PAGE, page));
            if result.is_err() {
                break;
            }
            mapped += 1;
        }
        if result.is_ok() {
            result = runs(missing)
                .into_iter()
                .try_for_each(|run| self.called(driver.allow_access(self.cache.index, run.address, run.size)));
        }
        if result.is_err() {
            let undo =
                |address: &&u64| self.called(driver.unmap_page(self.cache.index, **address, ELASTIC_PAGE)).is_err();
            remains.extend(missing[..mapped].iter().filter(undo));
        }
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.driver_is_out_of_memory() => Ok(false),
            Err(error) => Err(error),
        }
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
        stats.page_bytes_made += new * ELASTIC_PAGE;
        stats.page_bytes_moved += moved * ELASTIC_PAGE;
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

    /// Gives everything back to where it came from, but keeps new pages if the driver is not to have them.
    fn return_supply<D: Driver>(&self, driver: &D, growth: &mut Growth, supply: Supply, release: bool) {
        for Donation { stream, event, donors } in supply.donations {
            donors.iter().for_each(put_back);
            growth.stock.keep_event(stream, event);
        }
        supply.idle.into_iter().for_each(|page| growth.stock.keep_idle(page));
        let index = self.cache.index;
        let released = |page: &PageHandle| release && self.called(driver.release_page(index, *page)).is_ok();
        let kept = supply.new.into_iter().filter(|page| !released(page));
        self.keep_as_idle(growth, kept.collect());
    }

    /// Pages that the driver does not take back are idle, and count as held.
    pub(crate) fn keep_as_idle(&self, growth: &mut Growth, pages: Vec<PageHandle>) {
        if pages.is_empty() {
            return;
        }
        let bytes = signed(pages.len() as u64 * ELASTIC_PAGE);
        lock(&self.cache.figures).stats_mut().reserved_bytes.change(SizeClass::Large, bytes);
        pages.into_iter().for_each(|page| growth.stock.keep_idle(page));
    }

    /// Counts a driver call for pages; its answer.
    fn called<T>(&self, answer: Result<T>) -> Result<T> {
        let mut figures = lock(&self.cache.figures);
        let stats = figures.stats_mut();
        (stats.has_pages, stats.page_calls) = (true, stats.page_calls + 1);
        answer
    }

    /// Gives idle pages back to the driver.
    pub(crate) fn release_idle<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        while let Some(page) = growth.stock.take_idle() {
            if let Err(error) = self.called(driver.release_page(self.cache.index, page)) {
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
                self.called(driver.unmap_page(self.cache.index, left.address, ELASTIC_PAGE))?;
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

    /// Unmaps pages of held blocks and gives them back to the driver, from the front; the bytes that are unmapped, the
    /// error if not all are, and the pages that the driver did not take back.
    pub(crate) fn unmap_elastic<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        pages: Stretch,
    ) -> (u64, Result<()>, Vec<PageHandle>) {
        let mut kept = Vec::new();
        for address in each_page(pages.address, pages.size) {
            if let Err(error) = self.called(driver.unmap_page(self.cache.index, address, ELASTIC_PAGE)) {
                return (address - pages.address, Err(error), kept);
            }
            let page = growth.stock.displace(address);
            kept.extend(page.filter(|page| self.called(driver.release_page(self.cache.index, *page)).is_err()));
        }
        (pages.size, Ok(()), kept)
    }

    /// The pages behind memory that somebody holds, so that they stay where they are: the first one's address, the bytes of
    /// each, and their handles.
    pub(crate) fn pages_behind(&self, address: u64, bytes: u64) -> Option<(u64, u64, Vec<PageHandle>)> {
        let growth = lock(&self.growth);
        let (_, range) = growth.ranges.range(..=address).next_back()?;
        let inside = range.elastic && address - range.address < range.size;
        let first = address - (address - range.address) % ELASTIC_PAGE;
        let places = (0..(address + bytes - first).div_ceil(ELASTIC_PAGE)).map(|page| first + page * ELASTIC_PAGE);
        let pages: Option<Vec<PageHandle>> = places.map(|place| growth.stock.page_at(place)).collect();
        pages.filter(|_| inside).map(|pages| (first, ELASTIC_PAGE, pages))
    }

    /// Gives every page back, with its mappings. What fails is tried once more, and then passed over.
    pub(crate) fn dismantle_stock<D: Driver>(&self, driver: &D, growth: &mut Growth) {
        let index = self.cache.index;
        for event in growth.stock.take_events() {
            let _ = driver.event_destroy(event);
        }
        let left: Vec<Left> = growth.stock.all_left().copied().collect();
        let (places, mut pages): (Vec<u64>, Vec<PageHandle>) = growth.stock.places().unzip();
        let left = left.iter().flat_map(|left| each_page(left.address, left.size));
        left.chain(places).for_each(|address| twice(|| driver.unmap_page(index, address, ELASTIC_PAGE)));
        pages.extend(std::iter::from_fn(|| growth.stock.take_idle()));
        pages.into_iter().for_each(|page| twice(|| driver.release_page(index, page)));
    }
}

/// The pools whose free pages a request may take, in the order in which they are asked: its own, unless somebody knows its
/// addresses; the default ones; those that are given up.
fn givers(growth: &Growth, plan: &Plan) -> Vec<PoolIndex> {
    let own = growth.pools.get(plan.pool).owner.and_then(|id| growth.private.get(&id));
    let own = own.filter(|own| !own.is_known).map(|own| own.pool);
    let given_up = growth.private.values().filter(|pool| pool.is_given_up()).map(|pool| pool.pool);
    let given_up = given_up.filter(|pool| *pool != plan.pool);
    own.into_iter().chain([Pools::DEFAULT]).chain(given_up).collect()
}

/// Those it may take when there is nothing else: for a default pool, private ones that help out.
fn lenders(growth: &Growth, plan: &Plan) -> Vec<PoolIndex> {
    let helps = plan.pool == Pools::DEFAULT;
    let lenders = growth.use_on_oom.iter().filter(|_| helps).filter_map(|id| growth.private.get(id));
    lenders.filter(|lender| !lender.is_known).map(|lender| lender.pool).collect()
}

/// Makes a call at the end of a runtime, and once more if it fails: nobody can be told.
pub(crate) fn twice(call: impl Fn() -> Result<()>) {
    let _ = call().or_else(|_| call());
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
