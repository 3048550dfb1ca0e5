//! Stream capture: work goes into a graph instead of a queue.
//!
//! A capture begins on one stream, spreads to others by events, and ends where it began. Every stream in it has a set
//! of nodes that its next node comes after: what it did last, and what it waited for since. Waiting adds to the set,
//! nothing is ever reduced.
//!
//! Invariant: a stream names a capture exactly while that capture is in the table.

use std::collections::BTreeSet;

use super::State;
use super::graph::{Graph, GraphId, NodeId, NodeKind};
use super::stream::{Kind, Stream};
use crate::codes::{
    Answer, CAPTURED_EVENT, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: no thread may make unsafe calls.
pub(crate) const MODE_GLOBAL: u32 = 0;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: every call may be made.
pub(crate) const MODE_RELAXED: u32 = 2;

/// A capture that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) mode: u32,
    thread: u64,
    /// The stream it began on.
    origin: u64,
    pub(crate) graph: GraphId,
    /// Whether the program owns the graph already.
    pub(crate) into_existing: bool,
    /// Nodes that the capture added.
    nodes: BTreeSet<NodeId>,
    /// A forbidden call was made: nothing can be captured any more.
    pub(crate) invalidated: bool,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Capturing {
    pub(crate) capture: u64,
    pub(crate) dependencies: Vec<NodeId>,
}

impl Capturing {
    fn depend_on(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            if !self.dependencies.contains(&node) {
                self.dependencies.push(node);
            }
        }
    }
}

impl State {
    /// Begins a capture on a stream, into a new graph or after `dependencies` of one that is there.
    pub(crate) fn begin_capture(
        &mut self,
        key: u64,
        mode: u32,
        thread: u64,
        existing: Option<(GraphId, Vec<NodeId>)>,
    ) -> Answer {
        let stream = self.stream(key)?;
        if stream.kind == Kind::Legacy {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        if mode > MODE_RELAXED {
            return Err(INVALID_VALUE);
        }
        if stream.capturing.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let id = self.new_id();
        let into_existing = existing.is_some();
        let (graph, dependencies) = match existing {
            Some(existing) => existing,
            None => (self.new_graph(), Vec::new()),
        };
        let nodes = BTreeSet::new();
        let capture = Capture { mode, thread, origin: key, graph, into_existing, nodes, invalidated: false };
        self.captures.insert(id, capture);
        self.stream_mut(key)?.capturing = Some(Capturing { capture: id, dependencies });
        Ok(())
    }

    /// Makes an empty graph.
    pub(crate) fn new_graph(&mut self) -> GraphId {
        let id = GraphId(self.new_handle());
        self.graphs.insert(id.0, Graph::new(id));
        id
    }

    /// Ends the capture that began on a stream. The capture is over unless the stream is not the one it began on.
    pub(crate) fn end_capture(&mut self, key: u64, thread: u64) -> Answer<GraphId> {
        let capturing = self.stream(key)?.capturing.clone().ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.get_mut(&capturing.capture).ok_or(ILLEGAL_STATE)?;
        if capture.origin != key {
            capture.invalidated = true;
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        let (mode, begun_by) = (capture.mode, capture.thread);
        let answer = if capture.invalidated {
            Err(STREAM_CAPTURE_INVALIDATED)
        } else if mode != MODE_RELAXED && begun_by != thread {
            Err(STREAM_CAPTURE_WRONG_THREAD)
        } else if self.has_unjoined_work(&capturing) {
            Err(STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(())
        };
        let graph = self.drop_capture(capturing.capture, answer.is_ok()).ok_or(ILLEGAL_STATE)?;
        answer.map(|()| graph)
    }

    fn has_unjoined_work(&self, origin: &Capturing) -> bool {
        let Some(capture) = self.captures.get(&origin.capture) else { return false };
        let Ok(graph) = self.graph(capture.graph.0) else { return false };
        graph.sinks().iter().any(|sink| capture.nodes.contains(sink) && !origin.dependencies.contains(sink))
    }

    /// Forgets a capture; its graph stays when it is wanted or was there before.
    fn drop_capture(&mut self, id: u64, keep_graph: bool) -> Option<GraphId> {
        let capture = self.captures.remove(&id)?;
        for stream in self.streams.values_mut() {
            stream.capturing.take_if(|capturing| capturing.capture == id);
        }
        if !keep_graph && !capture.into_existing {
            self.graphs.remove(&capture.graph.0);
            self.forget_graph_addresses();
        }
        Some(capture.graph)
    }

    /// A stream that captures is taken away: the capture that began on it is over.
    pub(crate) fn end_capture_with_stream(&mut self, key: u64) {
        let begun_here = self.captures.iter().find(|(_, capture)| capture.origin == key).map(|(&id, _)| id);
        if let Some(id) = begun_here {
            self.drop_capture(id, false);
        }
    }

    pub(crate) fn invalidate_capture(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.invalidated = true;
        }
    }

    /// The capture that a stream is in.
    pub(crate) fn capture_of(&self, key: u64) -> Option<&Capture> {
        self.captures.get(&self.streams.get(&key)?.capturing.as_ref()?.capture)
    }

    /// Refuses a call that could not be replayed, in the modes that forbid it to this thread.
    pub(crate) fn refuse_unsafe(&mut self, thread: u64) -> Answer {
        let thread_mode = self.threads.get(&thread).map_or(MODE_GLOBAL, |thread| thread.capture_mode);
        if thread_mode == MODE_RELAXED {
            return Ok(());
        }
        let mut refused = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == thread && capture.mode != MODE_RELAXED;
            let global = thread_mode == MODE_GLOBAL && capture.mode == MODE_GLOBAL;
            if own || global {
                capture.invalidated = true;
                refused = true;
            }
        }
        if refused { Err(STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Captures that work on the legacy stream would have to wait for.
    fn implicit_captures(&self, key: u64) -> Vec<u64> {
        let Some(legacy) = self.streams.get(&key).filter(|stream| stream.kind == Kind::Legacy) else {
            return Vec::new();
        };
        let blocking = |stream: &&Stream| stream.context == legacy.context && stream.is_blocking();
        let captures = self.streams.values().filter(blocking).filter_map(|stream| stream.capturing.as_ref());
        captures.map(|capturing| capturing.capture).collect()
    }

    /// Refuses use of the legacy stream while a stream that it orders itself with is captured.
    pub(crate) fn refuse_implicit(&mut self, key: u64) -> Answer {
        let captures = self.implicit_captures(key);
        for &id in &captures {
            self.invalidate_capture(id);
        }
        if captures.is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_IMPLICIT) }
    }

    /// As [`State::refuse_implicit`], but does no harm to the capture.
    pub(crate) fn refuse_implicit_query(&self, key: u64) -> Answer {
        if self.implicit_captures(key).is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses waiting for a stream that is captured, or for any when the mode forbids it.
    pub(crate) fn refuse_stream_wait(&mut self, key: u64, thread: u64) -> Answer {
        self.refuse_implicit(key)?;
        if let Some(capturing) = self.stream(key)?.capturing.clone() {
            self.invalidate_capture(capturing.capture);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_unsafe(thread)
    }

    /// Refuses waiting for a context in which anything is captured.
    pub(crate) fn refuse_while_capturing_anywhere(&mut self, context: u64) -> Answer {
        let in_context = self.streams.values().filter(|stream| self.is_within(stream.context, context));
        let captures: Vec<u64> = in_context.filter_map(|stream| Some(stream.capturing.as_ref()?.capture)).collect();
        for &id in &captures {
            self.invalidate_capture(id);
        }
        if captures.is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Refuses asking for an event that stands for captured work.
    pub(crate) fn refuse_captured_event(&mut self, handle: u64) -> Answer {
        let Some((capture, _)) = self.event(handle)?.captured.clone() else { return Ok(()) };
        if !self.captures.contains_key(&capture) {
            return Err(INVALID_VALUE);
        }
        self.invalidate_capture(capture);
        Err(CAPTURED_EVENT)
    }

    /// Puts work into the graph that a stream captures. False when it captures none.
    pub(crate) fn capture_node(
        &mut self,
        key: u64,
        kind: impl FnOnce(&mut Self) -> Answer<NodeKind<Graph>>,
    ) -> Answer<bool> {
        self.refuse_implicit(key)?;
        let Some(capturing) = self.stream(key)?.capturing.clone() else { return Ok(false) };
        let capture = self.captures.get(&capturing.capture).ok_or(INVALID_HANDLE)?;
        if capture.invalidated {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let graph = capture.graph;
        let kind = kind(self)?;
        let node = NodeId(self.new_handle());
        self.graph_mut(graph.0).map_err(|_| INVALID_HANDLE)?.add(kind, &capturing.dependencies, node)?;
        if let Some(capture) = self.captures.get_mut(&capturing.capture) {
            capture.nodes.insert(node);
        }
        self.stream_mut(key)?.capturing = Some(Capturing { dependencies: vec![node], ..capturing });
        Ok(true)
    }

    /// Lets an event stand for what a capturing stream has done. False when the stream captures nothing.
    pub(crate) fn capture_event(&mut self, event: u64, key: u64) -> Answer<bool> {
        self.refuse_implicit(key)?;
        let Some(capturing) = self.stream(key)?.capturing.clone() else { return Ok(false) };
        if self.captures.get(&capturing.capture).is_some_and(|capture| capture.invalidated) {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let event = self.event_mut(event)?;
        event.recording = None;
        event.captured = Some((capturing.capture, capturing.dependencies));
        Ok(true)
    }

    /// Makes a stream wait for an event inside a capture. False when neither has to do with one.
    pub(crate) fn capture_wait(&mut self, key: u64, event: u64) -> Answer<bool> {
        let captured = self.event(event)?.captured.clone();
        let recorded = self.event(event)?.recording.is_some();
        let capturing = self.stream(key)?.capturing.clone();
        if let Some(capturing) = &capturing
            && self.captures.get(&capturing.capture).is_some_and(|capture| capture.invalidated)
        {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        match (capturing, captured) {
            (None, None) => Ok(false),
            (Some(_), None) if !recorded => Ok(true),
            (Some(capturing), None) => {
                self.invalidate_capture(capturing.capture);
                Err(STREAM_CAPTURE_ISOLATION)
            }
            (_, Some((capture, _))) if !self.captures.contains_key(&capture) => Err(INVALID_VALUE),
            (None, Some((capture, nodes))) => self.join_capture(key, capture, nodes),
            (Some(mut capturing), Some((capture, nodes))) if capturing.capture == capture => {
                capturing.depend_on(&nodes);
                self.stream_mut(key)?.capturing = Some(capturing);
                Ok(true)
            }
            (Some(capturing), Some((capture, _))) => {
                self.invalidate_capture(capturing.capture);
                self.invalidate_capture(capture);
                Err(STREAM_CAPTURE_MERGE)
            }
        }
    }

    fn join_capture(&mut self, key: u64, capture: u64, dependencies: Vec<NodeId>) -> Answer<bool> {
        if self.stream(key)?.kind == Kind::Legacy {
            self.invalidate_capture(capture);
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        if self.captures.get(&capture).is_some_and(|capture| capture.invalidated) {
            return Err(INVALID_VALUE);
        }
        self.stream_mut(key)?.capturing = Some(Capturing { capture, dependencies });
        Ok(true)
    }

    /// Changes what the next captured node of a stream comes after.
    pub(crate) fn update_capture(&mut self, key: u64, nodes: Vec<NodeId>, replace: bool) -> Answer {
        let capturing = self.stream(key)?.capturing.clone().ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.get(&capturing.capture).ok_or(ILLEGAL_STATE)?;
        if capture.invalidated {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let graph = self.graph(capture.graph.0).map_err(|_| INVALID_HANDLE)?;
        nodes.iter().try_for_each(|&node| graph.node(node).map(|_| ()))?;
        if replace && let Some(capture) = self.captures.get_mut(&capturing.capture) {
            // What the program drops from the set need not be joined any more.
            capture.nodes.retain(|node| !capturing.dependencies.contains(node) || nodes.contains(node));
        }
        let stream = self.stream_mut(key)?;
        if let Some(capturing) = &mut stream.capturing {
            if replace {
                capturing.dependencies.clear();
            }
            capturing.depend_on(&nodes);
        }
        Ok(())
    }
}
