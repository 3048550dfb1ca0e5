//! What a runtime does, as ranges and marks of a profiler: launches, copies, graphs, waits, and memory.
//!
//! **Invariants:** ranges lie in a domain of their own, and are begun and ended by number: what fails leaves the ranges of
//! the program as they are. Without a tool nothing listens.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Attributes, Domain, Payload, RangeId};
use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::sync::lock;
use crate::trace::{SubscriptionId, TraceEvent, TraceKind, TraceKinds};

/// Things that one thread has begun, at most; more of them have failed.
const OPEN_MAX: usize = 16;

/// The subscription of a runtime.
#[derive(Debug, Default)]
struct Emitter(Mutex<Option<SubscriptionId>>);

thread_local! {
    /// What this thread has begun and not done.
    static OPEN: RefCell<Vec<(TraceKind, RangeId)>> = const { RefCell::new(Vec::new()) };
}

/// Shows the launches, copies, fills, replays, captures and waits of the current runtime as ranges of the domain
/// `torch-cuda`, and what happens to device memory as marks with the bytes as their payload; or ends that. Like torch's
/// `emit_nvtx`, with kernels in the place of operators. Returns whether ranges are shown, which needs a tool.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// assert!(!c10_core::nvtx::emit_ranges(true), "no tool is attached here, and nothing listens");
/// ```
pub fn emit_ranges(on: bool) -> bool {
    let runtime = Runtime::current();
    let emitter = runtime.extension::<Emitter>();
    let mut subscription = lock(&emitter.0);
    match *subscription {
        Some(id) if !on => {
            runtime.unsubscribe(id);
            *subscription = None;
        }
        None if on && super::attached().is_some() => *subscription = Some(subscribe(&runtime)),
        _ => {}
    }
    subscription.is_some()
}

fn subscribe(runtime: &Runtime) -> SubscriptionId {
    let domain = Arc::new(Domain::new("torch-cuda"));
    let kinds = TraceKinds::from(TraceKind::Begin).and(TraceKind::Launch).and(TraceKind::Copy).and(TraceKind::Graph);
    let kinds = kinds.and(TraceKind::Event).and(TraceKind::Synchronize).and(TraceKind::Memory);
    let weak = runtime.downgrade();
    runtime.subscribe(kinds, move |event| {
        if let Some(runtime) = Runtime::upgrade(&weak) {
            show(&runtime, &domain, event);
        }
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most events are no range")]
fn show(runtime: &Runtime, domain: &Domain, event: &TraceEvent) {
    match *event {
        TraceEvent::Begun { what, .. } => {
            let named = runtime.traced_name(event);
            begin(domain, what, named.as_deref().unwrap_or_else(|| name_of(what)));
        }
        TraceEvent::CaptureBegun(_) => begin(domain, TraceKind::Stream, "capture"),
        TraceEvent::CaptureEnded(_) => end(domain, TraceKind::Stream),
        TraceEvent::Launched { .. }
        | TraceEvent::LibraryQueued { .. }
        | TraceEvent::Copied { .. }
        | TraceEvent::Filled { .. }
        | TraceEvent::GraphReplayed { .. }
        | TraceEvent::EventWaited { .. }
        | TraceEvent::EventSynchronized { .. }
        | TraceEvent::StreamSynchronized(_)
        | TraceEvent::DeviceSynchronized(_) => end(domain, event.kind()),
        TraceEvent::Allocated(block) => mark(domain, "alloc", block.size),
        TraceEvent::FreeRequested(block) => mark(domain, "free", block.size),
        TraceEvent::SegmentAllocated(segment) => mark(domain, "segment_alloc", segment.size),
        TraceEvent::SegmentFreed(segment) => mark(domain, "segment_free", segment.size),
        TraceEvent::SegmentMapped(segment) => mark(domain, "segment_map", segment.size),
        TraceEvent::SegmentUnmapped(segment) => mark(domain, "segment_unmap", segment.size),
        TraceEvent::OutOfMemory { size, .. } => mark(domain, "out of memory", size),
        _ => {}
    }
}

/// The range of what has no name of its own.
fn name_of(what: TraceKind) -> &'static str {
    match what {
        TraceKind::Launch => "launch",
        TraceKind::Copy => "copy",
        TraceKind::Graph => "graph replay",
        TraceKind::Event => "event wait",
        TraceKind::Synchronize => "synchronize",
        TraceKind::Memory
        | TraceKind::Pinned
        | TraceKind::Stream
        | TraceKind::Begin
        | TraceKind::Access
        | TraceKind::Order => "work",
    }
}

fn mark(domain: &Domain, text: &str, bytes: u64) {
    domain.mark(text, Attributes::default().payload(Payload::U64(bytes)));
}

fn begin(domain: &Domain, what: TraceKind, name: &str) {
    let id = domain.range_start(name, Attributes::default());
    let failed = OPEN.with_borrow_mut(|open| {
        open.push((what, id));
        (open.len() > OPEN_MAX).then(|| open.remove(0).1)
    });
    failed.into_iter().for_each(|id| domain.range_end(id));
}

/// Ends the range of a sort that this thread began last, and those of what has failed since. Work inside of a capture or of
/// a copy that waits reports more than it has begun.
fn end(domain: &Domain, what: TraceKind) {
    let ended = OPEN.with_borrow_mut(|open| {
        let at = open.iter().rposition(|(begun, _)| *begun == what);
        at.map(|at| open.split_off(at))
    });
    for (_, id) in ended.into_iter().flatten().rev() {
        domain.range_end(id);
    }
}
