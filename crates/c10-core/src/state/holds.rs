//! What a discarded graph kept, until the streams that may still replay it have passed.
//!
//! **Invariants:** what is held is let go of when an event recorded behind the work has passed, and not before. No event
//! is recorded on a stream that captures: it would become a part of the graph, and asking for it would spoil the capture.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{EventHandle, StreamRef};
use crate::driver::{Api, Driver};

/// Something that must not go before the device is done with it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// What is held for work under way, by stream, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    state: Mutex<HoldState>,
}

#[derive(Debug, Default)]
struct HoldState {
    queues: BTreeMap<StreamRef, VecDeque<Hold>>,
    spare: BTreeMap<DeviceIndex, Vec<EventHandle>>,
}

#[derive(Debug)]
struct Hold {
    /// Passed when the work is done; `None` if it could not be recorded yet.
    event: Option<EventHandle>,
    held: Held,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds something until the stream has passed the work queued so far.
    pub(crate) fn hold(&self, api: &Api, stream: StreamRef, held: Held) -> Result<()> {
        let mut state = self.lock();
        // Held even if no event can be recorded: the work is on its way. A later sweep records one.
        let recorded = state.record(api, stream);
        let event = recorded.as_ref().ok().copied().flatten();
        state.queues.entry(stream).or_default().push_back(Hold { event, held });
        recorded.map(|_| ())
    }

    /// Lets go of what the streams have passed.
    pub(crate) fn sweep(&self, api: &Api) {
        let mut state = self.lock();
        let mut done = Vec::new();
        for stream in state.queues.keys().copied().collect::<Vec<_>>() {
            while let Some(held) = state.pop_if_passed(api, stream) {
                done.push(held);
            }
        }
        state.queues.retain(|_, queue| !queue.is_empty());
        drop(state);
        // Dropped without the lock: what was held may take other locks when it goes.
        drop(done);
    }

    /// Waits until the streams have passed what is held for them, and lets go of it; whether there was anything. Streams
    /// that capture are not waited for.
    pub(crate) fn wait(&self, api: &Api) -> Result<bool> {
        let mut state = self.lock();
        for stream in state.queues.keys().copied().collect::<Vec<_>>() {
            state.record_missing(api, stream)?;
        }
        let events: Vec<_> = state.queues.values().flatten().filter_map(|hold| hold.event).collect();
        // Without the lock. An event that is let go of meanwhile stays alive as a spare.
        drop(state);
        events.iter().try_for_each(|event| api.event_wait_on_host(*event))?;
        self.sweep(api);
        Ok(!events.is_empty())
    }

    /// Lets go of everything, at the end of the runtime, when the devices are idle.
    pub(crate) fn dismantle(&self, api: &Api) {
        let state = std::mem::take(&mut *self.lock());
        let holds = state.queues.into_values().flatten();
        let events: Vec<_> = holds.filter_map(|hold| hold.event).collect();
        for event in events.into_iter().chain(state.spare.into_values().flatten()) {
            let _ = api.event_destroy(event);
        }
    }
}

impl HoldState {
    /// An event behind the work of a stream; none while the stream captures, when it would become a part of the graph.
    fn record(&mut self, api: &Api, stream: StreamRef) -> Result<Option<EventHandle>> {
        if api.stream_is_capturing(stream)? {
            return Ok(None);
        }
        let spare = self.spare.entry(stream.device).or_default();
        let event = match spare.pop() {
            Some(event) => event,
            None => api.event_create(stream.device)?,
        };
        if let Err(error) = api.event_record(event, stream) {
            spare.push(event);
            return Err(error);
        }
        Ok(Some(event))
    }

    /// Records the events that could not be recorded before.
    fn record_missing(&mut self, api: &Api, stream: StreamRef) -> Result<()> {
        let missing = |queue: &VecDeque<Hold>| queue.iter().position(|hold| hold.event.is_none());
        while let Some(place) = self.queues.get(&stream).and_then(missing) {
            let Some(event) = self.record(api, stream)? else { return Ok(()) };
            if let Some(hold) = self.queues.get_mut(&stream).and_then(|queue| queue.get_mut(place)) {
                hold.event = Some(event);
            }
        }
        Ok(())
    }

    /// The oldest thing held for a stream, if the stream has passed it. Trouble with the driver counts as not passed.
    fn pop_if_passed(&mut self, api: &Api, stream: StreamRef) -> Option<Held> {
        let event = match self.queues.get(&stream)?.front()?.event {
            Some(event) => event,
            None => {
                let event = self.record(api, stream).ok()??;
                self.queues.get_mut(&stream)?.front_mut()?.event = Some(event);
                event
            }
        };
        if !api.event_query(event).unwrap_or(false) {
            return None;
        }
        self.spare.entry(stream.device).or_default().push(event);
        self.queues.get_mut(&stream)?.pop_front().map(|hold| hold.held)
    }
}
