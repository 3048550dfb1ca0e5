//! A graph that was captured: the driver's graph and its executable form, with what they need.
//!
//! **Invariants:** the pool counts one use for as long as the graph is not discarded. What the graph keeps alive is
//! freed only when the streams that it was replayed on have finished the replays. A driver object whose destruction
//! fails is not forgotten (`state/deferred_destroy.rs`).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use crate::api::graph::generator::Increments;
use crate::api::graph::replays;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GraphError, GraphNode, GraphUpdateError, Result};
use crate::base::handles::{NodeHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::base::warning::warning;
use crate::driver::{GraphExecHandle, GraphHandle, UpdateRefusal};
use crate::runtime::{Runtime, Started};
use crate::state::captures::Kept;
use crate::state::deferred_destroy::DriverObject;
use crate::state::holds::Held;
use crate::state::pool_pinned::PoolPinned;
use crate::thread;

/// What torch says when nothing was captured.
const EMPTY: &str = "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong \
                     device or stream.";

pub(crate) struct Captured {
    pub(crate) device: DeviceIndex,
    pub(crate) pool: PoolId,
    pub(crate) node_count: usize,
    /// The driver's graph, unless it was destroyed after it was instantiated.
    pub(crate) template: Option<GraphHandle>,
    pub(crate) exec: Option<GraphExecHandle>,
    pub(crate) kept: Kept,
    /// Pinned blocks that captures into the pool used, as long as the graph uses the pool.
    pinned: Option<Arc<PoolPinned>>,
    pub(crate) increments: Increments,
    /// Streams that may still be running a replay.
    replayed_on: BTreeSet<StreamRef>,
    /// The newest of them, which is nearly always the next one.
    replayed_last: Option<StreamRef>,
}

impl Captured {
    pub(crate) fn new(
        (device, pool): (DeviceIndex, PoolId),
        graph: GraphHandle,
        (kept, pinned): (Kept, Arc<PoolPinned>),
        increments: Increments,
    ) -> Self {
        Self {
            device,
            pool,
            node_count: 0,
            template: Some(graph),
            exec: None,
            kept,
            pinned: Some(pinned),
            increments,
            replayed_on: BTreeSet::new(),
            replayed_last: None,
        }
    }

    /// Finishes a capture of which the driver has made a graph: makes the graph executable, unless it is to be kept as
    /// it is.
    pub(crate) fn complete(&mut self, ready: &Started, keep_graph: bool, debug: bool) -> Result<()> {
        if let Some(graph) = self.template {
            self.node_count = ready.api.graph_node_count(graph)?;
        }
        if self.node_count == 0 {
            warning!("{EMPTY}");
        }
        if keep_graph {
            return Ok(());
        }
        self.instantiate(ready)?;
        if debug { Ok(()) } else { self.destroy_template(ready) }
    }

    /// Makes the executable form, in place of an earlier one.
    pub(crate) fn instantiate(&mut self, ready: &Started) -> Result<GraphExecHandle> {
        let graph = self.template.ok_or(Error::Graph(GraphError::InstantiateWithoutCapture))?;
        let _relaxed = ready.relaxed()?;
        ready.api.bind(self.device)?;
        let exec = ready.api.graph_instantiate(graph)?;
        ready.captures.count_exec(1);
        let old = self.exec.replace(exec);
        old.map_or(Ok(()), |old| destroy_exec(ready, old)).map(|()| exec)
    }

    /// The executable form, made if need be.
    #[inline]
    pub(crate) fn executable(&mut self, ready: &Started) -> Result<GraphExecHandle> {
        match self.exec {
            Some(exec) => Ok(exec),
            None => self.instantiate(ready),
        }
    }

    /// Queues the whole graph on the current stream of its device.
    #[inline]
    pub(crate) fn replay(&mut self, runtime: &Runtime) -> Result<()> {
        let ready = runtime.ready()?;
        let exec = self.executable(ready)?;
        let stream = thread::stream(runtime.id(), self.device).on(self.device);
        if !self.increments.is_empty() {
            self.increments.prologue(&runtime.streams().current(self.device)?)?;
        }
        ready.api.graph_launch(exec, stream).map_err(|error| ready.launches.explain(self.device, error))?;
        ready.launches.note_graph(stream);
        replays::count();
        if self.replayed_last != Some(stream) {
            self.note_replay(stream);
        }
        Ok(())
    }

    #[cold]
    fn note_replay(&mut self, stream: StreamRef) {
        self.replayed_on.insert(stream);
        self.replayed_last = Some(stream);
    }

    /// Moves what a launch needs to the device.
    pub(crate) fn upload(&mut self, ready: &Started, stream: StreamRef) -> Result<()> {
        let exec = self.executable(ready)?;
        ready.api.graph_upload(exec, stream)
    }

    /// Writes the driver's graph into a file, and destroys it afterwards unless it is kept. Returns whether there was
    /// one.
    pub(crate) fn dump(&mut self, ready: &Started, path: &Path, keep_graph: bool) -> Result<bool> {
        let Some(graph) = self.template else { return Ok(false) };
        let path = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::Graph(GraphError::PathWithNul { path: path.to_path_buf() }))?;
        ready.api.graph_debug_dot(graph, &path)?;
        if !keep_graph {
            self.destroy_template(ready)?;
        }
        Ok(true)
    }

    /// Updates the executable form with another captured graph of the same shape. If the driver refuses, nothing has
    /// changed.
    pub(crate) fn check_update(&mut self, ready: &Started, newer: &Self) -> Result<()> {
        let graph = newer.template.ok_or(Error::Graph(GraphError::NotKept))?;
        let exec = self.executable(ready)?;
        match ready.api.graph_exec_update(exec, graph)? {
            Ok(()) => Ok(()),
            Err(refusal) => Err(Error::Graph(GraphError::Update(Box::new(describe(ready, graph, &refusal))))),
        }
    }

    /// Becomes the graph that the executable form was updated with. Goes on after an error and returns the first one.
    pub(crate) fn become_updated(&mut self, ready: &Started, mut newer: Self, keep_graph: bool) -> Result<()> {
        std::mem::swap(&mut self.template, &mut newer.template);
        std::mem::swap(&mut self.kept, &mut newer.kept);
        std::mem::swap(&mut self.pool, &mut newer.pool);
        std::mem::swap(&mut self.pinned, &mut newer.pinned);
        std::mem::swap(&mut self.increments, &mut newer.increments);
        self.node_count = newer.node_count;
        // A replay that was queued before may be of either of them.
        self.replayed_on.append(&mut newer.replayed_on);
        newer.replayed_on.clone_from(&self.replayed_on);
        let surplus = if keep_graph { Ok(()) } else { self.destroy_template(ready) };
        newer.discard(ready).and(surplus)
    }

    fn destroy_template(&mut self, ready: &Started) -> Result<()> {
        self.template.take().map_or(Ok(()), |graph| ready.destroy(DriverObject::Graph(graph)))
    }

    /// Discards everything. Goes on after an error and returns the first one.
    pub(crate) fn discard(&mut self, ready: &Started) -> Result<()> {
        let relaxed = ready.relaxed();
        let exec = self.exec.take().map_or(Ok(()), |exec| destroy_exec(ready, exec));
        let graph = self.destroy_template(ready);
        let pool = ready.allocator.release_pool_of_graph(self.device, self.pool, &self.replayed_on);
        self.pinned = None;
        let kept = self.hold_for_replays(ready);
        relaxed.map(drop).and(exec).and(graph).and(pool).and(kept)
    }

    /// Keeps what the graph kept alive until the streams that may still replay it have finished.
    fn hold_for_replays(&mut self, ready: &Started) -> Result<()> {
        let kept = std::mem::take(&mut self.kept);
        if kept.is_empty() {
            return Ok(());
        }
        let kept: Held = Arc::new(kept);
        let streams = std::mem::take(&mut self.replayed_on).into_iter();
        let each = streams.map(|stream| ready.holds.hold(&ready.api, stream, Arc::clone(&kept)));
        let held = each.fold(Ok(()), Result::and);
        ready.sweep();
        held
    }
}

fn destroy_exec(ready: &Started, exec: GraphExecHandle) -> Result<()> {
    ready.captures.count_exec(-1);
    ready.destroy(DriverObject::GraphExec(exec))
}

/// Describes the driver's refusal, with the positions of the nodes in the new graph. What cannot be found out is left
/// out.
fn describe(ready: &Started, graph: GraphHandle, refusal: &UpdateRefusal) -> GraphUpdateError {
    let nodes = ready.api.graph_nodes(graph).unwrap_or_default();
    let describe = |node: NodeHandle| {
        let index = nodes.iter().position(|known| *known == node);
        ready.api.graph_node_type(node).ok().map(|kind| GraphNode { index, kind: kind.into() })
    };
    GraphUpdateError {
        reason: refusal.result.into(),
        node: refusal.node.and_then(describe),
        from: refusal.from.and_then(describe),
    }
}
