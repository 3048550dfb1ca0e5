//! Blocks given back while streams may still use them.
//!
//! A block waits for one event on each stream it was recorded on. Each stream has a queue, oldest event first, that is
//! looked at until an event has not passed: one stream that is behind does not keep the blocks of others. A stream that
//! takes part in a capture gets no event before the capture is over, since such an event would belong to the graph and
//! could not be asked for; until then, and after a failure of the driver, the use stands in `unrecorded`. A stream that
//! the driver does not know any more is not waited for.
//!
//! **Invariants:** for each stream that a block waits for there is one entry, in a queue or in `unrecorded`. The
//! block's `waits` counts them, and one more while its last owner gives it up. An event is in one place: a queue, the
//! stock of spare events, or being moved between them. One thread at a time polls, and only that thread takes entries
//! out. The driver is called with no lock held that other threads wait for: those who free take the queues' lock for a
//! few instructions, those who allocate do not wait for whoever polls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

use crate::base::error::Result;
use crate::base::handles::{EventHandle, StreamRef};
use crate::driver::{EventQuery, HostDriver};
use crate::events::queue::EventQueues;
use crate::pinned::blocks::{BlockId, Blocks};
use crate::pinned::relaxed::Relaxed;
use crate::sync::{Mutex, MutexGuard};

/// Whether to wait while another thread polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    None,
    Waits,
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
    /// Held by whoever polls.
    polling: Mutex<()>,
    /// Blocks that wait.
    blocks: AtomicUsize,
    /// Entries of `unrecorded`.
    unrecorded: AtomicUsize,
}

/// What came of the attempt to record an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recorded {
    /// The block waits for an event now.
    Event,
    /// There can be no event before the stream's capture is over.
    Captures,
    /// The driver knows no such stream: whoever lent it has destroyed it, and there is nothing to wait for.
    StreamIsGone,
}

#[derive(Debug, Default)]
struct Queues {
    events: EventQueues<BlockId>,
    unrecorded: Vec<(StreamRef, BlockId)>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any block waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) > 0
    }

    /// Whether an event could not be recorded yet.
    pub(crate) fn any_unrecorded(&self) -> bool {
        self.unrecorded.load(Ordering::Relaxed) > 0
    }

    /// Takes a block that was used on streams from its one owner; calls `free` if the streams are done already. Without
    /// a driver, and where recording fails, events are recorded later.
    pub(crate) fn add<D: HostDriver>(
        &self,
        driver: Option<&D>,
        blocks: &Blocks,
        block: BlockId,
        free: impl FnOnce(BlockId),
    ) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        for stream in blocks.get(block).take_streams() {
            match driver.map(|driver| self.record(driver, stream, block)) {
                Some(Ok(Recorded::Event)) => {}
                // The caller's own entry is left, so this is not the last.
                Some(Ok(Recorded::StreamIsGone)) => drop(blocks.get(block).drop_wait()),
                Some(Ok(Recorded::Captures) | Err(_)) | None => self.put_off(stream, block),
            }
        }
        blocks.get(block).disown();
        // Whoever asks for owners holds this lock before: it sees that there is none, or this thread sees why it asked.
        drop(self.lock());
        self.wait_less(blocks, block, free);
    }

    /// One thing less that a block waits for; calls `free` if that was all.
    fn wait_less(&self, blocks: &Blocks, block: BlockId, free: impl FnOnce(BlockId)) {
        if blocks.get(block).drop_wait() {
            self.blocks.fetch_sub(1, Ordering::Relaxed);
            free(block);
        }
    }

    fn put_off(&self, stream: StreamRef, block: BlockId) {
        self.lock().unrecorded.push((stream, block));
        self.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    /// Records an event for a block, unless the stream takes part in a capture.
    fn record<D: HostDriver>(&self, driver: &D, stream: StreamRef, block: BlockId) -> Result<Recorded> {
        match driver.is_capturing(stream) {
            Ok(false) => {}
            Ok(true) => return Ok(Recorded::Captures),
            Err(error) if error.is_invalid_handle() => return Ok(Recorded::StreamIsGone),
            Err(error) => return Err(error),
        }
        let spare = self.lock().events.spare.take(stream.device);
        let event = spare.map_or_else(|| driver.create_event(stream.device), Ok)?;
        if let Err(error) = driver.record_event(event, stream) {
            self.lock().events.spare.keep(stream.device, event);
            return Err(error);
        }
        self.lock().events.push(stream, event, block);
        Ok(Recorded::Event)
    }

    /// Records the events that could not be before. Those that still cannot stay. Calls `free` for blocks that wait for
    /// nothing any more, since their streams are gone.
    pub(crate) fn record_late<D: HostDriver>(&self, driver: &D, blocks: &Blocks, mut free: impl FnMut(BlockId)) {
        if !self.any_unrecorded() {
            return;
        }
        let Ok(_relaxed) = Relaxed::new(driver) else { return };
        let late = std::mem::take(&mut self.lock().unrecorded);
        self.unrecorded.fetch_sub(late.len(), Ordering::Relaxed);
        for (stream, block) in late {
            match self.record(driver, stream, block) {
                Ok(Recorded::Event) => {}
                Ok(Recorded::StreamIsGone) => self.wait_less(blocks, block, &mut free),
                Ok(Recorded::Captures) | Err(_) => self.put_off(stream, block),
            }
        }
    }

    /// Looks at the events; calls `free` for each block whose events have all passed. Trouble with the driver counts as
    /// not passed.
    pub(crate) fn poll<E: EventQuery>(
        &self,
        driver: &E,
        blocks: &Blocks,
        patience: Patience,
        mut free: impl FnMut(BlockId),
    ) {
        let _polling = match (self.polling.try_lock(), patience) {
            (Ok(polling), _) => polling,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), Patience::None) => return,
            (Err(TryLockError::WouldBlock), Patience::Waits) => {
                self.polling.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let streams: Vec<StreamRef> = self.lock().events.streams().collect();
        if streams.is_empty() {
            return;
        }
        let Ok(_relaxed) = Relaxed::new(driver) else { return };
        for stream in streams {
            while let Some(block) = self.pop_if_passed(driver, stream) {
                self.wait_less(blocks, block, &mut free);
            }
        }
    }

    /// Waits until the events recorded so far have passed; [`Self::poll`] then takes the blocks back. No lock is held
    /// while waiting: if another thread reuses and re-records an event, the wait only takes longer. A driver error ends
    /// the wait.
    pub(crate) fn wait<D: HostDriver>(&self, driver: &D) {
        let events: Vec<EventHandle> = self.lock().events.iter().map(|(event, _)| event).collect();
        let _ = events.into_iter().try_for_each(|event| driver.wait_for_event(event));
    }

    /// The block of a stream's oldest event, if that has passed.
    fn pop_if_passed<E: EventQuery>(&self, driver: &E, stream: StreamRef) -> Option<BlockId> {
        let event = self.lock().events.get(stream, 0)?.0;
        if !driver.query(event).unwrap_or(false) {
            return None;
        }
        self.lock().events.pass(stream, 0)
    }

    /// Blocks that wait, with the number of entries of each, in no order; for checks while nothing changes.
    pub(crate) fn entries(&self) -> BTreeMap<BlockId, u32> {
        let queues = self.lock();
        let queued = queues.events.iter().map(|(_, block)| *block);
        let mut entries = BTreeMap::new();
        for block in queued.chain(queues.unrecorded.iter().map(|(_, block)| *block)) {
            *entries.entry(block).or_insert(0) += 1;
        }
        entries
    }

    /// Gives up every event, at the end, when the devices are idle.
    pub(crate) fn dismantle<D: HostDriver>(&self, driver: &D) {
        let mut queues = std::mem::take(&mut *self.lock());
        for event in queues.events.take().0 {
            let _ = driver.destroy_event(event);
        }
        self.blocks.store(0, Ordering::Relaxed);
        self.unrecorded.store(0, Ordering::Relaxed);
    }
}
