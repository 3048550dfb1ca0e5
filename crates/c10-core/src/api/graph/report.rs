//! What a graph holds, for people who want to know where their memory is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::api::buffers::DeviceMemory;
use crate::api::graph::captured::Captured;
use crate::api::pinned::KeptBlock;
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{GraphNodeKind, Result};
use crate::base::ids::PoolId;
use crate::base::size::Size;
use crate::driver::GraphHandle;
use crate::runtime::Started;

/// What a graph holds. Sizes are bytes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::new(), Stream::new(None, 0)?, DeviceBuffer::new(512, None)?);
/// graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(.., 7, &stream))?;
/// let report = graph.report()?;
/// assert_eq!((report.node_count, report.kept_buffers, report.kept_bytes), (1, 1, 512));
/// assert!(report.to_string().starts_with("graph of 1 nodes on cuda:0, instantiated; pool "));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GraphReport {
    /// Device the graph was captured on.
    pub device: DeviceIndex,
    /// The memory pool, which other graphs may share; the next three sizes are of the whole pool.
    pub pool: PoolId,
    /// Held from the driver.
    pub reserved_bytes: u64,
    /// Handed out.
    pub allocated_bytes: u64,
    /// Handed out or still used by another stream.
    pub active_bytes: u64,
    /// Buffers outside the pool that captured work uses; the graph keeps them alive.
    pub kept_buffers: usize,
    /// Their size.
    pub kept_bytes: u64,
    /// Blocks of pinned memory that the graph keeps alive.
    pub kept_host_blocks: usize,
    /// Their size.
    pub kept_host_bytes: u64,
    /// Number of nodes; those of child graphs and bodies do not count.
    pub node_count: usize,
    /// The nodes by what they do. `None` where the driver's graph was destroyed after the capture, as it is without
    /// `keep_graph`.
    pub nodes: Option<BTreeMap<GraphNodeKind, usize>>,
    /// Whether there is an executable form.
    pub is_instantiated: bool,
    /// Executable graphs of the whole runtime.
    pub live_execs: usize,
}

impl fmt::Display for GraphReport {
    /// One line: where the graph is, its nodes, and the memory that it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_instantiated { "instantiated" } else { "not instantiated" };
        write!(f, "graph of {} nodes on {}, {state}; ", self.node_count, Device::cuda(self.device))?;
        write!(f, "pool {}: {} of {} in use; ", self.pool, Size(self.active_bytes), Size(self.reserved_bytes))?;
        write!(f, "keeps {} in {} buffers ", Size(self.kept_bytes), self.kept_buffers)?;
        write!(f, "and {} in {} pinned blocks", Size(self.kept_host_bytes), self.kept_host_blocks)
    }
}

impl GraphReport {
    pub(crate) fn of(ready: &Started, graph: &Captured) -> Result<Self> {
        let segments = ready.allocator.snapshot(Some(graph.pool));
        let segments = segments.iter().filter(|segment| segment.device == graph.device);
        let mut pool = [0, 0, 0];
        for segment in segments {
            let sizes = [segment.total_size, segment.allocated_size, segment.active_size];
            pool.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size);
        }
        let buffers: Vec<u64> =
            graph.kept.iter().filter_map(|(_, held)| Some(held.downcast_ref::<DeviceMemory>()?.bytes())).collect();
        let blocks: BTreeSet<(usize, usize)> =
            graph.kept.iter().filter_map(|(_, held)| Some(held.downcast_ref::<KeptBlock>()?.place())).collect();
        Ok(Self {
            device: graph.device,
            pool: graph.pool,
            reserved_bytes: pool[0],
            allocated_bytes: pool[1],
            active_bytes: pool[2],
            kept_buffers: buffers.len(),
            kept_bytes: buffers.iter().sum(),
            kept_host_blocks: blocks.len(),
            kept_host_bytes: blocks.iter().map(|(_, size)| *size as u64).sum(),
            node_count: graph.node_count,
            nodes: graph.template.map(|template| count_kinds(ready, template)).transpose()?,
            is_instantiated: graph.exec.is_some(),
            live_execs: ready.captures.exec_count(),
        })
    }
}

fn count_kinds(ready: &Started, graph: GraphHandle) -> Result<BTreeMap<GraphNodeKind, usize>> {
    let mut kinds = BTreeMap::new();
    for node in ready.api.graph_nodes(graph)? {
        *kinds.entry(GraphNodeKind::from(ready.api.graph_node_type(node)?)).or_insert(0) += 1;
    }
    Ok(kinds)
}
