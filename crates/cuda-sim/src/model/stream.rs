//! Streams: orders of work.
//!
//! A stream is hardly more than the id of its last operation. The rules of the default streams are dependencies: work
//! on the legacy stream comes after all blocking streams of its context and before what they are given next.

use super::capture::Capturing;
use super::engine::{OpId, Timing};
use super::{Effect, State};
use crate::codes::{Answer, INVALID_HANDLE};

/// Which kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The context's stream 0, which orders itself with all blocking streams.
    Legacy,
    /// A default stream that one thread has to itself; blocking.
    PerThread,
    /// Made by the program; blocking unless its flags say otherwise.
    Created,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    pub(crate) last: Option<OpId>,
    /// The capture that its work goes into.
    pub(crate) capturing: Option<Capturing>,
    /// What the program was last told of the capture's dependencies; it may look at them until it asks again.
    pub(crate) told: Box<[usize]>,
}

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

impl Stream {
    pub(crate) fn new(context: u64, kind: Kind, flags: u32, priority: i32, id: u64) -> Self {
        Self { context, kind, flags, priority, id, last: None, capturing: None, told: Box::default() }
    }

    /// Whether it orders itself with the legacy stream.
    pub(crate) fn is_blocking(&self) -> bool {
        self.kind == Kind::PerThread || (self.kind == Kind::Created && self.flags & NON_BLOCKING == 0)
    }
}

impl State {
    pub(crate) fn stream(&self, key: u64) -> Answer<&Stream> {
        self.streams.get(&key).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn stream_mut(&mut self, key: u64) -> Answer<&mut Stream> {
        self.streams.get_mut(&key).ok_or(INVALID_HANDLE)
    }

    /// A thread's own default stream in a context, made when first asked for.
    pub(crate) fn per_thread_stream(&mut self, context: u64, thread: u64) -> Option<u64> {
        if let Some(&key) = self.default_streams(context)?.per_thread.get(&thread) {
            return Some(key);
        }
        let key = self.new_handle();
        let stream = Stream::new(context, Kind::PerThread, 0, 0, self.new_id());
        self.streams.insert(key, stream);
        self.default_streams_mut(context)?.per_thread.insert(thread, key);
        Some(key)
    }

    /// What new work on a stream comes after, as far as it is not done.
    pub(crate) fn predecessors(&self, key: u64) -> Answer<Vec<OpId>> {
        let mut before = self.all_predecessors(key)?;
        before.retain(|&op| self.is_pending(op));
        Ok(before)
    }

    /// What new work on a stream comes after.
    pub(super) fn all_predecessors(&self, key: u64) -> Answer<Vec<OpId>> {
        let stream = self.stream(key)?;
        let mut before: Vec<OpId> = stream.last.into_iter().collect();
        let defaults = self.default_streams(stream.context).ok_or(INVALID_HANDLE)?;
        if stream.is_blocking() {
            before.extend(self.stream(defaults.legacy)?.last);
        }
        if stream.kind == Kind::Legacy {
            before.extend(&defaults.orphans);
            let blocking = |other: &&Stream| other.context == stream.context && other.is_blocking();
            before.extend(self.streams.values().filter(blocking).filter_map(|other| other.last));
        }
        Ok(before)
    }

    /// Queues work on a stream, after everything that is there and after `also`.
    pub(crate) fn enqueue(&mut self, key: u64, also: &[OpId], timing: Timing, effect: Effect) -> Answer<OpId> {
        let mut before = self.all_predecessors(key)?;
        before.extend(also);
        let context = self.stream(key)?.context;
        let is_launch = effect.is_launch();
        self.check_aliases(context, &before, &effect);
        self.note_queued(self.engine.next(), (Some(key), None), &before, &effect);
        let op = self.engine.submit(self.clock_ns, context, &before, timing, effect);
        self.stream_mut(key)?.last = Some(op);
        self.check_order(op);
        if is_launch {
            self.note_launch(context, op);
        }
        Ok(op)
    }

    /// The call under way has queued work that it must wait for when launches block.
    pub(crate) fn note_launch(&mut self, context: u64, op: OpId) {
        if self.config.launch_blocking {
            self.launched = Some((context, op));
        }
    }

    /// Takes a stream away; its work goes on.
    pub(crate) fn forget_stream(&mut self, key: u64) {
        let Some(stream) = self.streams.remove(&key) else { return };
        let pending = stream.last.filter(|&op| self.engine.is_pending(op));
        let orphan = pending.filter(|_| stream.is_blocking());
        let left: Vec<OpId> = self.default_streams(stream.context).map_or_else(Vec::new, |defaults| {
            let orphans = defaults.orphans.iter().copied().filter(|&op| self.is_pending(op));
            orphans.chain(orphan).collect()
        });
        if let Some(defaults) = self.default_streams_mut(stream.context) {
            defaults.orphans = left;
        }
    }

    /// Whether everything on a stream is done; for the legacy stream, everything it orders itself with.
    pub(crate) fn stream_is_idle(&self, key: u64) -> bool {
        self.predecessors(key).is_ok_and(|before| before.is_empty())
    }
}
