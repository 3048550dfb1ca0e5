//! Events: what each was last recorded on, and whether that has passed.
//!
//! **Invariants:** the events of a stream are numbered from 1 in the order of recording. Waiting for one lets those
//! before it pass too. An event is queried only after it was recorded.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::handles::{EventHandle, StreamHandle};

/// All events.
#[derive(Default)]
pub(crate) struct Events {
    created: usize,
    pub(super) pass_at_once: bool,
    /// Streams on which new events pass at once.
    idle: BTreeSet<StreamHandle>,
    /// What each event was last recorded on.
    live: BTreeMap<EventHandle, Option<Recorded>>,
    /// How many events were recorded on each stream.
    recorded: BTreeMap<StreamHandle, u64>,
    /// Events recorded since the last call of [`Events::take_observed`].
    fresh: Vec<EventHandle>,
    /// Which stream waited for an event of which.
    waits: Vec<(StreamHandle, StreamHandle)>,
    /// Those that the allocator has learned have passed since then.
    seen: BTreeSet<EventHandle>,
}

/// What an event stands for.
#[derive(Clone, Copy)]
struct Recorded {
    stream: StreamHandle,
    /// Its number on the stream.
    number: u64,
    passed: bool,
    /// Whether the peer may have recorded it before or after others of the same moment.
    shuffled: bool,
}

/// What happened to events in one operation.
pub(crate) struct Observed {
    /// Streams of which an event was found to have passed.
    pub(crate) streams: usize,
    /// Shuffled events that were found to have passed.
    pub(crate) shuffled: usize,
}

impl Events {
    /// How many events there are.
    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// How many events were recorded on each stream.
    pub(crate) fn recorded(&self) -> &BTreeMap<StreamHandle, u64> {
        &self.recorded
    }

    /// Lets the events that were recorded on a stream so far pass.
    pub(crate) fn pass(&mut self, stream: StreamHandle) {
        self.pass_up_to(stream, u64::MAX);
    }

    /// Lets the events of a stream up to a number pass.
    pub(crate) fn pass_up_to(&mut self, stream: StreamHandle, number: u64) {
        let events = self.live.values_mut().flatten();
        let events = events.filter(|recorded| recorded.stream == stream && recorded.number <= number);
        events.for_each(|recorded| recorded.passed = true);
    }

    /// Lets one event pass, and none before it.
    pub(crate) fn pass_one(&mut self, event: EventHandle) {
        self.recorded_mut(event).passed = true;
    }

    /// Lets all events pass.
    pub(crate) fn pass_all(&mut self) {
        self.live.values_mut().flatten().for_each(|recorded| recorded.passed = true);
    }

    /// New events of a stream pass at once from now on.
    pub(crate) fn set_idle(&mut self, stream: StreamHandle) {
        self.idle.insert(stream);
    }

    /// New events of every stream are pending again.
    pub(crate) fn set_all_busy(&mut self) {
        self.idle.clear();
    }

    /// What happened to events since the last call. The events recorded since then may be in any order if they are to be
    /// shuffled.
    pub(crate) fn take_observed(&mut self, shuffle: bool) -> Observed {
        for event in std::mem::take(&mut self.fresh) {
            self.live.get_mut(&event).into_iter().flatten().for_each(|recorded| recorded.shuffled = shuffle);
        }
        let seen = std::mem::take(&mut self.seen);
        let seen: Vec<Recorded> = seen.into_iter().map(|event| *self.recorded_mut(event)).collect();
        let streams: BTreeSet<StreamHandle> = seen.iter().map(|recorded| recorded.stream).collect();
        let shuffled = seen.iter().filter(|recorded| recorded.shuffled).count();
        Observed { streams: streams.len(), shuffled }
    }

    /// Whether shuffled events are pending.
    pub(crate) fn awaits_shuffled(&self) -> bool {
        self.live.values().flatten().any(|recorded| recorded.shuffled && !recorded.passed)
    }

    pub(super) fn create(&mut self) -> EventHandle {
        self.created += 1;
        let event = EventHandle(self.created);
        self.live.insert(event, None);
        event
    }

    pub(super) fn destroy(&mut self, event: EventHandle) {
        self.live.remove(&event).expect("only live events are destroyed");
    }

    pub(super) fn wait(&mut self, stream: StreamHandle, event: EventHandle) {
        let awaited = self.recorded_mut(event).stream;
        self.waits.push((stream, awaited));
    }

    /// Which stream waited for an event of which, in order.
    pub(crate) fn waits(&self) -> &[(StreamHandle, StreamHandle)] {
        &self.waits
    }

    pub(super) fn record(&mut self, event: EventHandle, stream: StreamHandle) {
        let number = self.recorded.entry(stream).or_default();
        *number += 1;
        let passed = self.pass_at_once || self.idle.contains(&stream);
        let recorded = Recorded { stream, number: *number, passed, shuffled: false };
        *self.live.get_mut(&event).expect("only live events are recorded") = Some(recorded);
        self.fresh.push(event);
    }

    pub(super) fn query(&mut self, event: EventHandle) -> bool {
        let passed = self.recorded_mut(event).passed;
        if passed {
            self.seen.insert(event);
        }
        passed
    }

    pub(super) fn synchronize(&mut self, event: EventHandle) {
        let Recorded { stream, number, .. } = *self.recorded_mut(event);
        self.pass_up_to(stream, number);
        self.seen.insert(event);
    }

    fn recorded_mut(&mut self, event: EventHandle) -> &mut Recorded {
        self.live.get_mut(&event).and_then(Option::as_mut).expect("only recorded events are asked about")
    }
}
