//! Reference implementation of torch's rules.

use std::collections::{BTreeMap, BTreeSet};

use c10_core::{TraceAccess, TraceEvent};

use super::Found;

type Clock = BTreeMap<u64, u64>;

/// Reads of a tensor since its last write, and that write, as (stream, sequence number).
type Tensor = (Vec<(u64, u64)>, Option<(u64, u64)>);

/// State of torch's sanitizer. Streams are handles; whatever the host learns is passed on to every stream at once.
#[derive(Default)]
pub(crate) struct Torch {
    streams: BTreeMap<u64, Clock>,
    host: Clock,
    events: BTreeMap<u64, Clock>,
    tensors: BTreeMap<u64, Tensor>,
    begun: Vec<TraceAccess>,
    seq: u64,
    pub(crate) found: Vec<Found>,
    /// Capture in progress.
    capture: Option<Box<Capture>>,
    /// Accesses of the last capture, of graphs, and of executable graphs with the clock of the last launch.
    ended: Vec<TraceAccess>,
    graphs: BTreeMap<u64, Vec<TraceAccess>>,
    executables: BTreeMap<u64, (Vec<TraceAccess>, Clock)>,
}

/// A capture: its streams, its work in a separate order, and the accesses of a launch of its graph.
#[derive(Default)]
struct Capture {
    streams: BTreeSet<u64>,
    order: Torch,
    recorded: Vec<TraceAccess>,
}

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &seq) in other {
        let known = clock.entry(stream).or_default();
        *known = seq.max(*known);
    }
}

impl Torch {
    fn stream(&mut self, stream: u64) -> &mut Clock {
        let host = &self.host;
        self.streams.entry(stream).or_insert_with(|| host.clone())
    }

    fn all_learn(&mut self, clock: &Clock) {
        self.streams.values_mut().for_each(|stream| join(stream, clock));
        join(&mut self.host, clock);
    }

    /// Processes an event, in the capture if its stream is part of one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "these events alone can be about a capture")]
    pub(crate) fn observe(&mut self, event: &TraceEvent) {
        let Some(mut capture) = self.capture.take() else { return self.observe_live(event) };
        let captures = |stream: u64| capture.streams.contains(&stream);
        let is_captured = match *event {
            TraceEvent::EventRecorded { event, stream } => {
                let (live, captured) = (&mut self.events, &mut capture.order.events);
                drop(if captures(stream.handle) { live.remove(&event) } else { captured.remove(&event) });
                captures(stream.handle)
            }
            TraceEvent::EventWaited { event, .. } => capture.order.events.contains_key(&event),
            TraceEvent::Accessed(access) => access.stream.is_some_and(|stream| captures(stream.handle)),
            _ => false,
        };
        match *event {
            TraceEvent::EventWaited { stream, .. } if is_captured => drop(capture.streams.insert(stream.handle)),
            TraceEvent::Accessed(access) if is_captured => capture.recorded.push(access),
            TraceEvent::EventCreated { event, .. } | TraceEvent::EventDeleted { event, .. } => {
                capture.order.events.remove(&event);
            }
            TraceEvent::Allocated(block) | TraceEvent::FreeRequested(block) => {
                capture.order.tensors.remove(&block.address);
            }
            TraceEvent::CaptureEnded(_) => {
                self.found.append(&mut capture.order.found);
                self.ended = capture.recorded;
                return;
            }
            _ => {}
        }
        if is_captured {
            capture.order.seq = self.seq;
            capture.order.observe_live(event);
            self.seq = capture.order.seq;
        }
        self.capture = Some(capture);
        if !is_captured {
            let capture = self.capture.take();
            self.observe_live(event);
            self.capture = capture;
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "torch goes by these events alone")]
    fn observe_live(&mut self, event: &TraceEvent) {
        match *event {
            TraceEvent::EventCreated { event, .. } => drop(self.events.insert(event, Clock::new())),
            TraceEvent::EventDeleted { event, .. } => drop(self.events.remove(&event)),
            TraceEvent::EventRecorded { event, stream } => {
                let clock = self.stream(stream.handle).clone();
                self.events.insert(event, clock);
            }
            TraceEvent::EventWaited { event, stream } => {
                let clock = self.events.get(&event).cloned().unwrap_or_default();
                join(self.stream(stream.handle), &clock);
            }
            TraceEvent::EventSynchronized { event, .. } => {
                let clock = self.events.get(&event).cloned().unwrap_or_default();
                self.all_learn(&clock);
            }
            TraceEvent::StreamSynchronized(stream) => {
                let clock = self.stream(stream.handle).clone();
                self.all_learn(&clock);
            }
            TraceEvent::DeviceSynchronized(_) => {
                let own: Clock = self.streams.iter().filter_map(|(of, clock)| Some((*of, *clock.get(of)?))).collect();
                self.all_learn(&own);
            }
            TraceEvent::StreamCreated(stream) => drop(self.stream(stream.handle)),
            TraceEvent::Allocated(block) => drop(self.tensors.insert(block.address, Default::default())),
            TraceEvent::FreeRequested(block) => drop(self.tensors.remove(&block.address)),
            TraceEvent::CaptureBegun(stream) => {
                let streams = BTreeSet::from([stream.handle]);
                self.capture = Some(Box::new(Capture { streams, ..Capture::default() }));
            }
            TraceEvent::GraphCaptured { graph, .. } => {
                self.graphs.insert(graph, std::mem::take(&mut self.ended));
            }
            TraceEvent::GraphInstantiated { graph, exec } => {
                let uses = self.graphs[&graph].clone();
                self.executables.insert(exec, (uses, Clock::new()));
            }
            TraceEvent::GraphReplayed { graph, stream } => {
                let (mut uses, last) = self.executables.remove(&graph).expect("the graph was instantiated");
                join(self.stream(stream.handle), &last);
                uses.iter_mut().for_each(|access| access.stream = Some(stream));
                self.work(stream.handle, &uses);
                let clock = self.stream(stream.handle).clone();
                self.executables.insert(graph, (uses, clock));
            }
            TraceEvent::Accessed(TraceAccess { stream: Some(stream), rest, .. }) => {
                let TraceEvent::Accessed(access) = *event else { return };
                self.begun.push(access);
                if rest == 0 {
                    let work = std::mem::take(&mut self.begun);
                    self.work(stream.handle, &work);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, stream: u64, accesses: &[TraceAccess]) {
        self.seq += 1;
        let seq = self.seq;
        self.stream(stream).insert(stream, seq);
        let clock = self.stream(stream).clone();
        let on_device = || accesses.iter().filter(|access| !access.is_on_host);
        let written: BTreeSet<u64> =
            on_device().filter(|access| access.is_write).map(|access| access.address).collect();
        let read: BTreeSet<u64> =
            on_device().map(|access| access.address).filter(|address| !written.contains(address)).collect();
        let is_unordered = |(of, earlier): &(u64, u64)| *earlier > clock.get(of).copied().unwrap_or(0);
        for address in read {
            let (reads, write) = self.tensors.entry(address).or_default();
            let raced = write.iter().filter(|write| is_unordered(write));
            self.found.extend(raced.map(|write| (seq, false, write.1, true, address, 0)));
            reads.push((stream, seq));
        }
        for address in written {
            let (reads, write) = self.tensors.entry(address).or_default();
            let against: Vec<(u64, u64)> =
                if reads.is_empty() { write.iter().copied().collect() } else { reads.clone() };
            let wrote = reads.is_empty();
            let raced = against.iter().filter(|earlier| is_unordered(earlier));
            self.found.extend(raced.map(|earlier| (seq, true, earlier.1, wrote, address, 0)));
            (*reads, *write) = (Vec::new(), Some((stream, seq)));
        }
    }
}
