//! The pages of a device under the elastic backend: which of them is behind which addresses, and which is behind none.
//!
//! A page *moves* when it is put behind other addresses. Those where it was are *left*: the old mapping stays until an
//! event has passed behind which nothing uses it, so that nobody waits for it.
//!
//! **Invariants:** a page is idle or behind one place, never both, and no two pages are behind one place; the places are
//! those that blocks have memory at. What is left is in one list, and its blocks stay as they are until it is dropped.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::handles::{EventHandle, PageHandle, StreamRef};
use crate::caching::block::Index;
use crate::caching::remote::ShardId;
use crate::driver::Driver;
use crate::events::queue::EventQueues;

/// Addresses that pages have left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Left {
    pub(crate) address: u64,
    /// Bytes from there on that are still mapped.
    pub(crate) size: u64,
    /// The block that stands for them.
    pub(crate) shard: ShardId,
    pub(crate) block: Index,
}

/// The pages of a device.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Pages behind no address.
    idle: Vec<PageHandle>,
    /// The page behind each place.
    behind: BTreeMap<u64, PageHandle>,
    /// What was left, by the event that has to pass first.
    left: EventQueues<Vec<Left>>,
    /// What was left and is used no more.
    passed: Vec<Left>,
    /// Bytes of all that was left.
    left_bytes: u64,
    /// How many pages were made.
    made: u64,
    /// How often one moved.
    moved: u64,
    /// How often pages moved for a request of a size.
    repeats: BTreeMap<u64, u32>,
}

/// Pages move so often for requests of one size before that counts as a loop.
const REPEATS: u32 = 3;
/// Sizes that are remembered at most.
const SIZES: usize = 4096;

impl Stock {
    /// Takes a page that is behind no address.
    pub(crate) fn take_idle(&mut self) -> Option<PageHandle> {
        self.idle.pop()
    }

    /// Keeps a page that is behind no address.
    pub(crate) fn keep_idle(&mut self, page: PageHandle) {
        self.idle.push(page);
    }

    /// The pages that are behind no address.
    pub(crate) fn idle(&self) -> impl Iterator<Item = PageHandle> {
        self.idle.iter().copied()
    }

    /// How many pages may move for a request of a size before pages are made instead. In a loop those are three for every
    /// two pages that were made.
    pub(crate) fn moves_due(&self, size: u64) -> u64 {
        let is_loop = self.repeats.get(&size).is_some_and(|repeats| *repeats >= REPEATS);
        if is_loop { (self.made * 3 / 2).saturating_sub(self.moved) } else { u64::MAX }
    }

    /// Counts pages that were made, and moves, for a request of a size.
    pub(crate) fn count(&mut self, made: u64, moved: u64, size: u64) {
        (self.made, self.moved) = (self.made + made, self.moved + moved);
        if moved > 0 {
            if self.repeats.len() >= SIZES {
                self.repeats.clear();
            }
            let repeats = self.repeats.entry(size).or_default();
            *repeats = repeats.saturating_add(1);
        }
    }

    /// The page behind a place.
    pub(crate) fn page_at(&self, address: u64) -> Option<PageHandle> {
        self.behind.get(&address).copied()
    }

    /// A page is behind a place from now on.
    pub(crate) fn place(&mut self, address: u64, page: PageHandle) {
        let before = self.behind.insert(address, page);
        debug_assert_eq!(before, None, "two pages are behind one place");
    }

    /// The page that was behind a place, which has none any more.
    pub(crate) fn displace(&mut self, address: u64) -> Option<PageHandle> {
        self.behind.remove(&address)
    }

    /// The places that have pages, with these.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, PageHandle)> {
        self.behind.iter().map(|(address, page)| (*address, *page))
    }

    /// An event behind the work of a stream, which is given back by [`Self::leave`] or [`Self::keep_event`].
    pub(crate) fn event_behind<D: Driver>(&mut self, driver: &D, stream: StreamRef) -> Result<EventHandle> {
        let event = match self.left.spare.take(stream.device) {
            Some(event) => event,
            None => driver.event_create(stream.device)?,
        };
        driver.event_record(event, stream).inspect_err(|_| self.keep_event(stream, event)).map(|()| event)
    }

    /// Keeps an event that nothing waits for.
    pub(crate) fn keep_event(&mut self, stream: StreamRef, event: EventHandle) {
        self.left.spare.keep(stream.device, event);
    }

    /// Places were left, which nothing uses behind the event.
    pub(crate) fn leave(&mut self, stream: StreamRef, event: EventHandle, left: Vec<Left>) {
        self.left_bytes += left.iter().map(|left| left.size).sum::<u64>();
        self.left.push(stream, event, left);
    }

    /// A mapping stays that nothing has used.
    pub(crate) fn leave_unused(&mut self, left: Left) {
        self.left_bytes += left.size;
        self.passed.push(left);
    }

    /// Bytes of all that was left.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Finds out which events have passed.
    pub(crate) fn poll<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let Self { left, passed, .. } = self;
        left.poll(|event| driver.event_query(event), |left| passed.extend(left))
    }

    /// Waits for all events.
    pub(crate) fn synchronize<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let Self { left, passed, .. } = self;
        left.poll(|event| driver.event_synchronize(event).map(|()| true), |left| passed.extend(left))
    }

    /// Something that was left and is used no more.
    pub(crate) fn passed(&mut self) -> Option<&mut Left> {
        self.passed.last_mut()
    }

    /// So many bytes from its front are mapped no more.
    pub(crate) fn shorten_passed(&mut self, bytes: u64) {
        if let Some(left) = self.passed.last_mut() {
            (left.address, left.size) = (left.address + bytes, left.size - bytes);
            self.left_bytes -= bytes;
        }
    }

    /// It is mapped no more.
    pub(crate) fn finish_passed(&mut self) -> Option<Left> {
        self.passed.pop()
    }

    /// All that was left.
    pub(crate) fn all_left(&self) -> impl Iterator<Item = &Left> {
        self.left.iter().flat_map(|(_, left)| left).chain(&self.passed)
    }

    /// Gives up every event.
    pub(crate) fn take_events(&mut self) -> Vec<EventHandle> {
        let (events, left) = self.left.take();
        self.passed.extend(left.into_iter().flatten());
        events
    }
}
