//! Blocks given back while other streams may still use them.
//!
//! **Invariants:** a block's `events` is the number of queue entries that name it; each entry owns one event. A block
//! with `uses` left is in `deferred`. An event is in exactly one place: a queue or the spare list of its device.

use std::collections::{BTreeMap, VecDeque};

use crate::caching::block::BlockId;
use crate::device::DeviceIndex;
use crate::driver::{Driver, EventHandle, StreamRef};
use crate::error::Result;

/// Events outstanding, blocks that have none yet, and events to use again.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) queues: BTreeMap<StreamRef, VecDeque<(EventHandle, BlockId)>>,
    pub(crate) deferred: Vec<BlockId>,
    spare: BTreeMap<DeviceIndex, Vec<EventHandle>>,
}

impl Pending {
    /// Records an event on a stream, after which the block is free of it.
    pub(crate) fn record<D: Driver>(&mut self, driver: &D, stream: StreamRef, block: BlockId) -> Result<()> {
        let spare = self.spare.entry(stream.device).or_default();
        let event = match spare.pop() {
            Some(event) => event,
            None => driver.event_create(stream.device)?,
        };
        if let Err(error) = driver.event_record(event, stream) {
            spare.push(event);
            return Err(error);
        }
        self.queues.entry(stream).or_default().push_back((event, block));
        Ok(())
    }

    /// An outstanding event of a stream and the block that waits for it, counted from the oldest.
    pub(crate) fn entry(&self, stream: StreamRef, position: usize) -> Option<(EventHandle, BlockId)> {
        self.queues.get(&stream)?.get(position).copied()
    }

    /// Removes an entry of a stream, keeps its event for later and returns its block.
    pub(crate) fn take(&mut self, stream: StreamRef, position: usize) -> Option<BlockId> {
        let (event, block) = self.queues.get_mut(&stream)?.remove(position)?;
        self.spare.entry(stream.device).or_default().push(event);
        Some(block)
    }

    /// Streams that have a queue.
    pub(crate) fn streams(&self) -> Vec<StreamRef> {
        self.queues.keys().copied().collect()
    }

    /// Gives up every event, outstanding or spare.
    pub(crate) fn take_events(&mut self) -> Vec<EventHandle> {
        let queued = std::mem::take(&mut self.queues).into_values().flatten().map(|(event, _)| event);
        let spare = std::mem::take(&mut self.spare).into_values().flatten();
        queued.chain(spare).collect()
    }
}
