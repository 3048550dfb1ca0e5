//! Blocks given back while other streams may still use them.
//!
//! Most blocks were used on one other stream. Such a block is named by the entry that waits for its event and is noted
//! nowhere else; what is known of any other is a [`Waiting`], to which its entries lead.
//!
//! **Invariants:** a waiting block is in exactly one of three states: *alone*, with one entry in the queues that names it;
//! *deferred*, with streams left for which no event was recorded; or with `events` entries that lead to its [`Waiting`].
//! Nothing here touches a shard: a block that waits no more is handed to the caller.

use crate::base::error::{Error, Result};
use crate::base::handles::{EventHandle, StreamRef};
use crate::caching::block::Index;
use crate::caching::block::StreamUse;
use crate::caching::pools::reuse::{Markers, Passed};
use crate::caching::remote::ShardId;
use crate::driver::Driver;
use crate::events::queue::EventQueues;

/// Names a pending block: it stays as it is meanwhile, so its position is enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Waiter {
    pub(crate) shard: ShardId,
    pub(crate) block: Index,
}

/// What is known of a pending block.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) waiter: Waiter,
    /// The stream it was allocated for.
    pub(crate) stream: StreamRef,
    /// Streams it was used on that have no event yet.
    pub(crate) uses: Vec<StreamUse>,
    /// Events that have to pass.
    pub(crate) events: u32,
}

/// Position of a [`Waiting`].
type Ticket = u32;

/// The ticket of a block that waits alone.
const ALONE: Ticket = Ticket::MAX;

/// Who waits for an event.
#[derive(Clone, Copy, Debug)]
struct Entry {
    waiter: Waiter,
    ticket: Ticket,
}

impl Entry {
    /// The event has passed: one block fewer waits `alone`, or one of the `several` waits for one event fewer. The block if
    /// it waits no more.
    #[inline]
    fn pass(self, alone: &mut usize, several: &mut Several) -> Option<Waiter> {
        if self.ticket == ALONE {
            *alone -= 1;
            Some(self.waiter)
        } else {
            several.pass(self.ticket)
        }
    }
}

/// The blocks that do not wait alone.
#[derive(Debug, Default)]
struct Several {
    waiting: Vec<Option<Waiting>>,
    vacant: Vec<Ticket>,
    /// Lists to use again.
    lists: Vec<Vec<StreamUse>>,
}

/// Blocks that wait for events, and blocks that have none yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    events: EventQueues<Entry>,
    /// Blocks that wait alone.
    alone: usize,
    several: Several,
    deferred: Vec<Ticket>,
    /// After which nodes of a capture deferred blocks are used no more, where that can be known.
    markers: Vec<(Ticket, Markers)>,
    /// What precedes the next work of streams that capture.
    pub(crate) passed: Passed,
    /// Number of events that have passed. Positions of events are stable while it does not change.
    passes: u64,
}

impl Several {
    fn keep(&mut self, waiting: Waiting) -> Ticket {
        if let Some(ticket) = self.vacant.pop() {
            self.waiting[ticket as usize] = Some(waiting);
            return ticket;
        }
        let ticket = Ticket::try_from(self.waiting.len()).ok().filter(|ticket| *ticket != ALONE);
        self.waiting.push(Some(waiting));
        ticket.expect("fewer than 2^32 blocks")
    }

    fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting[ticket as usize].as_ref()
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiting> {
        self.waiting[ticket as usize].as_mut()
    }

    fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().flatten()
    }

    fn keep_list(&mut self, mut list: Vec<StreamUse>) {
        list.clear();
        self.lists.push(list);
    }

    /// Removes a block that waits no more.
    fn finish(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiting = self.waiting[ticket as usize].take()?;
        self.vacant.push(ticket);
        self.keep_list(waiting.uses);
        Some(waiting.waiter)
    }

    /// An event has passed. The block if it waits no more.
    #[inline(never)]
    fn pass(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiting = self.get_mut(ticket)?;
        waiting.events -= 1;
        // One with streams left is deferred still.
        if waiting.events == 0 && waiting.uses.is_empty() { self.finish(ticket) } else { None }
    }
}

/// Whether an event could not be recorded because whoever lent the stream has destroyed it, so that nothing can be waited
/// for. An event of a wrong context is answered alike: the driver is asked for the stream alone.
#[cold]
fn is_gone<D: Driver>(driver: &D, stream: StreamRef, error: &Error) -> bool {
    error.is_invalid_handle() && driver.capture_id(stream).is_err_and(|error| error.is_invalid_handle())
}

impl Pending {
    /// An empty list.
    pub(crate) fn list(&mut self) -> Vec<StreamUse> {
        self.several.lists.pop().unwrap_or_default()
    }

    /// Takes a list back.
    pub(crate) fn keep_list(&mut self, list: Vec<StreamUse>) {
        self.several.keep_list(list);
    }

    /// Takes a block in that waits for one stream, which gets its event at once. After an error nothing has changed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "most blocks that another stream used come here, and it is short")]
    pub(crate) fn wait_alone<D: Driver>(&mut self, driver: &D, stream: StreamRef, waiter: Waiter) -> Result<()> {
        self.events.record(driver, stream, || Entry { waiter, ticket: ALONE })?;
        self.alone += 1;
        Ok(())
    }

    /// Takes a block in that waits for streams.
    pub(crate) fn defer(&mut self, waiting: Waiting) {
        let ticket = self.several.keep(waiting);
        self.deferred.push(ticket);
    }

    pub(crate) fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// Notes the nodes that the streams of the newest block have come to, if they all take part in one capture.
    pub(crate) fn mark_last<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let Some(ticket) = self.deferred.last().copied() else { return Ok(()) };
        let Some(waiting) = self.several.get(ticket) else { return Ok(()) };
        let others = waiting.uses.iter().map(|used| used.stream);
        let markers = Markers::of(driver, std::iter::once(waiting.stream).chain(others))?;
        self.markers.extend(markers.map(|markers| (ticket, markers)));
        Ok(())
    }

    fn is_of(&self, ticket: Ticket, stream: StreamRef) -> bool {
        self.several.get(ticket).is_some_and(|waiting| waiting.stream == stream)
    }

    /// Whether blocks of a stream wait that could be free before the capture ends.
    pub(crate) fn has_markers(&self, stream: StreamRef) -> bool {
        self.markers.iter().any(|(ticket, _)| self.is_of(*ticket, stream))
    }

    /// Removes a block of a stream whose markers that stream has passed.
    pub(crate) fn take_passed(&mut self, stream: StreamRef) -> Option<Waiter> {
        let is_passed = |(ticket, markers): &(Ticket, Markers)| {
            self.is_of(*ticket, stream) && self.passed.are_behind(markers, stream)
        };
        let position = self.markers.iter().position(is_passed)?;
        let (ticket, _) = self.markers.remove(position);
        self.deferred.retain(|deferred| *deferred != ticket);
        self.several.finish(ticket)
    }

    /// Whether something is left of captures, or blocks are deferred.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !(self.deferred.is_empty() && self.markers.is_empty() && self.passed.is_empty())
    }

    /// Forgets what was noted of captures, which are over.
    pub(crate) fn forget_captures(&mut self) {
        self.markers.clear();
        self.passed.clear();
    }

    /// Records the events that one deferred block needs. The block if it needs none; `None` if it waits for them.
    pub(crate) fn record_deferred<D: Driver>(&mut self, driver: &D, position: usize) -> Result<Option<Waiter>> {
        let ticket = self.deferred[position];
        let waiting = self.several.get_mut(ticket).expect("deferred tickets are valid");
        waiting.uses.retain(|known| !known.in_scope);
        let waiter = waiting.waiter;
        while let Some(used) = self.several.get(ticket).and_then(|waiting| waiting.uses.first()).copied() {
            let recorded = self.events.record(driver, used.stream, || Entry { waiter, ticket });
            let is_gone = recorded.as_ref().is_err_and(|error| is_gone(driver, used.stream, error));
            if !is_gone {
                recorded?;
            }
            let waiting = self.several.get_mut(ticket).expect("deferred tickets are valid");
            waiting.uses.remove(0);
            waiting.events += u32::from(!is_gone);
        }
        self.deferred.remove(position);
        let free = self.several.get(ticket).is_some_and(|waiting| waiting.events == 0);
        Ok(if free { self.several.finish(ticket) } else { None })
    }

    /// Whether a deferred block was used on a stream that is capturing, where an event would become part of the graph.
    pub(crate) fn is_captured<D: Driver>(&self, driver: &D, position: usize) -> Result<bool> {
        let waiting = self.several.get(self.deferred[position]).expect("deferred tickets are valid");
        let is_captured = |used: &StreamUse| match driver.takes_events(used.stream) {
            Ok(takes_events) => Ok(!takes_events),
            Err(error) if error.is_invalid_handle() => Ok(false),
            Err(error) => Err(error),
        };
        waiting.uses.iter().try_fold(false, |captured, used| Ok(captured || is_captured(used)?))
    }

    /// Makes a deferred block wait for all its uses, including those made in a scope.
    pub(crate) fn keep_uses(&mut self, position: usize) {
        let ticket = self.deferred[position];
        self.markers.retain(|(marked, _)| *marked != ticket);
        let waiting = self.several.get_mut(ticket).expect("deferred tickets are valid");
        waiting.uses.iter_mut().for_each(|used| used.in_scope = false);
    }

    /// How many blocks wait.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.alone + (self.several.waiting.len() - self.several.vacant.len())
    }

    /// The streams that blocks have events on.
    pub(crate) fn streams(&self) -> Vec<StreamRef> {
        self.events.streams().collect()
    }

    /// An event of a stream, counted from the oldest, and the block that waits for it.
    pub(crate) fn get(&self, stream: StreamRef, position: usize) -> Option<(EventHandle, Waiter)> {
        let (event, entry) = self.events.get(stream, position)?;
        Some((event, entry.waiter))
    }

    /// Returns the number of events that have passed so far.
    pub(crate) fn passes(&self) -> u64 {
        self.passes
    }

    /// That event has passed: it is kept for later. The block if it waits no more.
    pub(crate) fn pass(&mut self, stream: StreamRef, position: usize) -> Option<Waiter> {
        let entry = self.events.pass(stream, position)?;
        self.passes += 1;
        entry.pass(&mut self.alone, &mut self.several)
    }

    /// Asks for the oldest event of each stream, as long as that has passed. The blocks that wait no more are handed to
    /// `free`, one after the other, but the last, which is left to the caller to free before anything else is done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each request comes here while blocks wait")]
    pub(crate) fn pass_all<D: Driver>(&mut self, driver: &D, mut free: impl FnMut(Waiter)) -> Result<Option<Waiter>> {
        let Self { events, alone, several, passes, .. } = self;
        let mut last = None;
        let polled = events.poll(
            |event| driver.event_query(event),
            |entry| {
                *passes += 1;
                let passed = entry.pass(alone, several);
                if let Some(before) = passed.and_then(|passed| last.replace(passed)) {
                    free(before);
                }
            },
        );
        if let Err(error) = polled {
            last.into_iter().for_each(free);
            return Err(error);
        }
        Ok(last)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.events.iter().map(|(_, entry)| entry)
    }

    /// Every waiting block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiter> {
        let alone = self.entries().filter(|entry| entry.ticket == ALONE).map(|entry| entry.waiter);
        alone.chain(self.several.iter().map(|waiting| waiting.waiter))
    }

    /// Every stream that a waiting block waits for, with the block.
    pub(crate) fn awaited_streams(&self) -> impl Iterator<Item = (StreamRef, Waiter)> {
        let queued = self.events.by_stream().map(|(stream, entry)| (stream, entry.waiter));
        let uses = |waiting: &Waiting| {
            let waiter = waiting.waiter;
            waiting.uses.iter().map(move |used| (used.stream, waiter)).collect::<Vec<_>>()
        };
        queued.chain(self.several.iter().flat_map(uses))
    }

    /// Whether the queues name each block as often as it has events, the deferred are those with streams left, and all of
    /// them are counted.
    pub(crate) fn is_consistent(&self) -> bool {
        let queued = |ticket: Ticket, waiter: Waiter| {
            self.entries().filter(|entry| entry.ticket == ticket && entry.waiter == waiter).count()
        };
        let deferred = |ticket: Ticket| self.deferred.iter().filter(|of| **of == ticket).count();
        let several = (0..).zip(&self.several.waiting).all(|(ticket, waiting)| match waiting {
            None => self.entries().all(|entry| entry.ticket != ticket) && deferred(ticket) == 0,
            Some(waiting) => {
                queued(ticket, waiting.waiter) == waiting.events as usize
                    && deferred(ticket) == usize::from(!waiting.uses.is_empty())
            }
        });
        several && self.count() == self.iter().count()
    }

    /// The events outstanding for a block, and the streams it has none for yet.
    #[cfg(test)]
    pub(crate) fn awaited(&self, waiter: Waiter) -> (Vec<EventHandle>, Vec<StreamRef>) {
        let events = self.events.iter().filter(|(_, entry)| entry.waiter == waiter).map(|(event, _)| event);
        let streams = self.several.iter().filter(|waiting| waiting.waiter == waiter);
        let streams = streams.flat_map(|waiting| waiting.uses.iter().map(|used| used.stream));
        (events.collect(), streams.collect())
    }

    /// Gives up every event, outstanding or spare.
    pub(crate) fn take_events(&mut self) -> Vec<EventHandle> {
        self.events.take().0
    }
}
