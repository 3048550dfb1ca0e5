//! The stream sanitizer: finds accesses to memory that nothing puts in order.
//!
//! A [`Checker`] is told what a runtime reports and answers with races. By torch's rules ([`SanitizerMode::Tensors`]) it
//! compares addresses of tensors and goes by the events, streams and waits that torch's hooks tell of. For ranges of bytes
//! ([`SanitizerMode::Ranges`]) it goes by what the driver was told and has answered.
//!
//! **Invariants:** it knows no runtime and calls nothing. What it answers follows from what it is told and from the threads
//! that tell it. A piece of work costs as much as it has accesses, never as much as there is memory or history.

mod access;
mod clock;
mod listener;
mod order;
mod ranges;
mod tensors;
mod worlds;

use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::trace::{Stack, TraceAccess, TraceBlock, TraceEvent, TraceKind, TraceKinds, TraceSegment, TraceStream};

pub(crate) use access::Race;
use clock::Clock;
pub(crate) use listener::{Listener, listen, listen_if_asked};
pub use listener::{SanitizerAction, SanitizerOptions};
pub(crate) use order::HostThread;
use order::Words;
use ranges::Ranges;
use tensors::{Tensors, backfill};
use worlds::Worlds;

/// Which accesses conflict, and what puts them in order.
///
/// ```
/// use c10_core::{SanitizerMode, SanitizerOptions};
///
/// assert_eq!(SanitizerOptions::default().mode, SanitizerMode::Tensors);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SanitizerMode {
    /// Torch's rules: two accesses conflict if they are to tensors that begin at one address. Order comes from events,
    /// streams and waits of the host; host memory and the allocator's own actions are ignored. Captured work is not
    /// executed, so its accesses are attributed to each launch of the graph, on the stream that launches it.
    Tensors,
    /// Two accesses conflict if they are to the same bytes. Memory that the allocator hands out anew before work on it is
    /// done, launches of graphs and accesses of the host to pinned memory are seen, and whatever the host was told to be done
    /// counts as order.
    Ranges,
}

impl SanitizerMode {
    /// The events that a checker has to be told.
    pub(crate) fn kinds(self) -> TraceKinds {
        let accesses = TraceKinds::from(TraceKind::Memory).and(TraceKind::Access);
        let graphs = accesses.and(TraceKind::Graph).and(TraceKind::Order);
        match self {
            Self::Tensors => graphs.and(TraceKind::Event).and(TraceKind::Stream).and(TraceKind::Synchronize),
            Self::Ranges => graphs.and(TraceKind::Pinned),
        }
    }
}

/// Compares accesses.
#[derive(Debug)]
pub(crate) struct Checker {
    /// Number of the last work.
    work: u64,
    /// Accesses of work whose last access has not come yet, and places for more.
    begun: Vec<TraceAccess>,
    rules: Rules,
}

#[derive(Debug)]
enum Rules {
    Tensors(Box<ByTensor>),
    Ranges(Box<Worlds<Ranges>>),
}

/// What torch's rules go by.
#[derive(Debug, Default)]
struct ByTensor {
    worlds: Worlds<Tensors>,
    /// Existing events.
    events: Words<u64, ()>,
    streams: Words<u64, ()>,
}

/// All threads of the host as one.
const HOST: HostThread = HostThread(0);

impl Checker {
    pub(crate) fn new(mode: SanitizerMode) -> Self {
        let rules = match mode {
            SanitizerMode::Tensors => {
                let mut rules = ByTensor::default();
                rules.streams.insert(0, ());
                Rules::Tensors(Box::new(rules))
            }
            SanitizerMode::Ranges => Rules::Ranges(Box::default()),
        };
        Self { work: 0, begun: Vec::new(), rules }
    }

    /// Whether an event may be followed by races, or its stack is of use.
    pub(crate) fn uses_stack(event: &TraceEvent) -> bool {
        matches!(event, TraceEvent::Allocated(_) | TraceEvent::GraphReplayed { .. })
            || matches!(event, TraceEvent::Accessed(access) if access.rest == 0)
    }

    /// Takes an event in, and adds the races that it brings.
    pub(crate) fn observe(
        &mut self,
        event: &TraceEvent,
        thread: HostThread,
        stack: Option<&Arc<Stack>>,
        races: &mut Vec<Race>,
    ) {
        if let TraceEvent::Accessed(access) = event {
            return self.access(access, thread, stack, races);
        }
        match &mut self.rules {
            Rules::Tensors(rules) => {
                if let TraceEvent::GraphReplayed { graph, stream } = *event {
                    self.work += 1;
                    let stream = rules.know_stream(stream);
                    rules.worlds.replay((HOST, self.work), graph, stream, stack, races);
                } else {
                    rules.observe(event, stack);
                }
            }
            Rules::Ranges(worlds) => {
                if let TraceEvent::GraphReplayed { graph, stream } = *event {
                    self.work += 1;
                    worlds.replay((thread, self.work), graph, stream, stack, races);
                } else {
                    worlds.observe(event, thread, self.work, stack);
                }
            }
        }
    }

    fn access(&mut self, access: &TraceAccess, thread: HostThread, stack: Option<&Arc<Stack>>, races: &mut Vec<Race>) {
        self.begun.push(*access);
        if access.rest > 0 {
            return;
        }
        // Torch does not see what the host does.
        let is_seen = access.stream.is_some() || matches!(self.rules, Rules::Ranges(_));
        self.work += u64::from(is_seen);
        // Another thread's work may have begun meanwhile; usually there is none.
        let (mut accesses, others) =
            std::mem::take(&mut self.begun).into_iter().partition::<Vec<_>, _>(|begun| begun.work == access.work);
        self.begun = others;
        match (&mut self.rules, access.stream) {
            (Rules::Tensors(_), None) => {}
            (Rules::Tensors(rules), Some(stream)) => {
                let stream = rules.know_stream(stream);
                rules.worlds.work((HOST, self.work), Some(stream), &accesses, stack, races);
            }
            (Rules::Ranges(worlds), on) => worlds.work((thread, self.work), on, &accesses, stack, races),
        }
        accesses.clear();
        if self.begun.is_empty() {
            self.begun = accesses;
        }
    }

    /// What a thread of the host knows to be over.
    pub(crate) fn known(&mut self, thread: HostThread) -> Knowledge {
        Knowledge(match &mut self.rules {
            Rules::Tensors(_) => Clock::default(),
            Rules::Ranges(worlds) => worlds.known(thread),
        })
    }

    /// A thread of the host learns what another one knew.
    pub(crate) fn learn(&mut self, thread: HostThread, knowledge: &Knowledge) {
        if let Rules::Ranges(worlds) = &mut self.rules {
            worlds.learn(thread, &knowledge.0);
        }
    }
}

/// What a thread of the host knew at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Knowledge(Clock);

impl ByTensor {
    /// Torch has one default stream for all devices: a stream is its handle.
    fn stream(stream: TraceStream) -> TraceStream {
        TraceStream { device: DeviceIndex(0), handle: stream.handle }
    }

    fn know_stream(&mut self, stream: TraceStream) -> TraceStream {
        if self.streams.insert(stream.handle, ()).is_none() {
            backfill!("Stream with id:", stream.handle, "stream creation");
        }
        Self::stream(stream)
    }

    fn know_event(&mut self, event: u64) {
        self.events.entry(event).or_insert_with(|| backfill!("Event with id:", event, "event creation"));
    }

    fn create_event(&mut self, event: u64) {
        if self.events.insert(event, ()).is_some() {
            tracing::info!(
                "Found duplicate event creation in the trace for event with id: {event}. Assuming the trace for event deletion \
                 wasn't caught and backfilling it now. Perhaps the sanitizer was enabled after some torch operations?"
            );
        }
        self.worlds.remove_mark(event);
    }

    fn create_stream(&mut self, stream: TraceStream) {
        if self.streams.insert(stream.handle, ()).is_some() {
            tracing::info!(
                "Found duplicate Stream creation in the trace for Stream with id: {}. PyTorch Streams are only created once, \
                 so this trace entry is ignored.",
                stream.handle
            );
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "torch's rules go by these events, and by no new one")]
    fn observe(&mut self, event: &TraceEvent, stack: Option<&Arc<Stack>>) {
        match *event {
            TraceEvent::EventCreated { event, .. } => self.create_event(event),
            TraceEvent::EventDeleted { event, .. } => {
                self.know_event(event);
                self.events.remove(&event);
                self.worlds.remove_mark(event);
            }
            TraceEvent::EventRecorded { event, stream } => {
                self.know_event(event);
                let stream = self.know_stream(stream);
                self.worlds.place(event, stream, HOST);
            }
            TraceEvent::EventWaited { event, stream } => {
                self.know_event(event);
                let stream = self.know_stream(stream);
                self.worlds.wait(event, stream, HOST);
            }
            TraceEvent::EventSynchronized { event, .. } => {
                self.know_event(event);
                self.worlds.see_mark(event, HOST);
            }
            TraceEvent::StreamSynchronized(stream) => {
                let stream = self.know_stream(stream);
                self.worlds.see_stream(stream, HOST);
            }
            TraceEvent::DeviceSynchronized(_) => self.worlds.see_device(None, HOST),
            TraceEvent::StreamCreated(stream) => self.create_stream(stream),
            TraceEvent::CaptureBegun(stream) => self.worlds.begin_capture(Self::stream(stream)),
            TraceEvent::CaptureEnded(stream) => self.worlds.end_capture(Self::stream(stream)),
            TraceEvent::BodyBegun { body, stream } => {
                self.worlds.begin_body(Self::stream(body), Self::stream(stream), HOST);
            }
            TraceEvent::BodyEnded { body, stream } => {
                self.worlds.end_body(Self::stream(body), Self::stream(stream), HOST);
            }
            TraceEvent::GraphCaptured { graph, stream } => self.worlds.captured(graph, Self::stream(stream)),
            TraceEvent::GraphInstantiated { graph, exec } => self.worlds.instantiated(graph, exec),
            TraceEvent::Allocated(TraceBlock { address, .. }) | TraceEvent::UncachedAllocated { address, .. } => {
                self.worlds.allocate(address, stack.cloned());
            }
            TraceEvent::FreeRequested(TraceBlock { address, .. }) | TraceEvent::UncachedFreed { address } => {
                self.worlds.free(address);
            }
            TraceEvent::SegmentFreed(TraceSegment { address, size, .. })
            | TraceEvent::SegmentUnmapped(TraceSegment { address, size, .. }) => self.worlds.unmap(address, size),
            _ => {}
        }
    }
}

impl Worlds<Ranges> {
    /// Takes in what is no work.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rules go by these events, and by no new one")]
    fn observe(&mut self, event: &TraceEvent, thread: HostThread, work: u64, stack: Option<&Arc<Stack>>) {
        match *event {
            TraceEvent::MarkPlaced { event, stream } => self.place(event, stream, thread),
            TraceEvent::MarkAwaited { event, stream } => self.wait(event, stream, thread),
            TraceEvent::StreamFollowed { earlier, stream } => self.follow(stream, earlier, thread),
            TraceEvent::MarkSeen { event } => self.see_mark(event, thread),
            TraceEvent::StreamSeen(stream) => self.see_stream(stream, thread),
            TraceEvent::DeviceSeen(device) => self.see_device(Some(device), thread),
            TraceEvent::CaptureBegun(stream) => self.begin_capture(stream),
            TraceEvent::CaptureEnded(stream) => self.end_capture(stream),
            TraceEvent::BodyBegun { body, stream } => self.begin_body(body, stream, thread),
            TraceEvent::BodyEnded { body, stream } => self.end_body(body, stream, thread),
            TraceEvent::GraphCaptured { graph, stream } => self.captured(graph, stream),
            TraceEvent::GraphInstantiated { graph, exec } => self.instantiated(graph, exec),
            TraceEvent::Allocated(TraceBlock { address, size, .. })
            | TraceEvent::UncachedAllocated { address, size, .. } => {
                self.allocate(address, size, work, stack.cloned());
            }
            TraceEvent::SegmentFreed(TraceSegment { address, size, .. })
            | TraceEvent::SegmentUnmapped(TraceSegment { address, size, .. }) => self.unmap(address, size),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
