//! Events: marks in the order of work, with the time at which they were reached.
//!
//! Recording again replaces the mark: what was reached before counts no longer, and the effect of an older recording
//! is ignored by its serial number.

use std::sync::Arc;

use super::engine::{OpId, Timing};
use super::graph::NodeId;
use super::shared::SharedEvent;
use super::{Effect, State};
use crate::codes::{Answer, INVALID_HANDLE};

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;

/// The last recording of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording {
    pub(crate) op: OpId,
    serial: u64,
    /// When it was reached, and from when on that can be seen.
    reached: Option<(u64, u64)>,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) recording: Option<Recording>,
    /// Number of recordings so far.
    serial: u64,
    /// The capture and the graph nodes it stands for, when it was recorded in one.
    pub(crate) captured: Option<(u64, Vec<NodeId>)>,
    /// Where other processes see it, once they can, and the number that the last recording here has there.
    pub(crate) shared: Option<(Arc<SharedEvent>, u64)>,
}

impl Event {
    pub(crate) fn new(context: u64, flags: u32) -> Self {
        Self { context, flags, recording: None, serial: 0, captured: None, shared: None }
    }

    /// The moment it was reached, once that can be seen.
    pub(crate) fn reached_ns(&self, now_ns: u64) -> Option<u64> {
        let (at_ns, visible_ns) = self.recording?.reached?;
        (now_ns >= visible_ns).then_some(at_ns)
    }

    /// The recording that another process queued after the last one here, if it was not reached yet.
    pub(crate) fn awaited_elsewhere(&self) -> Option<(Arc<SharedEvent>, u64)> {
        let (shared, own) = self.shared.as_ref()?;
        let queued = shared.queued();
        (queued > *own && !shared.has_reached(queued)).then(|| (Arc::clone(shared), queued))
    }

    /// The moment from which a reached event can be seen.
    pub(crate) fn visible_ns(&self) -> Option<u64> {
        self.recording?.reached.map(|(_, visible_ns)| visible_ns)
    }
}

impl Event {
    /// Lets other processes see the event from now on, through `shared`.
    pub(crate) fn share(&mut self, shared: Arc<SharedEvent>) {
        let mut own = 0;
        if let Some(recording) = self.recording {
            own = shared.queue();
            if recording.reached.is_some() {
                shared.reach(own);
            }
        }
        self.shared = Some((shared, own));
    }
}

impl State {
    pub(crate) fn event(&self, handle: u64) -> Answer<&Event> {
        self.events.get(&handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn event_mut(&mut self, handle: u64) -> Answer<&mut Event> {
        self.events.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    /// Queues the recording of an event on a stream.
    pub(crate) fn record_event(&mut self, handle: u64, stream: u64) -> Answer {
        let serial = self.event(handle)?.serial + 1;
        let effect = Effect::Record { event: handle, serial };
        let op = self.enqueue(stream, &[], Timing { latency_ns: 200, ..Timing::default() }, effect)?;
        self.note_recording(handle, serial, op)
    }

    /// Notes that operation `op` reaches the event.
    pub(crate) fn note_recording(&mut self, handle: u64, serial: u64, op: OpId) -> Answer {
        let event = self.event_mut(handle)?;
        event.serial = serial;
        event.captured = None;
        event.recording = Some(Recording { op, serial, reached: None });
        if let Some((shared, own)) = &mut event.shared {
            *own = shared.queue();
        }
        Ok(())
    }

    /// The serial number that the next recording of an event has.
    pub(crate) fn next_serial(&self, handle: u64) -> Answer<u64> {
        Ok(self.event(handle)?.serial + 1)
    }

    /// The queued recording of an event has been reached.
    pub(crate) fn reach_event(&mut self, handle: u64, serial: u64, at_ns: u64) {
        let visible_ns = at_ns + self.draw_lateness_ns();
        if let Some(event) = self.events.get_mut(&handle)
            && let Some(recording) = event.recording.as_mut()
            && recording.serial == serial
        {
            recording.reached = Some((at_ns, visible_ns));
            if let Some((shared, own)) = &event.shared {
                shared.reach(*own);
            }
        }
    }
}
