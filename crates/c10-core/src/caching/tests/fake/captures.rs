//! Captures: which streams take part, the nodes of the graph that they have come to, and the capture modes of threads.
//!
//! **Invariant:** the allocator asks only about nodes that a stream is at or that another node leads to.

use std::collections::{BTreeMap, HashMap};
use std::thread::ThreadId;

use crate::base::handles::{CaptureMode, CapturePoint, NodeHandle, StreamHandle};

/// Which streams capture.
#[derive(Clone, Copy, Default)]
pub(crate) enum Capturing {
    /// None.
    #[default]
    Nothing,
    /// The streams from a handle on take part in one capture.
    From {
        /// The lowest handle.
        first: usize,
        /// The number of the capture.
        id: u64,
    },
    /// Each stream takes part in a capture of its own, so that a scope can take the allocations of one stream.
    Each,
}

/// The number of the capture of a stream under [`Capturing::Each`]; 0 would be none.
pub(crate) fn own_capture(stream: StreamHandle) -> u64 {
    stream.0 as u64 + 1
}

/// Captures and their nodes.
#[derive(Default)]
pub(crate) struct Captures {
    /// Which streams capture now.
    pub(crate) capturing: Capturing,
    /// The nodes that streams have come to.
    points: BTreeMap<StreamHandle, Vec<NodeHandle>>,
    /// What nodes follow directly.
    edges: BTreeMap<NodeHandle, Vec<NodeHandle>>,
    /// The capture modes that threads have set.
    modes: HashMap<ThreadId, CaptureMode>,
}

impl Captures {
    /// A stream has come to these nodes.
    pub(crate) fn set_point(&mut self, stream: StreamHandle, nodes: Vec<NodeHandle>) {
        self.points.insert(stream, nodes);
    }

    /// A node directly follows these.
    pub(crate) fn set_edges(&mut self, node: NodeHandle, before: Vec<NodeHandle>) {
        self.edges.insert(node, before);
    }

    pub(super) fn id_of(&self, stream: StreamHandle) -> Option<u64> {
        match self.capturing {
            Capturing::Nothing => None,
            Capturing::From { first, id } => (stream.0 >= first).then_some(id),
            Capturing::Each => Some(own_capture(stream)),
        }
    }

    pub(super) fn point_of(&self, stream: StreamHandle) -> Option<CapturePoint> {
        let nodes = self.points.get(&stream).cloned().unwrap_or_default();
        self.id_of(stream).map(|capture| CapturePoint { capture, nodes })
    }

    pub(super) fn dependencies_of(&self, node: NodeHandle) -> Vec<NodeHandle> {
        let mut named = self.points.values().chain(self.edges.values()).flatten().chain(self.edges.keys());
        assert!(named.any(|known| *known == node), "no graph has {node:?}");
        self.edges.get(&node).cloned().unwrap_or_default()
    }

    pub(super) fn exchange_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        self.modes.insert(std::thread::current().id(), mode).unwrap_or_default()
    }
}
