//! What discarded graphs kept alive, until the streams that may still replay them have finished.
//!
//! **Invariants:** an object is held until an event that was recorded behind the work has completed. No event is
//! recorded on a stream that captures: it would become a part of the graph, and querying it would spoil the capture. A
//! stream that its owner has destroyed, so that the driver does not know it any more, has nothing to wait for.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::driver::Api;
use crate::events::queue::EventQueues;
use crate::sync::{Mutex, MutexGuard};

/// An object that must not be dropped before the device is done with it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// The objects that are held for work under way.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    state: Mutex<HoldState>,
    /// Whether anything is held; changed under the lock.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct HoldState {
    queues: EventQueues<Held>,
    /// Objects that no event could be recorded for yet.
    unrecorded: Vec<(StreamRef, Held)>,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is held.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Holds an object until the stream has finished the work queued so far.
    pub(crate) fn hold(&self, api: &Api, stream: StreamRef, held: Held) -> Result<()> {
        let mut state = self.lock();
        // Held even if no event can be recorded: the work is on its way. A later sweep records one.
        state.unrecorded.push((stream, held));
        self.any.store(true, Ordering::Release);
        let last = state.unrecorded.len() - 1;
        let let_go = state.record(api, last)?;
        drop(state);
        // Dropped without the lock: dropping the object may take other locks.
        drop(let_go);
        Ok(())
    }

    /// Drops the objects whose streams have finished.
    pub(crate) fn sweep(&self, api: &Api) {
        let mut state = self.lock();
        // If the driver fails, the work counts as not finished.
        let mut done = state.record_all(api).0;
        let has_passed = |event| Ok(api.event_is_done(event).unwrap_or(false));
        let _ = state.queues.poll(has_passed, |held| done.push(held));
        self.any.store(!state.is_empty(), Ordering::Release);
        drop(state);
        drop(done);
    }

    /// Waits until the streams have finished the work that objects are held for, and drops the objects. Returns whether
    /// there were any. Streams that capture are not waited for.
    pub(crate) fn wait(&self, api: &Api) -> Result<bool> {
        let mut state = self.lock();
        let (gone, recorded) = state.record_all(api);
        let events: Vec<_> = state.queues.iter().map(|(event, _)| event).collect();
        // Waits without the lock. An event that is released meanwhile stays alive as a spare.
        drop(state);
        let any = !(events.is_empty() && gone.is_empty());
        drop(gone);
        recorded?;
        events.iter().try_for_each(|event| api.event_wait_on_host(*event))?;
        self.sweep(api);
        Ok(any)
    }

    /// Drops everything, at the end of the runtime, when the devices are idle.
    pub(crate) fn dismantle(&self, api: &Api) {
        let mut state = std::mem::take(&mut *self.lock());
        let (events, held) = state.queues.take();
        for event in events {
            let _ = api.event_destroy_handle(event);
        }
        drop((held, state));
    }
}

impl HoldState {
    fn is_empty(&self) -> bool {
        self.unrecorded.is_empty() && self.queues.streams().next().is_none()
    }

    /// Records an event for an object, unless its stream captures. Returns the object if the stream does not exist any
    /// more.
    fn record(&mut self, api: &Api, position: usize) -> Result<Option<Held>> {
        let stream = self.unrecorded[position].0;
        match api.stream_is_capturing(stream) {
            Ok(true) => return Ok(None),
            Ok(false) => {}
            Err(error) if error.is_invalid_handle() => return Ok(Some(self.unrecorded.remove(position).1)),
            Err(error) => return Err(error),
        }
        let Self { queues, unrecorded } = self;
        queues.record(api, stream, || unrecorded.remove(position).1)?;
        Ok(None)
    }

    /// Records the events that could not be recorded before. Returns the objects whose streams do not exist any more,
    /// and the first error.
    fn record_all(&mut self, api: &Api) -> (Vec<Held>, Result<()>) {
        let (mut gone, mut result, mut position) = (Vec::new(), Ok(()), 0);
        while position < self.unrecorded.len() {
            let before = self.unrecorded.len();
            match self.record(api, position) {
                Ok(held) => gone.extend(held),
                Err(error) => result = result.and(Err(error)),
            }
            position += usize::from(self.unrecorded.len() == before);
        }
        (gone, result)
    }
}
