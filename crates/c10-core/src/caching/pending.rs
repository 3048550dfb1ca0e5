//! Blocks given back while other streams may still use them.
//!
//! **Invariants:** a waiting block is in exactly one of two states: *deferred*, with streams left for which no event was
//! recorded, or with `events` entries in the queues. An event is in exactly one place: a queue or the spare list of its
//! device. Nothing here touches a shard: a block that waits no more is handed to the caller.

use std::collections::VecDeque;

use crate::caching::block::BlockId;
use crate::caching::pages::ShardId;
use crate::caching::private_pool::PoolId;
use crate::caching::reuse::{Markers, Passed};
use crate::caching::shard::StreamUse;
use crate::device::DeviceIndex;
use crate::driver::{Driver, EventHandle, StreamRef};
use crate::error::Result;

/// A block that awaits other streams.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) shard: ShardId,
    pub(crate) block: BlockId,
    pub(crate) owner: Option<PoolId>,
    /// The stream it was allocated for.
    pub(crate) stream: StreamRef,
    /// Streams it was used on that have no event yet.
    pub(crate) uses: Vec<StreamUse>,
    /// Events that have to pass.
    pub(crate) events: u32,
}

/// Position of a [`Waiting`].
type Ticket = usize;

/// Events outstanding, blocks that have none yet, and events to use again.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    waiting: Vec<Option<Waiting>>,
    vacant: Vec<Ticket>,
    /// By stream, sorted.
    queues: Vec<(StreamRef, VecDeque<(EventHandle, Ticket)>)>,
    deferred: Vec<Ticket>,
    /// By device.
    spare: Vec<Vec<EventHandle>>,
    /// Lists to use again.
    lists: Vec<Vec<StreamUse>>,
    /// After which nodes of a capture deferred blocks are used no more, where that can be known.
    markers: Vec<(Ticket, Markers)>,
    /// What precedes the next work of streams that capture.
    pub(crate) passed: Passed,
}

impl Pending {
    /// An empty list.
    pub(crate) fn list(&mut self) -> Vec<StreamUse> {
        self.lists.pop().unwrap_or_default()
    }

    /// Takes a block in that waits for streams while no scope is open: only one that is still open when the block comes
    /// back orders the uses made inside it. One stream gets its event at once; whether there are more.
    #[inline]
    pub(crate) fn await_first<D: Driver>(&mut self, driver: &D, mut waiting: Waiting) -> Result<bool> {
        waiting.uses.iter_mut().for_each(|used| used.in_scope = false);
        let &[only] = waiting.uses.as_slice() else {
            self.defer(waiting);
            return Ok(true);
        };
        let ticket = self.keep(waiting);
        if let Err(error) = self.record(driver, only.stream, ticket) {
            self.deferred.push(ticket);
            return Err(error);
        }
        if let Some(waiting) = &mut self.waiting[ticket] {
            waiting.uses.clear();
            waiting.events = 1;
        }
        Ok(false)
    }

    /// Takes a block in that waits for streams.
    pub(crate) fn defer(&mut self, waiting: Waiting) {
        let ticket = self.keep(waiting);
        self.deferred.push(ticket);
    }

    #[inline]
    fn keep(&mut self, waiting: Waiting) -> Ticket {
        match self.vacant.pop() {
            Some(ticket) => {
                self.waiting[ticket] = Some(waiting);
                ticket
            }
            None => {
                self.waiting.push(Some(waiting));
                self.waiting.len() - 1
            }
        }
    }

    pub(crate) fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// Notes the nodes that the streams of the newest block have come to, if they all take part in one capture.
    pub(crate) fn mark_newest<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let Some(ticket) = self.deferred.last().copied() else { return Ok(()) };
        let Some(waiting) = &self.waiting[ticket] else { return Ok(()) };
        let others = waiting.uses.iter().map(|used| used.stream);
        let markers = Markers::of(driver, std::iter::once(waiting.stream).chain(others))?;
        self.markers.extend(markers.map(|markers| (ticket, markers)));
        Ok(())
    }

    fn is_of(&self, ticket: Ticket, stream: StreamRef) -> bool {
        self.waiting[ticket].as_ref().is_some_and(|waiting| waiting.stream == stream)
    }

    /// Whether blocks of a stream wait that could be free before the capture ends.
    pub(crate) fn has_markers(&self, stream: StreamRef) -> bool {
        self.markers.iter().any(|(ticket, _)| self.is_of(*ticket, stream))
    }

    /// Removes a block of a stream whose markers that stream has passed.
    pub(crate) fn take_passed(&mut self, stream: StreamRef) -> Option<Waiting> {
        let is_passed = |(ticket, markers): &(Ticket, Markers)| {
            self.is_of(*ticket, stream) && self.passed.are_behind(markers, stream)
        };
        let position = self.markers.iter().position(is_passed)?;
        let (ticket, _) = self.markers.remove(position);
        self.deferred.retain(|deferred| *deferred != ticket);
        self.finish(ticket)
    }

    /// Forgets what was noted of captures, which are over.
    pub(crate) fn forget_captures(&mut self) {
        self.markers.clear();
        self.passed.clear();
    }

    /// Records the events that one deferred block needs. The block if it needs none; `None` if it waits for them.
    pub(crate) fn settle<D: Driver>(&mut self, driver: &D, position: usize) -> Result<Option<Waiting>> {
        let ticket = self.deferred[position];
        let waiting = self.waiting[ticket].as_mut().expect("deferred tickets are valid");
        waiting.uses.retain(|known| !known.in_scope);
        while let Some(used) = self.waiting[ticket].as_ref().and_then(|waiting| waiting.uses.first()).copied() {
            self.record(driver, used.stream, ticket)?;
            let waiting = self.waiting[ticket].as_mut().expect("deferred tickets are valid");
            waiting.uses.remove(0);
            waiting.events += 1;
        }
        self.deferred.remove(position);
        let free = self.waiting[ticket].as_ref().is_some_and(|waiting| waiting.events == 0);
        Ok(if free { self.finish(ticket) } else { None })
    }

    fn record<D: Driver>(&mut self, driver: &D, stream: StreamRef, ticket: Ticket) -> Result<()> {
        let spare = self.spare_of(stream.device);
        let event = match spare.pop() {
            Some(event) => event,
            None => driver.event_create(stream.device)?,
        };
        if let Err(error) = driver.event_record(event, stream) {
            self.spare_of(stream.device).push(event);
            return Err(error);
        }
        let position = self.queues.binary_search_by_key(&stream, |(of, _)| *of).unwrap_or_else(|position| {
            self.queues.insert(position, (stream, VecDeque::new()));
            position
        });
        self.queues[position].1.push_back((event, ticket));
        Ok(())
    }

    /// Events of a device to use again.
    fn spare_of(&mut self, device: DeviceIndex) -> &mut Vec<EventHandle> {
        let position = device.position().unwrap_or(0);
        if position >= self.spare.len() {
            self.spare.resize_with(position + 1, Vec::new);
        }
        &mut self.spare[position]
    }

    /// How many blocks wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() - self.vacant.len()
    }

    /// Removes a block that waits no more.
    fn finish(&mut self, ticket: Ticket) -> Option<Waiting> {
        let mut waiting = self.waiting[ticket].take()?;
        self.vacant.push(ticket);
        waiting.uses.clear();
        self.lists.push(std::mem::take(&mut waiting.uses));
        Some(waiting)
    }

    /// Number of streams that have a queue.
    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// An event of a queue, counted from the oldest, and the pool of the block that waits for it.
    pub(crate) fn entry(&self, queue: usize, position: usize) -> Option<(EventHandle, Option<PoolId>)> {
        let (event, ticket) = self.queues[queue].1.get(position).copied()?;
        Some((event, self.waiting[ticket].as_ref().and_then(|waiting| waiting.owner)))
    }

    /// An event has passed: it is kept for later. The block if it waits no more.
    pub(crate) fn pass(&mut self, queue: usize, position: usize) -> Option<Waiting> {
        let (stream, entries) = &mut self.queues[queue];
        let device = stream.device;
        let (event, ticket) = if position == 0 { entries.pop_front() } else { entries.remove(position) }?;
        self.spare_of(device).push(event);
        let waiting = self.waiting[ticket].as_mut()?;
        waiting.events -= 1;
        // One with streams left is deferred still.
        if waiting.events == 0 && waiting.uses.is_empty() { self.finish(ticket) } else { None }
    }

    /// Every waiting block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().flatten()
    }

    /// Whether the queues name each block as often as it has events, and the deferred are those with streams left.
    pub(crate) fn is_consistent(&self) -> bool {
        let queued =
            |ticket: Ticket| self.queues.iter().flat_map(|(_, queue)| queue).filter(|(_, of)| *of == ticket).count();
        let deferred = |ticket: Ticket| self.deferred.iter().filter(|of| **of == ticket).count();
        self.waiting.iter().enumerate().all(|(ticket, waiting)| match waiting {
            None => queued(ticket) == 0 && deferred(ticket) == 0,
            Some(waiting) => {
                queued(ticket) == waiting.events as usize && deferred(ticket) == usize::from(!waiting.uses.is_empty())
            }
        })
    }

    /// The events outstanding for a block, and the streams it has none for yet.
    #[cfg(test)]
    pub(crate) fn awaited(&self, shard: ShardId, block: BlockId) -> (Vec<EventHandle>, Vec<StreamRef>) {
        let is_of = |ticket: &Ticket| {
            self.waiting[*ticket].as_ref().is_some_and(|waiting| (waiting.shard, waiting.block) == (shard, block))
        };
        let entries = self.queues.iter().flat_map(|(_, queue)| queue).filter(|(_, ticket)| is_of(ticket));
        let streams = self.iter().filter(|waiting| (waiting.shard, waiting.block) == (shard, block));
        let streams = streams.flat_map(|waiting| waiting.uses.iter().map(|used| used.stream));
        (entries.map(|(event, _)| *event).collect(), streams.collect())
    }

    /// Gives up every event, outstanding or spare.
    pub(crate) fn take_events(&mut self) -> Vec<EventHandle> {
        let queued = std::mem::take(&mut self.queues).into_iter().flat_map(|(_, queue)| queue).map(|(event, _)| event);
        let spare = std::mem::take(&mut self.spare).into_iter().flatten();
        queued.chain(spare).collect()
    }
}
