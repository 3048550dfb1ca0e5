//! What a discarded graph kept, until the streams that may still replay it have passed.
//!
//! **Invariants:** what is held is let go of when an event recorded behind the work has passed, and not before. No event
//! is recorded on a stream that captures: it would become a part of the graph, and asking for it would spoil the capture.
//! A stream that the driver knows no more, since whoever lent it has destroyed it, has nothing to be waited for.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::driver::Api;
use crate::events::queue::EventQueues;

/// Something that must not go before the device is done with it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// What is held for work under way.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    state: Mutex<HoldState>,
    /// Whether anything is held; changed under the lock.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct HoldState {
    queues: EventQueues<Held>,
    /// What no event could be recorded for yet.
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

    /// Holds something until the stream has passed the work queued so far.
    pub(crate) fn hold(&self, api: &Api, stream: StreamRef, held: Held) -> Result<()> {
        let mut state = self.lock();
        // Held even if no event can be recorded: the work is on its way. A later sweep records one.
        state.unrecorded.push((stream, held));
        self.any.store(true, Ordering::Release);
        let last = state.unrecorded.len() - 1;
        let let_go = state.record(api, last)?;
        drop(state);
        // Dropped without the lock: what was held may take other locks when it goes.
        drop(let_go);
        Ok(())
    }

    /// Lets go of what the streams have passed.
    pub(crate) fn sweep(&self, api: &Api) {
        let mut state = self.lock();
        // Trouble with the driver counts as not passed.
        let mut done = state.record_all(api).0;
        let has_passed = |event| Ok(api.event_is_done(event).unwrap_or(false));
        let _ = state.queues.poll(has_passed, |held| done.push(held));
        self.any.store(!state.is_empty(), Ordering::Release);
        drop(state);
        drop(done);
    }

    /// Waits until the streams have passed what is held for them, and lets go of it; whether there was anything. Streams
    /// that capture are not waited for.
    pub(crate) fn wait(&self, api: &Api) -> Result<bool> {
        let mut state = self.lock();
        let (gone, recorded) = state.record_all(api);
        let events: Vec<_> = state.queues.iter().map(|(event, _)| event).collect();
        // Without the lock. An event that is let go of meanwhile stays alive as a spare.
        drop(state);
        let any = !(events.is_empty() && gone.is_empty());
        drop(gone);
        recorded?;
        events.iter().try_for_each(|event| api.event_wait_on_host(*event))?;
        self.sweep(api);
        Ok(any)
    }

    /// Lets go of everything, at the end of the runtime, when the devices are idle.
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

    /// Records an event for something, unless its stream captures. What is held if the stream is gone.
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

    /// Records the events that could not be recorded before; what is held for streams that are gone, and the first error.
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
