//! What is noted of each thing that a runtime reports, and what belongs together.
//!
//! A thing that takes time is reported twice: it begins, and it is done. What a thread has begun is kept on a stack until
//! then; what fails is never reported as done, and leaves the stack with whatever was begun before it.
//!
//! **Invariant:** whoever calls holds the one lock of the recorder, and the runtime tells the calling thread nothing of
//! what is done here.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Instant, SystemTime};

use crate::base::device::DeviceIndex;
use crate::base::handles::{StreamHandle, StreamRef};
use crate::runtime::{Runtime, Started};
use crate::timeline::stamps::{Span, Stamp, Stamps, ToHost};
use crate::trace::{TraceBlock, TraceCopy, TraceEvent, TraceKind, TraceSegment, TraceStream};

/// Things that one thread has begun and that are not done, at most; more of them have failed.
const OPEN_MAX: usize = 16;
/// Pieces of work that are looked at when another one was noted.
const LOOKS: usize = 3;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Kernel,
    Library,
    Copy(TraceCopy),
    Fill,
    Replay,
    Record,
    Wait,
    SynchronizeStream,
    SynchronizeEvent,
    SynchronizeDevice,
}

/// A call of the program, and the work that it queued.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) what: What,
    /// Of a kernel or of a library's function.
    pub(super) name: Option<Arc<str>>,
    pub(super) thread: usize,
    /// When the program called.
    pub(super) called: Span,
    pub(super) device: DeviceIndex,
    /// The stream; `None` for what concerns no stream.
    pub(super) stream: Option<usize>,
    /// When it ran on the device, by its clock.
    pub(super) ran: Option<Span>,
    /// Bytes of copies and fills; the handle of an event or of a graph.
    pub(super) number: u64,
}

/// Something that happened to memory.
#[derive(Debug)]
pub(super) struct MemoryNote {
    pub(super) at: i64,
    pub(super) thread: usize,
    pub(super) device: DeviceIndex,
    pub(super) action: &'static str,
    pub(super) address: u64,
    pub(super) size: u64,
    /// What the allocator had handed out and taken from the driver afterwards, in bytes.
    pub(super) allocated: i64,
    pub(super) reserved: i64,
}

/// What was recorded.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Names of threads of the program.
    pub(super) threads: Vec<String>,
    pub(super) streams: Vec<TraceStream>,
    pub(super) works: Vec<Work>,
    /// Which record of an event which wait is for, as numbers of works.
    pub(super) arrows: Vec<(usize, usize)>,
    pub(super) memory: Vec<MemoryNote>,
    /// Things that were not noted, since there were too many.
    pub(super) dropped: u64,
    pub(super) to_host: Vec<ToHost>,
    /// When the recording began.
    pub(super) began: Option<SystemTime>,
}

/// What a thread has begun.
#[derive(Debug)]
struct Open {
    what: TraceKind,
    at: i64,
    device: DeviceIndex,
    stamp: Option<Stamp>,
}

/// Everything that a recorder keeps.
#[derive(Debug)]
pub(super) struct Books {
    is_over: bool,
    with_device_times: bool,
    most: usize,
    records: Records,
    /// Numbers of threads, and what each has begun.
    threads: HashMap<ThreadId, usize>,
    open: Vec<Vec<Open>>,
    streams: HashMap<TraceStream, usize>,
    /// Where each event was last recorded.
    recorded: HashMap<u64, usize>,
    stamps: Stamps,
}

impl Books {
    pub(super) fn new(with_device_times: bool, most: usize) -> Self {
        Self {
            is_over: false,
            with_device_times,
            most,
            records: Records { began: Some(SystemTime::now()), ..Records::default() },
            threads: HashMap::new(),
            open: Vec::new(),
            streams: HashMap::new(),
            recorded: HashMap::new(),
            stamps: Stamps::new(Instant::now()),
        }
    }

    /// Makes closed books, which replace the books while these are being finished.
    pub(super) fn finished() -> Self {
        Self { is_over: true, ..Self::new(false, 0) }
    }

    /// Notes what a runtime reports.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are told apart by the functions below")]
    pub(super) fn note(&mut self, runtime: &Runtime, event: &TraceEvent) {
        if self.is_over {
            return;
        }
        let Some(ready) = runtime.started() else { return };
        match *event {
            TraceEvent::Begun { what, stream, .. } => self.begin(ready, what, stream),
            TraceEvent::Launched { stream, .. } => {
                let name = runtime.traced_name(event);
                self.done(ready, TraceKind::Launch, What::Kernel, stream, name, 0);
            }
            TraceEvent::LibraryQueued { stream, .. } => {
                let name = runtime.traced_name(event);
                self.done(ready, TraceKind::Launch, What::Library, stream, name, 0);
            }
            TraceEvent::Copied { kind, size, stream, .. } => {
                self.done(ready, TraceKind::Copy, What::Copy(kind), stream, None, size);
            }
            TraceEvent::Filled { size, stream, .. } => {
                self.done(ready, TraceKind::Copy, What::Fill, stream, None, size);
            }
            TraceEvent::GraphReplayed { graph, stream } => {
                self.done(ready, TraceKind::Graph, What::Replay, stream, None, graph);
            }
            _ => self.note_order_or_memory(ready, event),
        }
    }

    /// Notes what orders streams, and what happens to memory.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are told apart by the function for memory")]
    fn note_order_or_memory(&mut self, ready: &Started, event: &TraceEvent) {
        match *event {
            TraceEvent::EventRecorded { event, stream } => self.record(ready, event, stream),
            TraceEvent::EventWaited { event, stream } => self.wait(ready, event, stream),
            TraceEvent::EventDeleted { event, .. } => drop(self.recorded.remove(&event)),
            TraceEvent::StreamSynchronized(stream) => {
                self.waited(What::SynchronizeStream, stream.device, Some(stream), 0);
            }
            TraceEvent::EventSynchronized { event, device } => {
                self.waited(What::SynchronizeEvent, device, None, event);
            }
            TraceEvent::DeviceSynchronized(device) => self.waited(What::SynchronizeDevice, device, None, 0),
            _ => self.note_memory(ready, event),
        }
    }

    fn begin(&mut self, ready: &Started, what: TraceKind, stream: TraceStream) {
        let at = self.stamps.now();
        let is_work = self.with_device_times && what != TraceKind::Synchronize && !self.is_full();
        let stamp = if is_work { self.stamps.mark(ready, reference(stream)) } else { None };
        let thread = self.thread();
        let open = &mut self.open[thread];
        open.push(Open { what, at, device: stream.device, stamp });
        if open.len() > OPEN_MAX {
            let failed = open.remove(0);
            self.take_back(failed);
        }
    }

    /// What this thread has begun of a sort. What it began after that has failed.
    fn ended(&mut self, what: TraceKind) -> Option<Open> {
        let thread = self.thread();
        loop {
            let last = self.open[thread].pop()?;
            if last.what == what {
                return Some(last);
            }
            self.take_back(last);
        }
    }

    fn take_back(&mut self, open: Open) {
        if let Some(stamp) = open.stamp {
            self.stamps.take_back(open.device, stamp);
        }
    }

    /// Notes work that was queued on a stream.
    fn done(
        &mut self,
        ready: &Started,
        kind: TraceKind,
        what: What,
        stream: TraceStream,
        name: Option<Arc<str>>,
        number: u64,
    ) -> Option<usize> {
        let end = self.stamps.now();
        let open = self.ended(kind);
        let called = Span { start: open.as_ref().map_or(end, |open| open.at), end };
        let from = open.and_then(|open| open.stamp);
        let Some(work) = self.add(what, called, stream.device, Some(stream), name, number) else {
            from.into_iter().for_each(|stamp| self.stamps.take_back(stream.device, stamp));
            return None;
        };
        if let Some(from) = from {
            self.ran(ready, stream, Some(from), work);
        }
        Some(work)
    }

    /// Marks the end of work, and looks at what was noted before.
    fn ran(&mut self, ready: &Started, stream: TraceStream, from: Option<Stamp>, work: usize) {
        match self.stamps.mark(ready, reference(stream)) {
            Some(to) => self.stamps.between(stream.device, from, to, work),
            None => from.into_iter().for_each(|stamp| self.stamps.take_back(stream.device, stamp)),
        }
        let works = &mut self.records.works;
        self.stamps.look(ready, LOOKS, |work, span| works[work].ran = Some(span));
    }

    /// Notes that an event was recorded. The mark stands right behind it on the stream.
    fn record(&mut self, ready: &Started, event: u64, stream: TraceStream) {
        let at = self.stamps.now();
        let work = self.add(What::Record, Span { start: at, end: at }, stream.device, Some(stream), None, event);
        let Some(work) = work else { return };
        self.recorded.insert(event, work);
        if self.with_device_times {
            self.ran(ready, stream, None, work);
        }
    }

    /// Notes that a stream waits for an event.
    fn wait(&mut self, ready: &Started, event: u64, stream: TraceStream) {
        let Some(work) = self.done(ready, TraceKind::Event, What::Wait, stream, None, event) else { return };
        if let Some(record) = self.recorded.get(&event) {
            self.records.arrows.push((*record, work));
        }
    }

    /// Notes that the host has waited.
    fn waited(&mut self, what: What, device: DeviceIndex, stream: Option<TraceStream>, number: u64) {
        let end = self.stamps.now();
        // A copy that waits reports so when it was done, and has begun no wait of its own.
        let thread = self.thread();
        let begun = self.open[thread].last().is_some_and(|open| open.what == TraceKind::Synchronize);
        let start = if begun { self.ended(TraceKind::Synchronize).map_or(end, |open| open.at) } else { end };
        self.add(what, Span { start, end }, device, stream, None, number);
    }

    fn add(
        &mut self,
        what: What,
        called: Span,
        device: DeviceIndex,
        stream: Option<TraceStream>,
        name: Option<Arc<str>>,
        number: u64,
    ) -> Option<usize> {
        if self.is_full() {
            self.records.dropped += 1;
            return None;
        }
        let thread = self.thread();
        let stream = stream.map(|stream| self.stream(stream));
        self.records.works.push(Work { what, name, thread, called, device, stream, ran: None, number });
        Some(self.records.works.len() - 1)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the others leave no note")]
    fn note_memory(&mut self, ready: &Started, event: &TraceEvent) {
        let of_block = |action, TraceBlock { device, address, size, .. }: TraceBlock| (action, device, address, size);
        let of_segment =
            |action, TraceSegment { device, address, size, .. }: TraceSegment| (action, device, address, size);
        let (action, device, address, size) = match *event {
            TraceEvent::Allocated(block) => of_block("alloc", block),
            TraceEvent::FreeRequested(block) => of_block("free_requested", block),
            TraceEvent::FreeCompleted(block) => of_block("free_completed", block),
            TraceEvent::SegmentAllocated(segment) => of_segment("segment_alloc", segment),
            TraceEvent::SegmentFreed(segment) => of_segment("segment_free", segment),
            TraceEvent::SegmentMapped(segment) => of_segment("segment_map", segment),
            TraceEvent::SegmentUnmapped(segment) => of_segment("segment_unmap", segment),
            TraceEvent::OutOfMemory { device, size, .. } => ("oom", device, 0, size),
            _ => return,
        };
        if self.is_full() {
            self.records.dropped += 1;
            return;
        }
        let Ok(stats) = ready.allocator.stats(&ready.api, device) else { return };
        let (allocated, reserved) = (stats.allocated_bytes.all.current, stats.reserved_bytes.all.current);
        let (at, thread) = (self.stamps.now(), self.thread());
        self.records.memory.push(MemoryNote { at, thread, device, action, address, size, allocated, reserved });
    }

    fn is_full(&self) -> bool {
        self.records.works.len() + self.records.memory.len() >= self.most
    }

    /// The number of the calling thread.
    fn thread(&mut self) -> usize {
        let (names, open) = (&mut self.records.threads, &mut self.open);
        let current = thread::current();
        *self.threads.entry(current.id()).or_insert_with(|| {
            names.push(current.name().map_or_else(|| format!("thread {}", names.len()), str::to_owned));
            open.push(Vec::new());
            names.len() - 1
        })
    }

    fn stream(&mut self, stream: TraceStream) -> usize {
        let known = &mut self.records.streams;
        *self.streams.entry(stream).or_insert_with(|| {
            known.push(stream);
            known.len() - 1
        })
    }

    /// Notes nothing any more. Waits for the work that was noted, to know when it ran.
    pub(super) fn finish(&mut self, ready: Option<&Started>) -> Records {
        self.is_over = true;
        self.take_back_open();
        let works = &mut self.records.works;
        if let Some(ready) = ready {
            self.records.to_host = self.stamps.finish(ready, |work, span| works[work].ran = Some(span));
        }
        std::mem::take(&mut self.records)
    }

    /// Notes nothing any more, and waits for nothing.
    pub(super) fn discard(&mut self, ready: Option<&Started>) {
        if !self.is_over {
            self.is_over = true;
            self.take_back_open();
            ready.into_iter().for_each(|ready| self.stamps.discard(ready));
        }
    }

    fn take_back_open(&mut self) {
        for open in std::mem::take(&mut self.open).into_iter().flatten() {
            self.take_back(open);
        }
    }
}

fn reference(stream: TraceStream) -> StreamRef {
    StreamRef { device: stream.device, handle: StreamHandle(usize::try_from(stream.handle).unwrap_or(0)) }
}
